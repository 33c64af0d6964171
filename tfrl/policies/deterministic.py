"""A policy that gives actions themselves, with noise around them to explore."""

from collections.abc import Callable
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import action_heads
from tfrl.policies import network_policy


class DeterministicPolicy(network_policy.NetworkPolicy):
    """A network of actions, which normal noise disturbs.

        raw_actions = network(normalize(observations)) + noise * N(0, 1)

    clipped to the bounds, or squashed into them by tanh, as the head has it. `act` at
    temperature t disturbs by `t * noise`.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState`.
        observation_moments: as of `NetworkPolicy`.
        head: a `NormalHead`.
        noise: float32 `[]`, standard deviation.

    Example:
        >>> space = gym.spaces.Box(-1.0, 1.0, (2,))
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> policy = DeterministicPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), space, network=network,
        ...     learner=tfrl.agents.TrainState.create)
        >>> policy.act(np.zeros((5, 3), np.float32), temperature=0.0).actions.shape
        (5, 2)

    References:
        Silver et al., 2014, Deterministic Policy Gradient Algorithms.
    """

    noise: tf.Tensor

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        learner: Callable[[Any], Any],
        network: keras.Model | Callable[[gym.Space, gym.Space], keras.Model],
        squash: bool = False,
        normalize_observations: bool = False,
        noise: float = 0.1,
    ) -> Self:
        """Returns a policy of a network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: a Box of floats.
            learner: as of `ActorCriticPolicy.create`.
            network: a Keras model, or a function of both spaces that returns one. From
                observations `[B, *shape]` it makes raw actions `[B, D]`.
            squash: see `action_head`.
            normalize_observations: keep moments of the float observations.
            noise: standard deviation of the noise.

        Returns:
            A policy that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `network` gives something else, or `noise` is negative
                or not finite.
        """
        checks.check_within("DeterministicPolicy", "noise", noise, 0.0, np.inf)
        checks.check_finite("DeterministicPolicy", "noise", noise)
        head = action_heads.action_head(action_space, squash=squash)
        if not isinstance(head, action_heads.NormalHead):
            where, expected = "DeterministicPolicy", "a Box of floats"
            raise checks.wrong_type(where, "action_space", action_space, expected)
        return cls._made(
            learner,
            lambda _: network,
            network,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={},
            noise=tf.constant(noise, tf.float32),
        )

    @property
    def has_log_probs(self) -> bool:
        """False: the distribution of actions has no density where the noise is 0."""
        return False

    def distributed(self, parameters: Any, temperature: Any, mask: Any) -> tf.Tensor:
        """Returns the parameters of the disturbed actions; see `NetworkPolicy`."""
        self._check_no_mask(mask)
        log_std = tf.fill(tf.shape(parameters), tf.math.log(self.noise * temperature))
        return tf.concat([parameters, log_std], axis=-1)

    def host_distributed(
        self, parameters: np.ndarray, temperature: float, mask: Any
    ) -> np.ndarray:
        """Returns what `distributed` does, in NumPy."""
        self._check_no_mask(mask)
        with np.errstate(divide="ignore"):
            log_std = np.log(np.float32(float(self.noise) * temperature))
        return np.concatenate([parameters, np.full_like(parameters, log_std)], axis=-1)

    def _check_no_mask(self, mask: Any) -> None:
        if mask is not None:
            raise ValueError(
                "`act`: `mask` expected None, as nothing is chosen; got one"
            )
