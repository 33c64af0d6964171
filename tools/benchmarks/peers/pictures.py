"""An environment of pictures that takes hardly any time."""

import gymnasium as gym
import numpy as np


class Pictures(gym.Env):
    """Shows pictures of 84x84x4, and ends at random."""

    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gym.spaces.Discrete(6)

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._pictures = rng.integers(0, 256, (64, 84, 84, 4), np.uint8)
        self._step = 0

    def _shown(self) -> np.ndarray:
        self._step += 1
        return self._pictures[self._step % len(self._pictures)]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self._shown(), {}

    def step(self, action):
        over = bool(self.np_random.random() < 0.01)
        return self._shown(), float(action == self._step % 6), over, False, {}
