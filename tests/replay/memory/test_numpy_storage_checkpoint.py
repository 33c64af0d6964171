import pathlib
import threading
from types import SimpleNamespace

import golden_io
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory.numpy_storage import NumpyStorage

SPEC = {"a": tf.TensorSpec([2]), "b": tf.TensorSpec([], tf.int32)}
# Of some MiB in a few rows.
LARGE = {"a": tf.TensorSpec([1 << 17]), "b": tf.TensorSpec([1 << 16], tf.int64)}


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
    before = tf.nest.map_structure(np.copy, storage.get(slice(None)))
    message = (
        f"a checkpoint of {contents}.*; got one of 4 rows of {{'a': float32\\[2\\]"
    )
    with pytest.raises(ValueError, match=message):
        tf.train.Checkpoint(s=storage).restore(path)
    for leaf, old in zip(
        tf.nest.flatten(storage.get(slice(None))), tf.nest.flatten(before), strict=True
    ):
        np.testing.assert_array_equal(leaf, old)


def test_dicts_in_another_order_are_the_same_spec(tmp_path):
    storage = numbered(NumpyStorage(SPEC, 4))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    other = NumpyStorage({"b": SPEC["b"], "a": SPEC["a"]}, 4)
    tf.train.Checkpoint(s=other).restore(path).assert_consumed()
    same(other, storage)


def test_large_rows_again_and_again(tmp_path):
    # 20 MiB per leaf.
    storage = numbered(NumpyStorage(LARGE, 40))
    checkpoint = tf.train.Checkpoint(deep=tf.train.Checkpoint(s=storage))
    first = checkpoint.save(tmp_path / "c")
    numbered(storage, 1000)
    second = checkpoint.save(tmp_path / "c")
    other = NumpyStorage(LARGE, 40)
    into = tf.train.Checkpoint(deep=tf.train.Checkpoint(s=other))
    for path, start in ((first, 0), (second, 1000), (second, 1000), (first, 0)):
        for target, root in ((other, into), (storage, checkpoint)):
            matched(root.restore(path))
            assert target.get(39)["a"][-1] == start + 39
            same(target, numbered(NumpyStorage(LARGE, 40), start))
    # What is written after a restore is what is saved, not what was restored.
    numbered(other, 7)
    matched(checkpoint.restore(into.save(tmp_path / "d")))
    same(storage, other)


def test_large_rows_deferred(tmp_path):
    storage = numbered(NumpyStorage(LARGE, 8))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    checkpoint = tf.train.Checkpoint()
    status = checkpoint.restore(path)
    checkpoint.s = NumpyStorage(LARGE, 8)
    matched(status)
    same(checkpoint.s, storage)


def test_large_rows_become_empty(tmp_path):
    path = tf.train.Checkpoint(s=NumpyStorage(LARGE, 8)).save(tmp_path / "c")
    storage = numbered(NumpyStorage(LARGE, 8), 1)
    matched(tf.train.Checkpoint(s=storage).restore(path))
    assert not storage.get(7)["a"].any()


def test_manager_keeps_the_newest(tmp_path):
    storage = NumpyStorage(LARGE, 8)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(s=storage), tmp_path, max_to_keep=2
    )
    for start in range(3):
        numbered(storage, start)
        manager.save()
    assert len(manager.checkpoints) == 2
    numbered(storage, 50)
    assert manager.restore_or_initialize() == manager.latest_checkpoint
    same(storage, numbered(NumpyStorage(LARGE, 8), 2))


def test_saving_in_the_background(tmp_path):
    storage = numbered(NumpyStorage(LARGE, 8))
    checkpoint = tf.train.Checkpoint(s=storage)
    options = tf.train.CheckpointOptions(enable_async=True)
    for start in (3, 4):
        numbered(storage, start)
        path = checkpoint.save(tmp_path / "c", options=options)
        checkpoint.sync()
        fresh = NumpyStorage(LARGE, 8)
        tf.train.Checkpoint(s=fresh).restore(path).expect_partial()
        same(fresh, storage)


def test_a_saved_model_may_hold_a_storage(tmp_path):
    module = tf.Module()
    module.storage = numbered(NumpyStorage(LARGE, 4))
    module.scale = tf.Variable(3.0)
    tf.saved_model.save(module, tmp_path)
    assert float(tf.saved_model.load(tmp_path).scale) == 3.0


def test_rows_made_in_a_strategy(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        storage = numbered(NumpyStorage(LARGE, 4))
        numbered(storage, 9)
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
        fresh = NumpyStorage(LARGE, 4)
        matched(tf.train.Checkpoint(s=fresh).restore(path))
    same(fresh, numbered(NumpyStorage(LARGE, 4), 9))


def test_rows_made_beside_another_device(tmp_path):
    with tf.device("CPU:1"):
        storage = numbered(NumpyStorage(LARGE, 4))
        numbered(storage, 9)
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
        fresh = NumpyStorage(LARGE, 4)
        matched(tf.train.Checkpoint(s=fresh).restore(path))
        numbered(fresh, 11)
        matched(tf.train.Checkpoint(s=storage).restore(path))
        path = tf.train.Checkpoint(s=fresh).save(tmp_path / "d")
        matched(tf.train.Checkpoint(s=storage).restore(path))
    same(storage, numbered(NumpyStorage(LARGE, 4), 11))


def test_rows_made_in_several_threads_are_one_array(tmp_path):
    for _ in range(5):
        storage = NumpyStorage(LARGE, 2)
        threads = [threading.Thread(target=storage.get, args=[k]) for k in (0, 1, 0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbered(storage, 6)
        path = tf.train.Checkpoint(s=storage).write(str(tmp_path / "c"))
        fresh = NumpyStorage(LARGE, 2)
        tf.train.Checkpoint(s=fresh).read(path).assert_consumed()
        same(fresh, storage)


class Other(tf.train.experimental.PythonState):
    def serialize(self):
        return b"\x93NUMPY\x01"

    def deserialize(self, string_value):
        pass


def test_a_checkpoint_of_something_else(tmp_path):
    rows = tf.train.Checkpoint(_np_state=tf.train.Checkpoint(buffer0=Other()))
    path = tf.train.Checkpoint(s=rows).save(tmp_path / "c")
    with pytest.raises(ValueError, match="got one of something else"):
        tf.train.Checkpoint(s=NumpyStorage(SPEC, 4)).restore(path)


def test_damage_is_noticed(tmp_path):
    storage = numbered(NumpyStorage(LARGE, 40))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    data = pathlib.Path(f"{path}.data-00000-of-00001")
    with open(data, "r+b") as file:
        file.seek(19 << 20)
        byte = file.read(1)[0]
        file.seek(19 << 20)
        file.write(bytes([byte ^ 4]))
    other = NumpyStorage(LARGE, 40)
    with pytest.raises(tf.errors.OpError, match="Checksum does not match"):
        tf.train.Checkpoint(s=other).restore(path)
    with open(data, "r+b") as file:
        file.seek(19 << 20)
        file.write(bytes([byte]))
    matched(tf.train.Checkpoint(s=other).restore(path))
    same(other, storage)


def test_bfloat16_and_zero_sizes(tmp_path):
    spec = (
        SimpleNamespace(shape=(1 << 18,), dtype=ml_dtypes.bfloat16),
        tf.TensorSpec([0, 3], tf.bool),
    )
    storage = numbered(NumpyStorage(spec, 4))
    path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    fresh = NumpyStorage(spec, 4)
    matched(tf.train.Checkpoint(s=fresh).restore(path))
    same(fresh, storage)
