"""Keras layers and functions called with their variables as arguments."""

import collections
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import adapted_layers, dtype_policies

_SEED_GENERATOR = re.compile(r"(?<![^/])seed_generator(_\d+)?(?![^/])")


def regularized_names(model: Any) -> list[str]:
    """Names of the weights and layers of a network that add to the loss of Keras."""
    if not isinstance(model, keras.layers.Layer):
        return []
    weights = [v for v in model.trainable_variables if v.regularizer is not None]
    layers = [x for x in model._flatten_layers() if x.activity_regularizer is not None]
    return [x.path for x in (*weights, *layers)]


def check_trainable(layer: keras.layers.Layer) -> None:
    """Raises a ValueError unless a gradient transform can train a layer.

    Args:
        layer: a built layer.

    Example:
        >>> layer = keras.layers.Dense(2)
        >>> layer.build((None, 3))
        >>> check_trainable(layer)
    """
    quantized = dtype_policies.quantized_layers(layer)
    if quantized:
        raise ValueError(
            "`TrainState.create`: `model_def` expected layers that can be trained; got "
            f"quantized ones, {quantized}; quantize what `to_keras` returns, after "
            "training"
        )
    variables = layer.trainable_variables
    if not variables:
        raise ValueError(
            "`TrainState.create`: `model_def` expected a network that has weights for "
            f"`tx` to train; got one of {len(layer.weights)} weights, none of "
            "which is trainable; unfreeze some layers (`trainable = True`)"
        )
    constrained = [v.path for v in variables if v.constraint is not None]
    if constrained:
        raise ValueError(
            "`TrainState.create`: `tx` expected variables without constraints; got "
            f"some on {constrained}; leave them out, or have the layer normalise"
        )
    regularized = regularized_names(layer)
    if regularized:
        raise ValueError(
            "`TrainState.create`: `model_def` expected a network without regularizers, "
            f"which no loss function of a state has; got some on {regularized}; leave "
            "them out, and add their terms to the loss or take `tfrl.agents.adamw`"
        )


def variable_names(layer: keras.layers.Layer) -> tuple[str, ...]:
    """Returns a name for each of `layer.variables`, in their order.

    It is the variable's path; a second one of the same path gets `path:1`. Generators
    of seeds, which Keras counts over the whole process, are counted within the layer.

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
    generators: dict[str, str] = {}

    def counted_anew(found: re.Match[str]) -> str:
        count = len(generators)
        name = f"seed_generator_{count}" if count else "seed_generator"
        return generators.setdefault(found[0], name)

    names = []
    for variable in variables_of(layer):
        path = _SEED_GENERATOR.sub(counted_anew, variable.path)
        count = counts[path]
        counts[path] += 1
        names.append(f"{path}:{count}" if count else path)
    return tuple(names)


def variables_of(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns `layer.variables`, each once.

    A generator of seeds that layers share is listed by each of them.

    Args:
        layer: a layer.

    Returns:
        The variables, in order.

    Example:
        >>> len(variables_of(keras.layers.Dropout(0.5)))
        1
    """
    return list({id(variable): variable for variable in layer.variables}.values())


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
    for name, variable in zip(names, variables_of(layer), strict=True):
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
    kinds = dtype_policies.unknown_objects(layer)
    try:
        other = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(layer), kinds, safe_mode=False
        )
        shapes = [[tuple(v.shape) for v in variables_of(x)] for x in (layer, other)]
        fault = "" if shapes[0] == shapes[1] else f"one with variables {shapes[1]}"
    except (TypeError, ValueError, NotImplementedError) as error:
        fault = f"none: {error}"
    if fault:
        raise ValueError(
            f"`to_keras`: expected the configuration of {layer.name!r} to make another "
            f"with the same variables; got {fault}; let `get_config` return all "
            "arguments, `build` make all variables, and give functions to "
            "`keras.saving.register_keras_serializable`"
        )
    return other


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
        adapted = adapted_layers.adapted_layers(self.layer) if extra_variables else []
        with keras.StatelessScope(mapping) as scope, adapted_layers.following(adapted):
            outputs = function(*args, **kwargs)
        self._variables()
        updated = dict(extra_variables)
        for key in updated:
            value = scope.get_current_value(variables[key])
            if value is not values[key]:
                updated[key] = value
        return outputs, updated

    def _variables(self) -> list[keras.Variable]:
        variables = variables_of(self.layer)
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
