"""Environments of the battery of families that are made by code of a user's."""

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from tfrl.environments import control_suite

S = gym.spaces


def pong(axis_of_channels=False, render_mode=None):
    """The usual preparation of Atari games, by Gymnasium's own wrappers."""
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Pong-v5", frameskip=1, render_mode=render_mode)
    env = wrappers.AtariPreprocessing(env, grayscale_newaxis=axis_of_channels)
    return wrappers.FrameStackObservation(env, 4)


def balance(render_mode=None):
    """A task of the DeepMind Control Suite, which draws in any case."""
    return control_suite.make_dmc("cartpole", "balance")


class Odd(gym.Env):
    """Has parts of unusual dtypes, shapes and starts, and draws."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    action_space = S.Discrete(3, start=-1)
    observation_space = S.Dict(
        counts=S.MultiDiscrete([3, 4], start=[1, -1]),
        mode=S.Discrete(4, start=5),
        bits=S.MultiBinary((2, 2)),
        parts=S.Tuple(
            [S.Box(-1, 1, (), np.float64), S.Box(-9, 9, (2, 1), np.int16)],
        ),
        half=S.Box(-np.inf, np.inf, (3,), np.float16),
        frame=S.Box(0, 255, (40, 40, 3), np.uint8),
    )

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, 0
        return self.observe(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(
                f"expected an action of {self.action_space}; got {action!r}"
            )
        self.steps += 1
        self.place = int(np.clip(self.place + action, -9, 9))
        end = self.steps >= 5 and bool(self.np_random.random() < 0.2)
        return self.observe(), float(self.place), end, self.steps == 20, {}

    def observe(self):
        return {
            "counts": np.array([1 + self.steps % 3, self.steps % 4 - 1]),
            "mode": np.int64(5 + self.steps % 4),
            "bits": np.eye(2, dtype=np.int8),
            "parts": (
                np.float64(self.place / 9),
                np.array([[self.place], [self.steps % 9]], np.int16),
            ),
            "half": np.full(3, self.place, np.float16),
            "frame": np.full((40, 40, 3), self.steps, np.uint8),
        }

    def render(self):
        return np.full((32, 48, 3), self.steps, np.uint8)


# One process may import this file by two names.
for _name, _point, _options in (
    ("Pong84-v0", pong, {}),
    ("Pong84x1-v0", pong, {"kwargs": {"axis_of_channels": True}}),
    ("Balance-v0", balance, {"max_episode_steps": 1000}),
    ("Odd-v0", Odd, {}),
):
    if _name not in gym.registry:
        gym.register(_name, entry_point=_point, **_options)
