"""Tests of `tfrl.exporting.export.verify`: golden outputs, kept inside a model."""

import json
import shutil
import zipfile

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl.core import specs
from tfrl.exporting import _golden, endpoints, export
from tfrl.saving import typed_json

S = gym.spaces
KINDS = {"folder": "model", "keras": "model.keras", "litert": "model.tflite"}
ENDPOINTS = {"folder": "serving_default", "keras": "call", "litert": "serving_default"}
MEMBER = "tfrl_golden.json"
WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    inputs = keras.Input([3], name="x")
    scores = keras.layers.Dense(2)(inputs)
    model = keras.Model({"x": inputs}, {"scores": scores, "sums": inputs[:, 0] + 1})
    for name in KINDS.values():
        export.export_model(model, folder / name)
    assert sorted(path.name for path in folder.iterdir()) == sorted(KINDS.values())
    return folder


@pytest.fixture
def copied(models, tmp_path):
    def copy(kind):
        source, path = models / KINDS[kind], tmp_path / KINDS[kind]
        (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
        return path

    return copy


def rewrite(path, change):
    """Changes the record in a model and leaves all else."""
    if path.is_dir():
        member = path / "assets.extra" / MEMBER
        record = typed_json.from_json(member.read_text())
        change(record)
        member.write_text(typed_json.to_json(record))
        return
    with zipfile.ZipFile(path) as archive:
        record = typed_json.from_json(archive.read(MEMBER))
        start = archive.getinfo(MEMBER).header_offset
        others = {n: archive.read(n) for n in archive.namelist() if n != MEMBER}
    change(record)
    if path.suffix == ".keras":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:start])
        others = {}
    with zipfile.ZipFile(path, "a") as archive:
        for name, data in {**others, MEMBER: typed_json.to_json(record)}.items():
            archive.writestr(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_outputs(copied, kind):
    path, endpoint = copied(kind), ENDPOINTS[kind]
    found = export.verify(str(path))
    assert list(found) == [endpoint] and found[endpoint] < 1e-6

    def change(record):
        record["endpoints"][endpoint]["outputs"]["scores"][1, 0] += 0.25

    rewrite(path, change)
    message = f"`verify`: endpoint '{endpoint}' expected its golden outputs "
    message += r"within 1e-05 .*; got a difference of 0\.25 in 'scores'"
    with pytest.raises(ValueError, match=message):
        export.verify(path)
    assert 0.24 < export.verify(path, tolerance=0.5)[endpoint] < 0.26
    rewrite(path, lambda record: record.update(tolerance=0.5))
    export.verify(path)


@pytest.mark.parametrize("kind", [*KINDS][:1] + default_rows.slow(*[*KINDS][1:]))
def test_damaged_models(copied, kind):
    path, part = copied(kind), "model"
    if kind == "keras":
        part = "config.json"
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data + b" " * (name == part))
    else:
        file = path / WEIGHTS if kind == "folder" else path
        part = WEIGHTS if kind == "folder" else "model"
        data = bytearray(file.read_bytes())
        data[40] ^= 1
        file.write_bytes(data)
    with pytest.raises(ValueError, match=f"`verify`: `path` .*the '{part}' .*ot"):
        export.verify(path)


def test_a_folder_of_models(models, tmp_path):
    shutil.copytree(models / KINDS["folder"], tmp_path / "1")
    with pytest.raises(ValueError, match="a folder of models; give one, such as .*/1'"):
        export.verify(tmp_path)


@pytest.mark.parametrize("name", ["policy", *default_rows.slow("policy.tflite")])
def test_a_record_tells_what_was_exported(tmp_path, name):
    path, spaces = tmp_path / name, (S.Box(-1.0, 1.0, (3,)), S.Discrete(2))
    agent = tfrl.agents.DQN(hidden_units=(2,)).create(*spaces, seed=0)
    export.export_policy(agent, path, *spaces, metadata={"run": "seven", "step": 94})
    record = _golden.read("verify", path)
    assert record["about"] == {
        "agent": "DQNAgent",
        "policy": "ActionValuePolicy",
        "observation_space": "Box(-1.0, 1.0, (3,), float32)",
        "action_space": "Discrete(2)",
        "metadata": {"run": "seven", "step": 94},
    }
    assert record["versions"]["tfrl"] == tfrl.__version__
    rewrite(path, lambda record: record.pop("about"))  # as of earlier versions
    assert export.verify(path)["serving_default"] == 0.0
    with pytest.raises(TypeError, match="`metadata` expected a dictionary"):
        export.export_policy(agent, path, *spaces, metadata="seven", overwrite=True)


def test_missing_files_and_further_ones(copied):
    path = copied("folder")
    (path / "assets.extra" / "warmup").write_text("of the server")
    export.verify(path)
    (path / "variables" / "variables.index").unlink()
    with pytest.raises(ValueError, match="'variables/variables.index' .*got nothing"):
        export.verify(path)
    with pytest.raises(ValueError, match="`verify`: `path` expected what `export_mod"):
        export.verify("absent")


def strange(record):
    for golden in record["endpoints"].values():
        golden["inputs"] = {"strange": np.zeros([8, 1], np.int8)}


def renamed(record):
    record["endpoints"]["act"] = record["endpoints"].pop("serving_default")


def emptied(record):
    record["endpoints"]["serving_default"] = {}


def inputs_of_numbers(record):
    record["endpoints"]["serving_default"]["inputs"] = 3


def outputs_missing(record):
    record["endpoints"]["serving_default"]["outputs"] = {"y": 1}


def later(record):
    record["format"] = 2


RECORDS = {
    strange: "golden inputs that it takes",
    renamed: r"an endpoint 'act'; got \['serving_default'\]",
    emptied: "undamaged golden outputs",
    inputs_of_numbers: "undamaged golden outputs",
    outputs_missing: "undamaged golden outputs",
    later: "undamaged golden outputs of format 1",
}


@pytest.mark.parametrize("change", RECORDS, ids=lambda change: change.__name__)
def test_records_that_do_not_fit(copied, change):
    path = copied("folder")
    record = json.loads((path / "assets.extra" / MEMBER).read_text())
    assert list(record["endpoints"]) == ["serving_default"]
    assert set(record["versions"]) >= {"python", "keras", "numpy", "tensorflow"}
    rewrite(path, change)
    with pytest.raises(
        ValueError, match=f"(?s)`verify`: .* expected .*{RECORDS[change]}"
    ):
        export.verify(path)


def with_member(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(MEMBER, content)
    return bytearray(path.read_bytes())


def damaged(path, method):
    data = with_member(path, b"some text " * 1000, method)
    data[60:90] = bytes(30)
    return data


def of_unknown_method(path):
    data = with_member(path, b"{}")
    data[8] = data[data.rindex(b"PK\x01\x02") + 10] = 99
    return data


KINDS_OF_OTHERS = (
    b'{"format":1,"tolerance":"a","xla_ops":[],"digests":[1],"endpoints":3}'
)
HOSTILE = {
    "deflate": lambda path: damaged(path, zipfile.ZIP_DEFLATED),
    "lzma": lambda path: damaged(path, zipfile.ZIP_LZMA),
    "method": of_unknown_method,
    "large": lambda path: with_member(path, bytes(3000)),
    "cut": lambda path: with_member(path, b'{"format": 1'),
    "nothing": lambda path: with_member(path, b'{"format": 1}'),
    "list": lambda path: with_member(path, b"[1]"),
    "kinds": lambda path: with_member(path, KINDS_OF_OTHERS),
    "no member": lambda path: b"flat buffer",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_records(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(_golden, "_MOST_BYTES", 2000)
    path = tmp_path / "m.keras"
    path.write_bytes(HOSTILE[kind](path))
    with pytest.raises(
        ValueError, match="(?s)`verify`: `path` expected what `export_m"
    ):
        export.verify(path)


def test_tolerance_is_checked_and_kept(tmp_path):
    for tolerance in (-1e-5, 2.0, np.nan):
        with pytest.raises(ValueError, match="`export_model`: `tolerance` expected"):
            export.export_model(tf.abs, tmp_path / "m", tolerance=tolerance)
        with pytest.raises(ValueError, match="`verify`: `tolerance` expected"):
            export.verify(tmp_path / "m", tolerance=tolerance)
    noisy = endpoints.Endpoint(
        lambda x: {"y": x + 1e-3 * tf.random.uniform([])}, {"x": tf.TensorSpec([None])}
    )
    export.export_model(noisy, tmp_path / "m", tolerance=1e-2)
    assert 0.0 < export.verify(tmp_path / "m")["serving_default"] < 1e-2
    with pytest.raises(ValueError, match="`verify`: endpoint 'serving_default'"):
        export.verify(tmp_path / "m", tolerance=1e-6)


BOUNDS = {
    "unit": (tf.float32, -1.0, 1.0),
    "half precision": (tf.bfloat16, 0.1, 0.5),
    "far": (tf.float64, 1e6, 1e6 + 1),
    "wide": (tf.float32, -3e38, 3e38),
    "half open": (tf.float32, 2.0, np.inf),
    "single elements": (tf.float32, [[0], [100], [5]], [[1], [101], [6]]),
    "pixels": (tf.uint8, 0, 255),
    "all int64": (tf.int64, -(2**63), 2**63 - 1),
    "late uint64": (tf.uint64, 2**64 - 2, 2**64 - 1),
    "allowed": (tf.bool, True, True),
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_examples_are_within_bounds(kind):
    dtype, low, high = BOUNDS[kind]
    spec = specs.BoundedTensorSpec([None, 3, None], dtype, low, high)
    array = _golden.example(spec, np.random.default_rng(0))
    assert array.shape == (8, 3, 5)
    assert array.dtype == dtype.as_numpy_dtype
    assert np.all(array >= spec.minimum) and np.all(array <= spec.maximum)
    if dtype != tf.bool:
        assert len(np.unique(array)) > 1


@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.float64, tf.int32, tf.uint8, tf.bool], ids=lambda x: x.name
)
def test_examples_without_bounds(dtype):
    array = _golden.example(tf.TensorSpec([None, 20], dtype), np.random.default_rng(0))
    assert array.dtype == dtype.as_numpy_dtype
    if dtype.is_floating:
        assert np.all(array[0] == 0) and 0.5 < array[1:].astype(float).std() < 1.5
    else:
        assert sorted(set(array.ravel().tolist())) == [0, 1]
    for shape, found in (([], ()), ([2, None], (2, 5)), ([0, 3], (0, 3))):
        spec = tf.TensorSpec(shape, dtype)
        assert _golden.example(spec, np.random.default_rng(0)).shape == found


def test_answers_put_variables_back():
    count, seed = tf.Variable([1.0, np.nan]), keras.random.SeedGenerator(1)

    def function(x):
        drawn = keras.random.normal([2], seed=seed)
        return {"y": count.assign_add(x), "drawn": drawn}

    variables = [count, seed.state]
    given = {"x": np.ones(2, np.float32)}
    one, two = (_golden.answers(function, given, variables) for _ in range(2))
    np.testing.assert_array_equal(one["y"], [2.0, np.nan])
    np.testing.assert_array_equal(one["drawn"], two["drawn"])
    with pytest.raises(ZeroDivisionError):
        _golden.answers(lambda x: count.assign(x) / (1 // 0), given, variables)
    np.testing.assert_array_equal(count, [1.0, np.nan])


FLOATS = np.array([np.nan, np.inf, -np.inf, 1e30, 0.0])
HALF = tf.bfloat16.as_numpy_dtype


@pytest.mark.parametrize(
    ("found", "wanted", "gap"),
    [
        (FLOATS, FLOATS, 0.0),
        (np.zeros([0, 3]), np.zeros([0, 3]), 0.0),
        (np.array(3), np.array(3), 0.0),
        (np.array([1e6 + 5.0, 1.0]), np.array([1e6, 1.0]), 5.0),
        (np.array([1e6 + 11.0]), np.array([1e6]), 11),
        (np.array([1.5], HALF), np.array([1.0], HALF), 0.5),
        (np.array([np.nan]), np.array([1.0]), None),
        (np.array([1.0]), np.array([np.nan]), None),
        (np.array([np.inf]), np.array([1.0]), None),
        (np.array([1e30]), np.array([np.inf]), None),
        (np.array([-np.inf]), np.array([np.inf]), None),
        (np.array([2]), np.array([1]), None),
        (np.array([2**62 + 1]), np.array([2**62]), None),
        (np.array([True]), np.array([False]), None),
    ],
)
def test_gaps_count_in_units_of_large_outputs(found, wanted, gap):
    def compare(tolerance):
        return _golden.largest_gap("fault", {"y": found}, {"y": wanted}, tolerance)

    if gap is None:
        with pytest.raises(ValueError, match="^fault its golden outputs .*difference"):
            compare(1.0)
        return
    # A gap counts beside the larger of 1 and the output.
    size = gap / max(
        1.0, float(np.abs(wanted.astype(float)).max(initial=0.0, where=gap > 0))
    )
    assert compare(1.001 * size) == gap
    if gap:
        with pytest.raises(ValueError, match=f"a difference of {gap:g} in 'y'"):
            compare(0.999 * size)


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": np.zeros(2)},
        {"y": np.zeros(1, np.float32)},
        {"y": np.zeros([1, 1])},
        {"z": np.zeros(1)},
    ],
    ids=["size", "dtype", "rank", "name"],
)
def test_other_outputs_have_no_gap(outputs):
    with pytest.raises(ValueError, match=r"^fault outputs .*'y': .*'float64', \[1\]"):
        _golden.largest_gap("fault", outputs, {"y": np.zeros(1)}, 1e-5)


def test_what_is_no_export_is_told_apart(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name, words in (
        ("run", "the folder of a run; export"),
        ("no", "nothing there"),
    ):
        with pytest.raises(ValueError, match=f"`verify`: `path` expected .*{words}"):
            export.verify(tmp_path / name)


def test_a_number_near_0_is_rounded_as_the_largest_in_its_place():
    def gap(found, wanted):
        outputs = ({"y": np.array(each)} for each in (found, wanted))
        return _golden.largest_gap("fault", *outputs, 1e-5)

    wanted = [[1e-3, 0.5, np.inf], [1e3, -0.5, 0.0]]
    assert gap([[2e-3, 0.5, np.inf], [1e3, -0.5, 0.0]], wanted) == 1e-3
    # Other places have sizes of their own, and an infinity is none.
    for place in (1, 2):
        found = np.array(wanted)
        found[1, place] += 1e-3
        with pytest.raises(ValueError, match="a difference of 0.001 in 'y'"):
            gap(found, wanted)
