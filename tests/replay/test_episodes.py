"""The store of episodes: what goes in, what is refused, kills, other processes."""

import multiprocessing
import pickle
import threading

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore, Step
from tfrl.replay.memory import numpy_storage
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.single_pass import SinglePass
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

OPEN = 1 << 62


def one_store(**kwargs):
    return EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([], tf.int32), 6, **kwargs)


def add(store, t, terminated=False, truncated=False):
    store.add([t], [t], [1.0 + t], [terminated], [truncated], [t + 1])


def test_steps_by_hand():
    store = one_store()
    for t, ends in enumerate([False, True, False]):
        add(store, t, terminated=ends)
    assert (store.capacity, store.num_environments) == (6, 1)
    found = store.get([0, 1, 3])
    assert isinstance(found, Step)
    np.testing.assert_array_equal(found.observations, [0, 1, 2])
    np.testing.assert_array_equal(found.actions, [0, 1, 2])
    np.testing.assert_array_equal(found.rewards, [1, 2, 3])
    np.testing.assert_array_equal(found.terminated, [False, True, False])
    assert found.extra == ()
    assert store.get(3).rewards == 3.0
    assert store.get([[0], [3]]).rewards.shape == (2, 1)
    # The final observation, the one seen last, what was never there.
    for index in (2, 4, 5, -1):
        with pytest.raises(ValueError, match=rf"are stored; got \[{index}\]"):
            store.get([0, index])
    for t in range(3, 6):
        add(store, t)
    with pytest.raises(ValueError, match=r"steps that are stored; got \[0, 1\]"):
        store.get([0, 1, 3])
    np.testing.assert_array_equal(store.get([3, 4, 5, 6]).rewards, [3, 4, 5, 6])


@pytest.mark.parametrize("n, length", [(1, 2), (1, 5), (3, 4), (4, 9)])
def test_against_lists(n, length):
    both = replay_episodes.Stream(n, length)
    for k in range(30):
        both.run(k, 2, ends=0.4)
        expected = {
            position * n + env: both.model.rows[env][position]
            for env, position in both.model.steps()
        }
        found = both.store.get(list(expected))
        for name in ("observation", "action", "reward", "terminated", "truncated"):
            field = name if name in ("terminated", "truncated") else f"{name}s"
            np.testing.assert_array_equal(
                getattr(found, field), [step[name] for step in expected.values()]
            )
        np.testing.assert_array_equal(found.extra["n"], found.actions)


def test_an_observation_is_kept_once():
    store = EpisodeStore(tf.TensorSpec([1000]), tf.TensorSpec([]), 10)
    row = np.ones([1, 1000], np.float32)
    for _ in range(9):
        store.add(row, [0.0], [0.0], [False], [False], row)
    assert UniformReplay(store).size == 9
    assert sum(a.nbytes for a in store.steps.rows.arrays) < 1.01 * 10 * row.nbytes
    found = store.get(0)
    assert found.observations.shape == (1000,)
    found.observations[:] = 99.0  # never a view
    np.testing.assert_array_equal(store.get(0).observations, row[0])


@pytest.mark.parametrize("shape", [[3], [2, 3], [0], [1]])
def test_arrays_that_are_no_block_of_memory(shape):
    rng, count = np.random.default_rng(0), 4
    spec = {"x": tf.TensorSpec(shape), "s": tf.TensorSpec([2], tf.uint8)}
    store = EpisodeStore(spec, tf.TensorSpec(shape, tf.int64), 40, count, spec["x"])
    replay = UniformReplay(store, seed=0)
    every, zeros = [2, *shape], np.zeros(count, bool)
    seen = rng.random((6, count, *every)).astype(np.float32)[:, :, 0]
    marks = rng.integers(0, 256, (6, 2, count), np.uint8).swapaxes(1, 2)
    actions = rng.integers(0, 9, (6, *shape, count))
    actions = np.moveaxis(actions, -1, 1)
    for t in range(5):
        first, then = ({"x": seen[k], "s": marks[k]} for k in (t, t + 1))
        store.add(first, actions[t], np.ones(count), zeros, zeros, then, seen[t])
    found = store.get(np.arange(5 * count).reshape(5, count))
    np.testing.assert_array_equal(found.observations["x"], seen[:5])
    np.testing.assert_array_equal(found.observations["s"], marks[:5])
    np.testing.assert_array_equal(found.actions, actions[:5])
    np.testing.assert_array_equal(found.extra, seen[:5])
    sample = replay.sample(64)
    t, ids = np.divmod(sample.indices, count)
    np.testing.assert_array_equal(sample.data.next_observations["x"], seen[t + 1, ids])


def test_an_episode_goes_on_from_what_was_seen_last():
    spec = {"image": tf.TensorSpec([30, 30], tf.uint8), "x": tf.TensorSpec([2])}
    store = EpisodeStore(spec, tf.TensorSpec([]), 20, num_environments=2)
    rng = np.random.default_rng(0)
    seen = [
        {"image": rng.integers(0, 256, [2, 30, 30], np.uint8), "x": x}
        for x in rng.normal(size=[4, 2, 2]).astype(np.float32)
    ]
    seen[1]["x"][1, 1] = np.nan
    rest = np.zeros(2), np.zeros(2), np.zeros(2, bool), np.array([True, False])
    store.add(seen[0], *rest, seen[1])
    # The first environment begins anew.
    begun = {name: np.stack([seen[2][name][0], seen[1][name][1]]) for name in spec}
    for name, wrong in [("image", seen[3]["image"]), ("x", seen[1]["x"] + 1)]:
        wrong = begun | {name: np.stack([begun[name][0], wrong[1]])}
        with pytest.raises(ValueError, match=r"`observations` .* on; got \[1\]; c"):
            store.add(wrong, *rest, seen[3])
    alone = {name: array[1:] for name, array in seen[3].items()}
    with pytest.raises(ValueError, match="call `cut` where one was reset"):
        store.add(alone, *(x[1:] for x in rest), alone, env_ids=[1])
    assert UniformReplay(store).size == 2
    store.add(begun, *rest, seen[3])
    assert UniformReplay(store).size == 4
    store.cut([1])
    store.add(seen[0], *rest, seen[1])


def test_cut():
    store = one_store()
    store.cut()
    for t in range(2):
        add(store, t)
    with pytest.raises(ValueError, match="`EpisodeStore.cut`: `env_ids` expected"):
        store.cut([1])
    store.cut([0])
    store.cut()
    add(store, 10, terminated=True)
    store.cut()
    found = store.get([0, 1, 3])
    np.testing.assert_array_equal(found.truncated, [False, True, False])
    np.testing.assert_array_equal(found.terminated, [False, False, True])
    data = UniformReplay(store, seed=0).sample(60).data
    assert {*data.next_observations.tolist()} == {1.0, 2.0, 11.0}
    assert {*zip(data.observations, data.discounts, strict=True)} == {
        (0.0, np.float32(0.99)),
        (1.0, np.float32(0.99)),
        (10.0, 0.0),
    }


def test_dtypes_and_nests_are_taken():
    spec = {"a": tf.TensorSpec([2], tf.bfloat16), "b": (tf.TensorSpec([], tf.uint8),)}
    store = EpisodeStore(spec, tf.TensorSpec([], tf.int64), 10)
    seen = {"a": tf.ones([1, 2], tf.bfloat16), "b": (tf.constant([3], tf.uint8),)}
    store.add(seen, tf.constant([2]), tf.constant([0.5]), [True], [False], seen)
    data = UniformReplay(store).sample(2).data
    assert data.observations["a"].dtype == tf.bfloat16.as_numpy_dtype
    np.testing.assert_array_equal(data.next_observations["b"][0], [3, 3])
    assert data.actions.dtype == np.int64
    assert store.step_spec.observations == spec


def arguments(**changes):
    ones = np.ones(2, np.float32)
    no = np.zeros(2, bool)
    names = ("observations", "rewards", "next_observations")
    kwargs = {**dict.fromkeys(names, ones), "actions": np.ones(2, np.int32)}
    return {**kwargs, "terminated": no, "truncated": no, **changes}


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"observations": np.ones([2, 1], np.float32)}, ValueError, "`observations`"),
        ({"observations": np.ones(3, np.float32)}, ValueError, "`observations`"),
        ({"observations": np.float32(1)}, ValueError, "`observations` expected shape"),
        ({"observations": {"a": np.ones(2)}}, ValueError, "`observations` expected"),
        ({"next_observations": np.ones(1)}, ValueError, "`next_observations`"),
        ({"next_observations": np.array(["a", "b"])}, TypeError, "`next_observations`"),
        ({"actions": np.ones(2)}, TypeError, "`actions` expected int32"),
        ({"actions": np.array([0, 2**40])}, ValueError, "`actions` expected integers"),
        ({"rewards": np.array([0.0, 1e300])}, ValueError, "`rewards` expected float"),
        ({"terminated": np.ones(2)}, TypeError, "`terminated` expected bool"),
        ({"truncated": np.ones(2, np.int32)}, TypeError, "`truncated` expected bool"),
        ({"extra": np.ones(2)}, ValueError, "`extra` expected the structure"),
        ({"env_ids": [0]}, ValueError, r"`observations` expected shape \[1\]"),
        ({"env_ids": [1, 1]}, ValueError, "`env_ids` expected each id once"),
        ({"env_ids": [0, 2]}, ValueError, r"`env_ids` expected integers in \[0, 2\)"),
        ({"env_ids": [0.0, 1.0]}, TypeError, "`env_ids` expected integers"),
    ],
    ids=str,
)
def test_bad_steps_change_nothing(changes, error, message):
    store = one_store(num_environments=2)
    store.add(**arguments())
    parts = (store.steps.rows, store.steps.marks, store.steps.environments)
    before = [array.copy() for part in parts for array in part.arrays]
    with pytest.raises(error, match=f"`EpisodeStore.add`: {message}"):
        store.add(**arguments(**changes))
    if message == "`extra` expected the structure":  # it is enough to look once
        with pytest.raises(ValueError, match="outside of tf.function"):
            tf.function(lambda: store.add(**arguments()), autograph=False)()
    after = [array for part in parts for array in part.arrays]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    "args, kwargs, error, message",
    [
        ((1,), {}, ValueError, "`capacity` expected at least 2 rows, 2 for each of 1"),
        ((5, 3), {}, ValueError, "`capacity` expected at least 6 rows"),
        ((2.0,), {}, TypeError, "`capacity` expected an int"),
        ((4, 0), {}, ValueError, "`num_environments` expected"),
        ((4,), {"shared": True, "path": "x"}, ValueError, "`shared` expected False"),
        ((4,), {"extra_spec": tf.TensorSpec([None])}, ValueError, "known dimensions"),
    ],
    ids=str,
)
def test_bad_arguments(args, kwargs, error, message):
    with pytest.raises(error, match=message):
        EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([]), *args, **kwargs)


def test_the_lock_makes_several_calls_one():
    store = one_store()
    added = threading.Thread(target=add, args=[store, 0])
    with store.lock:
        added.start()
        assert UniformReplay(store).size == 0
    added.join()
    assert UniformReplay(store).size == 1


def add_many(store, env, rounds):
    for t in range(rounds):
        seen = np.full([1, 200], t, np.float32)
        no = np.zeros(1, bool)
        one = np.ones(1, np.float32)
        store.add(seen, one, one, no, np.array([t % 7 == 6]), seen + 1, env_ids=[env])


@pytest.mark.slow
def test_processes_share_a_store():
    spec = tf.TensorSpec([200])
    store = EpisodeStore(spec, tf.TensorSpec([]), 40, 2, shared=True)
    replay = UniformReplay(store, seed=0)
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=add_many, args=(store, 1, 300))
    other.start()
    add_many(store, 0, 300)
    while other.is_alive():
        if replay.size:
            data = replay.sample(8).data
            assert (data.observations == data.observations[:, :1]).all()
            np.testing.assert_array_equal(data.next_observations, data.observations + 1)
        other.join(0.001)
    assert other.exitcode == 0
    seen = {*replay.sample(500).indices.tolist()}
    assert {index % 2 for index in seen} == {0, 1}
    assert replay.size == len(seen)


def test_what_is_not_shared_is_not_pickled():
    with pytest.raises(TypeError, match="expected shared=True to be pickled"):
        pickle.dumps(one_store())


def test_marks_by_hand():
    both = replay_episodes.Stream(1, 6)
    for code in (replay_episodes.ON, replay_episodes.TERMINATED, replay_episodes.ON):
        both.advance([code])
    # Two steps and their closing row, a step and its head, a row never written.
    steps = both.store.steps
    columns = steps.columns()
    assert columns.indices.tolist() == [0, 1, 2, 3, 4, 0]
    assert columns.first.tolist() == [0, 0, 0, 3, 3, 0]
    assert columns.end.tolist() == [2, 2, 2, OPEN, 4, 0]
    assert steps.ends(np.arange(5)).tolist() == [2, 2, 2, 4, 4]
    assert (steps.upcoming, steps.top(), steps.oldest()) == (4, 5, 0)
    # The next two fill the last row and overwrite the first.
    both.advance([replay_episodes.ON])
    both.advance([replay_episodes.TRUNCATED])
    assert columns.indices.tolist() == [6, 1, 2, 3, 4, 5]
    assert columns.end.tolist() == [6, 2, 2, 6, 6, 6]
    assert (steps.upcoming, steps.top(), steps.oldest()) == (7, 7, 1)


class Killed(Exception):
    """The process is no more."""


class Mortal(np.ndarray):
    """An array that leaves garbage behind when the writes have run out."""

    left = 0

    def __setitem__(self, key, value):
        Mortal.left -= 1
        array = self.view(np.ndarray)
        if Mortal.left < 0:
            if array.dtype == np.float32:
                array[key] = np.nan
            raise Killed
        array[key] = value


@pytest.mark.parametrize(
    "rounds", [0, 11, 13, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 12))]
)
@pytest.mark.parametrize(
    "codes", [[1, 1], [2, 1], [3, 2], [0, 4], [1, 0]], ids=lambda codes: str(codes)
)
def test_whoever_is_killed_while_adding_leaves_whole_steps(rounds, codes, monkeypatch):
    finished = False
    for writes in range(40):
        both = replay_episodes.Stream(2, 5).run(4, rounds, ends=0.4)
        if rounds > 1:
            both.advance([replay_episodes.TERMINATED, replay_episodes.ON])
        before = both.model.transitions(2)
        with monkeypatch.context() as patch:
            patch.setattr(
                numpy_storage.NumpyStorage,
                "whole_rows",
                property(lambda s: [a.view(Mortal) for a in s._rows.whole()]),
            )
            Mortal.left = writes
            try:
                both.advance(codes)
                finished = True
            except Killed:
                pass
        after = both.model.transitions(2)
        replay = UniformReplay(both.store, Transitions(2), seed=0)
        if finished:
            break
        # None but those that were there, and all that there was no need to overwrite.
        assert replay.size >= len({*before} & {*after})
        # How the steps before go on: as before, or with a step that was cut short.
        for _ in range(2):
            if replay.size:
                sample = replay.sample(100)
                index, data = sample.indices, sample.data
                assert not any(np.isnan(leaf).any() for leaf in data)
                known = {row[:2] for row in before.values()}
                assert {*zip(data.observations, data.actions, strict=True)} <= known
                assert {*index.tolist()} <= {*before}
            both.store.cut()
            assert not both.store.steps.running().any()
    assert finished
    replay_episodes.assert_draws(replay, after)


@pytest.mark.parametrize("rounds", [0, 3, 9, 40])
def test_a_store_that_is_cleared_is_as_good_as_new(rounds):
    used = replay_episodes.Stream(2, 10).run(0, rounds, ends=0.2)
    kinds = Transitions(2, 0.9, frame_stack=2), Sequences(2, 1)
    samplers = [UniformReplay(used.store, kind, seed=0) for kind in kinds]
    samplers.append(PrioritizedReplay(used.store, seed=0))
    old = [sampler.sample(5).indices for sampler in samplers if sampler.size]
    used.store.clear()
    assert [sampler.size for sampler in samplers] == [0, 0, 0]
    for sampler in samplers:
        with pytest.raises(ValueError, match="`store` expected at least"):
            sampler.sample(1)
    for indices in old:
        with pytest.raises(ValueError, match="`indices` expected steps"):
            used.store.get(indices)
        samplers[-1].update_priorities(indices, np.ones(5))
    fresh = replay_episodes.Stream(2, 10)
    used.model, fresh.count = replay_episodes.Listed(2, 10), used.count
    for more in (1, 4, 30):
        for stream in (fresh, used):
            stream.run(more, more, ends=0.2)
        for kind, sampler in zip((*kinds, None), samplers, strict=True):
            found, expected = (
                [x for batch in batches for x in tf.nest.flatten(batch.data)]
                for batches in (
                    SinglePass(stream.store, kind).batches(1000)
                    for stream in (used, fresh)
                )
            )
            assert sampler.size == (len(expected[0]) if expected else 0)
            order = [
                np.argsort(leaves[0].reshape(len(leaves[0]), -1)[:, -1])
                for leaves in (found, expected)
                if leaves
            ]
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one[order[0]], other[order[1]])


def test_cleared_while_an_episode_goes_on_another_begins():
    store = one_store()
    add(store, 0)
    store.clear()
    add(store, 7)  # no observation that would have to follow
    assert store.get(SinglePass(store)._listed()).observations.tolist() == [7.0]
