"""Elementwise arithmetic of truncated distributions.

A density far out in a tail underflows, and its logarithm is so large that differences
cancel. So everything here is relative to the density at one point, the mode: the point
of the interval that is closest to the location, the `origin` seen from there.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import compile
from tfrl.distributions import _families

# By dtype: Gauss-Legendre nodes on [-1, 1] with their weights, and the x at which a
# factor exp(-x) has become negligible. They err by less than the dtype's precision for
# every density exp(-t (r + t / 2)) on every interval.
_QUADRATURE = {
    tf.float32: (*np.polynomial.legendre.leggauss(18), 17.0),
    tf.float64: (*np.polynomial.legendre.leggauss(40), 37.0),
}

# Samples stay between these quantiles of the distribution that is cut off.
_LEAST_QUANTILE, _GREATEST_QUANTILE = 0.001, 0.999


@compile.compiled(static=("its",))
def quantiles(uniform: tf.Tensor, parameters: Any, its: Any) -> tf.Tensor:
    """Turns uniform numbers into samples.

    Args:
        uniform: numbers between 0 and 1.
        parameters: location, scale, lower and upper bounds.
        its: the standard distribution.
    """
    shape, share, loc, scale, lower, upper = _families.rows(uniform, *parameters)
    scale = at_least_tiny(scale)
    low = its.cdf(standardized(lower - loc, scale))
    high = its.cdf(standardized(upper - loc, scale))
    share = (1.0 - share) * low + share * high
    share = tf.clip_by_value(share, _LEAST_QUANTILE, _GREATEST_QUANTILE)
    draws = tf.clip_by_value(loc + scale * its.icdf(share), lower, upper)
    return tf.reshape(draws, shape)


@compile.compiled(static=("its", "mass_floor"))
def log_density(
    value: tf.Tensor, parameters: Any, its: Any, mass_floor: float
) -> tf.Tensor:
    """Log-densities, summed over the axes of the bounds."""
    shape, value, loc, scale, lower, upper = _families.rows(value, *parameters)
    each = log_densities(value, loc, scale, lower, upper, its, mass_floor)
    axes = list(range(-parameters[2].shape.rank, 0))
    return tf.reduce_sum(tf.reshape(each, shape), axis=axes)


def log_densities(
    value: tf.Tensor,
    loc: tf.Tensor,
    scale: tf.Tensor,
    lower: tf.Tensor,
    upper: tf.Tensor,
    its: Any,
    mass_floor: float,
) -> tf.Tensor:
    """Log-density of each number.

    Everything is relative to the density at the mode, so that nothing underflows and no
    large numbers cancel where the bounds lie in a tail.
    """
    mode, origin, scale = _reference(loc, scale, lower, upper)
    log_mass = its.log_mass_ratio(origin, mode - lower, upper - mode, scale)
    if mass_floor:
        at_mode = its.log_prob(standardized(origin, scale))
        log_floor = math.log(mass_floor) + tf.math.log(scale) - at_mode
        log_mass += tf.math.softplus(log_floor - log_mass)  # log-add-exp
    outside = (value < lower) | (value > upper)
    step = tf.where(outside, tf.zeros_like(mode), value - mode)
    alike = tf.zeros_like(step)
    log_ratio = its.log_density_ratio(origin + alike, step, scale + alike)
    return tf.where(outside, tf.constant(-np.inf, mode.dtype), log_ratio - log_mass)


@compile.compiled
def kl_divergence(one: Any, other: Any) -> tf.Tensor:
    """Means under the first of two normals of the log-densities' difference.

    Args:
        one: location, scale, lower and upper bounds.
        other: likewise.
    """
    mode, start, scale, log_mass, first, second = _of_normal(*one)
    other_mode, other_start, other_scale, other_log_mass, *_ = _of_normal(*other)
    # In units of the other scale: steps from the other mode are gap + ratio * t.
    gap, ratio = (mode - other_mode) / other_scale, scale / other_scale
    other_first = gap + ratio * first
    other_second = tf.square(gap) + 2.0 * gap * ratio * first + ratio**2 * second
    own = -start * first - 0.5 * second - log_mass
    others = -other_start * other_first - 0.5 * other_second - other_log_mass
    return tf.reduce_sum(own - others, axis=list(range(-one[2].shape.rank, 0)))


def _of_normal(
    loc: tf.Tensor, scale: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """The mode, the same standardized, the scale, and `normal_moments` of the mode."""
    mode, origin, scale = _reference(loc, scale, lower, upper)
    moments = normal_moments(origin, mode - lower, upper - mode, scale)
    return mode, standardized(origin, scale), scale, *moments


def nearest(
    loc: tf.Tensor, scale: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor
) -> tf.Tensor:
    """The point within the bounds that is nearest to `loc`, of the full shape."""
    return tf.clip_by_value(loc + tf.zeros_like(scale + lower), lower, upper)


def _reference(
    loc: tf.Tensor, scale: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The mode, as seen from the location, too, and the scale, of the full shape.

    What is computed relative to a point does not depend on the point. So none of its
    gradients goes there, where large ones would cancel.
    """
    mode = tf.stop_gradient(nearest(loc, scale, lower, upper))
    return mode, mode - loc, at_least_tiny(scale) + tf.zeros_like(mode)


@tf.custom_gradient
def standardized(x: tf.Tensor, scale: tf.Tensor) -> Any:
    """Returns `x / scale`, finite and with gradients that do not overflow on the way.

    Args:
        x: a distance; infinite ones are taken for the greatest finite ones.
        scale: the scale, positive, of the shape of `x`.

    Returns:
        The quotient, or a number of its sign and about 1e30 (1e246 in float64) where it
        is even larger.

    Example:
        >>> standardized(tf.constant([3.0, -np.inf]), tf.constant([2.0, 2.0])).numpy()
        array([ 1.5000000e+00, -6.6906996e+30], dtype=float32)
    """
    x = tf.clip_by_value(x, x.dtype.min, x.dtype.max)
    least = tf.abs(x) / _limit(x.dtype)
    divisor = tf.maximum(scale, least)
    quotient = x / divisor

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # The derivative by the scale is not formed by itself: only its product with
        # the upstream gradient is sure to be within range.
        upstream = tf.where(scale > least, upstream, tf.zeros_like(upstream))
        return upstream / divisor, -(upstream * quotient) / divisor

    return quotient, gradient


def _limit(dtype: tf.DType) -> float:
    return float(dtype.max) ** 0.8


def bounded(width: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """The width of an interval, made finite."""
    longest = tf.minimum(scale, width.dtype.max / _limit(width.dtype))
    return tf.minimum(width, tf.stop_gradient(longest) * _limit(width.dtype))


def at_least_tiny(x: tf.Tensor) -> tf.Tensor:
    """`x` or the smallest number that is not rounded to 0."""
    return tf.maximum(x, np.finfo(x.dtype.as_numpy_dtype).tiny)


def norm_and_share(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """sqrt(1 + x^2) and x / sqrt(1 + x^2), without overflow."""
    unit = tf.stop_gradient(tf.maximum(tf.abs(x), 1.0))
    norm = unit * tf.sqrt(tf.square(x / unit) + tf.square(1.0 / unit))
    return norm, x / norm


def log1p_square(x: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """log(1 + 2 share x + x^2) for `share * x >= 0`, without overflow."""
    size = tf.abs(x)
    is_near = size <= 1.0
    unit = tf.where(is_near, tf.ones_like(x), size)
    inside = tf.where(is_near, x, tf.sign(x))
    near = inside * (inside + 2.0 * share)
    far = (1.0 / unit + 2.0 * share * inside) / unit
    # log1p's relative precision is not needed, and XLA takes long for it.
    beyond = tf.math.log(1.0 + tf.where(is_near, near, far))
    return 2.0 * tf.math.log(unit) + beyond


def log_heavy_ratio(origin: tf.Tensor, step: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """log((1 + z^2) / (1 + r^2)) with r = origin / scale, z = (origin + step) / scale.

    It is log(1 + 2 rho q + q^2), q = (z - r) / sqrt(1 + r^2), rho = r / sqrt(1 + r^2).
    """
    norm, share = norm_and_share(standardized(origin, scale))
    return log1p_square(standardized(step, scale) / norm, share)


def _quadrature(
    origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Nodes of an integral over the normal density relative to that at `origin`.

    Returns:
        Steps t from the origin in units of scale, on a new first axis; weights times
        exp(-t (r + t / 2)) with r = origin / scale; half the length of the interval.
    """
    nodes, weights, cutoff = _QUADRATURE[origin.dtype]
    start = standardized(origin, scale)
    # Solves t (r + t / 2) = cutoff.
    size = tf.abs(start)
    unit = tf.maximum(size, 1.0)
    root = unit * tf.sqrt(tf.square(size / unit) + 2.0 * cutoff / unit / unit)
    reach = tf.stop_gradient(2.0 * cutoff / (size + root) * scale)
    low, high = tf.minimum(below, reach), tf.minimum(above, reach)
    half_width = 0.5 * (high + low)
    column = [-1] + [1] * origin.shape.rank
    nodes, weights = (
        tf.reshape(tf.constant(part, origin.dtype), column) for part in (nodes, weights)
    )
    middle = standardized(0.5 * (high - low), scale)
    steps = middle + standardized(half_width, scale) * nodes
    return steps, weights * tf.exp(-steps * (start + 0.5 * steps)), half_width


def normal_log_ratio(origin: tf.Tensor, step: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """`log_density_ratio` of the standard normal distribution."""
    step = standardized(step, scale)
    return -step * (standardized(origin, scale) + 0.5 * step)


def normal_moments(
    origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`log_mass_ratio` of the standard normal distribution, and two moments with it.

    These are the means of `t = (x - origin) / scale` and of t^2, x being scale times a
    standard normal variable that is known to lie in the interval.
    """
    steps, parts, half_width = _quadrature(origin, below, above, scale)
    mass = tf.reduce_sum(parts, axis=0)
    first = tf.reduce_sum(parts * steps, axis=0) / mass
    second = tf.reduce_sum(parts * tf.square(steps), axis=0) / mass
    return tf.math.log(at_least_tiny(half_width * mass)), first, second


@tf.custom_gradient
def log_normal_mass(
    origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
) -> Any:
    """The log-mass of `normal_moments`, whose moments are its derivatives."""
    value, first, second = normal_moments(origin, below, above, scale)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        at_low = normal_log_ratio(origin, -below, scale)
        at_high = normal_log_ratio(origin, above, scale)
        of_scale = second + 2.0 * standardized(origin, scale) * first
        return (
            -upstream * first / scale,
            upstream * tf.exp(at_low - value),
            upstream * tf.exp(at_high - value),
            upstream * of_scale / scale,
        )

    return value, gradient
