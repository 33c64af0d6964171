"""A policy that learns beside separate critics: the actor of SAC and its variants."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl.core import pytree
from tfrl.distributions import heads_of_spaces
from tfrl.host import exploring
from tfrl.policies import _state_noise, feedforward, network_policy, networks

# Bounds of log standard deviations that depend on the observation.
LOG_STD_BOUNDS = (-20.0, 2.0)


@keras.saving.register_keras_serializable(package="tfrl")
class Actor(networks._SpaceNetwork):
    """The parameters of a policy from one observation, all of them.

        parameters = actor_network(encoder(observations))

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        n_outputs: number of parameters.
        hidden_units: of the network.
        activation: of the network.
        seed: of the initial weights.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = networks.SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))
        >>> Actor(kinds, n_outputs=2)(np.zeros((3, 4), np.float32)).shape
        TensorShape([3, 2])
    """

    def __init__(
        self,
        kinds: Any,
        n_outputs: int,
        hidden_units: Sequence[int] = (256, 256),
        activation: str = "relu",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "actor")
        arguments = {"kinds": kinds, "n_outputs": n_outputs}
        arguments |= {"activation": activation, "seed": seed}
        super().__init__(arguments, hidden_units, **kwargs)
        self.actor_network = self._mlp(n_outputs, 0.01, 100, "parameters")

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a nest of `[B, ...]` shapes."""
        self._build_parts(input_shape, self.actor_network)
        super().build(input_shape)

    def call(self, observations: Any) -> Any:
        """Returns the parameters, `[B, n_outputs]`."""
        return self.actor_network(self.encoder(observations))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns the shape of the parameters."""
        rows, _ = self.encoder.compute_output_shape(input_shape)
        return rows, self.arguments["n_outputs"]

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers, where they compute in float32."""
        return feedforward.plain(self.actor_network.dense)


class ActorPolicy(network_policy.NetworkPolicy):
    """A network for the policy only; its critics are elsewhere.

        parameters = network(normalize(observations))

    Log standard deviations depend on the observation. They are clipped to [-20, 2] for
    acting and learning; see `distributed`.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState` of an
            `Actor`.
        observation_moments: as in `NetworkPolicy`.
        head: from the parameters to actions.

    Example:
        >>> policy = ActorPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)),
        ...     learner=tfrl.agents.TrainState.create)
        >>> policy.act(np.zeros((5, 3), np.float32), seed=0).actions.shape
        (5, 1)

    References:
        Haarnoja et al., 2018, Soft Actor-Critic, appendices C and D.
    """

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        learner: Callable[[Any], Any],
        network: Any = None,
        hidden_units: Sequence[int] = (256, 256),
        activation: str = "relu",
        squash: bool | None = None,
        normalize_observations: bool = False,
        seed: int = 0,
        noise_steps: int | None = None,
    ) -> "ActorPolicy":
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: see `action_head` for the kinds.
            learner: as in `ActorCriticPolicy.create`.
            network: your own Keras model, or a function of both spaces that returns
                one, called as in inference. From observations `[B, *shape]` (floats as
                float32, images as uint8, choices as int64) it returns the parameters of
                the head, `[B, n]`. Log standard deviations that it leaves out are
                learned beside it.
            hidden_units: of the network; like `activation`, used only without
                `network`.
            activation: of the network.
            squash: see `action_head`; None squashes what has bounds.
            normalize_observations: keep moments of all observed Boxes except images.
            seed: of the initial weights.
            noise_steps: for how many steps exploration is one function of the state,
                see `StateNoiseActorPolicy`; None draws anew in each step.

        Returns:
            An untrained policy.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `squash` does not fit the action space, or the outputs of
                `network` do not fit the head; if `noise_steps` comes with actions other
                than a Box of floats, or with a `network`.
        """
        head = heads_of_spaces.action_head(action_space, squash=squash)
        if noise_steps is not None:
            _state_noise.check(cls.__name__, noise_steps, head, network)
            return StateNoiseActorPolicy._made(
                learner,
                lambda space: _state_noise.around(
                    Actor.for_space(
                        space, head.n_log_stds, hidden_units, activation, seed
                    ),
                    0.0,
                    learns_features=True,
                ),
                None,
                (observation_space, action_space),
                head,
                normalize_observations,
                given={},
                noise_steps=noise_steps,
            )
        return cls._made(
            learner,
            lambda space: Actor.for_space(
                space, head.n_outputs, hidden_units, activation, seed
            ),
            network,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={"log_std": 0.0 if head.has_log_std else None, "seed": seed},
        )

    def distributed(
        self, parameters: Any, temperature: float = 1.0, mask: Any = None
    ) -> tf.Tensor:
        """Returns the parameters of the distribution; see `NetworkPolicy`."""
        if self.head.n_log_stds:
            n = self.head.n_outputs - self.head.n_log_stds
            log_std = tf.clip_by_value(parameters[..., n:], *LOG_STD_BOUNDS)
            parameters = tf.concat([parameters[..., :n], log_std], axis=-1)
        return super().distributed(parameters, temperature, mask)

    def host_distributed(
        self, parameters: np.ndarray, temperature: float, mask: Any
    ) -> np.ndarray:
        """Returns what `distributed` does, in NumPy."""
        if self.head.n_log_stds:
            n = self.head.n_outputs - self.head.n_log_stds
            log_std = np.clip(parameters[..., n:], *LOG_STD_BOUNDS)
            parameters = np.concatenate([parameters[..., :n], log_std], axis=-1)
        return super().host_distributed(parameters, temperature, mask)

    def host_draw(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Returns what draws without TensorFlow; see `NetworkPolicy`."""
        if not self.head.n_log_stds:
            return super().host_draw()
        given = self.head.plain(), LOG_STD_BOUNDS
        return functools.partial(exploring.within_deviations, *given), {}


class StateNoiseActorPolicy(_state_noise.StateNoise, ActorPolicy):
    """An actor that explores with state-dependent noise: gSDE.

    Like `StateNoisePolicy`, except that gradients of the deviations reach the features.
    Make one with `ActorPolicy.create`.

    Attributes:
        state: the network with its weights.
        observation_moments: as in `NetworkPolicy`.
        head: a `NormalHead`.
        noise_steps: for how many steps the noise stays one function of the state.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (2,))
        >>> policy = ActorPolicy.create(
        ...     box, box, learner=tfrl.agents.TrainState.create, noise_steps=8)
        >>> acted = policy.act(np.ones((5, 2), np.float32), policy.initial_state(5))
        >>> acted.state["steps"].tolist()
        [1, 1, 1, 1, 1]

    References:
        Raffin, Kober, Stulp, 2021, Smooth Exploration for Robotic Reinforcement
        Learning, section 4.
    """

    noise_steps: int = pytree.nonpytree_field()

    def independent(self) -> ActorPolicy:
        """Returns the policy with draws that do not depend on those before."""
        return ActorPolicy(self.state, self.observation_moments, self.head)
