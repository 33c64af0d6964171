"""Every storage, sampler and state of a store through a checkpoint."""

import copy

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from replay_episodes import assert_same, draws, stored

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

ROUNDS = {"empty": 0, "begun": 2, "filled": 9, "wrapped": 40}


def restored(replay, path):
    status = tf.train.Checkpoint(replay=replay).restore(path)
    status.assert_consumed()
    status.assert_existing_objects_matched()


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "sampler, kind",
    [
        (UniformReplay, Transitions(2, frame_stack=2)),
        slow(UniformReplay, Sequences(2, 1)),
        slow(PrioritizedReplay, Transitions(2, frame_stack=2)),
        (PrioritizedReplay, Sequences(2, 1)),
        slow(UniformReplay, Sequences(4, 1, pad_end=True)),
        slow(PrioritizedReplay, Sequences(4, 1, pad_end=True)),
    ],
)
@pytest.mark.parametrize(
    "storage, state",
    [
        *(("memory", state) for state in ROUNDS),
        *(slow("path", state) for state in ("empty", "begun", "filled")),
        ("path", "wrapped"),
        *(slow("shared", state) for state in ("empty", "begun", "wrapped")),
        ("shared", "filled"),
    ],
)
def test_draws_go_on_as_they_were(storage, state, sampler, kind, tmp_path):
    both = stored(storage, tmp_path / "first").run(0, ROUNDS[state])
    replay = sampler(both.store, kind, seed=1)
    draws(replay)
    both.run(1, 1 if state != "empty" else 0)  # what no sampler has looked at
    path = tf.train.Checkpoint(replay=replay).save(str(tmp_path / "c"))

    other = stored(storage, tmp_path / "second").run(5, 11)
    fresh = sampler(other.store, kind, seed=2)
    draws(fresh)
    restored(fresh, path)
    other.model, other.count, other.last = copy.deepcopy(
        (both.model, both.count, both.last)
    )
    expected = draws(replay)
    assert_same(draws(fresh), expected)
    for two in (both, other):
        two.run(7, 9)
    assert_same(draws(fresh), draws(replay))
    assert fresh.size == replay.size > 0

    # Back to where it was, in the objects that went on.
    restored(replay, path)
    assert_same(draws(replay), expected)


def test_deferred(tmp_path):
    both = stored("memory").run(0, 30)
    replay = PrioritizedReplay(both.store, seed=1)
    draws(replay)
    path = tf.train.Checkpoint(replay=replay).save(str(tmp_path / "c"))
    checkpoint = tf.train.Checkpoint()
    checkpoint.restore(path)
    checkpoint.replay = PrioritizedReplay(stored("memory").store, seed=2)
    assert_same(draws(checkpoint.replay), draws(replay))


def test_samplers_of_one_store_come_back_together(tmp_path):
    both = stored("memory").run(0, 30)
    parts = {
        "store": both.store,
        "uniform": UniformReplay(both.store, Sequences(3), seed=1),
        "first": PrioritizedReplay(both.store, seed=2),
        "second": PrioritizedReplay(both.store, Transitions(3), seed=3),
    }
    samplers = ("uniform", "first", "second")
    for name in samplers:
        draws(parts[name])
    path = tf.train.Checkpoint(**parts).save(str(tmp_path / "c"))
    after = [draws(parts[name]) for name in samplers]
    both.run(3, 20)
    tf.train.Checkpoint(**parts).restore(path).assert_consumed()
    assert_same([draws(parts[name]) for name in samplers], after)


def test_a_store_restored_alone_gives_all_steps_the_highest_priority(tmp_path):
    both = stored("memory").run(0, 9)
    expected = both.model.transitions()
    path = tf.train.Checkpoint(store=both.store).save(str(tmp_path / "c"))
    model = copy.deepcopy(both.model)
    replay = PrioritizedReplay(both.store, seed=0)
    uniform = UniformReplay(both.store, seed=0)
    both.run(1, 30)
    draws(replay)
    draws(uniform)
    tf.train.Checkpoint(store=both.store).restore(path).assert_consumed()
    assert {**model.transitions()} == expected
    for one in (replay, uniform):
        sample = replay_episodes.assert_draws(one, expected)
        np.testing.assert_allclose(sample.probabilities, 1 / len(expected), rtol=1e-6)


def refused(replay, path, message):
    """A checkpoint is refused, and draws go on as if nothing had been."""
    state = replay._random.serialize()
    expected = draws(replay)
    replay._random.deserialize(state)
    with pytest.raises(ValueError, match=message):
        tf.train.Checkpoint(replay=replay).restore(path).expect_partial()
    found = draws(replay)
    assert_same([sample.data for sample in found], [s.data for s in expected])


@pytest.mark.parametrize("n, length", [(2, 6), (3, 8)])
def test_another_layout_changes_nothing(n, length, tmp_path):
    replay = PrioritizedReplay(stored("memory").run(0, 30).store, seed=0)
    path = tf.train.Checkpoint(replay=replay).save(str(tmp_path / "c"))
    other = replay_episodes.Stream(n, length).run(0, 20)
    mine = UniformReplay(other.store, seed=0)
    refused(mine, path, "`EpisodeStore`: .* expected 2 env.*24 rows.*; got [123] env")
    replay_episodes.assert_draws(mine, other.model.transitions())


def test_another_kind_changes_nothing(tmp_path):
    both = stored("memory").run(0, 30)
    replay = PrioritizedReplay(both.store, seed=0)
    path = tf.train.Checkpoint(replay=replay).save(str(tmp_path / "c"))
    mine = PrioritizedReplay(both.store, Sequences(2), alpha=0.0, seed=3)
    refused(mine, path, "expected samples of 1 steps, with 0 .*; got samples of 2")
    replay_episodes.assert_draws(mine, both.model.sequences(2))
    plain = PrioritizedReplay(both.store, Sequences(4), seed=0)
    path = tf.train.Checkpoint(replay=plain).save(str(tmp_path / "d"))
    kind = Sequences(4, pad_end=True)
    padded = PrioritizedReplay(both.store, kind, alpha=0.0, seed=0)
    refused(padded, path, "samples of 4 steps, with .*; got .* 4 steps, padded at ends")
    replay_episodes.assert_draws(padded, both.model.listed(kind))


def test_a_folder_is_opened_again(tmp_path):
    both = stored("path", tmp_path / "rows").run(0, 40)
    expected = UniformReplay(both.store, Transitions(3), seed=0).sample(50)
    again = EpisodeStore(
        tf.TensorSpec([]),
        tf.TensorSpec([], tf.int64),
        24,
        2,
        extra_spec={"n": tf.TensorSpec([], tf.int64)},
        path=tmp_path / "rows",
    )
    assert_same(UniformReplay(again, Transitions(3), seed=0).sample(50), expected)
    both.store = again
    both.run(1, 5)
    again.cut()
    for env in range(2):
        both.model.cut(env)
    replay = UniformReplay(again, Transitions(3, 0.5), seed=0)
    replay_episodes.assert_draws(replay, both.model.transitions(3, 0.5))
    with pytest.raises(ValueError, match="`path` expected to hold"):
        EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([]), 24, path=tmp_path / "rows")
