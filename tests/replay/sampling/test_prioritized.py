"""Prioritised replay: in proportion to priorities, which belong to one step each."""

import confidence
import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrl.replay.disk import saving
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions

EPSILON = 1e-6


def test_weights_by_hand():
    both = replay_episodes.Stream(1, 6).run(0, 3, ends=0.0)
    replay = PrioritizedReplay(both.store, alpha=0.5, beta=0.25, epsilon=1.0, seed=0)
    replay.update_priorities([0, 1, 2], [0.0, 3.0, 8.0])
    sample = replay.sample(300)
    # Masses 1, 2 and 3: weights (3 P)^-1/4 are (1/2)^-1/4, 1 and (3/2)^-1/4.
    probabilities = np.array([1, 2, 3]) / 6
    weights = (3 * probabilities) ** -0.25 / (3 * probabilities[0]) ** -0.25
    np.testing.assert_allclose(
        sample.probabilities, probabilities[sample.indices], rtol=1e-6
    )
    np.testing.assert_allclose(sample.weights, weights[sample.indices], rtol=1e-6)
    assert sample.weights.dtype == sample.probabilities.dtype == np.float32
    assert sample.weights.max() == 1.0
    confidence.assert_frequencies(np.bincount(sample.indices), probabilities)


@pytest.mark.parametrize(
    "kind, rounds",
    [
        (Transitions(2), 7),
        (Transitions(frame_stack=2), 70),
        (Sequences(3, 1), 70),
        (Sequences(5, 1, pad_end=True), 70),
    ],
    ids=str,
)
def test_draws_are_in_proportion(kind, rounds):
    both = replay_episodes.Stream(3, 12).run(1, rounds, ends=0.1)
    expected = both.model.listed(kind)
    replay = PrioritizedReplay(both.store, kind, alpha=0.7, seed=3)
    index = np.array(sorted(expected))
    priorities = np.random.default_rng(0).uniform(0.5, 4.0, index.size)
    replay.update_priorities(index, priorities)
    sample = replay_episodes.assert_draws(replay, expected, 500 * index.size)
    masses = (priorities + EPSILON) ** 0.7
    counts = np.bincount(np.searchsorted(index, sample.indices), minlength=index.size)
    confidence.assert_frequencies(counts, masses)
    found = dict(zip(sample.indices.tolist(), sample.probabilities, strict=True))
    np.testing.assert_allclose(
        [found[k] for k in index.tolist()], masses / masses.sum(), rtol=1e-5
    )


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(4, 7))
def test_priorities_against_a_dict(seed, n, length):
    both = replay_episodes.Stream(n, length)
    replay = PrioritizedReplay(both.store, Transitions(frame_stack=2), 1.0, seed=0)
    rng, highest, known, ever = np.random.default_rng(seed), 1.0, {}, []
    for k in range(12):
        both.run(seed + k, int(rng.integers(0, 4)), ends=0.3)
        there = both.model.transitions(frame_stack=2)
        assert replay.size == len(there)
        known = {index: known.get(index, highest) for index in there}
        ever += [*there]
        if ever:
            # Some of them are overwritten, some come twice.
            index = rng.choice(ever, int(rng.integers(0, 9)))
            given_ = rng.integers(0, 5, index.size).astype(float)
            replay.update_priorities(index, given_)
            for one, priority in zip(index.tolist(), given_, strict=True):
                if one in known:
                    known[one] = priority
            # Of those that come twice the last one counts, for the highest too.
            highest = max(
                [highest]
                + [p for i, p in zip(index.tolist(), given_, strict=True) if i in known]
            )
        if known:
            sample = replay.sample(200)
            masses = np.array([known[i] + EPSILON for i in sample.indices.tolist()])
            total = sum(known.values()) + EPSILON * len(known)
            np.testing.assert_allclose(sample.probabilities, masses / total, rtol=1e-5)
            weights = masses.min() / masses
            np.testing.assert_allclose(sample.weights, weights**0.4, rtol=1e-5)


def test_stale_priorities_are_ignored():
    both = replay_episodes.Stream(1, 4).run(0, 3, ends=0.0)
    replay = PrioritizedReplay(both.store, seed=0)
    old = replay.sample(8).indices
    both.run(0, 5, ends=0.0)
    replay.update_priorities(old, np.full(8, 100.0))
    np.testing.assert_allclose(replay.sample(50).probabilities, 1 / 3)
    replay.update_priorities([], [])


def test_extreme_priorities_leave_finite_weights():
    both = replay_episodes.Stream(1, 9).run(0, 6, ends=0.0)
    replay = PrioritizedReplay(both.store, alpha=1.0, beta=1.0, epsilon=1e-12, seed=0)
    replay.update_priorities(range(6), [0.0, 1e-30, 1.0, 1e10, 1e20, 1e30])
    sample = replay.sample(100)
    assert sample.indices.min() == 5
    replay.update_priorities([5, 4, 3], [0.0, 0.0, 0.0])
    sample = replay.sample(1000)
    assert np.isfinite(sample.weights).all()
    assert {*sample.indices.tolist()} == {2}
    replay.update_priorities([2], [0.0])
    assert len({*replay.sample(300).indices.tolist()}) == 6


def test_tensors_and_functions_are_taken():
    both = replay_episodes.Stream(1, 9).run(0, 4, ends=0.0)
    betas = iter([0.0, 1.0, tf.constant(0.5)])
    replay = PrioritizedReplay(both.store, beta=lambda: next(betas), seed=0)
    index = tf.range(4, dtype=tf.int64)
    replay.update_priorities(index, tf.constant([1, 2, 3, 4], tf.bfloat16))
    for beta in (0.0, 1.0, 0.5):
        sample = replay.sample(50)
        ratio = sample.probabilities.min() / sample.probabilities
        np.testing.assert_allclose(sample.weights, ratio**beta, rtol=1e-5)
    replay = PrioritizedReplay(both.store, beta=lambda: 2.0)
    with pytest.raises(ValueError, match="sample`: `beta` expected numbers in"):
        replay.sample(3)


@pytest.mark.parametrize(
    "index, priorities, error, message",
    [
        ([0, 1], [1.0, -1.0], ValueError, r"`priorities` expected .* >= 0; got -1.0"),
        ([0, 1], [1.0, np.nan], ValueError, "`priorities` expected .*got nan"),
        ([0, 1], [1.0, np.inf], ValueError, "`priorities` expected .*got inf"),
        ([0, 1], [1.0], ValueError, "`priorities` expected the shape of `indices`"),
        ([[0]], [[1.0]], ValueError, "`indices` expected rank 1"),
        ([0.0], [1.0], TypeError, "`indices` expected integers"),
        ([0], ["a"], TypeError, "`priorities` expected real numbers"),
        ([0, 3], [1.0, 1.0], ValueError, "`indices` expected steps that were added"),
        ([0, -1], [1.0, 1.0], ValueError, "`indices` expected steps that were added"),
    ],
)
def test_bad_priorities_change_nothing(index, priorities, error, message):
    both = replay_episodes.Stream(1, 9).run(0, 3, ends=0.0)
    replay = PrioritizedReplay(both.store, alpha=1.0, seed=0)
    replay.update_priorities([0, 1, 2], [1.0, 2.0, 3.0])
    before = replay._masses.serialize()
    with pytest.raises(error, match=message):
        replay.update_priorities(index, priorities)
    assert replay._masses.serialize() == before


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"alpha": 1.5}, "`alpha` expected numbers in"),
        ({"beta": -0.1}, "`beta` expected numbers in"),
        ({"epsilon": 0.0}, "`epsilon` expected numbers > 0"),
        ({"epsilon": np.inf}, "`epsilon` expected finite"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        PrioritizedReplay(replay_episodes.Stream(1, 4).store, **kwargs)


def test_stratified_draws_take_one_of_each_part():
    both = replay_episodes.Stream(1, 30).run(0, 20, ends=0.0)
    replay = PrioritizedReplay(both.store, alpha=1.0, seed=0, stratified=True)
    priorities = np.array([5.0, 0.0, 3.0, 2.0])
    index = np.arange(20)
    replay.update_priorities(index, np.tile(priorities, 5))
    counts = np.zeros(20)
    for _ in range(200):
        drawn = replay.sample(50).indices
        found = np.bincount(drawn, minlength=20)
        # One for each 1 of priority, where parts end with the steps.
        np.testing.assert_allclose(found, np.tile(priorities, 5), atol=1.0)
        counts += found
        assert (np.diff(drawn) < 0).any()
    np.testing.assert_allclose(counts / 200, np.tile(priorities, 5), atol=0.02)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_alpha_changes_and_priorities_stay(alpha, tmp_path):
    both = replay_episodes.Stream(2, 12).run(1, 30, ends=0.1)
    expected = np.array(sorted(both.model.transitions()))
    priorities = np.random.default_rng(0).uniform(0.0, 4.0, expected.size)
    made = [PrioritizedReplay(both.store, alpha=x, seed=0) for x in (0.6, alpha)]
    for replay in made:
        replay.update_priorities(expected, priorities)
    changed, fresh = made
    changed.alpha = alpha
    assert changed.alpha == changed.settings["alpha"] == alpha
    both.run(2, 3)  # what is new has the highest priority in both
    one, other = changed.sample(200), fresh.sample(200)
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-5)
    for way in ("checkpoint", "save"):
        store = replay_episodes.Stream(2, 12).store
        loaded = PrioritizedReplay(store, alpha=0.6, seed=5)
        if way == "checkpoint":
            path = tf.train.Checkpoint(replay=changed).write(str(tmp_path / "saved"))
            tf.train.Checkpoint(replay=loaded).read(path).assert_consumed()
        else:
            saving.save(tmp_path / "folder", {"replay": changed})
            saving.load(tmp_path / "folder", {"replay": loaded})
        assert loaded.alpha == alpha
        expected = changed.sample(20).indices
        np.testing.assert_array_equal(loaded.sample(20).indices, expected)


def test_alpha_of_no_priorities_stays():
    store = replay_episodes.Stream(1, 6).run(0, 3, ends=0.0).store
    uniform = PrioritizedReplay(store, alpha=0.0)
    uniform.alpha = 0.0
    for replay, alpha in ((uniform, 0.5), (PrioritizedReplay(store), 0.0)):
        with pytest.raises(ValueError, match="`PrioritizedReplay`: `alpha` expected"):
            replay.alpha = alpha
    for alpha in (1.5, np.nan):
        with pytest.raises(ValueError, match="`PrioritizedReplay`: `alpha` expected"):
            PrioritizedReplay(store).alpha = alpha
