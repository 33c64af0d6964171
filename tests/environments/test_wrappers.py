"""Tests of `tfrl.environments.wrappers`."""

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from tfrl.environments import snapshots, wrappers


class Counting(gym.Env):
    """Shows its step number in an image `[2, 3, 1]`; ends after 5 steps."""

    observation_space = spaces.Box(0, 255, (2, 3, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.shown(), {}

    def step(self, action):
        self.t += 1
        return self.shown(), 2.0, self.t == 5, False, {"t": self.t}

    def shown(self):
        return np.full((2, 3, 1), self.t, np.uint8)


def test_frames_stand_side_by_side():
    env = wrappers.StackChannels(Counting(), 3)
    assert env.observation_space == spaces.Box(0, 255, (2, 3, 3), np.uint8)
    for _ in range(2):  # The second episode shows nothing of the first.
        seen = [env.reset()[0]] + [env.step(0)[0] for _ in range(4)]
        assert all(
            frame.dtype == np.uint8 and frame.shape == (2, 3, 3) for frame in seen
        )
        rows = [frame[0, 0].tolist() for frame in seen]
        assert rows == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_frames_are_those_of_gymnasium_with_the_axis_last():
    def play(env):
        seen = [env.reset(seed=3)[0]]
        return seen + [env.step(t % 2)[0] for t in range(8)]

    for n_frames in (1, 4):
        mine = play(wrappers.StackChannels(gym.make("CartPole-v1"), n_frames))
        plain = gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), n_frames)
        np.testing.assert_array_equal(mine, [frame.ravel() for frame in play(plain)])


@pytest.mark.parametrize(
    ("shape", "stacked"),
    [
        ((3, 40, 48), (6, 40, 48)),
        ((2, 3, 40, 40), (4, 3, 40, 40)),
        ((40, 48, 3), (40, 48, 6)),
        ((4, 40, 40, 3), (4, 40, 40, 6)),
        ((4, 7, 12), (4, 7, 24)),  # too small to tell
    ],
)
def test_frames_of_images_are_channels(shape, stacked):
    class Seen(Counting):
        observation_space = spaces.Box(0, 255, shape, np.uint8)

        def shown(self):
            return np.full(shape, self.t, np.uint8)

    env = wrappers.StackChannels(Seen(), 2)
    env.reset()
    seen = env.step(0)[0]
    assert seen.shape == env.observation_space.shape == stacked
    halves = np.split(seen, 2, axis=int(np.argmax(np.not_equal(stacked, shape))))
    assert [np.unique(half).tolist() for half in halves] == [[0], [1]]


def test_frames_are_copies():
    shared = np.zeros(2, np.float32)

    class Reusing(Counting):
        observation_space = spaces.Box(0, 9, (2,))

        def shown(self):
            shared[:] = self.t
            return shared

    env = wrappers.StackChannels(Reusing(), 2)
    first = env.reset()[0]
    np.testing.assert_array_equal(env.step(0)[0], [0, 0, 1, 1])
    np.testing.assert_array_equal(first, [0, 0, 0, 0])


def test_rewards_are_scaled():
    env = wrappers.ScaleReward(Counting(), -0.25)
    env.reset()
    seen, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (-0.5, False, False)
    assert info == {"t": 1, "raw_reward": 2.0}
    assert seen.max() == 1


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped:UserWarning")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: wrappers.StackChannels(env, 2),
        lambda env: wrappers.ScaleReward(env, 2),
    ],
    ids=["frames", "rewards"],
)
def test_gymnasium_accepts(wrap):
    check_env(wrap(Counting()), skip_render_check=True)


def test_spec_makes_them_anew():
    env = wrappers.ScaleReward(
        wrappers.StackChannels(gym.make("CartPole-v1"), n_frames=2), factor=0.5
    )
    again = gym.make(cloudpickle.loads(cloudpickle.dumps(env.spec)))
    assert again.reset(seed=0)[0].shape == (8,)
    assert again.step(0)[1] == 0.5


def test_snapshot_brings_frames_back():
    env = wrappers.StackChannels(gym.make("CartPole-v1"), 3)
    env.reset(seed=0)
    env.step(0)
    snapshot = snapshots.capture(env)
    assert snapshot is not None
    expected = env.step(1)[0]
    env.step(0)
    snapshots.restore(env, snapshot)
    np.testing.assert_array_equal(env.step(1)[0], expected)


class Dicts(Counting):
    observation_space = spaces.Dict(a=spaces.Discrete(2))


class Scalars(Counting):
    observation_space = spaces.Box(0, 1, ())


@pytest.mark.parametrize(
    ("env", "n_frames", "error", "name"),
    [
        (Dicts, 2, TypeError, "env"),
        (Scalars, 2, ValueError, "env"),
        (Counting, 0, ValueError, "n_frames"),
        (Counting, 2.0, TypeError, "n_frames"),
    ],
)
def test_bad_stacks(env, n_frames, error, name):
    with pytest.raises(error, match=f"`StackChannels`: `{name}` expected"):
        wrappers.StackChannels(env(), n_frames)


def test_bad_factors():
    for factor in (0, float("inf"), "2", True):
        error = TypeError if factor in ("2", True) else ValueError
        with pytest.raises(error, match="`ScaleReward`: `factor` expected"):
            wrappers.ScaleReward(Counting(), factor)


def test_some_entries_are_shown():
    env = wrappers.PartialObservation(gym.make("CartPole-v1"), (2, np.int64(0)))
    whole, _ = gym.make("CartPole-v1").reset(seed=3)
    seen, _ = env.reset(seed=3)
    np.testing.assert_array_equal(seen, whole[[2, 0]])
    assert env.observation_space.contains(env.step(0)[0])
    again = gym.make(env.spec)
    np.testing.assert_array_equal(again.reset(seed=3)[0], seen)
    for env, indices, error in (
        (gym.make("CartPole-v1"), [4], ValueError),
        (gym.make("CartPole-v1"), [], ValueError),
        (gym.make("CartPole-v1"), [-1], ValueError),
        (gym.make("CartPole-v1"), [0.5], TypeError),
        (gym.make("FrozenLake-v1"), [0], TypeError),
        (wrappers.StackChannels(Counting()), [0], ValueError),
    ):
        with pytest.raises(error, match="`PartialObservation`: "):
            wrappers.PartialObservation(env, indices)


def test_numbers_of_numpy():
    env = gym.make("CartPole-v1")
    env = wrappers.ScaleReward(wrappers.StackChannels(env, np.int64(2)), np.float32(2))
    assert env.observation_space.shape == (8,)
    assert (env.factor, type(env.factor)) == (2.0, float)
    assert gym.make(env.spec).observation_space.shape == (8,)
    env.spec.to_json()
