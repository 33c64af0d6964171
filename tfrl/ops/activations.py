"""Activations that Keras lacks, or whose gradients lose their digits elsewhere."""

from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import operands
from tfrl.core import compile

TensorLike: TypeAlias = operands.TensorLike


def identity(x: Any) -> Any:
    """Returns its argument: the activation that does nothing.

    Args:
        x: anything.

    Returns:
        The same object.

    Example:
        >>> identity(3)
        3
    """
    return x


def swish(x: TensorLike) -> tf.Tensor:
    """The activation `x * sigmoid(x)`: the input far above 0, 0 far below.

    Args:
        x: floating, of any shape.

    Returns:
        The shape and dtype of `x`.

    Raises:
        TypeError: if `x` is not floating.

    Example:
        >>> swish([-1e4, 0.0, 1.0, 1e4]).numpy()
        array([-0.000000e+00,  0.000000e+00,  7.310586e-01,  1.000000e+04],
              dtype=float32)

    References:
        Ramachandran, Zoph, Le (2017), "Searching for Activation Functions".
    """
    x = operands.floating("swish", "x", x)
    return _swish(x)


def softsign(x: TensorLike) -> tf.Tensor:
    """Brings numbers into [-1, 1], with tails that leave slowly.

        y     = x / (1 + |x|)
        dy/dx = 1 / (1 + |x|)^2

    The gradient is computed as written, so that it keeps its digits far out.

    Args:
        x: floating, of any shape.

    Returns:
        The shape and dtype of `x`.

    Raises:
        TypeError: if `x` is not floating.

    Example:
        >>> softsign([-3.0, 0.0, 1.0, float("inf")]).numpy()
        array([-0.75,  0.  ,  0.5 ,  1.  ], dtype=float32)
    """
    x = operands.floating("softsign", "x", x)
    return _softsign(x)


def double_relu(arr: TensorLike) -> tf.Tensor:
    """The negative parts, then the positive parts: half of them 0, and nothing lost.

        y = [min(arr, 0), max(arr, 0)] along the last axis

    Args:
        arr: `[..., n]`, of any real dtype.

    Returns:
        `[..., 2 * n]`, of the dtype of `arr`. Like that of a ReLU, the gradient at 0
        is 0.

    Raises:
        ValueError: if `arr` has no axis.

    Example:
        >>> double_relu([[-1, 2], [3, -4]]).numpy()
        array([[-1,  0,  0,  2],
               [ 0, -4,  3,  0]], dtype=int32)
    """
    arr = operands.ranked("double_relu", "arr", arr, at_least=1, numeric=True)
    zero = tf.zeros([], arr.dtype)
    halves = tf.where(arr >= zero, zero, arr), tf.where(arr <= zero, zero, arr)
    return tf.concat(halves, axis=-1)


@tf.custom_gradient
def _swish(x: tf.Tensor) -> Any:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        finite = tf.clip_by_value(x, x.dtype.min, x.dtype.max)
        above, below = tf.sigmoid(finite), tf.sigmoid(-finite)
        return upstream * (above + finite * above * below)

    return tf.maximum(x, x.dtype.min) * tf.sigmoid(x), gradient


@compile.compiled
@tf.custom_gradient
def _softsign(x: tf.Tensor) -> Any:
    finite = tf.clip_by_value(x, x.dtype.min, x.dtype.max)
    rate = 1.0 / (1.0 + tf.abs(finite))
    return finite / (1.0 + tf.abs(finite)), lambda upstream: upstream * rate * rate
