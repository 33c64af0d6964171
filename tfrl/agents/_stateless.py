"""Keras layers and functions called with their variables as arguments."""

import collections
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import adapted_layers, checks, dtype_policies

_SEED_GENERATOR = re.compile(r"(?<![^/])seed_generator(_\d+)?(?![^/])")


def regularized_names(model: Any) -> list[str]:
    """Names of the weights and layers of a network that add to the loss of Keras."""
    if not isinstance(model, keras.layers.Layer):
        return []
    weights = [v for v in model.trainable_variables if v.regularizer is not None]
    layers = [x for x in model._flatten_layers() if x.activity_regularizer is not None]
    return [x.path for x in (*weights, *layers)]


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
    for variable in _variables(layer):
        path = _SEED_GENERATOR.sub(counted_anew, variable.path)
        count = counts[path]
        counts[path] += 1
        names.append(f"{path}:{count}" if count else path)
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
    kinds = dtype_policies.unknown_classes(layer)
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


def check_same_answers(
    layer: keras.layers.Layer, other: keras.layers.Layer, params: Any, extra: Any
) -> None:
    """Raises unless both layers say the same, with the same variables, in inference.

    They are asked on small random batches, of numbers and of zeros and ones, of the
    shapes that the layer was built for.

    Args:
        layer: a built layer.
        other: what was `rebuilt` of it.
        params: of both.
        extra: the other variables of both.

    Raises:
        ValueError: if they answer differently, or the layer does not answer.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> check_same_answers(layer, rebuilt(layer), *layer_values(layer))
    """
    names = variable_names(layer)

    def answer(of: keras.layers.Layer, arguments: Mapping[str, Any]) -> Any:
        """Arrays; or why there are none, as such numbers need not be what it takes."""
        given = dict(arguments)
        first = [given.pop("")] if "" in given else []
        try:
            call = LayerApply(of, names)
            outputs, _ = call(params, extra, *first, training=False, **given)
            leaves = tf.nest.flatten(outputs, expand_composites=True)
            return [tf.convert_to_tensor(leaf) for leaf in leaves]
        except Exception as error:
            return f": {' '.join(str(error).split()):.200}"

    fault, asked = "", False
    for arguments in _random_batches(_input_specs(layer)):
        if hasattr(layer, "of_space"):  # of a policy, around a network of the user's
            arguments[""] = layer.of_space(arguments[""])
        wanted = answer(layer, arguments)
        if isinstance(wanted, str):
            fault = wanted
            continue
        asked, found = True, answer(other, arguments)
        if _alike(found, wanted):
            continue
        got = f"none{found}" if isinstance(found, str) else "other ones"
        if not _alike(answer(layer, arguments), wanted):
            got = "some that change from call to call, so that nothing can be compared"
        raise ValueError(
            f"`to_keras`: expected the configuration of {layer.name!r} to make another "
            f"with the same answers; got {got}; let `get_config` return all arguments "
            "of the constructor, with their values"
        )
    if not asked:
        raise ValueError(
            "`to_keras`: `model_def` expected to answer a random batch of the shape "
            "that it was built for, so that its copy can be compared; got "
            f"{layer.name!r}, which does not{fault}; make a functional model of it, "
            "whose inputs have shapes and dtypes"
        )


def model_of(
    layer: Any, params: Any, extra_variables: Any, name: str | None = None
) -> keras.Model:
    """Returns a model with the variables of a state; see `TrainState.to_keras`.

    Args:
        layer: the state's `model_def`.
        params: the state's.
        extra_variables: the state's.
        name: of the model; that of the layer if None.

    Returns:
        A model that shares nothing with the layer.

    Raises:
        TypeError: if it is no layer, or `name` no text.
        ValueError: as of `rebuilt` and `check_same_answers`, and in a graph.

    Example:
        >>> layer = keras.layers.Dense(2, name="dense")
        >>> layer.build((None, 3))
        >>> model_of(layer, *layer_values(layer)).output_shape
        (None, 2)
    """
    kind = keras.layers.Layer
    checks.check_type("to_keras", "model_def", layer, kind, "to be a Keras layer")
    checks.check_eager("to_keras")
    checks.check_type("to_keras", "name", name, str | None, "a str or None")
    other = rebuilt(layer)
    shape: Any = (layer.get_build_config() or {}).get("input_shape")
    is_model = isinstance(other, keras.Model)
    if not (is_model or isinstance(shape, list | tuple) and isinstance(shape[-1], int)):
        raise ValueError(
            f"`to_keras`: `model_def` expected to be a model, or a layer of one array; "
            f"got {layer.name!r} built for {shape}; make a model of it"
        )
    check_same_answers(layer, other, params, extra_variables)
    values = {**params, **extra_variables}
    for key, variable in zip(variable_names(layer), _variables(other), strict=True):
        variable.assign(values[key])
    adapted_layers.renew(other)
    if is_model:
        if name is not None:
            other.name = name
        return other
    inputs = keras.Input(shape[1:], name="inputs")
    return keras.Model(inputs, other(inputs), name=layer.name if name is None else name)


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


def _input_specs(layer: keras.layers.Layer) -> dict[str, Any]:
    """Nests of specs that a layer is called with by argument, "" for the first."""
    inputs = getattr(layer, "inputs", None) if isinstance(layer, keras.Model) else None
    if inputs and all(isinstance(x, keras.KerasTensor) for x in inputs):
        nest = inputs[0] if isinstance(layer, keras.Sequential) else layer.input
        return {
            "": tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), nest)
        }
    config = layer.get_build_config() or {}
    shapes = {"": config["input_shape"]} if "input_shape" in config else {}
    for name, shape in config.get("shapes_dict", {}).items():
        shapes[name.removesuffix("_shape")] = shape
    return {
        name: keras.tree.map_shape_structure(tf.TensorSpec, shape)
        for name, shape in shapes.items()
        if shape is not None
    }


def _random_batches(specs: Any) -> Iterator[Any]:
    """Batches of numbers, and of zeros and ones; free axes are short, then long."""
    rng = np.random.default_rng(0)
    for length in (8, 128) if specs else ():
        for draw in (rng.standard_normal, functools.partial(rng.integers, 0, 2)):

            def leaf(spec: Any, length: int = length, draw: Any = draw) -> tf.Tensor:
                sizes = [length if size is None else size for size in spec.shape]
                if sizes and spec.shape[0] is None:
                    sizes[0] = 3
                values = tf.constant(draw(size=sizes))
                is_text = spec.dtype == tf.string
                return tf.as_string(values) if is_text else tf.cast(values, spec.dtype)

            yield tf.nest.map_structure(leaf, specs)


def _alike(found: Any, wanted: list[tf.Tensor]) -> bool:
    """Whether outputs are equal but for the last digits."""
    if isinstance(found, str):
        return False
    if [(x.dtype, x.shape) for x in found] != [(y.dtype, y.shape) for y in wanted]:
        return False
    for x, y in zip(found, wanted, strict=True):
        if not x.dtype.is_floating:
            if not np.array_equal(x.numpy(), y.numpy()):
                return False
            continue
        a, b = (tf.cast(z, tf.float64).numpy() for z in (x, y))
        largest = np.max(np.abs(b[np.isfinite(b)]), initial=0.0)
        share = 1e-5 if x.dtype.size >= 4 else 1e-2
        if not np.allclose(a, b, rtol=0.0, atol=share * largest, equal_nan=True):
            return False
    return True
