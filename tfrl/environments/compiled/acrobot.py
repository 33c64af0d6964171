"""Two links hanging from a joint, to be swung up by a motor between them."""

import math
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments
from tfrl.environments.compiled import _actions, _classic, protocol

_GRAVITY, _STEP_SECONDS = 9.8, 0.2
_MAX_TURNING_1, _MAX_TURNING_2 = 4 * math.pi, 9 * math.pi


class Acrobot(_classic.ClassicControl):
    """Gymnasium's `Acrobot-v1` without its time limit of 500 steps.

        d1 = 7/2 + cos b,  d2 = 5/4 + cos b / 2,  f2 = g sin(a + b) / 2
        f1 = 3/2 g sin a - sin b (b'^2 / 2 + a' b') + f2
        b'' = (torque + d2 / d1 f1 - f2 - a'^2 sin b / 2) / (5/4 - d2^2 / d1)
        a'' = -(d2 b'' + f1) / d1

    of links of length 1, mass 1 and moment of inertia 1, their mass in the middle, with
    g = 9.8, by one Runge-Kutta step of order four of 0.2 s. The state is `[N, 4]`
    float32: the angle a of the upper link (0 hangs down), the angle b of the lower one
    to it, and their velocities, within 4 pi and 9 pi; each is from -0.1 to 0.1 at
    first. Observations are `[N, 6]`, cos a, sin a, cos b, sin b, and the velocities.
    Actions are 0, 1 and 2 for the torques -1, 0 and 1. An episode ends where the free
    end is above 1, which costs 0; each step before costs 1. Gymnasium computes in
    float64: a step from the same state is equal up to float32 rounding, which very fast
    turns enlarge, and fully where a float64 state is stepped.

    Args:
        book_or_nips: `"book"`, or `"nips"` for the equations as first printed in the
            paper, without the last term of b''.

    Raises:
        ValueError: if it is neither.

    References:
        Sutton, 1996, Generalization in reinforcement learning: successful examples
        using sparse coarse coding.
        Sutton, Barto, 2018, Reinforcement learning: an introduction.

    Example:
        >>> env = Acrobot()
        >>> state, _ = env.reset(0, 2)
        >>> env.step(state, [0, 2], env.draw(1, [2])).rewards.numpy().tolist()
        [-1.0, -1.0]
    """

    gymnasium_id = "Acrobot-v1"
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 15}
    n_noise, n_step_noise = 4, 0

    def __init__(self, book_or_nips: str = "book") -> None:
        choices = ("book", "nips")
        arguments.check_one_of("Acrobot", "book_or_nips", book_or_nips, choices)
        self.book_or_nips = book_or_nips
        bounds = [1.0, 1.0, 1.0, 1.0, _MAX_TURNING_1, _MAX_TURNING_2]
        high = np.array(bounds, np.float32)
        self.observation_space = spaces.Box(-high, high)
        self.action_space = spaces.Discrete(3)

    def initial(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state = 0.2 * noise - 0.1
        return state, _seen(*tf.unstack(state, axis=1))

    def step(
        self, state: tf.Tensor, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        state = tf.convert_to_tensor(state)
        actions = _actions.as_actions(self, actions, state.shape[0])
        torque = tf.cast(actions, state.dtype) - 1.0
        start = tf.unstack(state, axis=1)
        half = 0.5 * _STEP_SECONDS
        k1 = self._derivatives(start, torque)
        k2 = self._derivatives(_along(start, half, k1), torque)
        k3 = self._derivatives(_along(start, half, k2), torque)
        k4 = self._derivatives(_along(start, _STEP_SECONDS, k3), torque)
        mean = [
            (a + 2.0 * b + 2.0 * c + d) / 6.0
            for a, b, c, d in zip(k1, k2, k3, k4, strict=True)
        ]
        upper, lower, upper_turning, lower_turning = _along(start, _STEP_SECONDS, mean)
        upper, lower = _classic.wrapped(upper), _classic.wrapped(lower)
        numbers = [
            upper,
            lower,
            tf.clip_by_value(upper_turning, -_MAX_TURNING_1, _MAX_TURNING_1),
            tf.clip_by_value(lower_turning, -_MAX_TURNING_2, _MAX_TURNING_2),
        ]
        observations = _seen(*numbers)
        up = -tf.cos(upper) - tf.cos(upper + lower) > 1.0
        rewards = tf.where(up, 0.0, -1.0)
        return protocol.CompiledStep(
            tf.stack(numbers, axis=1),
            observations,
            rewards,
            up,
            tf.zeros_like(up),
            observations,
        )

    def _derivatives(self, numbers: list, torque: tf.Tensor) -> list:
        """What the four numbers of the state change by in a second."""
        upper, lower, upper_turning, lower_turning = numbers
        sin, cos = tf.sin(lower), tf.cos(lower)
        d1, d2 = 3.5 + cos, 1.25 + 0.5 * cos
        f2 = 0.5 * _GRAVITY * tf.sin(upper + lower)
        spin = lower_turning * (0.5 * lower_turning + upper_turning)
        f1 = 1.5 * _GRAVITY * tf.sin(upper) - sin * spin + f2
        drive = torque + d2 / d1 * f1 - f2
        if self.book_or_nips == "book":
            drive -= 0.5 * upper_turning**2 * sin
        faster = drive / (1.25 - d2**2 / d1)
        return [upper_turning, lower_turning, -(d2 * faster + f1) / d1, faster]


def _along(numbers: list, seconds: float, derivatives: list) -> list:
    pairs = zip(numbers, derivatives, strict=True)
    return [number + seconds * derivative for number, derivative in pairs]


def _seen(
    upper: tf.Tensor,
    lower: tf.Tensor,
    upper_turning: tf.Tensor,
    lower_turning: tf.Tensor,
) -> tf.Tensor:
    angles = [tf.cos(upper), tf.sin(upper), tf.cos(lower), tf.sin(lower)]
    return tf.stack([*angles, upper_turning, lower_turning], axis=1)
