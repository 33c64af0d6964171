"""Cauchy distributions whose draws are bounded."""

import math
import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws, precision
from tfrl.distributions import _families, _truncation, inverse_transform


class DiagMultivariateCauchy(_families.Diagonal):
    """Independent `StableCauchy` along the last axis, which is one event.

    `log p(x) = sum_i log Cauchy(x_i; loc_i, scale_i)`.

    Args:
        loc: medians `[..., D]`, floats.
        scale: half widths, > 0, a shape that broadcasts with `loc`.
        validate_args: whether to check values at run time too.
        allow_nan_stats: whether `mean` is NaN instead of an error.
        name: prefix of the ops.

    Raises:
        ValueError: if `loc` has no axis, the shapes contradict each other or a known
            scale is not positive.

    Example:
        >>> dist = DiagMultivariateCauchy([0.0, 1.0], [1.0, 2.0])
        >>> dist.event_shape, dist.mode().numpy().tolist()
        (TensorShape([2]), [0.0, 1.0])
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DiagMultivariateCauchy",
    ) -> None:
        super().__init__(StableCauchy, locals())

    _parameter_properties = _families.location_scale(event_ndims=1)

    loc = property(operator.attrgetter("distribution.loc"), doc="The medians.")
    scale = property(operator.attrgetter("distribution.scale"), doc="The half widths.")


class StableCauchy(tfp.distributions.Cauchy):
    """A Cauchy distribution that never draws from its far tails.

    A draw is the quantile of a clipped uniform number,

        x = loc + scale * tan(pi * clip(u - 1/2, -c, c)),   u uniform in (0, 1)

    with `c` = 0.49: `|x - loc|` is at most 31.82 `scale`, and each end carries a mass
    of 1 %. `sample(..., clipping_value=c)` sets another `c`. Everything else is the
    plain Cauchy distribution's:

        log p(x) = log scale - log(scale^2 + (x - loc)^2) - log pi

    computed without overflow. Variance and standard deviation are infinite, the mean
    is NaN.

    Args:
        loc: medians, floats.
        scale: half widths, > 0, a shape that broadcasts with `loc`.
        validate_args: whether to check values at run time too.
        allow_nan_stats: whether `mean` is NaN instead of an error.
        name: prefix of the ops.

    Raises:
        ValueError: if the shapes contradict each other or a known scale is not
            positive.

    Example:
        >>> dist = StableCauchy(0.0, 2.0)
        >>> bool(tf.reduce_max(tf.abs(dist.sample(1000))) < 63.7)
        True
        >>> round(float(dist.prob(2.0)), 4)  # half the peak, 1 / (4 pi)
        0.0796
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StableCauchy",
    ) -> None:
        parameters = dict(locals())
        _families.check_positive("StableCauchy", scale=scale)
        _families.check_broadcastable("StableCauchy", loc=loc, scale=scale)
        super().__init__(loc, scale, validate_args, allow_nan_stats, name)
        _families.keep(self, parameters)

    _parameter_properties = _families.location_scale()

    def _sample_n(
        self, n: Any, seed: Any = None, clipping_value: float = 0.49
    ) -> tf.Tensor:
        checks.check_positive("StableCauchy.sample", "clipping_value", clipping_value)
        checks.check_within(
            "StableCauchy.sample", "clipping_value", clipping_value, 0.0, 0.5
        )
        loc, scale = tf.convert_to_tensor(self.loc), tf.convert_to_tensor(self.scale)
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        uniform = draws.uniform(shape, seed, self.dtype)
        share = tf.clip_by_value(uniform - 0.5, -clipping_value, clipping_value)
        return loc + scale * tf.tan(math.pi * share)

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        # log(scale^2 + distance^2) from the logarithms: squares would overflow, and so
        # would XLA's gradient of a quotient.
        x, loc, scale = map(precision.widened, (x, self.loc, self.scale))
        log_scale = tf.math.log(scale)
        tiny = np.finfo(x.dtype.as_numpy_dtype).tiny
        log_distance = tf.math.log(tf.maximum(tf.abs(x - loc), tiny))
        excess = tf.math.softplus(2.0 * (log_distance - log_scale))
        return tf.cast(-(excess + log_scale + math.log(math.pi)), self.dtype)

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        return self._mass(x, 1.0)

    def _log_cdf(self, x: tf.Tensor) -> tf.Tensor:
        return self._mass(x, 1.0, log=True)

    def _survival_function(self, x: tf.Tensor) -> tf.Tensor:
        return self._mass(x, -1.0)

    def _log_survival_function(self, x: tf.Tensor) -> tf.Tensor:
        return self._mass(x, -1.0, log=True)

    def _mass(self, x: tf.Tensor, sign: float, log: bool = False) -> tf.Tensor:
        """The mass below `x` for a sign of 1, above for -1.

        That of the smaller side is computed: TFP's angles cancel far from the median.
        """
        x, loc, scale = map(precision.widened, (x, self.loc, self.scale))
        gap, scale = tf.experimental.numpy.broadcast_arrays(sign * (x - loc), scale)
        less, distance = gap < 0.0, _truncation.standardized(gap, scale)
        small = inverse_transform.CauchyITS.cdf(tf.where(less, distance, -distance))
        if log:
            mass = tf.where(less, tf.math.log(small), tf.math.log1p(-small))
        else:
            mass = tf.where(less, small, 1.0 - small)
        nothing = tf.constant(-math.inf if log else 0.0, mass.dtype)
        return tf.cast(tf.where(gap == -math.inf, nothing, mass), self.dtype)

    def _variance(self) -> tf.Tensor:
        return tf.fill(self.batch_shape_tensor(), tf.constant(math.inf, self.dtype))

    def _stddev(self) -> tf.Tensor:
        return self._variance()
