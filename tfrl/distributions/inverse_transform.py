"""Standard distributions with a distribution function that can be inverted.

They are namespaces of static functions, and what a truncated distribution is built
from. Besides density, distribution function and its inverse, each tells how its density
and its mass relate to the density at one point. These ratios stay within range where
the density itself underflows, so a truncation may lie anywhere.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import _truncation

TensorLike: TypeAlias = tf.types.experimental.TensorLike

_LOG_2, _LOG_PI, _SQRT_2 = math.log(2.0), math.log(math.pi), math.sqrt(2.0)
_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)


def _in_float32(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Has float16 and bfloat16 computed in float32; the result has the old dtype."""

    @functools.wraps(function)
    def precise(x: TensorLike) -> tf.Tensor:
        x = checks.as_tensor(function.__qualname__, "x", x)
        if x.dtype in (tf.float16, tf.bfloat16):
            return tf.cast(function(tf.cast(x, tf.float32)), x.dtype)
        return function(x)

    return precise


class InverseTransformSampling:
    """What a standard distribution offers to be sampled and truncated by.

    If u is uniform on (0, 1), `icdf(u)` has the distribution. A subclass overrides
    `cdf`, `icdf` and `log_prob`, all elementwise. The other two follow from them, but
    lose their digits where the distribution has next to no mass; a subclass that can do
    better overrides them, too. The class itself is used, never an instance's state.

    Example:
        >>> class Logistic(InverseTransformSampling):
        ...     cdf = staticmethod(tf.sigmoid)
        ...     icdf = staticmethod(lambda x: tf.math.log(x) - tf.math.log1p(-x))
        ...     log_prob = staticmethod(
        ...         lambda x: -tf.math.softplus(x) - tf.math.softplus(-x)
        ...     )
        >>> Logistic.icdf(tf.constant([0.5, 0.9])).numpy().round(3)
        array([0.   , 2.197], dtype=float32)
    """

    @staticmethod
    def cdf(x: TensorLike) -> tf.Tensor:
        """Returns the probability of values of at most `x`."""
        raise NotImplementedError("`cdf` is for subclasses to define")

    @staticmethod
    def icdf(x: TensorLike) -> tf.Tensor:
        """Returns the value that is not exceeded with probability `x`."""
        raise NotImplementedError("`icdf` is for subclasses to define")

    @staticmethod
    def log_prob(x: TensorLike) -> tf.Tensor:
        """Returns the log-density at `x`."""
        raise NotImplementedError("`log_prob` is for subclasses to define")

    @classmethod
    def log_density_ratio(
        cls, origin: tf.Tensor, step: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns `log p((origin + step) / scale) - log p(origin / scale)`.

        Args:
            origin: a distance from the centre, in units of `scale`'s.
            step: a distance from there, farther away from the centre.
            scale: the scale, positive.
        """
        there = _truncation.standardized(origin + step, scale)
        return cls.log_prob(there) - cls.log_prob(
            _truncation.standardized(origin, scale)
        )

    @classmethod
    def log_mass_ratio(
        cls, origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns the log of a mass relative to the density at `origin`.

            log int p(x / scale) dx - log p(origin / scale)

        Args:
            origin: the point of the interval that is closest to the centre 0, so 0 or
                one end of the interval.
            below: how far the interval reaches down from there, at least 0.
            above: how far it reaches up, at least 0.
            scale: the scale, positive.
        """
        low = _truncation.standardized(origin - below, scale)
        high = _truncation.standardized(origin + above, scale)
        mass = _truncation.at_least_tiny(cls.cdf(high) - cls.cdf(low))
        log_prob = cls.log_prob(_truncation.standardized(origin, scale))
        return tf.math.log(mass) + tf.math.log(scale) - log_prob


class NormalITS(InverseTransformSampling):
    """The standard normal distribution, `p(x) = exp(-x^2 / 2) / sqrt(2 pi)`.

    Example:
        >>> NormalITS.cdf(tf.constant([-40.0, 0.0, 1.0])).numpy().round(4).tolist()
        [0.0, 0.5, 0.8413000106811523]
    """

    @staticmethod
    @_in_float32
    def cdf(x: TensorLike) -> tf.Tensor:
        """Returns the probability of values of at most `x`."""
        return 0.5 * tf.math.erfc(x / -_SQRT_2)

    @staticmethod
    @_in_float32
    def icdf(x: TensorLike) -> tf.Tensor:
        """Returns the value that is not exceeded with probability `x`.

        XLA doubles `x` and subtracts 1 first: what is below 1e-7 in float32 (1e-16 in
        float64) loses its digits there, or becomes -inf.
        """
        return tf.math.ndtri(x)

    @staticmethod
    @_in_float32
    def log_prob(x: TensorLike) -> tf.Tensor:
        """Returns the log-density at `x`."""
        return -0.5 * tf.square(x) - _LOG_SQRT_2_PI

    log_density_ratio = staticmethod(_truncation.normal_log_ratio)
    log_mass_ratio = staticmethod(_truncation.log_normal_mass)


class CauchyITS(InverseTransformSampling):
    """The standard Cauchy distribution, `p(x) = 1 / (pi (1 + x^2))`.

    Example:
        >>> CauchyITS.cdf(tf.constant([-1.0, 0.0, 1.0])).numpy()
        array([0.25, 0.5 , 0.75], dtype=float32)
    """

    @staticmethod
    @_in_float32
    def cdf(x: TensorLike) -> tf.Tensor:
        """Returns the probability of values of at most `x`."""
        return tf.atan2(tf.ones_like(x), -x) / math.pi

    @staticmethod
    @_in_float32
    def icdf(x: TensorLike) -> tf.Tensor:
        """Returns the value that is not exceeded with probability `x`."""
        low = x < 0.5
        size = 1.0 / tf.tan(math.pi * tf.where(low, x, 1.0 - x))
        return tf.where(low, -size, size)

    @staticmethod
    @_in_float32
    def log_prob(x: TensorLike) -> tf.Tensor:
        """Returns the log-density at `x`."""
        return -_truncation.log1p_square(x, tf.zeros_like(x)) - _LOG_PI

    @classmethod
    def log_density_ratio(
        cls, origin: tf.Tensor, step: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns `log p((origin + step) / scale) - log p(origin / scale)`."""
        return -_truncation.log_heavy_ratio(origin, step, scale)

    @classmethod
    def log_mass_ratio(
        cls, origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns the log of the mass of an interval relative to p(origin / scale).

        With r = origin / scale and an end at w beyond it, the upper side contributes

            k^2 (atan(r + w) - atan(r)) = k^2 atan(w / (k^2 + r w)),   k^2 = 1 + r^2

        and the lower side does so with -r.
        """
        start = _truncation.standardized(origin, scale)
        norm, share = _truncation.norm_and_share(start)

        def side(width: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
            width = _truncation.bounded(width, scale)
            part = _truncation.standardized(width, scale) / norm
            shrunk = 1.0 + share * part
            tangent = part / norm / shrunk
            near = width / shrunk * _atan_series(tf.minimum(tangent, 0.25))
            far = scale * tf.square(tf.minimum(norm, 8.0)) * tf.atan(tangent)
            return tf.where(tangent < 0.25, near, far)

        mass = side(below, -share) + side(above, share)
        return tf.math.log(_truncation.at_least_tiny(mass))


class T2ITS(InverseTransformSampling):
    """Student's t with 2 degrees of freedom, `p(x) = 1 / (2 (1 + x^2)^(3/2))`.

    It is the t distribution of x sqrt(2).

    Example:
        >>> T2ITS.icdf(T2ITS.cdf(tf.constant([-3.0, 0.0, 1.0]))).numpy().round(4)
        array([-3.,  0.,  1.], dtype=float32)
    """

    @staticmethod
    def cdf(x: TensorLike) -> tf.Tensor:
        """Returns the probability of values of at most `x`."""
        return t2cdf(x)

    @staticmethod
    @_in_float32
    def icdf(x: TensorLike) -> tf.Tensor:
        """Returns the value that is not exceeded with probability `x`."""
        return (x - 0.5) * tf.math.rsqrt(x * (1.0 - x))

    @staticmethod
    @_in_float32
    def log_prob(x: TensorLike) -> tf.Tensor:
        """Returns the log-density at `x`."""
        return -1.5 * _truncation.log1p_square(x, tf.zeros_like(x)) - _LOG_2

    @classmethod
    def log_density_ratio(
        cls, origin: tf.Tensor, step: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns `log p((origin + step) / scale) - log p(origin / scale)`."""
        return -1.5 * _truncation.log_heavy_ratio(origin, step, scale)

    @classmethod
    def log_mass_ratio(
        cls, origin: tf.Tensor, below: tf.Tensor, above: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Returns the log of the mass of an interval relative to p(origin / scale).

        With r = origin / scale and an end at w beyond it, the upper side contributes

            k^3 ((r + w) / sqrt(1 + (r + w)^2) - r / k) = w / (h (1 + rho q / (1 + h))),

        k^2 = 1 + r^2, rho = r / k, q = w / k, h^2 = 1 + 2 rho q + q^2; the lower side
        does so with -r.
        """
        start = _truncation.standardized(origin, scale)
        norm, share = _truncation.norm_and_share(start)

        def side(width: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
            width = _truncation.bounded(width, scale)
            part = _truncation.standardized(width, scale) / norm
            root = tf.exp(0.5 * _truncation.log1p_square(part, share))
            return width / (root * (1.0 + share * part / (1.0 + root)))

        mass = side(below, -share) + side(above, share)
        return tf.math.log(_truncation.at_least_tiny(mass))


@_in_float32
def t2cdf(x: TensorLike) -> tf.Tensor:
    """Probability that `T2ITS`'s variable is at most `x`.

        P(x) = 1/2 + x / (2 sqrt(1 + x^2)),   P'(x) = 1 / (2 (1 + x^2)^(3/2))

    It keeps its relative precision down to where it underflows, and the gradient, which
    is given by hand, stays finite for every `x`.

    Args:
        x: floating, of any shape; the result has its dtype.

    Returns:
        Probabilities, of the shape of `x`.

    Example:
        >>> t2cdf(tf.constant([-0.75, 0.0, 0.75])).numpy()
        array([0.2, 0.5, 0.8], dtype=float32)
    """
    return _t2cdf(x)


@tf.custom_gradient
def _t2cdf(x: tf.Tensor) -> Any:
    # Where x is infinite the greatest number serves as well, and divides.
    size = tf.where(tf.math.is_inf(x), x.dtype.max, tf.abs(x))
    norm, _ = _truncation.norm_and_share(size)
    tail = 0.5 / norm / (norm + size)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * (0.5 / norm / norm / norm)

    return tf.where(x < 0.0, tail, 1.0 - tail), gradient


def _atan_series(x: tf.Tensor) -> tf.Tensor:
    """atan(x) / x for `x` in [0, 1/4], whose gradient does not cancel."""
    total = tf.zeros_like(x)
    for power in range(13, -1, -1):
        total = (-1.0) ** power / (2.0 * power + 1.0) + tf.square(x) * total
    return total
