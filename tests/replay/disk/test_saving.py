"""Tests of `tfrl.replay.disk.saving`: everything comes back, and nothing else."""

import copy
import json
import threading

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from replay_episodes import assert_same, draws, stored

from tfrl.replay.data_buffer import DataBuffer
from tfrl.replay.disk import _parts
from tfrl.replay.disk.saving import load, save
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.memory import _homes
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.ring_buffer import RingBuffer
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

SPEC = {"x": tf.TensorSpec([2], tf.float16), "n": tf.TensorSpec([], tf.int64)}
NUMBER, WIDE = tf.TensorSpec([]), tf.TensorSpec([], tf.float64)
KINDS = ["memory", "path", "shared"]
NESTS = {
    "bool": tf.TensorSpec([3], tf.bool),
    "bfloat16": tf.TensorSpec([2], tf.bfloat16),
    "text": tf.nest.map_structure(lambda spec: spec, np.zeros((2,), "U5")),
    "empty": (tf.TensorSpec([0]), tf.TensorSpec([], tf.int8)),
    "nothing": tf.TensorSpec([0, 4]),
}


@pytest.fixture(
    autouse=True,
    params=[60, pytest.param(1 << 23, marks=pytest.mark.slow)],
    ids=["many", "one"],
)
def segments(request, monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", request.param)
    monkeypatch.setattr(_parts, "_PIECE_BYTES", request.param)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def storage(kind, folder, capacity=20, spec=SPEC):
    path = folder if kind == "path" else None
    return NumpyStorage(spec, capacity, path=path, shared=kind == "shared")


def rows(first, count):
    numbers = np.arange(first, first + count)
    return {"x": np.stack([numbers, -numbers], 1).astype(np.float16), "n": numbers}


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_rows_come_back_in_any_kind_of_memory(source, target, tmp_path):
    one = storage(source, tmp_path / "one")
    one.set(np.arange(3, 17), rows(3, 14))
    assert save(tmp_path / "a" / "b", {"rows": one}) > 0
    other = storage(target, tmp_path / "other")
    other.set(slice(None), rows(100, 20))
    load(tmp_path / "a" / "b", {"rows": other})
    assert_same(other.get(np.arange(20)), one.get(np.arange(20)))
    one.close()
    other.close()


@pytest.mark.parametrize("spec", NESTS.values(), ids=list(NESTS))
def test_rows_of_any_dtype_and_size(spec, tmp_path):
    one, other = NumpyStorage(spec, 9), NumpyStorage(spec, 9)
    rng = np.random.default_rng(0)
    for array in one.arrays:
        bits = rng.integers(0, 2, array.nbytes, np.uint8)
        array.reshape(-1).view(np.uint8)[:] = bits if array.dtype.kind != "U" else 0
    one.touch(slice(None))
    save(tmp_path, {"rows": one})
    load(tmp_path, {"rows": other})
    for found, expected in zip(other.arrays, one.arrays, strict=True):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_rows_of_several_segments_are_read_where_they_are(tmp_path):
    spec = {"a": tf.TensorSpec([1000], tf.int64), "b": tf.TensorSpec([], tf.int8)}
    one, other = NumpyStorage(spec, 3000), NumpyStorage(spec, 3000)
    values = np.arange(3_000_000).reshape(3000, 1000)
    one.set(slice(None), {"a": values, "b": (values[:, 0] % 100).astype(np.int8)})
    assert save(tmp_path, {"rows": one}) == 3000 * 8001
    for _ in range(2):
        load(tmp_path, {"rows": other})
        seen = other.get(slice(None))
        assert_same(seen, one.get(slice(None)))
        other.set(slice(None), {"a": np.array([7] * 1000), "b": np.array(7)})
        assert (seen["a"] == 7).all(), "views show what is loaded"
    load(tmp_path, {"rows": other})
    assert_same(seen, one.get(slice(None)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_never_touched_stay_so(kind, tmp_path):
    one, other = storage(kind, tmp_path / "one"), storage(kind, tmp_path / "other")
    assert save(tmp_path / "s", {"rows": one}) == 0
    load(tmp_path / "s", {"rows": other})
    if kind != "shared":
        assert not one.exists and not other.exists, "it takes no memory"
    other.set(slice(None), rows(1, 20))
    load(tmp_path / "s", {"rows": other})
    assert not any(array.any() for array in other.arrays)
    one.close()
    with pytest.raises(ValueError, match="expected an open storage; got one after"):
        save(tmp_path / "s", {"rows": one})


def ring(device="cpu", shared=False):
    return RingBuffer(SPEC, 3, 5, device=device, allow_multiprocess=shared)


@pytest.mark.parametrize("device", ["cpu", "/CPU:0", "shared"])
def test_ring_buffers(device, tmp_path):
    place = {"shared": True} if device == "shared" else {"device": device}
    one, other = ring(**place), ring(**place)
    for k in range(7):
        one.enqueue(rows(10 * k, 3))
        one.enqueue(rows(10 * k, 1), env_ids=[1])
    one.dequeue(n=2)
    other.enqueue(rows(500, 3))
    save(tmp_path, {"buffer": one})
    load(tmp_path, {"buffer": other})
    assert_same(other.current_size, one.current_size)
    assert_same(other.get_current_position(), one.get_current_position())
    for buffer in (one, other):
        buffer.enqueue(rows(900, 3))
    assert_same(other.dequeue(n=3), one.dequeue(n=3))


@pytest.mark.parametrize("device", ["cpu", "/CPU:0"])
def test_data_buffers_go_on_drawing(device, tmp_path):
    one = DataBuffer(SPEC, 12, device=device, seed=1)
    other = DataBuffer(SPEC, 12, device=device, seed=2)
    one.add_batch(rows(0, 17))
    one.get_batch(3)
    other.add_batch(rows(70, 5))
    save(tmp_path, {"buffer": one})
    expected = one.get_all(), one.get_batch(20), one.get_batch(20)
    load(tmp_path, {"buffer": other})
    assert_same((other.get_all(), other.get_batch(20), other.get_batch(20)), expected)


def samplers(store, seed):
    return {
        "uniform": UniformReplay(store, Transitions(2, frame_stack=2), seed=seed),
        "by priority": PrioritizedReplay(store, Sequences(2, 1), seed=seed),
        "more": PrioritizedReplay(store, alpha=0.9, seed=seed),
    }


@pytest.mark.parametrize(
    "kind, rounds",
    [
        *(("memory", rounds) for rounds in (0, 2, 9, 40)),
        *(slow(kind, rounds) for kind in ("path", "shared") for rounds in (0, 2, 9)),
        ("path", 40),
        ("shared", 40),
    ],
)
def test_samplers_go_on_drawing(kind, rounds, tmp_path):
    both = stored(kind, tmp_path / "one").run(0, rounds)
    replays = samplers(both.store, 1)
    draws(*replays.values())
    both.run(1, min(rounds, 1))  # what no sampler has looked at
    save(tmp_path / "s", {**replays, "store": both.store})

    other = stored(kind, tmp_path / "other").run(5, 11)
    fresh = samplers(other.store, 2)
    draws(*fresh.values())
    load(tmp_path / "s", fresh)
    other.model, other.count, other.last = copy.deepcopy(
        (both.model, both.count, both.last)
    )
    assert_same(draws(*fresh.values()), draws(*replays.values()))
    both.run(7, 15)
    other.run(7, 15)
    assert_same(draws(*fresh.values()), draws(*replays.values()))
    replay_episodes.assert_draws(
        UniformReplay(other.store, seed=0), other.model.transitions()
    )


def test_a_store_is_saved_once_and_comes_back_under_any_name(tmp_path):
    both = stored("memory").run(0, 20)
    replays = samplers(both.store, 1)
    save(tmp_path, {**replays, "store": both.store})
    parts = json.loads((tmp_path / "manifest.json").read_bytes())["manifest"]["parts"]
    assert len(parts) == 4 + 1 + 2 + 2
    for names in (["store"], ["uniform"], ["more", "store"]):
        other = stored("memory")
        fresh = {**samplers(other.store, 2), "store": other.store}
        load(tmp_path, {name: fresh[name] for name in names})
        other.model = both.model
        replay_episodes.assert_draws(
            fresh["uniform"], both.model.transitions(2, 0.99, 2)
        )


def test_saved_together_and_loaded_apart(tmp_path):
    both = stored("memory").run(0, 20)
    replays = samplers(both.store, 1)
    save(tmp_path, replays)
    one, other = (samplers(stored("memory").store, 2) for _ in range(2))
    load(tmp_path, {"uniform": one["uniform"], "more": other["more"]})
    expected = draws(replays["uniform"]), draws(replays["more"])
    assert_same(draws(one["uniform"]), expected[0])
    assert_same(draws(other["more"]), expected[1])
    save(tmp_path, {"a": one["uniform"], "b": other["uniform"]})
    with pytest.raises(ValueError, match="'b/_store.*' and 'a/_store.*' apart.*twice"):
        load(tmp_path, {"a": one["uniform"], "b": one["uniform"]})


def content(kind):
    """Returns an object with something in it, and a function that reads it all."""
    if kind == "storage":
        one = NumpyStorage(SPEC, 20)
        one.set(slice(None), rows(0, 20))
        return one, lambda: one.get(np.arange(20))
    if kind == "ring":
        one = ring()
        one.enqueue(rows(0, 3))
        return one, lambda: one.get([0, 1, 2], 0)
    if kind == "data":
        one = DataBuffer(SPEC, 12, seed=0)
        one.add_batch(rows(0, 7))
        return one, one.get_all
    both = stored("memory").run(0, 20)
    one = samplers(both.store, 1)["more" if kind == "priorities" else "uniform"]
    return one, lambda: (
        [array.copy() for array in both.store.steps.rows.arrays],
        both.store.steps.upcoming.copy(),
        one.size,
    )


CONTENTS = ["storage", "ring", "data", "uniform", "priorities"]


@pytest.mark.parametrize("source", CONTENTS)
def test_what_is_made_in_another_way_stays_unchanged(source, tmp_path):
    save(tmp_path, {"it": content(source)[0]})
    for target in CONTENTS:
        one, read = content(target)
        before = copy.deepcopy(read())
        if source == target:
            load(tmp_path, {"it": one})
        else:
            with pytest.raises(ValueError, match="`load`: `objects` expected"):
                load(tmp_path, {"it": one})
        assert_same(read(), before)


def sampler(kind):
    return PrioritizedReplay(stored("memory").store, kind)


def seeded(seed):
    return DataBuffer(SPEC, 2, seed=seed)


def twister():
    return np.random.Generator(np.random.MT19937(0))


def store(n):
    return EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([]), 20, n)


OTHERS = {
    "capacity": (NumpyStorage, (SPEC, 20), (SPEC, 21), "20 rows.*got it of 21"),
    "dtype": (NumpyStorage, (NUMBER, 3), (WIDE, 3), r"float32\[\]; got .*float64\[\]"),
    "environments": (RingBuffer, (SPEC, 2, 6), (SPEC, 3, 4), "2 env.*got.* 3 env"),
    "generator": (seeded, (0,), (twister(),), "PCG64; got it of .* MT19937"),
    "device": (ring, (), ("/CPU:0",), "a/_positions/_variables/0' of a variable"),
    "samples": (sampler, (Transitions(2),), (Sequences(3),), "1 steps.*of 3 steps"),
    "store": (store, (2,), (4,), "2 environments, 20.*of 4 environments, 20"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_errors_name_both(case, tmp_path):
    make, one, other, match = OTHERS[case]
    save(tmp_path, {"a": make(*one)})
    with pytest.raises(ValueError, match=match):
        load(tmp_path, {"a": make(*other)})


def test_parts_that_an_object_lacks(tmp_path):
    save(tmp_path, {"a": DataBuffer(SPEC, 2)})
    with pytest.raises(ValueError, match="a/_draws' of.*got objects without"):
        load(tmp_path, {"a": RingBuffer(SPEC, 1, 2)})


def test_names_that_were_not_saved(tmp_path):
    one = NumpyStorage(SPEC, 3)
    with pytest.raises(FileNotFoundError, match="`load`: `folder` expected what"):
        load(tmp_path / "none", {"a": one})
    with pytest.raises(FileNotFoundError, match="got nothing of it; save something"):
        load(tmp_path, {"a": one})
    save(tmp_path, {"a": one})
    with pytest.raises(ValueError, match="what was saved, a; got 'b' of 3 rows of"):
        load(tmp_path, {"b": one})
    with pytest.raises(TypeError, match="`load`: `objects`"):
        load(tmp_path, [one])


def test_what_cannot_be_saved(tmp_path):
    one = NumpyStorage(SPEC, 1)
    for wrong in (None, [], {}, [one]):
        with pytest.raises(TypeError, match="`save`: `objects` expected a dict of"):
            save(tmp_path, wrong)
    for name in ("a/b", "", 3):
        with pytest.raises(ValueError, match=f"`load`.*slash; got {name!r}; rename"):
            load(tmp_path, {name: one})
    for wrong in (3, tf.Module(), tf.Variable(3)):
        with pytest.raises(TypeError, match=f"{type(wrong).__name__} for 'b'; leave"):
            save(tmp_path, {"a": one, "b": wrong})
    for function in (save, load):
        with pytest.raises(ValueError, match="outside of tf.function"):
            tf.function(function, autograph=False)(str(tmp_path), {"a": one})
    assert list(tmp_path.iterdir()) == []


class Words(tf.train.experimental.PythonState):
    def __init__(self, words):
        self.words = words

    def serialize(self):
        return self.words

    def deserialize(self, string_value):
        self.words = string_value


class Own(tf.Module):
    """A module of what users may have, and of itself."""

    def __init__(self, words=b"", dtype="int32", shape=(), value=0):
        super().__init__()
        self._lock, self.me, self.words = threading.RLock(), self, Words(words)
        self.buffers = {"b": [NumpyStorage(SPEC, 3)]}
        self.step = tf.Variable(tf.cast(tf.fill(shape, value), dtype))


@pytest.mark.parametrize("shape", [[], [5], [30, 3], [0, 3], [5, 0]])
@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "complex64"])
@pytest.mark.parametrize("words", [b"", b"text", bytes(range(200))])
def test_modules_of_ones_own(words, dtype, shape, tmp_path):
    one, other = Own(words, dtype, shape, 1), Own(b"other", dtype, shape)
    one.buffers["b"][0].set([1], rows(4, 1))
    save(tmp_path, {"own": one})
    load(tmp_path, {"own": other})
    assert_same(other.step.numpy(), one.step.numpy())
    assert other.words.words == words
    assert other.buffers["b"][0].get([1])["n"].tolist() == [4]
    one.step.assign(tf.zeros_like(one.step))
    save(tmp_path, {"own": one})
    load(tmp_path, {"own": other})
    assert_same(other.step.numpy(), one.step.numpy())


STORE = ["/_contents", "/_environments", "/_marks", "/_rows"]
VARIABLES = [
    f"/{name}/_variables/{k}" for name in ("_positions", "_storage") for k in "01"
]


@pytest.mark.parametrize(
    ("make", "paths", "contents"),
    [
        (lambda: NumpyStorage(NUMBER, 3), [""], "3 rows of float32[]"),
        (
            lambda: DataBuffer(tf.TensorSpec([]), 2),
            ["/_positions", "/_storage", "/_draws"],
            "1 environments, 2 rows of float32[]",
        ),
        (
            lambda: DataBuffer(SPEC, 2, device="/CPU:0"),
            [*VARIABLES, "/_draws/_state_var"],
            "a variable int64[1]",
        ),
        (
            lambda: store(2),
            STORE,
            "2 environments, 20 rows of Step(observations=float32[], "
            "actions=float32[], rewards=float32[], terminated=bool[], "
            "truncated=bool[], extra=())",
        ),
        (Own, ["/words", "/buffers/b/0", "/step"], "Words"),
    ],
    ids=["storage", "data", "variables", "episodes", "own"],
)
def test_what_is_saved_keeps_its_names(make, paths, contents, tmp_path):
    save(tmp_path, {"a": make()})
    body = json.loads((tmp_path / "manifest.json").read_bytes())["manifest"]
    assert [part[0] for part in body["parts"]] == [[f"a{path}"] for path in paths]
    assert body["parts"][0][1] == contents
