"""What a checkpoint holds of the arrays of a storage, of this version and earlier."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory import _rows
from tfrl.replay.memory.numpy_storage import NumpyStorage

SPEC = {"x": tf.TensorSpec([100]), "n": tf.TensorSpec([], tf.int16)}
CONTENTS = "40 rows of {'n': int16[], 'x': float32[100]}"


class State(tf.train.experimental.PythonState):
    def __init__(self, data):
        self.data = data

    def serialize(self):
        return self.data

    def deserialize(self, string_value):
        raise AssertionError


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
    storage = NumpyStorage(SPEC, 40, **kwargs)
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


def test_checkpoints_of_earlier_versions_in_a_strategy(tmp_path):
    path = earlier(str(tmp_path / "c"))
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        assert_numbers(restored(path))
    with tf.device("CPU:1"):
        assert_numbers(restored(path))


def test_a_part_that_is_missing(tmp_path):
    path = earlier(str(tmp_path / "c"), n_parts=2)
    with pytest.raises(ValueError, match="rows_ab/part2 in the checkpoint; got none"):
        restored(path)


def test_large_rows_warn(monkeypatch, tmp_path):
    monkeypatch.setattr(_rows, "_LARGE_BYTES", 15_999)
    storage = NumpyStorage(SPEC, 40)
    tf.train.Checkpoint(s=storage).save(tmp_path / "empty")
    storage.set(slice(None), numbers())
    with pytest.warns(UserWarning, match="`NumpyStorage`.*`tfrl.replay.save` does not"):
        path = tf.train.Checkpoint(s=storage).save(tmp_path / "c")
    assert_numbers(restored(path))
