"""Normal distributions with a diagonal covariance."""

import math
import operator
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws, precision
from tfrl.core import compile
from tfrl.distributions import _families


class DiagMultivariateNormal(_families.Diagonal):
    """Independent normals along the last axis, which is one event.

    `log p(x) = sum_i log N(x_i; loc_i, scale_i)`. A scale of 0 is admitted: then draws
    are `loc`, the entropy is -inf and `log_prob` is undefined.

    Args:
        loc: means `[..., D]`, floats.
        scale: standard deviations, >= 0, a shape that broadcasts with `loc`.
        validate_args: whether to check values at run time too.
        name: prefix of the ops.

    Raises:
        ValueError: if `loc` has no axis, the shapes contradict each other or a known
            scale is negative or NaN.

    Example:
        >>> dist = DiagMultivariateNormal([0.0, 1.0], [1.0, 2.0])
        >>> round(float(dist.log_prob([0.0, 1.0])), 4)  # -log(2 pi) - log 2
        -2.531
        >>> dist.stddev().numpy().tolist()
        [1.0, 2.0]
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        name: str = "DiagMultivariateNormal",
    ) -> None:
        super().__init__(Normal, locals())

    _parameter_properties = _families.location_scale(event_ndims=1)

    loc = property(operator.attrgetter("distribution.loc"), doc="The means.")
    scale = property(
        operator.attrgetter("distribution.scale"), doc="The standard deviations."
    )


class Normal(tfp.distributions.Normal):
    """The normal distribution, accurate where `loc` is far greater than `scale`.

    With `z = (x - loc) / scale`,

        log p(x) = -z^2 / 2 - log scale - log(2 pi) / 2

    where TFP's own subtracts `loc / scale` from `x / scale`, whose leading digits
    cancel. A seed gives the same draws everywhere, but for the last digits under XLA.
    Everything else is TFP's. A scale of 0 is admitted, see
    `DiagMultivariateNormal`.

    Args:
        loc: means, floats.
        scale: standard deviations, >= 0, a shape that broadcasts with `loc`.
        validate_args: whether to check values at run time too.
        allow_nan_stats: as for any TFP distribution; no statistic is undefined.
        name: prefix of the ops.

    Raises:
        ValueError: if the shapes contradict each other or a known scale is negative
            or NaN.

    Example:
        >>> round(float(Normal(1000.0, 0.001).log_prob(1000.0)), 4)
        5.9888
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:
        parameters = dict(locals())
        known = _families.known_value(scale)
        if known is not None:
            checks.check_within("Normal", "scale", known, 0.0, math.inf)
        _families.check_broadcastable("Normal", loc=loc, scale=scale)
        super().__init__(loc, scale, validate_args, allow_nan_stats, name)
        _families.keep(self, parameters)

    _parameter_properties = _families.location_scale()

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        noise = draws.normal(shape, seed, self.dtype)
        return tf.convert_to_tensor(self.loc) + self.scale * noise

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        return _log_prob(x, self.loc, self.scale)


@compile.compiled
def _log_prob(x: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    deviation = precision.quotient(x - loc, tf.convert_to_tensor(scale))
    constant = 0.5 * math.log(2.0 * math.pi)
    return -0.5 * deviation**2 - tf.math.log(scale) - constant
