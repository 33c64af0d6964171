"""Copies of layers, and whether they answer as the layers do."""

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import adapted_layers, checks
from tfrl.agents import _stateless


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
        >>> values = _stateless.layer_values(layer)
        >>> check_same_answers(layer, _stateless.rebuilt(layer), *values)
    """
    asked, got = _compared(layer, other, params, extra)
    if not asked:
        raise ValueError(
            "`to_keras`: `model_def` expected to answer a random batch of the shape "
            "that it was built for, so that its copy can be compared; got "
            f"{layer.name!r}, which does not{got}; make a functional model of it, "
            "whose inputs have shapes and dtypes"
        )
    if got:
        raise ValueError(
            f"`to_keras`: expected the configuration of {layer.name!r} to make another "
            f"with the same answers; got {got}; let `get_config` return all arguments "
            "of the constructor, with their values"
        )


def difference(
    layer: keras.layers.Layer, other: keras.layers.Layer, params: Any, extra: Any
) -> str | None:
    """Returns in what two networks differ, but for names and values of weights.

    Compared are the kinds and settings of their layers and, as of `check_same_answers`,
    what they answer with the same variables.

    Args:
        layer: a built layer.
        other: another one.
        params: of `layer`.
        extra: the other variables of `layer`.

    Returns:
        Words for a message, or None.

    Example:
        >>> layers = [
        ...     keras.layers.Dense(2, x, name="dense") for x in ("relu", "tanh")]
        >>> for layer in layers:
        ...     layer.build((None, 3))
        >>> difference(*layers, *_stateless.layer_values(layers[0]))
        "a 'dense' of activation 'relu' and a 'dense' of 'tanh'"
    """
    for one, its in itertools.zip_longest(
        layer._flatten_layers(), other._flatten_layers()
    ):
        kinds = [type(x).__qualname__ for x in (one, its) if x is not None]
        if len({*kinds}) != 1 or len(kinds) != 2:
            return f"layers {' and '.join(kinds)} in the same place"
        if len(one._flatten_layers()) > 1:
            continue
        mine, others = _settings(one), _settings(its)
        for key, value in mine.items():
            if value != others.get(key):
                told = f"a {one.name!r} of {key} {value!r:.60}"
                return f"{told} and a {its.name!r} of {others.get(key)!r:.60}"
    shapes = [
        [tuple(v.shape) for v in _stateless.variables_of(x)] for x in (layer, other)
    ]
    if shapes[0] != shapes[1]:
        return f"variables of shapes {shapes[0]} and {shapes[1]}"
    asked, fault = _compared(layer, other, params, extra)
    return (
        f"with the same weights answers that are {fault}" if asked and fault else None
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
        >>> model_of(layer, *_stateless.layer_values(layer)).output_shape
        (None, 2)
    """
    kind = keras.layers.Layer
    checks.check_type("to_keras", "model_def", layer, kind, "to be a Keras layer")
    checks.check_eager("to_keras")
    checks.check_type("to_keras", "name", name, str | None, "a str or None")
    other = _stateless.rebuilt(layer)
    shape: Any = (layer.get_build_config() or {}).get("input_shape")
    is_model = isinstance(other, keras.Model)
    if not (is_model or isinstance(shape, list | tuple) and isinstance(shape[-1], int)):
        raise ValueError(
            f"`to_keras`: `model_def` expected to be a model, or a layer of one array; "
            f"got {layer.name!r} built for {shape}; make a model of it"
        )
    check_same_answers(layer, other, params, extra_variables)
    values = {**params, **extra_variables}
    for key, variable in zip(
        _stateless.variable_names(layer), _stateless.variables_of(other), strict=True
    ):
        variable.assign(values[key])
    adapted_layers.renew(other)
    if is_model:
        if name is not None:
            other.name = name
        return other
    inputs = keras.Input(shape[1:], name="inputs")
    return keras.Model(inputs, other(inputs), name=layer.name if name is None else name)


def _settings(layer: keras.layers.Layer) -> dict[str, Any]:
    """What a layer tells of itself, but for names and seeds."""

    def settled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        apart = "name", "seed"
        return {k: settled(x) for k, x in value.items() if k not in apart}

    try:
        found: dict[str, Any] = settled(layer.get_config())
    except (NotImplementedError, TypeError):  # of what Keras cannot keep
        return {}
    return found


def _compared(
    layer: keras.layers.Layer, other: keras.layers.Layer, params: Any, extra: Any
) -> tuple[bool, str]:
    """Whether a layer answered at all, and what `other` answered if not the same."""
    names = _stateless.variable_names(layer)

    def answer(of: keras.layers.Layer, arguments: Mapping[str, Any]) -> Any:
        """Arrays; or why there are none, as such numbers need not be what it takes."""
        given = dict(arguments)
        first = [given.pop("")] if "" in given else []
        try:
            call = _stateless.LayerApply(of, names)
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
        if not _alike(answer(layer, arguments), wanted):
            why = "so that nothing can be compared"
            return True, f"some that change from call to call, {why}"
        return True, f"none{found}" if isinstance(found, str) else "other ones"
    return asked, "" if asked else fault


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
