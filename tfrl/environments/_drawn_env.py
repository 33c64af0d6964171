"""A single environment out of a vector, to be recorded."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import gym_checks


class DrawnEnv(gym.Env):
    """The one environment of a vector, which draws to arrays.

    Args:
        envs: vector of one environment, in `render_mode` "rgb_array".
    """

    render_mode = "rgb_array"

    def __init__(self, envs: VectorEnv) -> None:
        self._envs, self.metadata = envs, envs.metadata
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        del options
        seen, _ = self._envs.reset(seed=seed)
        return gym_checks.mapped(lambda x: x[0], seen), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        batch = gym_checks.mapped(lambda x: np.asarray(x)[None], action)
        seen, rewards, terminated, truncated, info = self._envs.step(batch)
        seen = gym_checks.mapped(lambda x: x[0], seen)
        last = info["final_obs"][0] if "final_obs" in info else seen
        return last, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:
        pictures = self._envs.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        self._envs.close()
