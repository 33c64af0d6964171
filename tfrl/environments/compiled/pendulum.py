"""A pendulum to be swung up and held, by a motor that is too weak to lift it."""

import math
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments
from tfrl.environments.compiled import _actions, _classic, protocol

_MAX_SPEED, _MAX_TORQUE, _STEP_SECONDS = 8.0, 2.0, 0.05


class Pendulum(_classic.ClassicControl):
    """Gymnasium's `Pendulum-v1` without its time limit of 200 steps.

        speed += (3/2 g sin angle + 3 torque) 0.05
        angle += 0.05 speed
        reward = -(angle^2 + 0.1 speed^2 + 0.001 torque^2)

    with the action within -2 and 2 for the torque and the speed kept within 8. The
    state is `[N, 2]` float32, angle (0 is upright) and speed, anywhere and within 1 at
    first; observations are `[N, 3]`, cosine and sine of the angle, and speed. Rewards
    are of the state before the step. No episode ends. Gymnasium computes in float64: a
    step from the same state is equal up to float32 rounding. Its angle grows with every
    turn; here it is kept within pi, so that it stays as exact.

    Args:
        g: acceleration of gravity.

    Raises:
        TypeError: if it is no number.

    Example:
        >>> env = Pendulum()
        >>> step = env.step([[0.0, 1.0]], [[0.0]], env.draw(0, [1]))
        >>> step.rewards.numpy(), step.observations.numpy()[:, 2]
        (array([-0.1], dtype=float32), array([1.], dtype=float32))
    """

    gymnasium_id = "Pendulum-v1"
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 30}
    n_noise, n_step_noise = 2, 0

    def __init__(self, g: float = 10.0) -> None:
        arguments.check_number("Pendulum", "g", g)
        self.g = float(g)
        high = np.array([1.0, 1.0, _MAX_SPEED], np.float32)
        self.observation_space = spaces.Box(-high, high)
        self.action_space = spaces.Box(-_MAX_TORQUE, _MAX_TORQUE, (1,), np.float32)

    def initial(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state = (2.0 * noise - 1.0) * [math.pi, 1.0]
        return state, _seen(*tf.unstack(state, axis=1))

    def step(
        self, state: tf.Tensor, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        state = tf.convert_to_tensor(state)
        actions = _actions.as_actions(self, actions, state.shape[0])
        torque = tf.clip_by_value(actions[:, 0], -_MAX_TORQUE, _MAX_TORQUE)
        angle, speed = tf.unstack(state, axis=1)
        angle = _classic.wrapped(angle)
        rewards = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed += _STEP_SECONDS * (1.5 * self.g * tf.sin(angle) + 3.0 * torque)
        speed = tf.clip_by_value(speed, -_MAX_SPEED, _MAX_SPEED)
        angle = _classic.wrapped(angle + _STEP_SECONDS * speed)
        observations = _seen(angle, speed)
        never = tf.zeros_like(angle, tf.bool)
        state = tf.stack([angle, speed], axis=1)
        return protocol.CompiledStep(
            state, observations, rewards, never, never, observations
        )


def _seen(angle: tf.Tensor, speed: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.cos(angle), tf.sin(angle), speed], axis=1)
