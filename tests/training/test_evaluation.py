"""Tests of `tfrl.training.evaluation`."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from toy_envs import MODES, Walk, act, vector

from tfrl.training import evaluation


def episodes_slowly(seed, n):
    """Returns and lengths of the first `n` episodes of one walk."""
    env, found = Walk(), []
    observation, _ = env.reset(seed=seed)
    total = 0.0
    while len(found) < n:
        action = act(observation[None])[0]
        observation, reward, terminated, truncated, _ = env.step(int(action))
        total += reward
        if terminated or truncated:
            found.append((total, env.steps))
            observation, _ = env.reset()
            total = 0.0
    return found


def play(mode, n_envs, n_episodes, layout="box"):
    return evaluation.evaluate(
        lambda observations: act(observations).astype(np.int64),
        vector(mode, n_envs, layout),
        n_episodes,
        seed=11,
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("n_envs", "n_episodes", "quota"),
    [(3, 9, [3, 3, 3]), (3, 7, [3, 2, 2]), (4, 2, [1, 1, 0, 0]), (1, 5, [5])],
)
def test_first_episodes_of_each_environment(mode, n_envs, n_episodes, quota):
    played = play(mode, n_envs, n_episodes)
    expected = [
        episode
        for env, n in enumerate(quota)
        for episode in episodes_slowly(11 + env, n)
    ]
    returns, lengths = zip(*expected, strict=True)
    np.testing.assert_allclose(played.returns, returns, rtol=1e-12)
    np.testing.assert_array_equal(played.lengths, lengths)
    assert played.returns.dtype == np.float64
    assert played.lengths.dtype == np.int64


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_long_episodes_count_as_much_as_short_ones(mode):
    lengths = play(mode, 50, 500).lengths
    # Lengths 1 to 5 are equally likely; counting what ends first would favour 1.
    np.testing.assert_allclose(lengths.mean(), 3.0, atol=4 * np.sqrt(2.0 / 500))


class PaidResets(gym.vector.VectorWrapper):
    """Gives rewards for the steps of a NEXT_STEP vector that only reset."""

    ended = np.zeros(1, bool)

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        rewards, self.ended = rewards + 100.0 * self.ended, terminated | truncated
        return observations, rewards, terminated, truncated, info


def test_what_resets_bring_does_not_count():
    envs = PaidResets(vector(AutoresetMode.NEXT_STEP, 2))
    paid = evaluation.evaluate(act, envs, 6, seed=11)
    np.testing.assert_allclose(paid.returns, play(MODES[0], 2, 6).returns, rtol=1e-12)


@pytest.mark.parametrize("layout", ["dict", "tuple"])
def test_nested_observations(layout):
    played, flat = (
        play(AutoresetMode.SAME_STEP, 2, 6, kind) for kind in (layout, "box")
    )
    np.testing.assert_array_equal(played.returns, flat.returns)


@pytest.mark.parametrize("n_episodes", [0, -3])
def test_errors(n_episodes):
    with pytest.raises(ValueError, match="`evaluate`: `n_episodes` expected an int of"):
        play(AutoresetMode.DISABLED, 2, n_episodes)


@pytest.mark.parametrize(
    ("act", "envs", "message"),
    [
        (None, None, "`policy` expected a policy, or a function .*; got None"),
        (
            len,
            gym.make("CartPole-v1"),
            "`envs` expected a Gymnasium vector environment",
        ),
    ],
    ids=["act", "envs"],
)
def test_arguments_of_other_types(act, envs, message):
    with pytest.raises(TypeError, match=f"`evaluate`: {message}"):
        evaluation.evaluate(act, envs, 1, seed=0)


PARTS = gym.spaces.Dict(
    press=gym.spaces.Discrete(3), steer=gym.spaces.Box(-1.0, 1.0, (2,))
)
WRONG = {
    "one for all": (gym.spaces.Discrete(2), np.int64(1), r"shape \[3\] .*; got \[\]"),
    "a column": (gym.spaces.Discrete(2), np.ones([3, 1]), r"\[3\] .*; got \[3, 1\]"),
    "too wide": (PARTS["steer"], np.ones([3, 4]), r"\[3, 2\] .*; got \[3, 4\]"),
    "nan": (PARTS["steer"], np.full([3, 2], np.nan), "finite numbers; got .*nan nan"),
    "no dict": (PARTS, np.ones(3), "a part 'press' for Dict.*; got array"),
    "a part": (PARTS, {"press": np.ones(3, int), "steer": np.ones(3)}, r"\[3, 2\]"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_actions_that_no_environment_takes(kind):
    space, actions, match = WRONG[kind]

    class Open(Walk):
        action_space = space

    envs = gym.vector.SyncVectorEnv([Open] * 3)
    message = f"(?s)`evaluate`: `policy` expected to return actions .*{match}"
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate(lambda observations: actions, envs, 3, seed=0)
