"""How policies of action values act: by the greatest, or now and then by chance."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import epsilon_greedy
from tfrl.host import exploring, heads


class EpsilonGreedy:
    """A mixin of policies whose parameters are the values of choices.

    They have a field `epsilon`, float32 `[]`, the share of random actions.
    """

    epsilon: tf.Tensor

    @property
    def has_log_probs(self: Any) -> bool:
        """Whether actions have log-probabilities: not those that noise chooses."""
        return not self.n_noise

    def distributed(
        self: Any, parameters: Any, temperature: Any, mask: Any
    ) -> tf.Tensor:
        """Returns the logits of the epsilon-greedy choice; see `NetworkPolicy`."""
        epsilon = tf.minimum(self.epsilon * temperature, 1.0)
        if mask is None and self.is_masked:
            mask = tf.not_equal(parameters, -np.inf)
        return epsilon_greedy.epsilon_greedy_logits(parameters, epsilon, mask)

    def host_distributed(
        self: Any, parameters: np.ndarray, temperature: float, mask: Any
    ) -> np.ndarray:
        """Returns what `distributed` does, in NumPy."""
        epsilon = min(float(self.epsilon) * temperature, 1.0)
        if mask is not None and self.is_masked:
            parameters = self.head.host_masked(parameters, mask)
        if self.is_masked:
            mask = parameters != -np.inf
        return heads.epsilon_greedy_logits(parameters, epsilon, mask)

    def host_draw(self: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Returns what draws without TensorFlow; see `NetworkPolicy`."""
        draw = functools.partial(exploring.epsilon_greedily, self.head.plain())
        return draw, {"epsilon": float(self.epsilon)}


def check_choices(where: str, action_space: gym.Space) -> None:
    """Raises a TypeError unless a space is Discrete.

    Args:
        where: the asking class, for the message.
        action_space: of one environment.
    """
    kind, expected = gym.spaces.Discrete, "a Discrete space, whose choices count"
    checks.check_type(where, "action_space", action_space, kind, expected)
