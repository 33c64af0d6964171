"""What a checkpoint holds of a storage, in this version and in earlier ones."""

import json
import threading
from types import SimpleNamespace

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory import numpy_storage
from tfrl.replay.memory.numpy_storage import NumpyStorage

SPEC = {"a": tf.TensorSpec([2]), "b": tf.TensorSpec([], tf.int32)}


def recorded():
    documents = golden_io.load("numpy_storage/numpy_storage")
    return next(case for case in documents if case["id"] == "checkpoint")


def recorded_rows(rows):
    return dict(zip("ab", rows, strict=True))


def numbered(storage, first=0):
    """Fills the rows with numbers that differ between leaves and rows."""
    for k, array in enumerate(tf.nest.flatten(storage.get(slice(None)))):
        rows = first + k + np.arange(len(array))
        array[...] = rows.reshape([-1, *[1] * (array.ndim - 1)])
    return storage


def same(one, other):
    for leaf, expected in zip(
        tf.nest.flatten(one.get(slice(None))),
        tf.nest.flatten(other.get(slice(None))),
        strict=True,
    ):
        np.testing.assert_array_equal(leaf, expected, strict=True)


def matched(status):
    status.assert_consumed()
    status.assert_existing_objects_matched()


def test_recorded(tmp_path):
    case = recorded()
    outputs, capacity = case["outputs"], case["kwargs"]["capacity"]
    storage = NumpyStorage(SPEC, capacity)
    storage.set(slice(None), recorded_rows(outputs["restored"]))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    variables = [[name, shape] for name, shape in tf.train.list_variables(path)]
    assert variables == outputs["vars"]

    fresh = NumpyStorage(SPEC, capacity)
    before = fresh.get(slice(None))["a"]
    matched(tf.train.Checkpoint(s=fresh).restore(path))
    same(fresh, storage)
    replaced = not np.shares_memory(before, fresh.get(slice(None))["a"])
    assert replaced == outputs["restore_replaces_array_object"]
    for leaf, expected in zip("ab", outputs["after_restore"], strict=True):
        np.testing.assert_array_equal(fresh.get(slice(None))[leaf], expected)

    checkpoint = tf.train.Checkpoint()
    status = checkpoint.restore(path)
    checkpoint.s = NumpyStorage(SPEC, capacity)
    matched(status)
    for leaf, expected in zip("ab", outputs["deferred"], strict=True):
        np.testing.assert_array_equal(checkpoint.s.get(slice(None))[leaf], expected)

    empty, other = NumpyStorage(SPEC, capacity), NumpyStorage(SPEC, capacity)
    path = tf.train.Checkpoint(s=empty).save(tmp_path / "empty")
    matched(tf.train.Checkpoint(s=other).restore(path))
    assert not other.exists
    for leaf, expected in zip("ab", outputs["unallocated_get"], strict=True):
        np.testing.assert_array_equal(other.get(0)[leaf], expected)


@pytest.mark.parametrize("dtype", recorded()["outputs"]["dtype_roundtrip"])
def test_recorded_dtypes(dtype, tmp_path):
    spec = SimpleNamespace(shape=(), dtype=np.dtype(dtype))
    storage, fresh = NumpyStorage(spec, 3), NumpyStorage(spec, 3)
    storage.set([0, 2], np.array([1, 1]).astype(dtype))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    tf.train.Checkpoint(s=fresh).restore(path).assert_consumed()
    same(fresh, storage)
    assert fresh.get([0]).dtype == recorded()["outputs"]["dtype_roundtrip"][dtype]


@pytest.mark.parametrize(
    "spec, capacity, contents",
    [
        (SPEC, 9, r"9 rows of {'a': float32\[2\], 'b': int32\[\]}"),
        ({**SPEC, "b": tf.TensorSpec([])}, 4, r"4 rows of .*'b': float32\[\]}"),
        ({**SPEC, "a": tf.TensorSpec([3])}, 4, r"4 rows of {'a': float32\[3\]"),
        ({"a": SPEC["a"], "c": SPEC["b"]}, 4, r"4 rows of .*'c': int32\[\]}"),
        ([SPEC["a"], SPEC["b"]], 4, r"4 rows of \[float32\[2\], int32\[\]\]"),
    ],
    ids=["capacity", "dtype", "shape", "key", "container"],
)
@pytest.mark.parametrize("kind", ["rows", "no-rows"])
def test_another_layout_changes_nothing(spec, capacity, contents, kind, tmp_path):
    # Recorded as taking over the arrays of the checkpoint, whatever they are.
    saved = NumpyStorage(SPEC, 4)
    if kind == "rows":
        numbered(saved)
    path = tf.train.Checkpoint(s=saved).save(tmp_path / "c")
    storage = numbered(NumpyStorage(spec, capacity), 5)
    message = f"expected 4 rows of {{'a': float32.*; got {contents}"
    with pytest.raises(ValueError, match=message):
        tf.train.Checkpoint(s=storage).restore(path)
    same(storage, numbered(NumpyStorage(spec, capacity), 5))


def test_dicts_in_another_order_are_the_same_spec(tmp_path):
    storage = numbered(NumpyStorage(SPEC, 4))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    other = NumpyStorage({"b": SPEC["b"], "a": SPEC["a"]}, 4)
    tf.train.Checkpoint(s=other).restore(path).assert_consumed()
    same(other, storage)


def test_saving_in_the_background(tmp_path):
    storage = numbered(NumpyStorage(SPEC, 8))
    checkpoint = tf.train.Checkpoint(s=storage)
    options = tf.train.CheckpointOptions(enable_async=True)
    for start in (3, 4):
        numbered(storage, start)
        path = checkpoint.save(tmp_path / "c", options=options)
        checkpoint.sync()
        fresh = NumpyStorage(SPEC, 8)
        tf.train.Checkpoint(s=fresh).restore(path).expect_partial()
        same(fresh, storage)


def test_a_saved_model_may_hold_a_storage(tmp_path):
    module = tf.Module()
    module.storage = numbered(NumpyStorage(SPEC, 4))
    module.scale = tf.Variable(3.0)
    tf.saved_model.save(module, tmp_path)
    assert float(tf.saved_model.load(tmp_path).scale) == 3.0


@pytest.mark.parametrize("place", ["strategy", "device"])
def test_rows_made_beside_other_devices(place, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() if place == "strategy" else tf.device("CPU:1"):
        assert_numbers(restored(earlier(str(tmp_path / "e"))))
        storage = numbered(NumpyStorage(SPEC, 4), 9)
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
        fresh = NumpyStorage(SPEC, 4)
        matched(tf.train.Checkpoint(s=fresh).restore(path))
    same(fresh, numbered(NumpyStorage(SPEC, 4), 9))


def test_rows_made_in_several_threads_are_one_array():
    for _ in range(5):
        storage = NumpyStorage(SPEC, 2)
        threads = [threading.Thread(target=storage.get, args=[k]) for k in (0, 1, 0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert storage.arrays[0] is storage.arrays[0]
        numbered(storage, 6)
        assert storage.get(1)["a"][0] == 7


class State(tf.train.experimental.PythonState):
    """What some checkpoint holds."""

    def __init__(self, data):
        self.data = data

    def serialize(self):
        return self.data

    def deserialize(self, string_value):
        raise AssertionError


def test_a_checkpoint_of_something_else(tmp_path):
    rows = tf.train.Checkpoint(
        _np_state=tf.train.Checkpoint(buffer0=State(b"\x93NUMPY\x01"))
    )
    path = tf.train.Checkpoint(s=rows).save(tmp_path / "c")
    with pytest.raises(ValueError, match="the checkpoint expected something else"):
        tf.train.Checkpoint(s=NumpyStorage(SPEC, 4)).restore(path)


ROWS = {"x": tf.TensorSpec([100]), "n": tf.TensorSpec([], tf.int16)}
CONTENTS = "40 rows of {'n': int16[], 'x': float32[100]}"


def numbers():
    n = np.arange(40, dtype=np.int16)
    return {"x": n[:, np.newaxis] + np.arange(100, dtype=np.float32), "n": n}


def earlier(path, n_parts=None, **header):
    """Writes a checkpoint as earlier versions wrote it: large arrays in two pieces."""
    header = {"contents": CONTENTS, "made": True, "part_bytes": 6000, **header}
    n, x = (leaf.tobytes() for leaf in tf.nest.flatten(numbers()))
    pieces = [x[1000:7000], x[7000:13000], x[13000:]]
    group = tf.train.Checkpoint()
    for k, piece in enumerate(pieces[:n_parts]):
        data = np.frombuffer(piece, np.uint8)
        setattr(group, f"part{k}", tf.Variable(data, trainable=False))
    state = tf.train.Checkpoint(
        buffer0=State(json.dumps({**header, "rows": None}).encode() + b"\n" + n),
        buffer1=State(
            json.dumps({"rows": "rows_ab", **header}).encode() + b"\n" + x[:1000]
        ),
        rest0=tf.train.Checkpoint(),
        rest1=tf.train.Checkpoint(rows_ab=group),
    )
    return tf.train.Checkpoint(s=tf.train.Checkpoint(_np_state=state)).save(path)


def restored(checkpoint, **kwargs):
    storage = NumpyStorage(ROWS, 40, **kwargs)
    status = tf.train.Checkpoint(s=storage).restore(checkpoint)
    status.assert_consumed()
    status.assert_existing_objects_matched()
    return storage


def assert_numbers(storage):
    found = storage.get(slice(None))
    tf.nest.map_structure(np.testing.assert_array_equal, found, numbers())


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_checkpoints_of_earlier_versions(kind, tmp_path):
    kwargs = {"path": tmp_path / "rows"} if kind == "files" else {}
    path = earlier(str(tmp_path / "c"))
    storage = restored(path, **kwargs)
    assert_numbers(storage)
    # Again into the same, and on to one of this version.
    storage.get(slice(None))["x"][:] = 0
    tf.train.Checkpoint(s=storage).restore(path).assert_consumed()
    assert_numbers(storage)
    assert_numbers(restored(tf.train.Checkpoint(s=storage).save(str(tmp_path / "d"))))


def test_a_part_that_is_missing(tmp_path):
    path = earlier(str(tmp_path / "c"), n_parts=2)
    with pytest.raises(ValueError, match="rows_ab/part2 in the checkpoint; got none"):
        restored(path)


def test_large_rows_warn(monkeypatch, tmp_path):
    monkeypatch.setattr(numpy_storage, "_LARGE_BYTES", 15_999)
    storage = NumpyStorage(ROWS, 40)
    tf.train.Checkpoint(s=storage).save(tmp_path / "empty")
    storage.set(slice(None), numbers())
    with pytest.warns(UserWarning, match="`NumpyStorage`.*`tfrl.replay.save` does not"):
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    assert_numbers(restored(path))
