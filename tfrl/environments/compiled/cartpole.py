"""A pole on a cart, to be held upright by pushing the cart left and right."""

import math
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks
from tfrl.environments.compiled import _actions, _classic, protocol

_GRAVITY, _FORCE, _STEP_SECONDS = 9.8, 10.0, 0.02
_POLE_MASS, _TOTAL_MASS, _HALF_LENGTH = 0.1, 1.1, 0.5
_MAX_POSITION, _MAX_ANGLE = 2.4, math.radians(12)


class CartPole(_classic.ClassicControl):
    """Gymnasium's `CartPole-v1` without its time limit of 500 steps.

        t = (F + m l thetadot^2 sin theta) / M
        thetadotdot = (g sin theta - t cos theta) / (l (4/3 - m cos^2 theta / M))
        xdotdot = t - m l thetadotdot cos theta / M

    with the force F = 10 to the left (action 0) or to the right (1), the mass m = 0.1
    of the pole and M = 1.1 of both, l = 0.5, g = 9.8, in Euler steps of 0.02 s. State
    and observations are `[N, 4]` float32: position, velocity, angle and angular
    velocity, each from -0.05 to 0.05 at first. An episode ends beyond 2.4 or 12
    degrees. Gymnasium computes in float64: a step from the same state is equal up to
    float32 rounding.

    Args:
        sutton_barto_reward: -1 for the step that ends an episode and 0 for others,
            instead of 1 for every step.

    Raises:
        TypeError: if it is no bool.

    References:
        Barto, Sutton, Anderson, 1983, Neuronlike adaptive elements that can solve
        difficult learning control problems.
        Florian, 2007, Correct equations for the dynamics of the cart-pole system.

    Example:
        >>> env = CartPole()
        >>> state, _ = env.reset(0, 2)
        >>> step = env.step(state, [0, 1], env.draw(1, [2]))
        >>> step.rewards.numpy().tolist(), tf.sign(step.observations[:, 1]).numpy()
        ([1.0, 1.0], array([-1.,  1.], dtype=float32))
    """

    gymnasium_id = "CartPole-v1"
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 50}
    n_noise, n_step_noise = 4, 0

    def __init__(self, sutton_barto_reward: bool = False) -> None:
        name = "sutton_barto_reward"
        checks.check_type("CartPole", name, sutton_barto_reward, bool, "a bool")
        self.sutton_barto_reward = sutton_barto_reward
        bounds = [2 * _MAX_POSITION, np.inf, 2 * _MAX_ANGLE, np.inf]
        high = np.array(bounds, np.float32)
        self.observation_space = spaces.Box(-high, high)
        self.action_space = spaces.Discrete(2)

    def initial(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state = 0.1 * noise - 0.05
        return state, state

    def step(
        self, state: tf.Tensor, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        state = tf.convert_to_tensor(state)
        actions = _actions.as_actions(self, actions, state.shape[0])
        position, velocity, angle, turning = tf.unstack(state, axis=1)
        force = tf.where(tf.equal(actions, 1), _FORCE, -_FORCE)
        sin, cos = tf.sin(angle), tf.cos(angle)
        lever = _POLE_MASS * _HALF_LENGTH
        push = (force + lever * turning**2 * sin) / _TOTAL_MASS
        turn = (_GRAVITY * sin - cos * push) / (
            _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * cos**2 / _TOTAL_MASS)
        )
        pull = push - lever * turn * cos / _TOTAL_MASS
        position += _STEP_SECONDS * velocity
        velocity += _STEP_SECONDS * pull
        angle += _STEP_SECONDS * turning
        turning += _STEP_SECONDS * turn
        fell = (tf.abs(position) > _MAX_POSITION) | (tf.abs(angle) > _MAX_ANGLE)
        if self.sutton_barto_reward:
            rewards = tf.where(fell, -1.0, 0.0)
        else:
            rewards = tf.ones_like(angle)
        state = tf.stack([position, velocity, angle, turning], axis=1)
        return protocol.CompiledStep(
            state, state, rewards, fell, tf.zeros_like(fell), state
        )
