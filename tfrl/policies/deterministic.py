"""A policy that returns the actions themselves, with noise for exploration."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import initializers
from tfrl.distributions import action_heads, heads_of_spaces
from tfrl.host import exploring
from tfrl.policies import feedforward, network_policy, networks


@keras.saving.register_keras_serializable(package="tfrl")
class DeterministicActor(networks._SpaceNetwork):
    """The action for one observation.

        actions = centre + half_range * tanh(actor_network(encoder(observations)))

    for each number with both bounds; for one with none or only one, the output of the
    network itself.

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        low: lower bounds of the actions, `[D]`.
        high: upper bounds of the actions, `[D]`.
        hidden_units: of the network.
        activation: of the network.
        seed: of the initial weights.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = networks.SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))
        >>> actor = DeterministicActor(kinds, [1.0], [3.0])
        >>> actor(np.zeros((1, 4), np.float32)).numpy().tolist()
        [[2.0]]

    References:
        Lillicrap et al., 2016, Continuous Control with Deep Reinforcement Learning,
        section 7.
    """

    def __init__(
        self,
        kinds: Any,
        low: Sequence[float],
        high: Sequence[float],
        hidden_units: Sequence[int] = (256, 256),
        activation: str = "relu",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "actor")
        arguments = {"kinds": kinds, "low": list(low), "high": list(high)}
        arguments |= {"activation": activation, "seed": seed}
        super().__init__(arguments, hidden_units, **kwargs)
        self.bounded = np.isfinite([low, high]).all(axis=0)
        is_bounded = bool(self.bounded.all())
        self.is_mixed = bool(self.bounded.any()) and not is_bounded
        self.hidden_network = self._mlp(None, 1.0, 100, "hidden")
        n, dtype = len(low), "float32"
        function = "tanh" if is_bounded else "linear"
        start = initializers.Orthogonal(0.01, self.arguments["seed"] + 200)
        self.actions = keras.layers.Dense(
            n, function, kernel_initializer=start, name="actions", dtype=dtype
        )
        self.scale: Any = None
        ends = np.where(self.bounded, [high, low], 0.0)
        centre, half = np.add(*ends) / 2, np.subtract(*ends) / 2
        self.centre, self.half = centre.astype(np.float32), half.astype(np.float32)
        if is_bounded and (np.any(centre != 0) or np.any(half != 1)):
            # A layer, so that NumPy computes it as one.
            self.scale = keras.layers.Dense(
                n,
                kernel_initializer=lambda _, dtype: tf.cast(np.diag(half), dtype),
                bias_initializer=lambda _, dtype: tf.cast(centre, dtype),
                trainable=False,
                name="scale",
                dtype=dtype,
            )

    def build(self, input_shape: Any) -> None:
        """Creates the weights for a nest of `[B, ...]` shapes."""
        self._build_parts(input_shape, self.hidden_network)
        shape = self.encoder.compute_output_shape(input_shape)
        self.actions.build(self.hidden_network.compute_output_shape(shape))
        if self.scale is not None:
            self.scale.build((None, self.actions.units))
        super().build(input_shape)

    def call(self, observations: Any) -> Any:
        """Returns the actions, `[B, D]`."""
        outputs = self.actions(self.hidden_network(self.encoder(observations)))
        if self.is_mixed:
            within = self.centre + self.half * keras.ops.tanh(outputs)
            return keras.ops.where(self.bounded, within, outputs)
        return outputs if self.scale is None else self.scale(outputs)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Returns the shape of the actions."""
        rows, _ = self.encoder.compute_output_shape(input_shape)
        return rows, self.actions.units

    def dense_layers(self) -> list[Any] | None:
        """Returns the layers, where they alone compute it, and in float32."""
        if self.is_mixed:
            return None
        last = [] if self.scale is None else [self.scale]
        return feedforward.plain([*self.hidden_network.dense, self.actions, *last])


class DeterministicPolicy(network_policy.NetworkPolicy):
    """A network of actions, disturbed by normal noise.

        raw_actions = network(normalize(observations)) + noise * N(0, 1)

    clipped to the bounds, or squashed into them by tanh, depending on the head. `act`
    at temperature t disturbs by `t * noise`.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState`.
        observation_moments: as in `NetworkPolicy`.
        head: a `NormalHead`.
        noise: float32 `[]` or `[D]`, standard deviation.

    Example:
        >>> policy = DeterministicPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-1.0, 1.0, (2,)),
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
        network: Any = None,
        hidden_units: Sequence[int] = (256, 256),
        activation: str = "relu",
        squash: bool = False,
        normalize_observations: bool = False,
        noise: float = 0.1,
        seed: int = 0,
    ) -> Self:
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: a Box of floats.
            learner: as in `ActorCriticPolicy.create`.
            network: your own Keras model, or a function of both spaces that returns
                one, called as in inference. From observations `[B, *shape]` it returns
                raw actions `[B, D]`.
            hidden_units: of the network, a `DeterministicActor`; like `activation`,
                used only without `network`.
            activation: of the network.
            squash: squash the outputs of `network`, see `action_head`.
            normalize_observations: keep moments of all observed Boxes except images.
            noise: standard deviation of the noise.
            seed: of the initial weights.

        Returns:
            An untrained policy.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `network` returns something else, `squash` is set without
                one, or `noise` is negative or not finite.
        """
        checks.check_within("DeterministicPolicy", "noise", noise, 0.0, np.inf)
        checks.check_finite("DeterministicPolicy", "noise", noise)
        head = heads_of_spaces.action_head(action_space, squash=squash)
        if not isinstance(head, action_heads.NormalHead):
            where, expected = "DeterministicPolicy", "a Box of floats"
            raise checks.wrong_type(where, "action_space", action_space, expected)
        if squash and network is None:
            raise ValueError(
                "`DeterministicPolicy`: `squash` expected False without `network`, as "
                "ours ends in a tanh; got True"
            )
        return cls._made(
            learner,
            lambda space: DeterministicActor.for_space(
                space, head.low, head.high, hidden_units, activation, seed
            ),
            network,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={"seed": seed},
            noise=tf.constant(noise, tf.float32),
        )

    @property
    def has_log_probs(self) -> bool:
        """False: the distribution of actions has no density where the noise is 0."""
        return False

    def distributed(self, parameters: Any, temperature: Any, mask: Any) -> tf.Tensor:
        """Returns the parameters of the disturbed actions; see `NetworkPolicy`."""
        self._check_no_mask(mask)
        log_std = tf.math.log(self.noise * temperature)
        log_std = tf.broadcast_to(log_std, tf.shape(parameters))
        return tf.concat([parameters, log_std], axis=-1)

    def host_distributed(
        self, parameters: np.ndarray, temperature: float, mask: Any
    ) -> np.ndarray:
        """Returns what `distributed` does, in NumPy."""
        self._check_no_mask(mask)
        with np.errstate(divide="ignore"):
            log_std = np.log(np.asarray(self.noise) * np.float32(temperature))
        log_std = np.broadcast_to(log_std, parameters.shape)
        return np.concatenate([parameters, log_std], axis=-1)

    def host_draw(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Returns what draws without TensorFlow; see `NetworkPolicy`."""
        draw = functools.partial(exploring.disturbed, self.head.plain())
        return draw, {"noise": np.asarray(self.noise, np.float64)}

    def _check_no_mask(self, mask: Any) -> None:
        if mask is not None:
            raise ValueError(
                "`act`: `mask` expected None, as nothing is chosen; got one"
            )
