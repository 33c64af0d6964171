"""Arithmetic that keeps its digits and its range, forward and in gradients."""

from typing import Any

import tensorflow as tf


def widened(tensor: Any) -> tf.Tensor:
    """A float16 or bfloat16 tensor in float32, to be computed in; others as they are.

    bfloat16 cannot count to 300, float16 cannot square 300: sums over more than a few
    elements need more than either has.

    Example:
        >>> widened(tf.zeros([], tf.bfloat16)).dtype.name
        'float32'
    """
    tensor = tf.convert_to_tensor(tensor)
    narrow = tensor.dtype in (tf.float16, tf.bfloat16)
    return tf.cast(tensor, tf.float32) if narrow else tensor


def number(value: Any, dtype: tf.DType) -> tf.Tensor:
    """A number in a dtype, without the detour of `tf.cast` by float32.

    Example:
        >>> float(number(0.1, tf.float64))
        0.1
    """
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def quotient(x: Any, y: Any) -> tf.Tensor:
    """Divides, with a gradient that needs no more range than the result.

        quotient = x / y,   dx = upstream / y,   dy = -(x * dx) / y

    XLA divides by y^2 in the gradient of `x / y` by y, which over- and underflows where
    the gradient does not.

    Example:
        >>> quotient(tf.constant([3.0, 1.0]), tf.constant(2.0)).numpy()
        array([1.5, 0.5], dtype=float32)
    """
    x = tf.convert_to_tensor(x)
    y = tf.convert_to_tensor(y, dtype_hint=x.dtype)
    if not (x.shape.is_fully_defined() and x.shape == y.shape):
        shape = tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y))
        x, y = tf.broadcast_to(x, shape), tf.broadcast_to(y, shape)
    return _quotient(x, y)


@tf.custom_gradient
def _quotient(x: tf.Tensor, y: tf.Tensor) -> Any:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_x = upstream / y
        return by_x, -(by_x * x) / y

    return x / y, gradient
