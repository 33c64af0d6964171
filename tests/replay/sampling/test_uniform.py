"""Uniform replay, and what samplers have in common: what they refuse and read into."""

from concurrent import futures

import confidence
import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

SAMPLERS = [UniformReplay, PrioritizedReplay]
PADDED = Sequences(6, 1, pad_end=True)
KINDS = [Transitions(), Transitions(2, frame_stack=3), Sequences(3, 1), Sequences(7)]
KINDS += [PADDED]


def frequencies(indices, expected):
    """Returns how often each of the expected indices was drawn."""
    found, counts = np.unique(indices, return_counts=True)
    drawn = dict(zip(found.tolist(), counts.tolist(), strict=True))
    assert {*drawn} <= {*expected}
    return [drawn.get(index, 0) for index in sorted(expected)]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("rounds, ends", [(9, 0.1), (60, 0.5)])
def test_draws_are_uniform(kind, rounds, ends):
    both = replay_episodes.Stream(3, 16).run(2, rounds, ends)
    replay = UniformReplay(both.store, kind, seed=5)
    expected = both.model.listed(kind)
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
    for k in range(8):
        both.run(k, 3)
        replay_episodes.assert_draws(first, both.model.transitions(2, 0.9))
        replay_episodes.assert_draws(second, both.model.sequences(2))
    assert first.store is second.store is both.store


def test_the_few_that_there_are_come_and_go():
    both = replay_episodes.Stream(1, 60)
    replay = UniformReplay(both.store, Sequences(48), seed=0)
    for k in range(110):
        ends = k in (54, 100)
        both.advance([replay_episodes.TRUNCATED if ends else replay_episodes.ON])
        if k % 3 == 0:
            replay_episodes.assert_draws(replay, both.model.sequences(48))


@pytest.mark.parametrize(
    "sampler, kind",
    [
        (UniformReplay, Sequences(4)),
        (PrioritizedReplay, Transitions(3, 1.0)),
        pytest.param(UniformReplay, Transitions(3, 1.0), marks=pytest.mark.slow),
        pytest.param(PrioritizedReplay, Sequences(4), marks=pytest.mark.slow),
    ],
)
def test_threads_find_whole_rows(sampler, kind):
    spec = tf.TensorSpec([300], tf.int64)
    store = EpisodeStore(spec, spec, 80, 2)
    replay, found = sampler(store, kind, seed=0), []

    def add():
        rng, no = np.random.default_rng(0), np.zeros(2, bool)
        for t in range(1500):
            ends = rng.random(2) < 0.05
            seen = np.full([2, 300], [[2 * t], [2 * t + 10**9]])
            # A final observation is one more than the one before, others are two.
            after = seen + np.where(ends, 1, 2)[:, None]
            store.add(seen, seen, np.ones(2, np.float32), no, ends, after)

    with futures.ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        while not adding.done():
            if replay.size:
                sample = replay.sample(16)
                if sampler is PrioritizedReplay:
                    replay.update_priorities(sample.indices, np.ones(16))
                found.append(sample.data)
        adding.result()
    assert len(found) > 10
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


def dict_store():
    spec = {"b": tf.TensorSpec([2]), "a": tf.TensorSpec([], tf.int32)}
    actions = (tf.TensorSpec([]), tf.TensorSpec([3], tf.float64))
    store = EpisodeStore(spec, actions, 10, extra_spec=[tf.TensorSpec([])])
    for t in range(3):
        seen = {"b": np.full([1, 2], t), "a": [t]}
        after = {"b": np.full([1, 2], t + 1), "a": [t + 1]}
        seen, after = ({k: np.array(v) for k, v in x.items()} for x in (seen, after))
        action = (np.array([0.5]), np.full([1, 3], t))
        extra = [np.array([t])]
        store.add(seen, action, [1.0], [False], [False], after, extra)
    return store


FRAMES = Sequences(2, burn_in=1, frame_stack=2, time_major=True)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    "make, kind",
    [
        (dict_store, Transitions(2)),
        (dict_store, Sequences(2)),
        (lambda: replay_episodes.Stream(2, 9).run(0, 9).store, Transitions()),
        (lambda: replay_episodes.Stream(2, 9).run(0, 9).store, FRAMES),
    ],
    ids=["nests", "sequences", "arrays", "frames"],
)
def test_specs_and_targets(sampler, kind, make):
    replay = sampler(make(), kind, seed=0)
    sample, spec = replay.sample(5), replay.sample_spec(5)
    tf.nest.assert_same_structure(sample, spec)
    for leaf, one in zip(tf.nest.flatten(sample), tf.nest.flatten(spec), strict=True):
        assert (leaf.shape, leaf.dtype) == (one.shape, one.dtype.as_numpy_dtype)
    out = tf.nest.map_structure(np.empty_like, sample.data)
    again = replay.sample(5, out)
    twin = sampler(replay.store, kind, seed=0)
    twin.sample(5)
    expected = twin.sample(5)
    for mine, given, right in zip(
        *map(tf.nest.flatten, (again.data, out, expected.data)), strict=True
    ):
        assert mine is given
        np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_bad_arguments_draw_nothing(sampler):
    replay = sampler(dict_store(), seed=0)
    state = replay._random.serialize()
    good = replay.sample(4).data
    replay._random.deserialize(state)
    wrong = good._replace(rewards=np.empty(3, np.float32))
    other = good._replace(rewards=np.empty(4, np.float64))
    listed = good._replace(rewards=[1.0] * 4)
    frozen = good._replace(rewards=np.frombuffer(bytes(16), np.float32))
    cases = [
        ((0,), ValueError, "`batch_size` expected an int of at least 1"),
        ((2.0,), TypeError, "`batch_size` expected an int"),
        ((4, wrong), ValueError, r"`out` expected float32 of shape \[4\] .*\[3\]"),
        ((4, other), ValueError, "`out` expected float32 .*got float64"),
        ((4, listed), ValueError, "`out` expected the structure"),
        ((4, {}), ValueError, "`out` expected the structure Transition.*got {}"),
        ((4, frozen), TypeError, "`out` expected a writeable"),
    ]
    for args, error, message in cases:
        with pytest.raises(error, match=message):
            replay.sample(*args)
    with pytest.raises(ValueError, match="outside of tf.function"):
        tf.function(lambda: replay.sample(4).data.rewards, autograph=False)()
    with pytest.raises(ValueError, match="sample_spec`: `batch_size`"):
        replay.sample_spec(0)
    assert replay._random.serialize() == state
    np.testing.assert_array_equal(
        replay.sample(4).data.observations["a"], good.observations["a"]
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_to_draw(sampler):
    both = replay_episodes.Stream(1, 8)
    replay = sampler(both.store, Sequences(2))
    with pytest.raises(TypeError, match="`store` expected an EpisodeStore; got list"):
        sampler([])
    with pytest.raises(TypeError, match="`kind` expected Transitions.*got 3"):
        sampler(both.store, 3)
    with pytest.raises(TypeError, match="`kind` expected Transitions.*got <class"):
        sampler(both.store, Sequences)
    for codes in ([1], [2]):
        assert replay.size == 0
        with pytest.raises(ValueError, match="at least 2 steps of one episode; got no"):
            replay.sample(3)
        both.advance(codes)
    assert replay.size == 1
    assert replay.sample(3).indices.tolist() == [0, 0, 0]
    longer, padded = sampler(both.store, Sequences(3)), Sequences(3, pad_end=True)
    with pytest.raises(ValueError, match="`Sequences.pad_end=True.` takes shorter"):
        longer.sample(1)
    with pytest.raises(ValueError, match="3 steps of one episode, or one that has end"):
        sampler(replay_episodes.Stream(1, 8).run(0, 2, 0.0).store, padded).sample(1)
    assert sampler(both.store, padded).size == 2


def test_other_kinds_can_be_written():
    class Newest:
        def reader(self, steps):
            return Transitions().reader(steps)

    both = replay_episodes.Stream(1, 4).run(0, 3, ends=0.0)
    sample = UniformReplay(both.store, Newest(), seed=0).sample(4)
    steps = both.store.get(sample.indices)
    np.testing.assert_array_equal(sample.data.observations, steps.observations)
    np.testing.assert_array_equal(sample.extra["n"], sample.data.actions)


@pytest.mark.parametrize("kind", [Transitions(), Sequences(3, 1), PADDED], ids=repr)
def test_without_replacement_no_step_comes_twice(kind):
    both = replay_episodes.Stream(3, 16).run(2, 60, ends=0.2)
    expected = both.model.listed(kind)
    replay = UniformReplay(both.store, kind, seed=0, replacement=False)
    whole = replay.sample(len(expected))
    assert sorted(whole.indices) == sorted(expected)
    few = [replay.sample(4).indices for _ in range(2000)]
    assert all(len(set(batch.tolist())) == 4 for batch in few)
    counts = frequencies(np.concatenate(few), expected)
    confidence.assert_frequencies(counts, np.ones(len(expected)))
    with pytest.raises(ValueError, match="`batch_size` expected at most"):
        replay.sample(len(expected) + 1)


def newest(model, count):
    """Returns the indices of the newest steps of each environment."""
    found = [[] for _ in range(model.n)]
    for env, position in model.steps():
        found[env].append(position * model.n + env)
    return {index for indices in found for index in indices[-count:]}


@pytest.mark.parametrize("ends", [0.1, 1.0])
def test_a_share_of_the_batch_is_recent(ends):
    both = replay_episodes.Stream(2, 30).run(0, 100, ends)
    replay = UniformReplay(both.store, seed=1, recent_steps=5, recent_ratio=0.5)
    expected = both.model.transitions()
    recent = {*expected} & newest(both.model, 5)
    sample = replay.sample(20000)
    is_recent = np.isin(sample.indices, [*recent])
    low, high = 0.5 / len(expected), 0.5 / len(expected) + 0.5 / len(recent)
    np.testing.assert_allclose(
        sample.probabilities, np.where(is_recent, high, low), rtol=1e-5
    )
    odds = [high if index in recent else low for index in sorted(expected)]
    confidence.assert_frequencies(frequencies(sample.indices, expected), odds)
    np.testing.assert_array_equal(sample.weights, np.ones(20000))
    everything = UniformReplay(both.store, seed=1, recent_steps=5, recent_ratio=1.0)
    assert {*everything.sample(200).indices.tolist()} == recent


def test_recent_steps_without_replacement():
    both = replay_episodes.Stream(2, 30).run(0, 100, ends=0.1)
    replay = UniformReplay(
        *(both.store, None, 1), replacement=False, recent_steps=4, recent_ratio=0.5
    )
    recent = newest(both.model, 4)
    for _ in range(20):
        drawn = {*replay.sample(8).indices.tolist()}
        assert len(drawn) == 8
        assert len(drawn & recent) >= 4


@pytest.mark.parametrize("seed", range(20))
def test_recent_are_the_newest_steps_whatever_ended(seed):
    n, length, count = 1 + seed % 3, 4 + seed % 9, 1 + seed % 6
    both = replay_episodes.Stream(n, n * length).run(seed, 1 + 2 * seed, ends=0.4)
    kind = KINDS[seed % 3]
    replay = UniformReplay(
        both.store, kind, seed=0, recent_steps=count, recent_ratio=1.0
    )
    expected = {*both.model.listed(kind)}
    recent = expected & newest(both.model, count)
    if expected:
        drawn = {*replay.sample(2000).indices.tolist()}
        assert drawn == (recent or expected)
    both.store.clear()
    with pytest.raises(ValueError, match="got none that long"):
        replay.sample(1)


def test_no_recent_step_that_can_be_drawn():
    both = replay_episodes.Stream(1, 30).run(0, 20, ends=0.0)
    replay = UniformReplay(
        both.store, Sequences(5), seed=0, recent_steps=2, recent_ratio=0.5
    )
    expected = both.model.listed(Sequences(5))
    assert {*replay.sample(500).indices.tolist()} == {*expected}


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"replacement": 1}, TypeError, "replacement"),
        ({"recent_steps": -1}, ValueError, "recent_steps"),
        ({"recent_ratio": 0.5}, ValueError, "recent_steps"),
        ({"recent_ratio": 1.5, "recent_steps": 2}, ValueError, "recent_ratio"),
    ],
)
def test_bad_options_of_uniform_draws(options, error, name):
    store = replay_episodes.Stream(1, 6).store
    with pytest.raises(error, match=f"`UniformReplay`: `{name}` expected"):
        UniformReplay(store, **options)
