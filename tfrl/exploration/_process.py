"""One step of an Ornstein-Uhlenbeck process, kept in a variable."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import compile
from tfrl.ops import tensors


def make_variable(start: Any) -> tf.Variable:
    """Makes the variable of a process; each replica of a strategy has a value of it."""
    return tf.Variable(
        start,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def step(
    variable: tf.Variable,
    seed: tf.Tensor,
    mu: Any,
    theta: Any,
    sigma: Any,
    least: Any = None,
    most: Any = None,
) -> tf.Tensor:
    """Moves the process in a variable on and returns its new value.

    x <- clip(x + theta * (mu - x) + sigma * N(0, 1), least, most)
    """
    settings = [
        np.asarray(x) if isinstance(x, list | tuple) else x
        for x in (mu, theta, sigma, least, most)
    ]
    value = _advanced(tf.convert_to_tensor(variable), seed, *settings)
    variable.assign(value)
    return value


def restarted(value: tf.Tensor, start: Any, mask: Any) -> tf.Tensor:
    """Returns where a process starts; with a mask, where that is True."""
    start = tf.broadcast_to(_as_tensor(start, value.dtype), value.shape)
    if mask is None:
        return start
    mask = tensors.expand_dims_as(tf.convert_to_tensor(mask, tf.bool), value)
    return tf.where(mask, start, value)


def clipped_array(value: Any, least: Any, most: Any) -> Any:
    """Clips an array to the bounds that there are."""
    value = value if least is None else np.maximum(value, least)
    return value if most is None else np.minimum(value, most)


def as_function(setting: Any) -> Callable[[], Any]:
    """Makes a constant callable; a function stays as it is."""
    return setting if callable(setting) else lambda: setting


def check_broadcasts(where: str, name: str, value: Any, shape: tf.TensorShape) -> None:
    """Raises a ValueError unless a value broadcasts to a shape as it is; None does."""
    own = tf.TensorShape(value.shape if hasattr(value, "shape") else np.shape(value))
    try:
        fits = value is None or tf.broadcast_static_shape(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"`{where}`: `{name}` expected a number or an array that broadcasts to "
            f"{shape.as_list()}; got shape {own}; reshape it"
        )


@compile.compiled
def _advanced(
    value: tf.Tensor,
    seed: tf.Tensor,
    mu: Any,
    theta: Any,
    sigma: Any,
    least: Any,
    most: Any,
) -> tf.Tensor:
    mu, theta, sigma = (_as_tensor(x, value.dtype) for x in (mu, theta, sigma))
    white = tf.random.stateless_normal(tf.shape(value), seed, dtype=value.dtype)
    value = value + (theta * (mu - value) + sigma * white)
    if least is not None:
        value = tf.maximum(value, _as_tensor(least, value.dtype))
    if most is not None:
        value = tf.minimum(value, _as_tensor(most, value.dtype))
    return value


def _as_tensor(setting: Any, dtype: tf.DType) -> tf.Tensor:
    """Makes a tensor without a detour of Python's floats over float32."""
    if tf.is_tensor(setting):
        return tf.cast(setting, dtype)
    return tf.constant(np.asarray(setting).astype(dtype.as_numpy_dtype))
