"""What the environments of Gymnasium's classic control share: pictures and angles."""

import functools
import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.environments.compiled import protocol


class ClassicControl(protocol.CompiledEnv):
    """A compiled environment that Gymnasium has too, and draws.

    Attributes:
        gymnasium_id: its id there.
    """

    gymnasium_id: ClassVar[str]
    n_step_noise = 0

    def frame(self, state: Any) -> np.ndarray:
        """Returns the picture that Gymnasium draws, `[height, width, 3]` uint8.

        Args:
            state: `[n_numbers]`, that of one copy.
        """
        env = _renderer(self.gymnasium_id)
        env.unwrapped.state = np.asarray(state, np.float64)
        return np.asarray(env.render())


def wrapped(angle: tf.Tensor) -> tf.Tensor:
    """Returns the same angle between -pi and pi."""
    turn = 2.0 * math.pi
    return angle - turn * tf.round(angle / turn)


@functools.cache
def _renderer(env_id: str) -> gym.Env:
    env = gym.make(env_id, render_mode="rgb_array", disable_env_checker=True)
    env.reset(seed=0)
    return env
