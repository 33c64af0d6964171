"""Tests of `tfrl.replay.disk._saved_parts`."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.data_buffer import DataBuffer
from tfrl.replay.disk import _saved_parts
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.ring_buffer import RingBuffer
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.uniform import UniformReplay

SPEC = {"x": tf.TensorSpec([2]), "n": tf.TensorSpec([], tf.int64)}
STORE = ["_contents", "_environments", "_marks", "_rows"]


def store():
    return EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([], tf.int32), 10)


def paths(objects):
    parts, _ = _saved_parts.found("save", objects)
    return [path for part in parts for path in part.paths]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: NumpyStorage(SPEC, 3), [""]),
        (lambda: RingBuffer(SPEC, 2), ["/_positions", "/_storage"]),
        (lambda: DataBuffer(SPEC, 2), ["/_positions", "/_storage", "/_draws"]),
        (
            lambda: DataBuffer(SPEC, 2, device="/CPU:0"),
            [
                "/_positions/_variables/0",
                "/_positions/_variables/1",
                "/_storage/_variables/0",
                "/_storage/_variables/1",
                "/_draws/_state_var",
            ],
        ),
        (store, [f"/{name}" for name in STORE]),
    ],
    ids=["storage", "ring", "data", "variables", "episodes"],
)
def test_parts_of_objects(make, expected):
    assert paths({"a": make()}) == [f"a{path}" for path in expected]


def test_what_is_shared_is_one_part():
    shared = store()
    objects = {
        "uniform": UniformReplay(shared),
        "store": shared,
        "by priority": PrioritizedReplay(shared),
    }
    parts, locks = _saved_parts.found("save", objects)
    assert len(parts) == 4 + 1 + 2
    for part, name in zip(parts, STORE, strict=False):
        found = [path for path in part.paths if path.count("/") == 2]
        assert found == [f"uniform/_store/{name}", f"by priority/_store/{name}"]
        assert f"store/{name}" in part.paths and part.lock is shared.lock
    assert shared.lock in locks


def test_modules_of_ones_own():
    class Own(tf.Module):
        def __init__(self):
            super().__init__()
            self._lock = threading.RLock()
            self.buffers = {"b": [NumpyStorage(SPEC, 1)]}
            self.me, self.step = self, tf.Variable(3)

    own = Own()
    parts, locks = _saved_parts.found("save", {"own": own})
    assert {path for part in parts for path in part.paths} == {
        "own/buffers/b/0",
        "own/step",
    }
    assert own._lock in locks and {part.lock for part in parts} == {own._lock}


def test_what_cannot_be_saved():
    for wrong in (None, [], {}, [NumpyStorage(SPEC, 1)]):
        with pytest.raises(TypeError, match="`save`: `objects` expected a dict of"):
            _saved_parts.found("save", wrong)
    for name in ("a/b", "", 3):
        with pytest.raises(ValueError, match=f"`load`.*slash; got {name!r}; rename"):
            _saved_parts.found("load", {name: NumpyStorage(SPEC, 1)})
    shared = NumpyStorage(SPEC, 1)
    for wrong in (3, tf.Module(), tf.Variable(3)):
        with pytest.raises(TypeError, match=f"{type(wrong).__name__} for 'b'; leave"):
            _saved_parts.found("save", {"a": shared, "b": wrong})
    assert paths({"a": shared, "b": shared}) == ["a", "b"]


def moved(part, other):
    """Copies all bytes of a part to another; returns their number."""
    part.freeze()
    size = 0
    other.thaw(part.size, part.step)
    for k in range(part.count):
        data = part.read(k)
        assert size == k * part.step
        size += len(data)
        other.write(k, data)
    other.finish()
    assert size == part.size
    return size


@pytest.mark.parametrize("shape", [[], [5], [5, 3], [0, 3], [5, 0]])
@pytest.mark.parametrize(
    "dtype", [tf.bool, tf.uint8, tf.bfloat16, tf.float64, tf.complex64], ids=str
)
def test_variables(shape, dtype, monkeypatch):
    monkeypatch.setattr(_saved_parts, "_PIECE_BYTES", 20)
    numbers = tf.cast(tf.reshape(tf.range(tf.reduce_prod(shape)), shape) % 3, dtype)
    one, other = tf.Variable(numbers), tf.Variable(tf.zeros(shape, dtype))
    parts = [_saved_parts.Values(variable) for variable in (one, other)]
    size = moved(*parts)
    assert size == numbers.shape.num_elements() * dtype.size
    np.testing.assert_array_equal(other.numpy(), one.numpy())
    for k in range(parts[1].count):
        parts[1].write(k, None)
    assert not other.numpy().astype(bool).any()


class Words(tf.train.experimental.PythonState):
    def __init__(self, words):
        self.words = words

    def serialize(self):
        return self.words

    def deserialize(self, string_value):
        self.words = string_value


@pytest.mark.parametrize("length", [1, 20, 70])
def test_states(length, monkeypatch):
    monkeypatch.setattr(_saved_parts, "_PIECE_BYTES", 20)
    one, other = Words(bytes(range(length))), Words(b"")
    assert moved(_saved_parts.State(one), _saved_parts.State(other)) == length
    assert other.words == one.words


def test_states_of_text_and_of_nothing():
    one, other = Words("text"), Words(b"")
    moved(_saved_parts.State(one), _saved_parts.State(other))
    assert other.words == b"text"
    assert moved(_saved_parts.State(Words(b"")), _saved_parts.State(other)) == 0
    assert other.words == b""


def test_contents():
    def contents(value):
        return [part.contents for part in _saved_parts.found("save", {"a": value})[0]]

    assert contents(NumpyStorage(SPEC, 3)) == [
        "3 rows of {'n': int64[], 'x': float32[2]}"
    ]
    assert contents(DataBuffer(tf.TensorSpec([]), 3, seed=0)) == [
        "1 environments, 3 rows of float32[]",
        "3 rows of float32[]",
        "state of the generator PCG64",
    ]
    assert _saved_parts.State(Words(b"")).contents == "Words"
    assert _saved_parts.Values(tf.Variable([1.0])).contents == "a variable float32[1]"


def test_zeros_are_cleared_without_taking_memory():
    storage = NumpyStorage(tf.TensorSpec([1 << 20], tf.uint8), 1 << 12)  # 4 GiB
    part = _saved_parts.Rows(storage)
    part.write(0, None)
    assert not storage.exists
    storage.set([0], np.ones([1, 1 << 20], np.uint8))
    for k in range(part.count):
        part.write(k, None)
    assert not storage.get([0]).any()
