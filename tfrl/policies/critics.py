"""Several critics at once: values of states, of actions, or of every choice."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws, keras_seeds
from tfrl.core import random, spaces
from tfrl.policies import (
    _ensembles,
    _keras_models,
    _observation_kinds,
    networks,
)

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


def n_action_features(head: Any) -> int:
    """Returns how many features `action_features` makes of an action.

    Args:
        head: of `tfrl.distributions.action_head`.

    Example:
        >>> head = tfrl.distributions.action_head(gym.spaces.Discrete(3))
        >>> n_action_features(head)
        3
    """
    return head.n_outputs - head.n_log_stds


def action_features(head: Any, actions: Any) -> tf.Tensor:
    """Returns what critics see of raw actions: numbers between -1 and 1.

        tanh(u)                                     of a squashed Box
        clip(2 (u - low) / (high - low) - 1, -1, 1) of a number clipped to both bounds
        u                                           of one without, or with one alone
        one-hot                                     of each choice

    Features of the parts of a Dict or Tuple follow each other, in the order of
    `tf.nest`.

    Args:
        head: of `tfrl.distributions.action_head`.
        actions: nest of raw actions, `[..., *shape]`.

    Returns:
        float32 `[..., n]`.

    Example:
        >>> space = gym.spaces.Box(-2.0, 2.0, (1,))
        >>> head = tfrl.distributions.action_head(space, squash=True)
        >>> action_features(head, tf.constant([[0.0], [9.0]])).numpy().tolist()
        [[0.0], [1.0]]
    """
    if hasattr(head, "parts"):
        flat, parts = head._unpacked(actions), head.parts
        features = [action_features(*pair) for pair in zip(parts, flat, strict=True)]
        return tf.concat(features, axis=-1)
    if head.n_options:
        return _one_hots(head, actions)
    actions = tf.cast(actions, tf.float32)
    if head.squash:
        return tf.tanh(actions)
    low, high = np.asarray(head.low), np.asarray(head.high)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    if not bounded.any():
        return actions
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    scaled = (actions - (low + high) / 2) / ((high - low) / 2)
    limit = np.where(bounded, 1.0, np.inf).astype(np.float32)
    return tf.clip_by_value(scaled, -limit, limit)


def _one_hots(head: Any, actions: Any) -> tf.Tensor:
    if head.scalar:
        return tf.one_hot(actions, head.n_choices[0])
    outer = tf.shape(actions)[: len(actions.shape) - len(head.shape)]
    flat = tf.reshape(actions, tf.concat([outer, [len(head.n_choices)]], 0))
    return tf.concat(
        [tf.one_hot(flat[..., i], n) for i, n in enumerate(head.n_choices)], axis=-1
    )


@_SERIALIZABLE
class Critics(networks._SpaceNetwork):
    """N networks of values, in one computation.

        features = [encoder(observations), actions]
        Q[i] = network_i(features)

    The encoder has weights, shared by all, only where there are images. A layer is

        batch_norm(activation(layer_norm(dropout(x W + b))))

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        n_features: of an action, see `action_features`; 0 for values of states, or of
            every choice.
        n_critics: number of networks, N.
        n_outputs: of each network, such as quantiles or choices; None for one value
            without an axis of its own.
        hidden_units: of each network.
        activation: of each network.
        seed: of the initial weights.
        layer_norm: whether hidden layers are normalized.
        dropout_rate: share of hidden units that `dropout_masks` leaves out.
        batch_norm: whether features and hidden layers are batch-renormalized, with
            `training` by moments of the batch.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = networks.SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))
        >>> critics = Critics(kinds, n_features=1)
        >>> critics((np.zeros((3, 4), "f"), np.zeros((3, 1), "f"))).shape
        TensorShape([2, 3])

    References:
        Chen et al., 2021, Randomized Ensembled Double Q-Learning. Hiraoka et al., 2022,
        Dropout Q-Functions for Doubly Efficient Reinforcement Learning, figure 1.
    """

    def __init__(
        self,
        kinds: Any,
        n_features: int,
        n_critics: int = 2,
        n_outputs: int | None = None,
        hidden_units: Sequence[int] = (256, 256),
        activation: str = "relu",
        seed: int = 0,
        layer_norm: bool = False,
        dropout_rate: float = 0.0,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "critics")
        where = "Critics"
        checks.check_whole_number(where, "n_features", n_features, low=0)
        checks.check_whole_number(where, "n_critics", n_critics, low=1)
        if n_outputs is not None:
            checks.check_whole_number(where, "n_outputs", n_outputs, low=1)
        checks.check_within(where, "dropout_rate", dropout_rate, 0.0, 1.0)
        if dropout_rate == 1.0:
            raise ValueError(f"`{where}`: `dropout_rate` expected less than 1; got 1.0")
        arguments = {"kinds": kinds, "n_features": n_features, "n_critics": n_critics}
        arguments |= {"n_outputs": n_outputs, "activation": activation, "seed": seed}
        arguments |= {"layer_norm": layer_norm, "dropout_rate": dropout_rate}
        arguments |= {"batch_norm": batch_norm}
        super().__init__(arguments, hidden_units, **kwargs)
        units = self.arguments["hidden_units"]
        self.n_outputs, self.activation = n_outputs, keras.activations.get(activation)
        self.hidden = [
            self._denses(width, math.sqrt(2.0), i, f"hidden_{i}")
            for i, width in enumerate(units)
        ]
        self.norms = [
            _ensembles.LayerNorms(n_critics, name=f"norm_{i}", dtype=self.dtype_policy)
            for i, _ in enumerate(units)
            if layer_norm
        ]
        self.batch_norms = [
            _ensembles.BatchRenorm(n, name=f"batch_norm_{i}")
            for i, n in enumerate([None, *[n_critics] * len(units)])
            if batch_norm
        ]
        self.last = self._denses(n_outputs or 1, 1.0, len(units), "output", "float32")
        layers = [*self.hidden, *self.norms, *self.batch_norms]
        for index, layer in enumerate(layers):
            # `tf.train.Checkpoint` skips lists.
            setattr(self, f"_layer_{index}", layer)

    def _denses(
        self, units: int, gain: float, index: int, name: str, dtype: Any = None
    ) -> _ensembles.Denses:
        given = self.arguments
        seed, dtype = given["seed"] + 500 + index, dtype or self.dtype_policy
        named = {"name": name, "dtype": dtype}
        return _ensembles.Denses(given["n_critics"], units, gain, seed, **named)

    @classmethod
    def for_space(
        cls, observation_space: gym.Space, n_features: int, **kwargs: Any
    ) -> Self:
        """Returns built critics; the arguments are those of the class but `kinds`."""
        kinds: Any = _observation_kinds.description(
            observation_space, place="`Critics`: `observation_space`"
        )
        critics = cls(kinds, n_features, **kwargs)
        critics.build(_shapes(observation_space, n_features))
        return critics

    def build(self, input_shape: Any) -> None:
        """Creates the weights for the shapes of the inputs."""
        n_features = self.arguments["n_features"]
        shape = input_shape[0] if n_features else input_shape
        self.encoder.build(shape)
        rows, width = self.encoder.compute_output_shape(shape)
        width += n_features
        widths = [width, *(layer.units for layer in self.hidden)]
        parts: Any = (
            ([*self.hidden, self.last], widths),
            (self.norms, widths[1:]),
            (self.batch_norms, widths),
        )
        for layers, sizes in parts:
            for layer, size in zip(layers, sizes, strict=False):
                layer.build((rows, size))
        super().build(input_shape)

    def call(self, inputs: Any, masks: Any = (), training: bool = False) -> Any:
        """Returns the values.

        Args:
            inputs: observations, or a pair of them and features `[B, n_features]` of
                actions, if there are any.
            masks: of `dropout_masks`, `[B, N, units]` of each layer; () for none.
            training: whether batches are normalized by moments of their own.

        Returns:
            `[N, B]`, or `[N, B, n_outputs]`.
        """
        if self.arguments["n_features"]:
            observations, actions = inputs
            parts = [self.encoder(observations), tf.cast(actions, tf.float32)]
            outputs = tf.concat(parts, axis=-1)
        else:
            outputs = self.encoder(inputs)
        norms: Any = self.batch_norms or [None]
        first, *others = norms
        if first is not None:
            outputs = first(outputs, training=training)
        layers = itertools.zip_longest(self.hidden, masks or (), self.norms, others)
        for hidden, mask, norm, batch_norm in layers:
            outputs = hidden(outputs)
            if mask is not None:
                mask = keras.ops.transpose(mask, [1, 0, 2])
                outputs *= keras.ops.cast(mask, outputs.dtype)
            outputs = self.activation(outputs if norm is None else norm(outputs))
            if batch_norm is not None:
                outputs = batch_norm(outputs, training=training)
        outputs = self.last(outputs)
        return outputs if self.n_outputs else keras.ops.squeeze(outputs, -1)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the values."""
        seen = input_shape[0] if self.arguments["n_features"] else input_shape
        rows, _ = self.encoder.compute_output_shape(seen)
        last = () if self.n_outputs is None else (self.n_outputs,)
        return (self.arguments["n_critics"], rows, *last)

    def dropout_masks(self, n_rows: int, seed: Any) -> list[tf.Tensor]:
        """Draws what hidden layers are multiplied by, `[B, N, units]` of each.

        A unit is left out with probability `dropout_rate`; the others are scaled up to
        compensate.

        Args:
            n_rows: of the global batch, B.
            seed: int32 `[2]`.

        Returns:
            One for each hidden layer; none without dropout.
        """
        rate, n_critics = self.arguments["dropout_rate"], self.arguments["n_critics"]
        if not rate:
            return []
        seeds = random.split_seed(seed, len(self.hidden))
        drawn = [
            draws.uniform([n_rows, n_critics, layer.units], seeds[i], tf.float32)
            for i, layer in enumerate(self.hidden)
        ]
        return [tf.cast(x >= rate, tf.float32) / (1.0 - rate) for x in drawn]


@_SERIALIZABLE
class GivenCritics(keras.Model):
    """The user's own critics, called like `Critics`.

    Args:
        networks: one model for each critic.
        kinds: description of the observations.
        n_features: of an action.
        n_outputs: as in `Critics`.
        **kwargs: of `keras.Model`.

    Example:
        >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> GivenCritics([inner], ["flat", [3]], 0)(np.zeros((4, 3), "f")).shape
        TensorShape([1, 4])
    """

    def __init__(
        self,
        networks: Sequence[keras.layers.Layer],
        kinds: Any,
        n_features: int,
        n_outputs: int | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "given_critics")
        super().__init__(autocast=False, **kwargs)
        self.networks, self.kinds = list(networks), kinds
        self.n_features, self.n_outputs = n_features, n_outputs
        for index, network in enumerate(self.networks):
            setattr(self, f"_layer_{index}", network)

    def build(self, input_shape: Any) -> None:
        """Builds the models by a call, for the shapes of the inputs."""
        if self.n_features:
            shown: Any = _observation_kinds.probes(self.kinds, input_shape[0])
            rows = tf.nest.flatten(shown)[0].shape[0]
            shown = shown, tf.zeros([rows, self.n_features])
        else:
            shown = _observation_kinds.probes(self.kinds, input_shape)
        for network in self.networks:
            if not network.built:
                network(shown, training=False)
        super().build(input_shape)

    def call(self, inputs: Any, masks: Any = (), training: bool = False) -> Any:  # noqa: ARG002
        """Returns the values, `[N, B]` or `[N, B, n_outputs]`."""
        if self.n_features:
            observations, actions = inputs
            inputs = _observation_kinds.cast(self.kinds, observations), actions
        else:
            inputs = _observation_kinds.cast(self.kinds, inputs)
        outputs = [
            keras.ops.cast(_keras_models.called_unchanged(x, inputs), "float32")
            for x in self.networks
        ]
        stacked = keras.ops.stack(outputs)
        if self.n_outputs is None and len(stacked.shape) == 3:
            stacked = keras.ops.squeeze(stacked, -1)
        return stacked

    def dropout_masks(self, n_rows: int, seed: Any) -> list[tf.Tensor]:  # noqa: ARG002
        """Returns none: the models are called as in inference."""
        return []

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        made = map(keras.saving.serialize_keras_object, self.networks)
        known = {"networks": list(made), "kinds": self.kinds}
        known |= {"n_features": self.n_features, "n_outputs": self.n_outputs}
        return {**super().get_config(), **known}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GivenCritics":
        """Makes the model that `get_config` described."""
        made = map(keras.saving.deserialize_keras_object, config["networks"])
        return cls(**{**config, "networks": list(made)})


def parted_network(
    network: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    n_critics: int,
    seed: int,
) -> tuple[Any, list[Any] | None]:
    """Returns the actor and the critics of a user's `network`.

    Args:
        network: a Keras model, the actor; or a function of both spaces that returns
            one, or a pair of actor and critic, which is called once for each critic.
        observation_space: of one environment.
        action_space: of one environment.
        n_critics: how many are wanted.
        seed: of weights that have no seed of their own.

    Returns:
        The actor; and the critics, None for the default ones.

    Raises:
        TypeError: if a function returns something else.
        ValueError: if it returns the same critic twice.

    Example:
        >>> def network(observation_space, action_space):
        ...     return keras.layers.Dense(2), keras.layers.Dense(1)
        >>> box = gym.spaces.Box(-1.0, 1.0, (1,))
        >>> len(parted_network(network, box, box, 3, seed=0)[1])
        3
    """
    is_made = isinstance(network, keras.layers.Layer | type)
    if is_made or not callable(network):
        return network, None
    made, both = [], (observation_space, action_space)
    for i in range(n_critics):
        with keras_seeds.seeded(seed + i):
            made.append(_keras_models.made_by(network, *both))
        if made[0] is not None and not isinstance(made[0], tuple | list):
            return made[0], None
    kinds = keras.layers.Layer
    fits = made[0] is not None and all(
        len(x) == 2 and all(isinstance(y, kinds) for y in x) for x in made
    )
    if not fits:
        raise TypeError(
            "`create`: `network` expected a Keras model, or a function of both spaces "
            "that returns one or a pair of models, the actor and a critic of "
            "(observations, "
            f"features of actions); got {made[0]!r:.80}"
        )
    critics = [critic for _, critic in made]
    if len({*map(id, critics)}) < n_critics:
        raise ValueError(
            f"`create`: `network` expected a new critic of each of {n_critics} calls; "
            "got one twice; make it inside of the function"
        )
    return made[0][0], critics


def given_critics(
    networks: Sequence[Any],
    observation_space: gym.Space,
    n_features: int,
    n_outputs: int | None = None,
) -> GivenCritics:
    """Returns built critics around the user's.

    Args:
        networks: models of `(observations, features [B, n_features])`, or of
            observations alone where there are no features.
        observation_space: of one environment.
        n_features: of an action, see `action_features`.
        n_outputs: of each; None for values `[B]` or `[B, 1]`.

    Returns:
        The critics; they share the variables of the user's critics, which stay as they
        are.

    Raises:
        ValueError: if a call fails or its outputs do not fit.
    """
    space = observation_space
    kinds: Any = _observation_kinds.description(
        space, images=False, place="`observation_space`"
    )
    specs = spaces.spec_from_space(space)
    shapes = tf.nest.map_structure(lambda x: (2, *x.shape), specs)
    shown: Any = _observation_kinds.probes(kinds, shapes)
    shown = (shown, tf.zeros([2, n_features])) if n_features else shown
    wanted = [(2,), (2, 1)] if n_outputs is None else [(2, n_outputs)]
    what = f"(observations, features [B, {n_features}])" if n_features else "them"
    values = "[B]" if n_outputs is None else f"[B, {n_outputs}]"
    for network in networks:
        try:
            outputs, losses = _keras_models.tried(network, shown)
        except Exception as error:
            raise ValueError(
                f"`create`: `network` expected a critic of {what}, of {space}; got a "
                f"call that fails on {_keras_models.PROBES}: "
                f"{_keras_models._line(error):.300}"
            ) from error
        if tuple(getattr(outputs, "shape", ())) not in wanted or losses:
            got = tf.nest.map_structure(lambda x: list(np.shape(x)), outputs)
            raise ValueError(
                f"`create`: `network` expected a critic that maps {what} to values "
                f"{values}, without regularizers; got shape {got} of two rows of "
                "observations"
            )
    built = GivenCritics(networks, kinds, n_features, n_outputs)
    built.build(_shapes(space, n_features))
    return built


def _shapes(observation_space: gym.Space, n_features: int) -> Any:
    specs = spaces.spec_from_space(observation_space)
    shapes = tf.nest.map_structure(lambda x: (None, *x.shape), specs)
    return (shapes, (None, n_features)) if n_features else shapes
