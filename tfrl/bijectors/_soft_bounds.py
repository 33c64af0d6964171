"""Inverses and log-slopes of the soft bounds, without overflow or cancellation.

Lengths are divided by the softness s: A and B are those of `x - low` and `x - high`,
a and b those of `y - low` and `high - y`, D that of `high - low`. Tensors are of one
dtype, float32 or float64, and broadcast against each other; every y lies inside.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import compile
from tfrl.ops import math as ops_math

# Where exp(-distance) is 0 in every dtype: the distance of a bound that is none.
_FAR = 1000.0


@compile.compiled
def inverse(
    y: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor
) -> tf.Tensor:
    """The input that `softclip` maps to y.

        y = low + s * softplus(A) - s * softplus(B)
        x = y + s * (ln(1 - exp(-a)) - ln(1 - exp(-b)))

    Args:
        y: numbers inside the bounds.
        low: the lower bound, infinite for none.
        high: the upper bound, likewise.
        softness: the softness.

    Returns:
        Numbers in the broadcast shape.

    Example:
        >>> inverse(tf.constant([0.5, 500.0]), 0.0, np.inf, 1.0).numpy()
        array([-4.3275213e-01,  5.0000000e+02], dtype=float32)
    """
    a = _distance(y, low, softness)
    b = -_distance(y, high, softness)
    return y + softness * (_log1mexp(a) - _log1mexp(b))


@compile.compiled
def log_slope(
    x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor
) -> tf.Tensor:
    """The logarithm of the derivative of `softclip`.

        ln dy / dx = ln(1 - exp(-D)) - softplus(-A) - softplus(B)

    Args:
        x: any numbers.
        low: the lower bound, infinite for none.
        high: the upper bound, likewise.
        softness: the softness.

    Returns:
        Numbers in the broadcast shape.

    Example:
        >>> log_slope(tf.constant([-200.0, 0.0, 200.0]), 0.0, np.inf, 1.0).numpy()
        array([-200.        ,   -0.6931472,   -0.       ], dtype=float32)
    """
    below, above = _distance(x, low, softness), _distance(x, high, softness)
    width = tf.where(
        tf.math.is_inf(low) | tf.math.is_inf(high),
        tf.constant(_FAR, x.dtype),
        ops_math.quotient(_finite(high) - _finite(low), softness),
    )
    return _log1mexp(width) - tf.math.softplus(-below) - tf.math.softplus(above)


@compile.compiled
def stretched_inverse(
    y: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor
) -> tf.Tensor:
    """The input that `softclip_tf` maps to y.

    With r = softplus(A) and p = softplus(D),

        (high - y) / (high - low) = softplus(D - r) / p

    which is solved for r in two ways, each with all digits of the distance d, as a
    share of the interval, to its own bound:

        from low:   r = p * d - ln(1 - exp(p * d - D) * (1 - exp(-p * d)))
        from high:  r = D - p * d - ln(1 - exp(-p * d))

    Args:
        y: numbers inside the bounds.
        low: the lower bound.
        high: the upper bound.
        softness: the softness.

    Returns:
        Numbers in the broadcast shape.

    Example:
        >>> stretched_inverse(tf.constant([0.4060018]), -1.0, 1.0, 1.0).numpy().round(3)
        array([1.], dtype=float32)
    """
    length = high - low
    width = ops_math.quotient(length, softness)
    # Of the distance to the nearer bound; a share of the interval would underflow.
    rate = ops_math.quotient(tf.math.softplus(width), length)
    is_lower = y - low < high - y
    half = 0.5 * length
    gap = rate * tf.where(is_lower, y - low, half)
    rest = -tf.exp(gap - width) * tf.math.expm1(-gap)
    from_low = gap - tf.math.log1p(-rest)
    gap = rate * tf.where(is_lower, half, high - y)
    from_high = width - gap - _log1mexp(gap)
    bent = tf.where(is_lower, from_low, from_high)
    return low + softness * (bent + _log1mexp(bent))


@compile.compiled
def stretched_log_slope(
    x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor
) -> tf.Tensor:
    """The logarithm of the derivative of `softclip_tf`.

        ln dy / dx = ln(D / softplus(D)) - softplus(softplus(A) - D) - softplus(-A)

    Args:
        x: any numbers.
        low: the lower bound.
        high: the upper bound.
        softness: the softness.

    Returns:
        Numbers in the broadcast shape.

    Example:
        >>> x = tf.constant([-200.0, 0.0])
        >>> stretched_log_slope(x, -1.0, 2.0, 1.0).numpy().round(3)
        array([-199.065,   -0.499], dtype=float32)
    """
    below, above = (ops_math.quotient(x - bound, softness) for bound in (low, high))
    width = ops_math.quotient(high - low, softness)
    # softplus(A) - D from the nearer bound, where it keeps its digits.
    excess = tf.where(
        below > 0.0,
        above + tf.math.softplus(-below),
        tf.math.softplus(below) - width,
    )
    near = tf.minimum(width, _FAR)
    steepness = tf.math.log(near / tf.math.softplus(near))
    return steepness - tf.math.softplus(excess) - tf.math.softplus(-below)


def _distance(x: tf.Tensor, bound: tf.Tensor, softness: tf.Tensor) -> tf.Tensor:
    """`(x - bound) / softness`; far away, with gradient 0, where the bound is none."""
    far = -tf.sign(bound) * tf.constant(_FAR, x.dtype)
    near = ops_math.quotient(x - _finite(bound), softness)
    return tf.where(tf.math.is_inf(bound), far, near)


def _finite(bound: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.math.is_inf(bound), tf.zeros_like(bound), bound)


@tf.custom_gradient
def _log1mexp(x: tf.Tensor) -> Any:
    """`ln(1 - exp(-x))` for positive x; finite at 0."""
    limits = np.finfo(x.dtype.as_numpy_dtype)
    x = tf.maximum(x, tf.constant(limits.tiny, x.dtype))
    middle = tf.constant(np.log(2.0), x.dtype)
    small, large = tf.minimum(x, middle), tf.maximum(x, middle)
    for_small = tf.math.log(-tf.math.expm1(-small))
    value = tf.where(x < middle, for_small, tf.math.log1p(-tf.exp(-large)))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # The slope 1 / x leaves room for factors.
        return upstream / tf.math.expm1(tf.maximum(x, limits.tiny / limits.eps))

    return value, gradient
