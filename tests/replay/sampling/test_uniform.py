"""Uniform replay: every step that can be drawn as often as any other."""

import threading

import confidence
import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

KINDS = [Transitions(), Transitions(2, frame_stack=3), Sequences(3, 1), Sequences(7)]


def frequencies(indices, expected):
    """Returns how often each of the expected indices was drawn."""
    found, counts = np.unique(indices, return_counts=True)
    drawn = dict(zip(found.tolist(), counts.tolist(), strict=True))
    assert {*drawn} <= {*expected}
    return [drawn.get(index, 0) for index in sorted(expected)]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("rounds, ends", [(9, 0.1), (60, 0.1), (60, 0.5)])
def test_draws_are_uniform(kind, rounds, ends):
    both = replay_episodes.Stream(3, 16).run(2, rounds, ends)
    replay = UniformReplay(both.store, kind, seed=5)
    listed = both.model.sequences if isinstance(kind, Sequences) else None
    if listed:
        expected = listed(kind.length, kind.burn_in)
    else:
        expected = both.model.transitions(frame_stack=kind.frame_stack)
    if len(expected) < 2:
        replay_episodes.assert_draws(replay, {})
        return
    sample = replay.sample(200 * len(expected))
    counts = frequencies(sample.indices, expected)
    confidence.assert_frequencies(counts, np.ones(len(expected)))
    np.testing.assert_array_equal(sample.weights, np.ones(len(sample.indices)))
    np.testing.assert_allclose(sample.probabilities, 1 / len(expected), rtol=1e-6)
    assert sample.weights.dtype == sample.probabilities.dtype == np.float32


def test_pairs_of_draws_are_independent():
    both = replay_episodes.Stream(2, 4).run(0, 3, ends=0.0)
    pairs = UniformReplay(both.store, seed=1).sample(20000).indices.reshape(-1, 2)
    counts = np.zeros([8, 8])
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    confidence.assert_frequencies(counts[:6, :6].ravel(), np.ones(36))


def test_environments_at_unequal_speeds_share_by_their_steps():
    both = replay_episodes.Stream(2, 50)
    for k in range(49):
        both.advance([replay_episodes.ON, int(k % 16 == 0)])
    expected = both.model.transitions()
    assert len(expected) == 49 + 4
    counts = frequencies(UniformReplay(both.store, seed=0).sample(20000)[1], expected)
    confidence.assert_frequencies(counts, np.ones(53))


def test_seeds():
    both = replay_episodes.Stream(2, 9).run(0, 20)
    draws = [UniformReplay(both.store, seed=seed).sample(50) for seed in (3, 3, 4)]
    assert (draws[0].indices == draws[1].indices).all()
    assert (draws[0].indices != draws[2].indices).any()
    generator = np.random.default_rng(3)
    replay = UniformReplay(both.store, seed=generator)
    assert (replay.sample(50).indices == draws[0].indices).all()
    assert UniformReplay(both.store).sample(2).indices.shape == (2,)


def test_two_samplers_see_the_same_steps():
    both = replay_episodes.Stream(2, 9)
    first = UniformReplay(both.store, Transitions(2, 0.9), seed=0)
    second = UniformReplay(both.store, Sequences(2), seed=0)
    for k in range(20):
        both.run(k, 3)
        replay_episodes.assert_draws(first, both.model.transitions(2, 0.9))
        replay_episodes.assert_draws(second, both.model.sequences(2))
    assert first.store is second.store is both.store


def test_the_few_that_there_are_come_and_go():
    both = replay_episodes.Stream(1, 60)
    replay = UniformReplay(both.store, Sequences(48), seed=0)
    for k in range(120):
        ends = k in (54, 100)
        both.advance([replay_episodes.TRUNCATED if ends else replay_episodes.ON])
        replay_episodes.assert_draws(replay, both.model.sequences(48))


@pytest.mark.parametrize("sampler", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize("kind", [Transitions(3, 1.0), Sequences(4)], ids=repr)
def test_threads_find_whole_rows(sampler, kind):
    width, length = 300, 40
    spec = tf.TensorSpec([width], tf.int64)
    store = EpisodeStore(spec, spec, 2 * length, 2)
    replay = sampler(store, kind, seed=0)
    done, found = threading.Event(), []

    def row(t):
        return np.full([2, width], [[t], [t + 10**9]])

    def add():
        rng = np.random.default_rng(0)
        for t in range(4000):
            ends = rng.random(2) < 0.05
            seen = row(2 * t)
            # A final observation is one more than the one before, others are two.
            after = np.where(ends[:, None], seen + 1, row(2 * t + 2))
            no = np.zeros(2, bool)
            store.add(seen, seen, np.ones(2, np.float32), no, ends, after)

    def work():
        try:
            add()
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    count = 0
    while not done.is_set():
        if not replay.size:
            continue
        sample = replay.sample(16)
        if sampler is PrioritizedReplay:
            replay.update_priorities(sample.indices, np.ones(16))
        found.append(tf.nest.map_structure(np.copy, sample.data))
        count += 1
    thread.join()
    assert count > 10
    for data in found:
        seen, after = data.observations, data.next_observations
        assert (seen == seen[..., :1]).all()
        assert (after == after[..., :1]).all()
        np.testing.assert_array_equal(seen, data.actions)
        here, there = seen[..., 0], after[..., 0]
        if isinstance(kind, Sequences):
            np.testing.assert_array_equal(here[:, 1:], here[:, :1] + [[2, 4, 6]])
            steps = np.where(data.truncated, 1, 2)
        else:
            steps = 2 * data.rewards - (there % 2)
        np.testing.assert_array_equal(there - here, steps)
