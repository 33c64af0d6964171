"""Tests of `tfrl.exporting._verified`."""

import json
import pathlib
import shutil
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.exporting import _verified, export
from tfrl.saving import typed_json

KINDS = {"folder": "model", "keras": "model.keras", "litert": "model.tflite"}
ENDPOINTS = {"folder": "serving_default", "keras": "call", "litert": "serving_default"}
MEMBER = "tfrl_golden.json"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    inputs = keras.Input([3], name="x")
    scores = keras.layers.Dense(2)(inputs)
    model = keras.Model({"x": inputs}, {"scores": scores, "sums": inputs[:, 0] + 1})
    for name in KINDS.values():
        export.export_model(model, folder / name)
    return folder


@pytest.fixture
def copied(models, tmp_path):
    def copy(kind):
        source, path = models / KINDS[kind], tmp_path / KINDS[kind]
        (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
        return path

    return copy


def check(path, tolerance=None):
    return _verified.check("verify", path, tolerance)


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


@pytest.mark.parametrize("kind", KINDS)
def test_sound_models(models, kind):
    found = check(models / KINDS[kind])
    assert list(found) == [ENDPOINTS[kind]]
    assert found[ENDPOINTS[kind]] < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_other_outputs(copied, kind):
    path = copied(kind)

    def change(record):
        record["endpoints"][ENDPOINTS[kind]]["outputs"]["scores"][1, 0] += 0.25

    rewrite(path, change)
    message = f"`verify`: endpoint '{ENDPOINTS[kind]}' expected its golden outputs "
    message += r"within 1e-05 .*; got a difference of 0\.25 in 'scores'; draw"
    with pytest.raises(ValueError, match=message):
        check(path)
    assert 0.24 < check(path, tolerance=0.5)[ENDPOINTS[kind]] < 0.26
    rewrite(path, lambda record: record.update(tolerance=0.5))
    check(path)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models(copied, kind):
    path = copied(kind)
    if kind == "keras":
        record = {}
        with zipfile.ZipFile(path) as archive:
            record = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in record.items():
                archive.writestr(
                    name,
                    data.replace(b"relu", b"tanh") + b" " * (name == "config.json"),
                )
        part = "config.json"
    else:
        file = (
            path / "variables/variables.data-00000-of-00001" if path.is_dir() else path
        )
        data = bytearray(file.read_bytes())
        data[40] ^= 1
        file.write_bytes(data)
        part = "variables/variables.data-00000-of-00001" if path.is_dir() else "model"
    message = f"`verify`: `path` expected the '{part}' that was exported; got other"
    with pytest.raises(ValueError, match=message):
        check(path)


def test_golden_inputs_that_the_model_does_not_take(copied):
    path = copied("folder")

    def confuse(record):
        for golden in record["endpoints"].values():
            golden["inputs"] = {"strange": np.zeros([8, 1], np.int8)}

    rewrite(path, confuse)
    with pytest.raises(ValueError, match="expected golden inputs that it takes"):
        check(path)


def test_missing_files_and_further_ones(copied):
    path = copied("folder")
    (path / "assets.extra" / "warmup").write_text("of the server")
    check(path)
    (path / "variables" / "variables.index").unlink()
    with pytest.raises(
        ValueError, match="expected the 'variables/variables.index' .*got nothing"
    ):
        check(path)


def test_missing_endpoint(copied):
    path = copied("folder")

    def change(record):
        record["endpoints"]["act"] = record["endpoints"].pop("serving_default")

    rewrite(path, change)
    with pytest.raises(
        ValueError, match=r"an endpoint 'act'; got \['serving_default'\]"
    ):
        check(path)


def test_absent():
    with pytest.raises(
        ValueError, match="`verify`: `path` expected what `export_model`"
    ):
        _verified.check("verify", pathlib.Path("absent"))


def gap(found, wanted, tolerance=1e-5):
    return _verified.largest_gap("fault", {"y": found}, {"y": wanted}, tolerance)


FLOATS = np.array([np.nan, np.inf, -np.inf, 1e30, 0.0])


def test_equal_outputs_have_no_gap():
    assert gap(FLOATS, FLOATS) == 0.0
    assert gap(np.zeros([0, 3]), np.zeros([0, 3])) == 0.0
    assert gap(np.array(3), np.array(3)) == 0.0


def test_gaps_count_in_units_of_large_outputs():
    assert gap(np.array([1e6 + 5.0, 1.0]), np.array([1e6, 1.0])) == 5.0
    with pytest.raises(ValueError, match="a difference of 11 in 'y'"):
        gap(np.array([1e6 + 11.0]), np.array([1e6]))
    half = tf.bfloat16.as_numpy_dtype
    assert gap(np.array([1.5], half), np.array([1.0], half), 0.5) == 0.5


OTHERS = {
    "nan": (np.array([np.nan]), np.array([1.0])),
    "no nan": (np.array([1.0]), np.array([np.nan])),
    "infinite": (np.array([np.inf]), np.array([1.0])),
    "finite": (np.array([1e30]), np.array([np.inf])),
    "other infinity": (np.array([-np.inf]), np.array([np.inf])),
    "integer": (np.array([2]), np.array([1])),
    "large integer": (np.array([2**62 + 1]), np.array([2**62])),
    "bool": (np.array([True]), np.array([False])),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_numbers_are_errors(kind):
    with pytest.raises(ValueError, match="^fault its golden outputs .*difference of"):
        gap(*OTHERS[kind], tolerance=1.0 if kind != "finite" else 1e-5)


@pytest.mark.parametrize(
    "found",
    [np.zeros(2), np.zeros(1, np.float32), np.zeros([1, 1])],
    ids=["size", "dtype", "rank"],
)
def test_other_shapes_and_dtypes_are_errors(found):
    with pytest.raises(ValueError, match=r"^fault outputs .*'y': .*'float64', \[1\]"):
        gap(found, np.zeros(1))


def test_other_names_are_errors():
    with pytest.raises(ValueError, match="^fault outputs .*'y'.*; got .*'z'"):
        _verified.largest_gap("fault", {"z": FLOATS}, {"y": FLOATS}, 1e-5)


def test_a_record_is_plain_json(models):
    text = (models / "model" / "assets.extra" / MEMBER).read_text()
    assert list(json.loads(text)["endpoints"]) == ["serving_default"]
