import gymnasium as gym
import numpy as np

from tfrl.environments import vector
from tfrl.training import _own_state
from tfrl.training.collecting import collection


class Uncapturable(gym.Wrapper):
    """Has a generator, which cannot be copied."""

    def __init__(self, env):
        super().__init__(env)
        self.endless = iter(int, 1)


def play(rng, collector):
    def act(observations):
        return rng.integers(0, 2, len(observations))

    return collector.collect(act, lambda raw: raw)


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_restored_goes_on_as_before():
    rng = np.random.default_rng(0)
    envs = vector.make_vec("CartPole-v1", 2, "sync")
    collector = collection.Collector(envs, 8, 0)
    play(rng, collector)
    state = _own_state.captured(rng, collector)
    expected = play(rng, collector)
    other = collection.Collector(vector.make_vec("CartPole-v1", 2, "sync"), 8, 7)
    rng = np.random.default_rng(7)
    assert _own_state.restore(state, rng, other, seed=1) is None
    assert other.env_steps == 16
    assert_same(play(rng, other), expected)


def test_environments_that_hide_something_start_anew():
    def make():
        return gym.vector.SyncVectorEnv([lambda: Uncapturable(gym.make("CartPole-v1"))])

    rng = np.random.default_rng(0)
    collector = collection.Collector(make(), 8, 0)
    play(rng, collector)
    state = _own_state.captured(rng, collector)
    notice = _own_state.restore(state, rng, collector, seed=3)
    assert "resumed with new episodes" in notice and "endless" in notice
    assert collector.env_steps == 8
    fresh = collection.Collector(make(), 8, 3)
    np.testing.assert_array_equal(collector.observations, fresh.observations)
