"""A small environment without faults, to plant faults into."""

import gymnasium as gym
import numpy as np

S = gym.spaces


class Sound(gym.Env):
    """A walk on a line that ends at either end, or is cut off after 30 steps."""

    metadata = {"render_modes": []}
    observation_space = S.Box(-10.0, 10.0, (2,), np.float32)
    action_space = S.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.kept = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-1.0, 1.0))
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.place += float(action[0]) + float(self.np_random.normal(0.0, 0.3))
        terminated, truncated = abs(self.place) > 3.0, self.steps == 30
        return (
            self.observe(),
            -abs(self.place),
            terminated,
            truncated,
            {"at": self.steps},
        )

    def observe(self):
        return np.clip([self.place, self.steps / 10.0], -10.0, 10.0).astype(np.float32)
