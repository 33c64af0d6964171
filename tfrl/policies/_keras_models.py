"""Keras models around networks of users, by which policies act and learn."""

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import keras_seeds
from tfrl.core import spaces
from tfrl.policies import (
    _masks,
    _observation_kinds,
    feedforward,
    value_distributions,
)

# What networks are tried on, for messages.
PROBES = "two rows, of zeros and of the lowest and the highest choices"

# The remedy where the network of another agent does not fit.
_AS_NETWORK = "; of another agent give `policy.to_keras(as_network=True)`"

_SERIALIZABLE = keras.saving.register_keras_serializable(package="tfrl")


@_SERIALIZABLE
class GivenNetwork(keras.Model):
    """A model of the user's, with the methods of `ActorCritic` or `ActionValues`.

    Outputs become float32, values `[B]`; log standard deviations that the model does
    not give are a vector of their own at the end of the parameters.

    Args:
        network: the model.
        kinds: description of the observations.
        has_values: whether it gives a pair, of parameters and values.
        n_log_stds: how many log standard deviations are learned beside it.
        log_std: their initial value.
        **kwargs: of `keras.Model`.

    Example:
        >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> model = GivenNetwork(inner, ["flat", [3]])
        >>> model(np.zeros((4, 3))).shape
        TensorShape([4, 2])
    """

    def __init__(
        self,
        network: keras.layers.Layer,
        kinds: Any,
        has_values: bool = False,
        n_log_stds: int = 0,
        log_std: float = 0.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "given")
        super().__init__(autocast=False, **kwargs)
        self.network, self.kinds, self.has_values = network, kinds, has_values
        self.n_log_stds, self.initial_log_std = n_log_stds, log_std
        self.log_std: Any = None

    def build(self, input_shape: Any) -> None:
        """Builds the model by a call, if it is not, for a nest of `[B, ...]` shapes."""
        if not self.network.built:
            shown = _observation_kinds.probes(self.kinds, input_shape)
            self.network(shown, training=False)
        if self.n_log_stds:
            self.log_std = feedforward.log_std_of(
                self, self.n_log_stds, self.initial_log_std
            )
        super().build(input_shape)

    def actor(self, observations: Any) -> Any:
        """Returns the parameters, `[B, n]`."""
        return self._both(observations)[0]

    def critic(self, observations: Any) -> Any:
        """Returns the values, `[B]`."""
        return self._both(observations)[1]

    def call(self, observations: Any, training: bool = False) -> Any:
        """Returns the parameters, and the values if there are any."""
        parameters, values = self._both(observations, training)
        return (parameters, values) if self.has_values else parameters

    def dense_layers(self) -> list[Any] | None:
        """Returns the float32 dense layers that alone lead to the parameters."""
        layers = feedforward.layers_of(self.network)
        return layers if layers and all(x.use_bias for x in layers) else None

    def of_space(self, inputs: Any) -> Any:
        """Returns floats of the inputs' shapes as what the network can be called with.

        Where the space has choices, they become some: the user's may index by them.
        """
        return _observation_kinds.choices(self.kinds, inputs)

    def _both(self, observations: Any, training: bool = False) -> tuple[Any, Any]:
        shown = _observation_kinds.cast(self.kinds, observations)
        outputs = called_unchanged(self.network, shown, training)
        return self._told(*(outputs if self.has_values else (outputs,)))

    def _told(self, parameters: Any, values: Any = None) -> tuple[Any, Any]:
        parameters = keras.ops.cast(parameters, "float32")
        parameters = feedforward.with_log_std(parameters, self.log_std)
        if values is not None:
            values = keras.ops.cast(values, "float32")
            if len(values.shape) == 2:
                values = keras.ops.squeeze(values, -1)
        return parameters, values

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "network": keras.saving.serialize_keras_object(self.network),
            "kinds": self.kinds,
            "has_values": self.has_values,
            "n_log_stds": self.n_log_stds,
            "log_std": self.initial_log_std,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GivenNetwork":
        """Makes the model that `get_config` described."""
        network = keras.saving.deserialize_keras_object(config["network"])
        return cls(**{**config, "network": network})


@_SERIALIZABLE
class GivenRecurrentNetwork(GivenNetwork):
    """A model of the user's that remembers, with the methods of `RecurrentNetwork`.

    Args:
        network: the model.
        kinds: description of the observations.
        memory_size: how many numbers it remembers of each episode.
        **kwargs: of `GivenNetwork`.

    Example:
        >>> seen, before = keras.Input([3]), keras.Input([5])
        >>> after, _ = keras.layers.GRUCell(5)(seen, [before])
        >>> inner = keras.Model((seen, before), (keras.layers.Dense(2)(after), after))
        >>> model = GivenRecurrentNetwork(inner, ["flat", [3]], 5)
        >>> parameters, memory = model((np.zeros((4, 3), "f"), np.zeros((4, 5), "f")))
        >>> memory.shape
        TensorShape([4, 5])
    """

    def __init__(
        self, network: keras.layers.Layer, kinds: Any, memory_size: int, **kwargs: Any
    ) -> None:
        super().__init__(network, kinds, **kwargs)
        self.memory_size = memory_size

    def build(self, input_shape: Any) -> None:
        """Builds the model as `GivenNetwork` does, for observations and memory."""
        if not self.network.built:
            shown = _observation_kinds.probes(self.kinds, input_shape[0])
            rows = tf.nest.flatten(shown)[0].shape[0]
            memory = tf.zeros([rows, self.memory_size])
            self.network((shown, memory), training=False)
        super().build(input_shape)

    def call(self, inputs: Any, training: bool = False) -> tuple[Any, ...]:
        """Returns parameters, values if any, and memory, of observations and memory."""
        observations, memory = inputs
        shown = _observation_kinds.cast(self.kinds, observations)
        outputs = called_unchanged(self.network, (shown, memory), training)
        *outputs, memory = keras.tree.flatten(outputs)
        parameters, values = self._told(*outputs)
        memory = keras.ops.cast(memory, "float32")
        return (parameters, values, memory) if self.has_values else (parameters, memory)

    def of_space(self, inputs: Any) -> Any:
        """Returns what `GivenNetwork.of_space` does, of observations and memory."""
        return _observation_kinds.choices(self.kinds, inputs[0]), inputs[1]

    def sequences(self, inputs: Any) -> tuple[Any, ...]:
        """Returns what the network says to sequences; see `RecurrentNetwork`."""
        observations, memory, begins = inputs

        def step(now: Any, memory: Any) -> tuple[Any, Any]:
            *outputs, memory = self((now, memory))
            return outputs, memory

        first = tf.nest.map_structure(lambda x: x[:, 0], observations)
        like = tf.nest.map_structure(tf.zeros_like, step(first, memory)[0])
        outputs, memories = unrolled(step, like, observations, memory, begins)
        return (*outputs, memories)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "memory_size": self.memory_size}


def called_unchanged(
    network: keras.layers.Layer, inputs: Any, training: bool = False
) -> Any:
    """Returns what a model says, whose variables then are what they were.

    Some layers change theirs at every call, in inference too: `AsKeras` its key.

    Args:
        network: the model, built.
        inputs: what it is called with.
        training: Keras' flag, told outright: the `call` of a model may default to True.

    Example:
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> called_unchanged(network, np.zeros((4, 3), "f")).shape
        TensorShape([4, 2])
    """
    if not network.non_trainable_variables:
        return network(inputs, training=training)
    values = [(variable, variable.value) for variable in network.variables]
    with keras.StatelessScope(state_mapping=values):
        return network(inputs, training=training)


def unrolled(
    step: Callable[[Any, Any], tuple[Any, Any]],
    outputs: Any,
    inputs: Any,
    memory: tf.Tensor,
    begins: tf.Tensor,
) -> tuple[Any, tf.Tensor]:
    """Returns what is said to sequences, one step after the other.

    Args:
        step: from a nest of inputs `[B, ...]` and a memory `[B, n]` to a nest of
            outputs `[B, ...]` and the memory after them.
        outputs: nest of zeros like those outputs.
        inputs: nest of `[B, T, ...]`.
        memory: `[B, n]`, before the first step.
        begins: `[B, T]` bool, where nothing is remembered.

    Returns:
        The outputs and the memory after each step, `[B, T, ...]`.

    Example:
        >>> def count(_, memory):
        ...     return (), memory + 1.0
        >>> begins = tf.constant([[False, False, True, False]])
        >>> _, counts = unrolled(count, (), tf.zeros([1, 4]), tf.ones([1, 1]), begins)
        >>> counts.numpy().ravel().tolist()
        [2.0, 3.0, 1.0, 2.0]
    """

    def body(before: Any, now: Any) -> tuple[Any, Any]:
        given, begin = now
        known = tf.where(begin[:, tf.newaxis], tf.zeros_like(before[1]), before[1])
        return step(given, known)

    def swapped(x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])

    steps = tf.nest.map_structure(swapped, (inputs, begins))
    found = tf.scan(body, steps, (outputs, memory))
    return tf.nest.map_structure(swapped, found)


def _line(error: Exception) -> str:
    """The message of Keras in one line, without colours."""
    return " ".join(re.sub("\x1b\\[\\d*m", "", str(error)).split())


def made_by(function: Callable[..., Any], *both: gym.Space) -> Any:
    """Calls the user's function of both spaces.

    Args:
        function: what is to be one.
        *both: of observations and of actions.

    Raises:
        TypeError: if its signature says that it is none.
    """
    try:
        # What is lacking a configuration may give.
        with contextlib.suppress(ValueError):  # some know no signature
            inspect.signature(function).bind_partial(*both)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            "`create`: `network` expected a Keras model, or a function of both spaces "
            "(observation_space, action_space) that returns one; got "
            f"{name}{inspect.signature(function)}"
        ) from error
    return function(*both)


def _task(widths: list[int], has_values: bool, memory_size: int | None) -> str:
    """What a network is to do, in words."""
    parts = {"parameters": " or ".join(f"[B, {width}]" for width in widths)}
    taken = "observations"
    if has_values:
        parts["values"] = "[B]"
    if memory_size is not None:
        parts["memory"] = f"[B, {memory_size}]"
        taken = f"(observations, memory [B, {memory_size}])"
    told = ", ".join(f"{name} {shape}" for name, shape in parts.items())
    told = f"({told})" if len(parts) > 1 else parts["parameters"]
    return f"to map {taken} to {told}"


def has_layer(network: keras.layers.Layer, kind: type) -> bool:
    """Whether a layer of this kind is somewhere in a network."""
    return any(isinstance(x, kind) for x in network._flatten_layers())


def tried(network: keras.layers.Layer, shown: Any) -> tuple[Any, list[Any]]:
    """Returns what a model says in inference, and what its layers add to a loss.

    Its variables keep their values; a model that is not built makes them in the call.
    Warns if the call writes to some, which agents never keep; not of what `AsKeras`
    renews.

    Args:
        network: the model.
        shown: what it is called with.

    Example:
        >>> network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> tried(network, np.zeros((4, 3), "f"))[0].shape
        TensorShape([4, 2])
    """
    before = [(variable, tf.identity(variable)) for variable in network.variables]
    outputs = network(shown, training=False)
    losses = network.losses
    for variable, value in before:
        variable.assign(value)
    with keras.StatelessScope() as scope:
        network(shown, training=False)
    keyed = [x for x in network._flatten_layers() if getattr(x, "has_key", False)]
    renewed = {id(variable) for layer in keyed for variable in layer.variables}
    written = scope.state_mapping.keys() - renewed
    if written:
        known = {id(variable): variable.path for variable in network.variables}
        names = sorted({known.get(x, "Keras' random generator") for x in written})
        warnings.warn(
            "`create`: `network` expected a model whose call writes to no variable in "
            f"inference; got one that writes to {names}; an agent calls it with the "
            "same values each time: what is drawn, counted or averaged stays as it is "
            "now, so leave exploration to the agent's settings",
            stacklevel=2,
        )
    return outputs, losses


def _probed(network: keras.layers.Layer, shown: Any, seed: int, what: str) -> Any:
    """What a network says to two rows, if it is one that an agent can have."""
    if has_layer(network, _masks.MaskedNetwork):
        raise ValueError(
            f"`create`: `network` expected {what}, without the mask of actions, which "
            f"the agent applies itself; got a model with one{_AS_NETWORK}"
        )
    try:
        with keras_seeds.seeded(seed):
            outputs, losses = tried(network, shown)
    except Exception as error:
        raise ValueError(
            f"`create`: `network` expected {what}; got a call that fails on {PROBES}: "
            f"{_line(error):.300}"
        ) from error
    if losses:
        raise ValueError(
            "`create`: `network` expected a model without regularizers, which are no "
            "part of an agent's loss; got some; leave them out"
        )
    return outputs


def given(
    network: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    head: Any,
    *,
    log_std: float | None = None,
    has_values: bool = False,
    seed: int = 0,
    memory_size: int | None = None,
) -> GivenNetwork:
    """Returns a built network around the user's.

    Args:
        network: a Keras layer or model, or a function of both spaces that returns one.
        observation_space: of one environment.
        action_space: of one environment.
        head: that the parameters are for.
        log_std: initial value of log standard deviations that are learned beside the
            parameters; None for a network that is to give none.
        has_values: whether the model gives a pair, of parameters and values.
        seed: of the weights that are made here, of what has no seed of its own.
        memory_size: how many numbers the model remembers, which it is called with and
            gives beside; None without memory.

    Returns:
        The network; it shares the variables of the user's, which stay as they are.

    Raises:
        TypeError: if it is no model.
        ValueError: if its outputs are others, or it has regularizers.
    """
    is_made = isinstance(network, keras.layers.Layer | type)
    if not is_made and callable(network):
        with keras_seeds.seeded(seed):
            network = made_by(network, observation_space, action_space)
    n_least = head.n_outputs - head.n_log_stds
    widths = [n_least] if log_std is None else sorted({n_least, head.n_outputs})
    what = _task(widths, has_values, memory_size)
    if not isinstance(network, keras.layers.Layer):
        raise TypeError(
            "`create`: `network` expected a Keras model, or a function of both spaces "
            f"that returns one, {what}; got {network!r:.80}"
        )
    kinds = _observation_kinds.description(
        observation_space, images=False, place="`observation_space`"
    )
    specs = spaces.spec_from_space(observation_space)
    shapes = tf.nest.map_structure(lambda x: (2, *x.shape), specs)
    shown = _observation_kinds.probes(kinds, shapes)
    if memory_size is not None:
        shown = shown, tf.zeros([2, memory_size])
    outputs = _probed(network, shown, seed, f"{what}, of {observation_space}")
    if memory_size is not None:
        *parts, last = keras.tree.flatten(outputs)
        is_kept = tuple(getattr(last, "shape", ())) == (2, memory_size)
    else:
        parts = outputs if isinstance(outputs, list | tuple) else [outputs]
        parts, is_kept = parts if has_values else [outputs], True
    found = [tuple(getattr(x, "shape", ())) for x in parts]
    fits = len(found) == 1 + has_values and found[0] in [(2, n) for n in widths]
    if not (fits and is_kept) or found[1:] not in ([], [(2,)], [(2, 1)]):
        got = tf.nest.map_structure(lambda x: list(np.shape(x)), outputs)
        has_means = has_layer(network, value_distributions._Around)
        raise ValueError(
            f"`create`: `network` expected {what}; got shapes {got} of two rows of "
            f"observations{_AS_NETWORK if has_means else ''}"
        )
    n_beside = 0 if log_std is None else head.n_outputs - int(found[0][1])
    beside: Any = has_values, n_beside, log_std or 0.0
    free = tf.nest.map_structure(lambda x: (None, *x.shape), specs)
    if memory_size is None:
        built = GivenNetwork(network, kinds, *beside)
    else:
        named = zip(("has_values", "n_log_stds", "log_std"), beside, strict=True)
        built = GivenRecurrentNetwork(network, kinds, memory_size, **dict(named))
        free = free, (None, memory_size)
    built.build(free)
    return built
