"""Arithmetic that keeps its digits and its range, forward and in gradients.

The soft bounds, without overflow or cancellation, are built from the softplus of
softness s,

    softplus_s(d) = s * ln(1 + exp(d / s))

which is 0 far below 0 and d far above. In the formulas lengths are divided by s: A and
B are those of `x - low` and `x - high`, a and b those of `y - low` and `high - y`, D
that of `high - low`. x and y are float32 or float64, and every y lies inside; the
parameters are numbers, arrays or tensors that broadcast against them and take their
dtype. Gradients stay finite in every argument; a bound that is infinite is none.
`squash`, `unsquash` and `tanh_log_slope` are those of tanh between finite bounds.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

_LOG_2 = math.log(2.0)
# One minus the largest number of a dtype below 1: what tanh can still tell from 1.
_MARGINS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
# In units of the softness: where exp(-distance) is 0 in every dtype.
_FAR = 1000.0


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


def least(x: tf.Tensor, axis: Any) -> tf.Tensor:
    """The least along an axis or several, NaN where any is.

    XLA passes over NaN on CPUs, and the loss of what has diverged would look sound.

    Example:
        >>> least(tf.constant([[np.nan, 1.0], [2.0, 1.0]]), axis=-1).numpy()
        array([nan,  1.], dtype=float32)
    """
    return _unless_nan(tf.reduce_min(x, axis), x, axis)


def greatest(x: tf.Tensor, axis: Any) -> tf.Tensor:
    """The greatest along an axis or several, NaN where any is, as of `least`.

    Example:
        >>> greatest(tf.constant([[np.nan, 1.0], [2.0, 1.0]]), axis=-1).numpy()
        array([nan,  2.], dtype=float32)
    """
    return _unless_nan(tf.reduce_max(x, axis), x, axis)


def _unless_nan(result: tf.Tensor, x: tf.Tensor, axis: Any) -> tf.Tensor:
    # Eager reductions heed NaN, and so does one along no axis.
    if tf.executing_eagerly() or axis == [] or not x.dtype.is_floating:
        return result
    is_nan = tf.reduce_any(tf.math.is_nan(x), axis)
    # A factor, for gradients that are NaN, too.
    one = tf.ones([], x.dtype)
    return result * tf.where(is_nan, math.nan * one, one)


def softclip(x: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """Bounds numbers softly from both sides, bending equally at each.

    y = low + s * softplus(A) - s * softplus(B)
    """
    parts = [x, *_parameters(x, low, high, softness)]
    return _bounded(*tf.experimental.numpy.broadcast_arrays(*parts))


def inverse(y: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """The input that `softclip` maps to y.

    x = y + s * (ln(1 - exp(-a)) - ln(1 - exp(-b)))
    """
    low, high, softness = _parameters(y, low, high, softness)
    a = _distance(y, low, softness)
    b = -_distance(y, high, softness)
    return y + softness * (_log1mexp(a) - _log1mexp(b))


def log_slope(x: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """The logarithm of the derivative of `softclip`.

    ln dy / dx = ln(1 - exp(-D)) - softplus(-A) - softplus(B)
    """
    low, high, softness = _parameters(x, low, high, softness)
    below, above = _distance(x, low, softness), _distance(x, high, softness)
    width = tf.where(
        tf.math.is_inf(low) | tf.math.is_inf(high),
        tf.constant(_FAR, x.dtype),
        quotient(_finite(high) - _finite(low), softness),
    )
    return _log1mexp(width) - tf.math.softplus(-below) - tf.math.softplus(above)


def stretched(x: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """Bounds numbers softly as TensorFlow Probability's `SoftClip`.

    u = softupper(softlower(x, low), high)
    y = high - (high - low) * (high - u) / (high - softupper(low, high))
    """
    low, high, softness = _parameters(x, low, high, softness)
    upper = softclip(softclip(x, low, np.inf, softness), -np.inf, high, softness)
    least = softclip(low, -np.inf, high, softness)
    stretch = (high - low) / (high - least)
    # The same twice: each keeps the digits of the distance to its own bound.
    from_low = low + stretch * (upper - least)
    from_high = high - stretch * (high - upper)
    result = tf.where(x - low < high - x, from_low, from_high)
    # Rounding must not leave the interval, but the tails keep their gradient.
    excess = result - tf.clip_by_value(result, low, high)
    return result - tf.stop_gradient(excess)


def stretched_inverse(y: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """The input that `stretched` maps to y.

    With r = softplus(A) and p = softplus(D),

        (high - y) / (high - low) = softplus(D - r) / p

    which is solved for r in two ways, each with all digits of the distance d, as a
    fraction of the interval, to its own bound:

        from low:   r = p * d - ln(1 - exp(p * d - D) * (1 - exp(-p * d)))
        from high:  r = D - p * d - ln(1 - exp(-p * d))
    """
    low, high, softness = _parameters(y, low, high, softness)
    length = high - low
    width = quotient(length, softness)
    # Of the distance to the nearer bound; a fraction of the interval would underflow.
    rate = quotient(tf.math.softplus(width), length)
    is_lower = y - low < high - y
    half = 0.5 * length
    gap = rate * tf.where(is_lower, y - low, half)
    rest = -tf.exp(gap - width) * tf.math.expm1(-gap)
    from_low = gap - tf.math.log1p(-rest)
    gap = rate * tf.where(is_lower, half, high - y)
    from_high = width - gap - _log1mexp(gap)
    bent = tf.where(is_lower, from_low, from_high)
    return low + softness * (bent + _log1mexp(bent))


def stretched_log_slope(x: tf.Tensor, low: Any, high: Any, softness: Any) -> tf.Tensor:
    """The logarithm of the derivative of `stretched`.

    ln dy / dx = ln(D / softplus(D)) - softplus(softplus(A) - D) - softplus(-A)
    """
    low, high, softness = _parameters(x, low, high, softness)
    below, above = (quotient(x - bound, softness) for bound in (low, high))
    width = quotient(high - low, softness)
    # softplus(A) - D from the nearer bound, where it keeps its digits.
    excess = tf.where(
        below > 0.0,
        above + tf.math.softplus(-below),
        tf.math.softplus(below) - width,
    )
    near = tf.minimum(width, _FAR)
    steepness = tf.math.log(near / tf.math.softplus(near))
    return steepness - tf.math.softplus(excess) - tf.math.softplus(-below)


def half_range(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Half the distance of the bounds, which itself may overflow."""
    return 0.5 * high - 0.5 * low


def squash(raw: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Returns `clip(centre + half_range * tanh(raw), low, high)`."""
    centre = 0.5 * low + 0.5 * high
    # Clipped: rounding may lead beyond a bound.
    actions = centre + half_range(low, high) * tf.tanh(raw)
    return tf.clip_by_value(actions, low, high)


def unsquash(actions: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Returns what `squash` maps to `actions`: finite, at and beyond the bounds too.

    With t the place between the bounds in [-1, 1], it is

        atanh(t) = sign(t) * ln(1 + 2 |t| / (1 - |t|)) / 2

    where `1 - |t|`, the distance from the nearer bound, is taken directly from that
    bound. It counts as at least the least one that `squash` can leave: from there on
    the result is a constant, whose gradient is 0.
    """
    centre, half = 0.5 * low + 0.5 * high, half_range(low, high)
    actions = tf.clip_by_value(actions, low, high)
    below = actions < centre
    distance = tf.where(below, actions - low, high - actions)
    distance = quotient(distance, half)
    # Not abs(), whose slope in the centre is 0.
    place = tf.where(below, centre - actions, actions - centre)
    place = quotient(place, half)
    margin = tf.constant(_MARGINS[actions.dtype.name], actions.dtype)
    at_bound = distance <= margin
    distance = tf.where(at_bound, margin, distance)
    place = tf.where(at_bound, 1.0 - margin, place)
    raw = 0.5 * tf.math.log1p(quotient(2.0 * place, distance))
    return tf.where(below, -raw, raw)


def tanh_log_slope(raw: tf.Tensor) -> tf.Tensor:
    """Returns `log(1 - tanh(raw)^2)`, the slope of `squash` for a half range of 1.

    `2 (log 2 - |raw| - log(1 + exp(-2 |raw|)))` neither overflows nor cancels in the
    tails.
    """
    size = tf.abs(raw)
    # Not log1p: its relative precision is not needed, and XLA takes longer for it.
    return 2.0 * (_LOG_2 - size - tf.math.log(1.0 + tf.exp(-2.0 * size)))


def _parameters(x: tf.Tensor, *values: Any) -> list[tf.Tensor]:
    return [number(value, x.dtype) for value in values]


@tf.custom_gradient
def _bounded(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor, softness: tf.Tensor) -> Any:
    """`softclip` of tensors of one shape.

    It is `clip(x) + s * (ln(1 + exp(-|A|)) - ln(1 + exp(-|B|)))`, and the difference of
    the logarithms, if |A| <= |B|, is

        -ln(1 + (exp(|A| - |B|) - 1) * sigmoid(-|A|))
    """
    infinity = tf.constant(np.inf, x.dtype)
    above_low = tf.where(low == -infinity, infinity, x - low)
    above_high = tf.where(high == infinity, -infinity, x - high)
    from_low, from_high = tf.abs(above_low), tf.abs(above_high)
    nearer = tf.minimum(from_low, from_high) / softness
    gap = tf.minimum(tf.abs(above_low + above_high), high - low) / softness
    # Far from both bounds the gap may be inf - inf, and does not count.
    product = tf.math.multiply_no_nan(tf.math.expm1(-gap), tf.sigmoid(-nearer))
    bend = -softness * tf.math.log1p(product)
    clipped = tf.maximum(tf.minimum(x, high), low)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Cut off where nothing changes any more, for the sake of second derivatives.
        far = _FAR * softness
        a = tf.clip_by_value(above_low, -far, far) / softness
        b = tf.clip_by_value(above_high, -far, far) / softness
        # sigmoid(a) - sigmoid(b) without cancellation.
        width = tf.minimum(high - low, far) / softness
        slope = -tf.math.expm1(-width) * tf.sigmoid(a) * tf.sigmoid(-b)
        factors = (slope, tf.sigmoid(-a), tf.sigmoid(b), _entropy(a) - _entropy(b))
        return tuple(upstream * factor for factor in factors)

    return clipped + tf.where(from_low <= from_high, bend, -bend), gradient


def _entropy(logits: tf.Tensor) -> tf.Tensor:
    """Bernoulli entropy; the derivative of `softplus_s` in s."""
    below = -tf.abs(logits)
    return tf.math.softplus(below) - below * tf.sigmoid(below)


def _distance(x: tf.Tensor, bound: tf.Tensor, softness: tf.Tensor) -> tf.Tensor:
    """`(x - bound) / softness`; far away, with gradient 0, where the bound is none."""
    far = -tf.sign(bound) * tf.constant(_FAR, x.dtype)
    near = quotient(x - _finite(bound), softness)
    return tf.where(tf.math.is_inf(bound), far, near)


def _finite(bound: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.math.is_inf(bound), tf.zeros_like(bound), bound)


@tf.custom_gradient
def _log1mexp(x: tf.Tensor) -> Any:
    """`ln(1 - exp(-x))` for positive x; finite at 0, unlike TFP's."""
    limits = np.finfo(x.dtype.as_numpy_dtype)
    x = tf.maximum(x, limits.tiny)
    value = tf.where(
        x < math.log(2.0), tf.math.log(-tf.math.expm1(-x)), tf.math.log1p(-tf.exp(-x))
    )
    # The slope 1 / x leaves room for factors.
    near = tf.maximum(x, limits.tiny / limits.eps)
    return value, lambda upstream: upstream / tf.math.expm1(near)
