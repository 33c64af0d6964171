"""What samplers have in common: what they refuse, and what they read into."""

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

SAMPLERS = [UniformReplay, PrioritizedReplay]


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


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", [Transitions(2), Sequences(2)], ids=repr)
@pytest.mark.parametrize(
    "make",
    [dict_store, lambda: replay_episodes.Stream(2, 9).run(0, 9).store],
    ids=["nests", "arrays"],
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
        tf.function(lambda: replay.sample(4).data.rewards)()
    with pytest.raises(ValueError, match="sample_spec`: `batch_size`"):
        replay.sample_spec(0)
    assert replay._random.serialize() == state
    np.testing.assert_array_equal(
        replay.sample(4).data.observations["a"], good.observations["a"]
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_wrong_parts(sampler):
    with pytest.raises(TypeError, match="`store` expected an EpisodeStore; got list"):
        sampler([])
    with pytest.raises(TypeError, match="`kind` expected Transitions.*got 3"):
        sampler(replay_episodes.Stream(1, 4).store, 3)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_to_draw(sampler):
    both = replay_episodes.Stream(1, 8)
    replay = sampler(both.store, Sequences(2))
    for codes in ([1], [2]):
        assert replay.size == 0
        with pytest.raises(ValueError, match="at least 2 steps of one episode; got no"):
            replay.sample(3)
        both.advance(codes)
    assert replay.size == 1
    assert replay.sample(3).indices.tolist() == [0, 0, 0]


def test_other_kinds_can_be_written():
    class Newest:
        def reader(self, steps):
            return Transitions().reader(steps)

    both = replay_episodes.Stream(1, 4).run(0, 3, ends=0.0)
    sample = UniformReplay(both.store, Newest(), seed=0).sample(4)
    steps = both.store.get(sample.indices)
    np.testing.assert_array_equal(sample.data.observations, steps.observations)
    np.testing.assert_array_equal(sample.extra["n"], sample.data.actions)
