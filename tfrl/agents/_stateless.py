"""Keras layers and functions called with their variables as arguments."""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf


def variable_names(layer: keras.layers.Layer) -> tuple[str, ...]:
    """Returns a name for each of `layer.variables`, in their order.

    It is the variable's path; a second one of the same path gets `path:1`.

    Args:
        layer: a built layer.

    Returns:
        The names, all different.

    Raises:
        ValueError: if the layer is not built.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> variable_names(layer)
        ('dense/kernel', 'dense/bias')
    """
    if not layer.built:
        raise ValueError(
            "`TrainState.create`: `model_def` expected a built layer; got "
            f"{layer.name!r}, which has no variables yet; call its "
            "`build(input_shape)` or call it on data"
        )
    counts: collections.Counter = collections.Counter()
    names = []
    for variable in _variables(layer):
        count = counts[variable.path]
        counts[variable.path] += 1
        names.append(f"{variable.path}:{count}" if count else variable.path)
    return tuple(names)


def layer_values(
    layer: keras.layers.Layer, params: Any = None, extra_variables: Any = None
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns what a layer is to be called with: what it trains, and the rest.

    Args:
        layer: a built layer.
        params: values of the trainable variables by name; the present ones if None.
        extra_variables: values of the others by name; the present ones if None.

    Returns:
        Both dictionaries of tensors, apart from the variables.

    Raises:
        ValueError: if the layer is not built, or names or shapes are not its own.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> sorted(layer_values(layer)[0])
        ['dense/bias', 'dense/kernel']
    """
    names = variable_names(layer)
    trained = {id(variable) for variable in layer.trainable_variables}
    groups: tuple[dict[str, keras.Variable], dict[str, keras.Variable]] = ({}, {})
    for name, variable in zip(names, _variables(layer), strict=True):
        groups[id(variable) not in trained][name] = variable
    given = (("params", params), ("extra_variables", extra_variables))
    first, second = (
        {name: tf.identity(variable) for name, variable in group.items()}
        if values is None
        else _checked(f"`TrainState.create`: `{argument}`", values, group)
        for group, (argument, values) in zip(groups, given, strict=True)
    )
    return first, second


def rebuilt(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a layer as its configuration says, with weights of its own.

    Args:
        layer: a built layer.

    Returns:
        Another layer with variables of the same shapes in the same order; their values
        are initial ones.

    Raises:
        ValueError: if the configuration does not say all of the layer.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> [weight.shape for weight in rebuilt(layer).get_weights()]
        [(3, 2), (2,)]
    """
    kinds = {type(layer).__name__: type(layer)}
    try:
        other = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(layer), kinds, safe_mode=False
        )
        shapes = [[tuple(v.shape) for v in _variables(x)] for x in (layer, other)]
        fault = "" if shapes[0] == shapes[1] else f"one with variables {shapes[1]}"
    except (TypeError, ValueError, NotImplementedError) as error:
        fault = f"none: {error}"
    if fault:
        raise ValueError(
            f"`to_keras`: expected the configuration of {layer.name!r} to make another "
            f"with the same variables; got {fault}; let `get_config` return all "
            "arguments, and `build` make all variables"
        )
    return other


def model_of(layer: Any, params: Any, extra_variables: Any) -> keras.Model:
    """Returns a model with the variables of a state; see `TrainState.to_keras`.

    Args:
        layer: the state's `model_def`.
        params: the state's.
        extra_variables: the state's.

    Returns:
        A model that shares nothing with the layer.

    Raises:
        TypeError: if it is no layer.
        ValueError: as of `rebuilt`, and in a graph.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> model_of(layer, *layer_values(layer)).output_shape
        (None, 2)
    """
    if not isinstance(layer, keras.layers.Layer):
        raise TypeError(
            "`to_keras`: `model_def` expected to be a Keras layer; got the function "
            f"{layer!r:.80}"
        )
    if not tf.executing_eagerly():
        raise ValueError("`to_keras`: expected no graph around it; call it eagerly")
    other = rebuilt(layer)
    names = variable_names(layer)
    values = {**params, **extra_variables}
    for name, variable in zip(names, _variables(other), strict=True):
        variable.assign(values[name])
    if isinstance(other, keras.Model):
        return other
    shape = (layer.get_build_config() or {}).get("input_shape")
    if not isinstance(shape, list | tuple) or not isinstance(shape[-1], int):
        raise ValueError(
            f"`to_keras`: `model_def` expected to be a model, or a layer of one array; "
            f"got {layer.name!r} built for {shape}; make a model of it"
        )
    inputs = keras.Input(shape[1:], name="inputs")
    return keras.Model(inputs, other(inputs), name=layer.name)


@dataclasses.dataclass(frozen=True)
class FunctionApply:
    """Calls a function of parameters, which has no extra variables.

    Example:
        >>> FunctionApply(tf.multiply)(tf.constant(2.0), {}, 3.0)[0].numpy()
        np.float32(6.0)
    """

    function: Callable[..., Any]

    def __call__(
        self,
        params: Any,
        extra_variables: Any,
        *args: Any,
        method: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Returns outputs and `extra_variables`; see `TrainState.__call__`."""
        if isinstance(method, str):
            raise ValueError(
                "`TrainState.__call__`: `method` expected a function where `model_def` "
                f"is one; got {method!r}; pass the function itself"
            )
        function = self.function if method is None else method
        return function(params, *args, **kwargs), extra_variables


@dataclasses.dataclass(frozen=True)
class LayerApply:
    """Calls a Keras layer, or a method of it, with values in place of its variables.

    The variables stay as they are; the values that the call would have given to them
    are returned. `names` are those of `variable_names` when the values were made: Keras
    may change a path when it copies or saves a layer, but not the order. Two of one
    layer and names are equal.

    Example:
        >>> layer = keras.layers.BatchNormalization(momentum=0.0, name="norm")
        >>> layer.build((None, 1))
        >>> outputs, extra = LayerApply(layer, variable_names(layer))(
        ...     *layer_values(layer), tf.constant([[1.0], [3.0]]),
        ...     training=True)
        >>> extra["norm/moving_mean"].numpy().tolist()
        [2.0]
    """

    layer: keras.layers.Layer
    names: tuple[str, ...]

    def __call__(
        self,
        params: Mapping[str, Any],
        extra_variables: Mapping[str, Any],
        *args: Any,
        method: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Returns outputs and new extra variables; see `TrainState.__call__`."""
        where = "`TrainState.__call__`: `params` and `extra_variables`"
        function = self._function(method)
        variables = dict(zip(self.names, self._variables(), strict=True))
        values = _checked(where, {**params, **extra_variables}, variables)
        mapping = [(variable, values[name]) for name, variable in variables.items()]
        with keras.StatelessScope(mapping) as scope:
            outputs = function(*args, **kwargs)
        self._variables()
        updated = dict(extra_variables)
        for key in updated:
            value = scope.get_current_value(variables[key])
            if value is not values[key]:
                updated[key] = value
        return outputs, updated

    def _variables(self) -> list[keras.Variable]:
        variables = _variables(self.layer)
        if len(variables) != len(self.names):
            raise ValueError(
                "`TrainState.__call__`: `model_def` expected the variables that it had "
                f"in `TrainState.create`, {len(self.names)}; got {len(variables)}; "
                "call it on data before"
            )
        return variables

    def _function(self, method: str | Callable[..., Any] | None) -> Callable[..., Any]:
        if method is None:
            return self.layer
        if isinstance(method, str):
            method = getattr(self.layer, method, method)
        if not callable(method):
            raise ValueError(
                "`TrainState.__call__`: `method` expected a method of "
                f"{type(self.layer).__name__}; got {method!r}; check the spelling"
            )
        if inspect.isfunction(method):
            return functools.partial(method, self.layer)
        return method


def _variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    # A seed generator shared by layers is listed by each of them.
    return list({id(variable): variable for variable in layer.variables}.values())


def _checked(
    where: str, values: Mapping[str, Any], variables: Mapping[str, keras.Variable]
) -> dict[str, tf.Tensor]:
    if values.keys() != variables.keys():
        raise ValueError(
            f"{where} expected the names of the layer's variables; missing are "
            f"{sorted(variables.keys() - values.keys())}, unknown are "
            f"{sorted(values.keys() - variables.keys())}; name them as `state.params` "
            "does"
        )
    tensors = {}
    for key, variable in variables.items():
        value = values[key]
        if not tf.is_tensor(value) or value.dtype != variable.dtype:
            value = tf.cast(tf.convert_to_tensor(value), variable.dtype)
        if not value.shape.is_compatible_with(variable.shape):
            raise ValueError(
                f"{where} expected shape {tuple(variable.shape)} for {key!r}; got "
                f"{tuple(value.shape)}; transpose or rebuild the layer"
            )
        tensors[key] = value
    return tensors
