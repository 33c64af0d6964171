"""What an `AsKeras` layer is saved as, in strings and plain numbers."""

import inspect
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import shapes
from tfrl.layers import _nest_codec


def split_dtype(dtype: Any) -> tuple[Any, str | None]:
    """Dtype policy of the layer, and dtype of inputs that are no floats."""
    try:
        kind = tf.as_dtype(dtype)
    except TypeError:
        return dtype, None
    if kind.is_integer or kind.is_bool:
        return None, kind.name
    if not kind.is_floating:
        raise ValueError(
            "`AsKeras`: `dtype` expected a dtype of numbers or a dtype policy; "
            f"got {kind.name}; leave it out for the default"
        )
    return kind.name, None


def encoded_key(key: np.ndarray) -> dict[str, Any]:
    return {"dtype": key.dtype.name, "value": key.tolist()}


def encoded(signature: Any) -> dict[str, Any]:
    """A signature in what JSON has; lists and tuples stay what they are."""
    return _nest_codec.encoded(
        signature, lambda leaf: {"array": [list(leaf.shape), leaf.dtype.name]}
    )


def decoded(config: dict[str, Any]) -> Any:
    """The signature that `encoded` was given."""
    return _nest_codec.decoded(config, lambda content: shapes.ShapeDtype(*content))


def symbolic(signature: Any) -> Any:
    """Keras tensors of a signature."""
    return tf.nest.map_structure(
        lambda leaf: keras.KerasTensor(leaf.shape, tf.as_dtype(leaf.dtype).name),
        signature,
    )


def name_of(argument: str, function: Any) -> Any:
    """The name that a function or class is registered by, or what a layer says."""
    if hasattr(function, "get_config") and not inspect.isclass(function):
        return keras.saving.serialize_keras_object(function)
    if inspect.isclass(function) or inspect.isfunction(function):
        name = keras.saving.get_registered_name(function)
        # A module that is run again registers another function by the name.
        if keras.saving.get_registered_object(name) is not None:
            return name
    raise ValueError(
        f"`AsKeras`: `{argument}` expected a function decorated by "
        "keras.saving.register_keras_serializable, to save it by name; "
        f"got {function!r}; pass a registered factory of the layer"
    )


def found(argument: str, name: Any) -> Any:
    if isinstance(name, dict):
        return keras.saving.deserialize_keras_object(name)
    function = name and keras.saving.get_registered_object(name)
    if name and function is None:
        raise ValueError(
            f"`AsKeras`: `{argument}` expected a registered function; got {name!r}, "
            "which is not; import the module that registers it"
        )
    return function
