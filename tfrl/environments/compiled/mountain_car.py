"""A car in a valley, too weak to drive out of it without swinging."""

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments
from tfrl.environments.compiled import _actions, _classic, protocol

_LEFT, _RIGHT, _MAX_SPEED, _GRAVITY = -1.2, 0.6, 0.07, 0.0025


class _Valley(_classic.ClassicControl):
    """The valley of both cars; only what pushes and what is rewarded differs."""

    metadata: ClassVar[dict[str, Any]] = {"render_fps": 30}
    n_noise, n_step_noise = 1, 0
    _goal: ClassVar[float]

    def __init__(self, goal_velocity: float = 0.0) -> None:
        where = type(self).__name__
        arguments.check_number(where, "goal_velocity", goal_velocity)
        self.goal_velocity = float(goal_velocity)
        low = np.array([_LEFT, -_MAX_SPEED], np.float32)
        high = np.array([_RIGHT, _MAX_SPEED], np.float32)
        self.observation_space = spaces.Box(low, high)

    def initial(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        position = 0.2 * noise[:, 0] - 0.6
        state = tf.stack([position, tf.zeros_like(position)], axis=1)
        return state, state

    def _moved(self, state: tf.Tensor, push: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The next state, and whether the car is at its goal."""
        position, velocity = tf.unstack(state, axis=1)
        velocity += push - _GRAVITY * tf.cos(3.0 * position)
        velocity = tf.clip_by_value(velocity, -_MAX_SPEED, _MAX_SPEED)
        position = tf.clip_by_value(position + velocity, _LEFT, _RIGHT)
        at_wall = (position <= _LEFT) & (velocity < 0.0)
        velocity = tf.where(at_wall, 0.0, velocity)
        arrived = (position >= self._goal) & (velocity >= self.goal_velocity)
        return tf.stack([position, velocity], axis=1), arrived


class MountainCar(_Valley):
    """Gymnasium's `MountainCar-v0` without its time limit of 200 steps.

        velocity += 0.001 (action - 1) - 0.0025 cos(3 position)
        position += velocity

    with the velocity kept within 0.07, the position from -1.2, where the car stops, to
    0.6. State and observations are `[N, 2]` float32: position, from -0.6 to -0.4 at
    first, and velocity, 0. Actions are 0 (to the left), 1 (nothing) and 2 (to the
    right). Each step costs 1; an episode ends at the position 0.5. Gymnasium computes
    in float64: a step from the same state is equal up to float32 rounding.

    Args:
        goal_velocity: least velocity of the car at the goal.

    Raises:
        TypeError: if it is no number.

    References:
        Moore, 1990, Efficient memory-based learning for robot control.

    Example:
        >>> env = MountainCar()
        >>> step = env.step([[0.45, 0.06], [-0.5, 0.0]], [2, 2], env.draw(0, [2]))
        >>> step.terminated.numpy().tolist(), step.rewards.numpy().tolist()
        ([True, False], [-1.0, -1.0])
    """

    gymnasium_id = "MountainCar-v0"
    action_space = spaces.Discrete(3)
    _goal = 0.5

    def step(
        self, state: tf.Tensor, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        state = tf.convert_to_tensor(state)
        actions = _actions.as_actions(self, actions, state.shape[0])
        push = 0.001 * (tf.cast(actions, tf.float32) - 1.0)
        state, arrived = self._moved(state, push)
        rewards = -tf.ones_like(push)
        return protocol.CompiledStep(
            state, state, rewards, arrived, tf.zeros_like(arrived), state
        )


class MountainCarContinuous(_Valley):
    """Gymnasium's `MountainCarContinuous-v0` without its time limit of 999 steps.

        velocity += 0.0015 force - 0.0025 cos(3 position)
        position += velocity

    with the action within -1 and 1 for the force, and the rest as in `MountainCar`. A
    step costs `0.1 action^2`; an episode ends at the position 0.45, which earns 100.

    Args:
        goal_velocity: least velocity of the car at the goal.

    Raises:
        TypeError: if it is no number.

    References:
        Moore, 1990, Efficient memory-based learning for robot control.

    Example:
        >>> env = MountainCarContinuous()
        >>> state = [[0.44, 0.06], [-0.5, 0.0]]
        >>> step = env.step(state, [[1.0], [0.0]], env.draw(0, [2]))
        >>> step.rewards.numpy()
        array([99.9,  0. ], dtype=float32)
    """

    gymnasium_id = "MountainCarContinuous-v0"
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    _goal = 0.45

    def step(
        self, state: tf.Tensor, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        state = tf.convert_to_tensor(state)
        action = _actions.as_actions(self, actions, state.shape[0])[:, 0]
        state, arrived = self._moved(
            state, 0.0015 * tf.clip_by_value(action, -1.0, 1.0)
        )
        rewards = tf.where(arrived, 100.0, 0.0) - 0.1 * action**2
        return protocol.CompiledStep(
            state, state, rewards, arrived, tf.zeros_like(arrived), state
        )
