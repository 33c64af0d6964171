"""A distribution shifted and scaled, with its statistics."""

import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.bijectors import standard
from tfrl.distributions import _families

tfd = tfp.distributions

_OF_BASE = tfp.util.ParameterProperties(
    default_constraining_bijector_fn=None, is_tensor=False
)
_OF_EVENT = tfp.util.ParameterProperties(
    event_ndims=lambda self: self.base_dist.event_shape.rank
)


class AffineTransformedDistribution(tfp.distributions.TransformedDistribution):
    """The distribution of `y = loc + scale * x` with x from another distribution.

        log p(y) = log p_x((y - loc) / scale) - sum_i log |scale_i|
        H(y) = H(x) + sum_i log |scale_i|,   sums over the numbers of one event
        mean(y) = loc + scale * mean(x),     the mode likewise
        stddev(y) = |scale| * stddev(x)

    Draws are reparameterised if those of x are.

    Args:
        base_dist: the distribution of x, of floats.
        loc: shift, a shape that broadcasts with batch and event of `base_dist`; it
            may add batch dimensions.
        scale: factor, not 0, either sign; a shape like `loc`.
        validate_args: whether to check values at run time too.
        name: prefix of the ops.

    Raises:
        TypeError: if `base_dist` is not a distribution of floats.
        ValueError: if the shapes contradict each other or a known scale is 0.

    Example:
        >>> base = tfp.distributions.Normal(0.0, [1.0, 3.0])
        >>> dist = AffineTransformedDistribution(base, 5.0, -2.0)
        >>> dist.mean().numpy().tolist(), dist.stddev().numpy().tolist()
        ([5.0, 5.0], [2.0, 6.0])
    """

    def __init__(
        self,
        base_dist: Any,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        name: str = "AffineTransformedDistribution",
    ) -> None:
        parameters = dict(locals())
        _check(base_dist, loc, scale)
        dtype, n_axes = base_dist.dtype, base_dist.event_shape.rank
        self._loc, self._scale = (
            x if tf.is_tensor(x) else tf.convert_to_tensor(x, dtype)
            for x in (loc, scale)
        )
        # Without its cache: the inverse of a draw depends on `loc` and `scale` too.
        bijector = standard.AffineTransform(
            self._loc, self._scale, event_dim=n_axes, cache_size=0
        )
        super().__init__(
            base_dist,
            bijector,
            validate_args=validate_args,
            parameters=parameters,
            name=name,
        )

    _parameter_properties = _families.annotated(
        lambda dtype: {  # noqa: ARG005
            "base_dist": _OF_BASE,
            "loc": _OF_EVENT,
            "scale": _OF_EVENT,
        }
    )

    base_dist = property(operator.attrgetter("distribution"), doc="Distribution of x.")
    loc = property(operator.attrgetter("_loc"), doc="The shift.")
    scale = property(operator.attrgetter("_scale"), doc="The factor.")

    def _entropy(self) -> tf.Tensor:
        event = tf.zeros(self.event_shape_tensor(), self.dtype)
        volume = self.bijector.forward_log_det_jacobian(event)
        entropy = self.base_dist.entropy() + volume
        return tf.broadcast_to(entropy, self.batch_shape_tensor())

    def _mean(self) -> tf.Tensor:
        return self._spread(self.bijector.forward(self.base_dist.mean()))

    def _mode(self) -> tf.Tensor:
        return self._spread(self.bijector.forward(self.base_dist.mode()))

    def _stddev(self) -> tf.Tensor:
        return self._spread(tf.abs(self.scale) * self.base_dist.stddev())

    def _variance(self) -> tf.Tensor:
        return self._spread(tf.square(self.scale) * self.base_dist.variance())

    def _covariance(self) -> tf.Tensor:
        covariance = self.base_dist.covariance()
        scale = tf.broadcast_to(self.scale, tf.shape(self.stddev()))
        return scale[..., :, None] * scale[..., None, :] * covariance

    def _spread(self, statistic: tf.Tensor) -> tf.Tensor:
        shape = [self.batch_shape_tensor(), self.event_shape_tensor()]
        return tf.broadcast_to(statistic, tf.concat(shape, axis=0))


def _check(base_dist: Any, loc: Any, scale: Any) -> None:
    where = "AffineTransformedDistribution"
    if not (
        isinstance(base_dist, tfd.Distribution)
        and getattr(base_dist.dtype, "is_floating", False)
    ):
        raise TypeError(
            f"`{where}`: `base_dist` expected a TFP distribution of floats; got "
            f"{base_dist!r}"
        )
    if base_dist.event_shape.rank is None:
        raise ValueError(
            f"`{where}`: `base_dist` expected events of a known rank; got {base_dist}"
        )
    known = _families.known_value(scale)
    if known is not None and np.any(np.asarray(known) == 0):
        raise ValueError(
            f"`{where}`: `scale` expected numbers other than 0; got {known!r}"
        )
    _families.check_broadcastable(where, loc=loc, scale=scale)
