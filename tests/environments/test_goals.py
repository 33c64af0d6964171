"""Tests of `tfrl.environments.goals`."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import env_checker

from tfrl.environments import goals, vector, wrappers

ID = "tfrl.environments.goals:BitFlipping-v0"


def test_bits_are_flipped_until_they_are_those_desired():
    env = goals.BitFlipping(n_bits=4)
    seen, _ = env.reset(seed=1)
    assert seen in env.observation_space
    left = np.flatnonzero(seen["observation"] != seen["desired_goal"])
    assert left.size
    for i, bit in enumerate(left):
        before = seen["observation"].copy()
        seen, reward, terminated, truncated, _ = env.step(bit)
        assert np.flatnonzero(seen["observation"] != before).tolist() == [bit]
        np.testing.assert_array_equal(seen["observation"], seen["achieved_goal"])
        is_last = i == left.size - 1
        assert (reward, terminated, truncated) == (float(is_last) - 1, is_last, False)


def test_as_many_steps_as_bits_end_an_episode():
    env = goals.BitFlipping(n_bits=3, render_mode="ansi")
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        assert np.any(seen["observation"] != seen["desired_goal"])
    left = np.flatnonzero(seen["observation"] != seen["desired_goal"])
    bit = (set(range(3)) - set(left) or {left[0]}).pop()
    ends = [env.step(bit)[2:4] for _ in range(3)]
    if left.size > 1 or bit not in left:
        assert ends == [(False, False), (False, False), (False, True)]
    assert len(env.render().splitlines()) == 2


def test_gymnasium_finds_no_fault():
    env_checker.check_env(goals.BitFlipping(n_bits=3), skip_render_check=True)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`BitFlipping`: `n_bits` expected"):
        goals.BitFlipping(n_bits=0)
    env = goals.BitFlipping(n_bits=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="`BitFlipping.step`: `action` expected"):
        env.step(2)


@pytest.mark.parametrize(
    "kind", ["sync", pytest.param("async", marks=pytest.mark.slow)]
)
def test_rewards_are_those_of_the_environment(kind):
    envs = vector.make_vec(ID, 2, kind, env_kwargs={"n_bits": 3})
    rewards = goals.goal_rewards(envs)
    achieved = np.array([[0, 1, 0], [1, 1, 1], [0, 0, 0]], np.int8)
    found = rewards(achieved, achieved[[0, 0, 2]])
    assert found.dtype == np.float32 and found.tolist() == [0.0, -1.0, 0.0]
    envs.close()


class _Unlike(goals.BitFlipping):
    """Rewards one pair of goals at a time."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float((achieved_goal != desired_goal).any())


class _Costly(goals.BitFlipping):
    """Rewards by what a step told."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return super().compute_reward(achieved_goal, desired_goal, info) - info["cost"]


class _First(goals.BitFlipping):
    """Rewards one pair of goals at a time, whose bits it takes for pairs."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -np.abs(achieved_goal[0] - desired_goal[0])


class _Mixed(goals.BitFlipping):
    """Rewards a pair of goals by what the other pairs are."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        unlike = (achieved_goal != desired_goal).any(axis=-1)
        return np.where(unlike, -unlike.mean(), 0.0)


class _Random(goals.BitFlipping):
    """Rewards by chance."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        rewards = super().compute_reward(achieved_goal, desired_goal, info)
        return rewards + np.random.default_rng().normal(size=rewards.shape)


class _Apart(goals.BitFlipping):
    """Rewards by how far goals are apart, which are in a plane."""

    def __init__(self, bound=np.inf):
        super().__init__()
        plane = gym.spaces.Box(-bound, bound, (4, 3))
        self.observation_space = gym.spaces.Dict(
            observation=plane, achieved_goal=plane, desired_goal=plane
        )

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -np.log(np.linalg.norm(achieved_goal - desired_goal, axis=(-1, -2)))


class _Lucky(_Apart):
    """Rewards goals that are close, most of the time, and refuses those far apart."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        gaps = np.linalg.norm(achieved_goal - desired_goal, axis=(-1, -2))
        if (gaps > 50.0).any():
            raise RuntimeError("out of the workspace")
        rng = np.random.default_rng()
        return np.where(rng.random(gaps.shape) < 0.8, -1.0 * (gaps > 0.5), 0.0)


class _Silent(gym.Wrapper):
    compute_reward = 3


def _vector(make):
    return gym.vector.SyncVectorEnv([make])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (functools.partial(gym.make, "CartPole-v1"), "`envs` expected a Dict"),
        (_Unlike, r"`compute_reward` of .* expected to take arrays .* got \(\)"),
        (_Costly, r"got KeyError: 'cost'; .* no `info` is kept, .* an empty dict"),
        (lambda: _First(3), r"take arrays of goals \[16, 3\] .*; got \(3,\)"),
        (lambda: _First(16), r"take arrays of goals \[17, 16\] .*; got \(16,\)"),
        (_Mixed, "reward each row .* by itself; got .* reduce the axes of a goal only"),
        (lambda: _Silent(goals.BitFlipping(2)), "with a method `compute_reward"),
    ],
)
def test_environments_without_goals_are_refused(make, message):
    envs = _vector(make)
    with pytest.raises(ValueError, match=f"`goal_rewards`: .*{message}"):
        goals.goal_rewards(envs)
    envs.close()


@pytest.mark.parametrize(
    "make",
    [
        *(_Random, _Apart, functools.partial(_Apart, np.finfo("f").max)),
        *(functools.partial(_Lucky, 1.0), functools.partial(_Lucky, 100.0)),
    ],
)
def test_rewards_of_rows_are_taken(make):
    envs = _vector(make)
    space = envs.single_observation_space["achieved_goal"]
    before = space.np_random.bit_generator.state
    rewards = goals.goal_rewards(envs)
    assert space.np_random.bit_generator.state == before
    some = np.ones([2, *space.shape], space.dtype)
    assert rewards(some, 0 * some).shape == (2,)
    envs.close()


class Paid(gym.RewardWrapper):
    def reward(self, reward):
        return 10.0 * reward


class PaidAlike(Paid):
    def compute_reward(self, achieved_goal, desired_goal, info):
        rewards = self.env.get_wrapper_attr("compute_reward")
        return 10.0 * rewards(achieved_goal, desired_goal, info)


@pytest.mark.parametrize(
    ("wrapper", "around"),
    [
        (functools.partial(wrappers.ScaleReward, factor=10.0), lambda envs: envs),
        (Paid, gym.wrappers.vector.RecordEpisodeStatistics),
        (gym.wrappers.NormalizeReward, lambda envs: envs),
        (lambda env: env, gym.wrappers.vector.NormalizeReward),
    ],
)
def test_wrappers_that_change_rewards_alone_are_refused(wrapper, around):
    envs = around(vector.make_vec(ID, 2, "sync", wrappers=[wrapper]))
    match = "got (ScaleReward|Paid|NormalizeReward) around it, which changes only"
    with pytest.raises(ValueError, match=match):
        goals.goal_rewards(envs)


def test_wrappers_that_change_both_are_taken():
    envs = vector.make_vec(ID, 2, "sync", wrappers=[PaidAlike])
    reached = np.zeros((2, 8), np.int8)
    desired = np.eye(8, dtype=np.int8)[:2] * [[0], [1]]
    assert goals.goal_rewards(envs)(reached, desired).tolist() == [0.0, -10.0]
