"""Tests of `tfrl.exporting._golden`."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import specs
from tfrl.exporting import _golden
from tfrl.saving import typed_json

BOUNDS = {
    "unit": (tf.float32, -1.0, 1.0),
    "half precision": (tf.bfloat16, 0.1, 0.5),
    "far": (tf.float64, 1e6, 1e6 + 1),
    "wide": (tf.float32, -3e38, 3e38),
    "half open": (tf.float32, 2.0, np.inf),
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


def test_bounds_of_single_elements():
    low = np.array([0.0, 100.0], np.float32)
    spec = specs.BoundedTensorSpec([None, 2], tf.float32, low, low + 1)
    array = _golden.example(spec, np.random.default_rng(0))
    assert np.all((array >= low) & (array <= low + 1))


def test_scalars_and_fixed_axes():
    rng = np.random.default_rng(0)
    assert _golden.example(tf.TensorSpec([]), rng).shape == ()
    assert _golden.example(tf.TensorSpec([2, None]), rng).shape == (2, 5)
    assert _golden.example(tf.TensorSpec([0, 3]), rng).size == 0


def test_drawn_examples_are_the_same_each_time():
    found = {"x": tf.TensorSpec([None]), "seed": tf.TensorSpec([2], tf.int32)}
    one, two = (_golden.examples("export", found, None) for _ in range(2))
    assert list(one) == ["x", "seed"]
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_given_examples():
    spec = {"x": tf.TensorSpec([None, 2]), "n": tf.TensorSpec([], tf.int64)}
    found = _golden.examples("export", spec, {"n": 3, "x": [[1, 2]]})
    assert found["n"].dtype == np.int64 and found["x"].dtype == np.float32
    with pytest.raises(ValueError, match=r"`examples` expected an array .*got \['n'\]"):
        _golden.examples("export", spec, {"n": 3})
    with pytest.raises(
        ValueError, match=r"expected shape \(None, 2\) of 'x'; got \[2\]"
    ):
        _golden.examples("export", spec, {"n": 3, "x": [1, 2]})


def test_answers_put_variables_back():
    count = tf.Variable([1.0, np.nan])
    seed = keras.random.SeedGenerator(1)

    def function(x):
        drawn = keras.random.normal([2], seed=seed)
        return {"y": count.assign_add(x), "drawn": drawn}

    variables = [count, seed.state]
    given = {"x": np.ones(2, np.float32)}
    one, two = (_golden.answers(function, given, variables) for _ in range(2))
    np.testing.assert_array_equal(one["y"], [2.0, np.nan])
    np.testing.assert_array_equal(count, [1.0, np.nan])
    np.testing.assert_array_equal(one["drawn"], two["drawn"])
    with pytest.raises(ZeroDivisionError):
        _golden.answers(lambda x: count.assign(x) / (1 // 0), given, variables)
    np.testing.assert_array_equal(count, [1.0, np.nan])


def test_answers_do_not_change_afterwards():
    count = tf.Variable(np.ones(1000, np.float32))
    given = {"x": np.ones(1000, np.float32)}
    found = _golden.answers(lambda x: {"y": count.assign_add(x)}, given, [count])
    count.assign_add(tf.ones(1000))
    assert found["y"].tolist() == [2.0] * 1000


GOLDENS = {
    "act": {
        "inputs": {"x": np.float32([np.nan, np.inf])},
        "outputs": {"y": np.array([1, 2], tf.bfloat16.as_numpy_dtype)},
    }
}


def files(tmp_path):
    folder, keras_file, litert = (tmp_path / x for x in ("f", "m.keras", "m.tflite"))
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "weights").write_bytes(b"weights")
    with zipfile.ZipFile(keras_file, "w") as archive:
        archive.writestr("config.json", "{}")
    litert.write_bytes(b"flat buffer")
    return {"folder": folder, "keras": keras_file, "litert": litert}


PARTS = {"folder": "deep/weights", "keras": "config.json", "litert": "model"}


@pytest.mark.parametrize("kind", PARTS)
def test_record_round_trip(tmp_path, kind):
    path = files(tmp_path)[kind]
    before = _golden.digests(path)
    assert list(before) == [PARTS[kind]]
    _golden.write(path, GOLDENS, 1e-4)
    assert _golden.digests(path) == before
    record = _golden.read("verify", path)
    assert record["digests"] == before
    assert record["tolerance"] == 1e-4
    assert record["versions"]["tensorflow"] == tf.__version__
    assert {"python", "keras", "numpy"} <= set(record["versions"])
    for part in ("inputs", "outputs"):
        for name, wanted in GOLDENS["act"][part].items():
            found = record["endpoints"]["act"][part][name]
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found.astype(float), wanted.astype(float))


def test_appended_record_leaves_the_model_in_front(tmp_path):
    path = files(tmp_path)["litert"]
    _golden.write(path, GOLDENS, 1e-5)
    assert path.read_bytes().startswith(b"flat buffer")


@pytest.mark.parametrize("kind", PARTS)
def test_no_record(tmp_path, kind):
    with pytest.raises(
        ValueError, match="`verify`: `path` expected what `export_model`"
    ):
        _golden.read("verify", files(tmp_path)[kind])


def test_damaged_and_later_records(tmp_path):
    path = files(tmp_path)["folder"]
    _golden.write(path, GOLDENS, 1e-5)
    member = path / "assets.extra" / "tfrl_golden.json"
    text = member.read_text()
    assert json.loads(text)["format"] == 1
    member.write_text(text[:-9])
    with pytest.raises(ValueError, match="with undamaged golden outputs of form"):
        _golden.read("verify", path)
    for record in ({**typed_json.from_json(text), "format": 2}, [1]):
        member.write_text(typed_json.to_json(record))
        with pytest.raises(ValueError, match="golden outputs of format 1"):
            _golden.read("verify", path)


@pytest.mark.parametrize(
    "golden", [{}, {"inputs": 3}, {"inputs": {"x": 1}, "outputs": {}}]
)
def test_endpoints_of_a_record_are_arrays(tmp_path, golden):
    path = files(tmp_path)["folder"]
    _golden.write(path, {"act": golden}, 1e-5)
    with pytest.raises(ValueError, match="with undamaged golden outputs of form"):
        _golden.read("verify", path)


def with_member(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("tfrl_golden.json", content)
    return bytearray(path.read_bytes())


def damaged(path, method):
    data = with_member(path, b"some text " * 1000, method)
    data[60:90] = bytes(30)
    return data


def of_unknown_method(path):
    data = with_member(path, b"{}")
    data[8] = data[data.rindex(b"PK\x01\x02") + 10] = 99
    return data


@pytest.mark.parametrize(
    "write",
    [
        lambda path: damaged(path, zipfile.ZIP_DEFLATED),
        lambda path: damaged(path, zipfile.ZIP_LZMA),
        of_unknown_method,
        lambda path: with_member(path, bytes(3000)),
        lambda path: with_member(path, b'{"format": 1}'),
        lambda path: with_member(
            path,
            b'{"format":1,"tolerance":"a","xla_ops":[],"digests":[1],"endpoints":3}',
        ),
    ],
    ids=["deflate", "lzma", "method", "large", "nothing", "kinds"],
)
def test_hostile_records(write, tmp_path, monkeypatch):
    monkeypatch.setattr(_golden, "_MOST_BYTES", 2000)
    path = tmp_path / "m.keras"
    path.write_bytes(write(path))
    with pytest.raises(
        ValueError, match="(?s)`verify`: `path` expected .*export it again"
    ):
        _golden.read("verify", path)
