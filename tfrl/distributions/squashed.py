"""A normal distribution squashed into finite bounds by tanh."""

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, precision
from tfrl.distributions import _draws, _parameters, _squash

tfd = tfp.distributions

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)


class SquashedNormal(tfp.distributions.AutoCompositeTensorDistribution):
    """Independent normals, each squashed into its finite bounds by tanh.

        u ~ N(loc, scale^2),   y = (low + high) / 2 + (high - low) / 2 * tanh(u)

        log p(y) = sum_i log N(u_i; loc_i, scale_i^2)
                   - log((high_i - low_i) / 2) - log(1 - tanh(u_i)^2)

    The bounds say what one event is: its shape is theirs, and all axes of `loc` and
    `scale` before it are batch axes. So the bounds of a Gymnasium `Box` give events of
    the box; scalar bounds give a batch of scalars.

    `experimental_sample_and_log_prob` scores a draw by its u, exactly however near to
    a bound it comes, and so does `log_prob` of the very tensor that `sample` returned
    last. Of other values the u is recovered: those at a bound count as the last number
    before it that tanh can give, so that their log-density and its gradients are
    finite. Beyond the bounds it is -inf: clip values that were rounded elsewhere.

    `mode()` is where the bounds take the normal's mode: the median, and what one acts
    by without noise. (The density itself may be highest at the bounds.) Mean, standard
    deviation and entropy have no closed form and raise `NotImplementedError`; estimate
    them from draws (`estimated_entropy`).

    Args:
        loc: mean of the normal, floating, `[..., *event]` or less by broadcasting.
        scale: its standard deviation, positive, likewise.
        low: lower bounds, finite; the event's shape, or broadcast against `high`.
        high: upper bounds, finite, above `low`.
        validate_args: whether to assert at run time what only then is known.
        allow_nan_stats: as of every TFP distribution.
        name: prefix of the operations' names.

    Raises:
        ValueError: if known numbers of `scale` are not positive, bounds not finite or
            not increasing, or `loc` or `scale` does not fit the event. A side without
            bound takes a normal (`DiagMultivariateNormal`) instead.
        TypeError: if an argument is not floating.

    Example:
        >>> box = gym.spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 4.0]))
        >>> policy = SquashedNormal(tf.zeros([3, 2]), 0.5, box.low, box.high)
        >>> policy.batch_shape, policy.event_shape
        (TensorShape([3]), TensorShape([2]))
        >>> policy.mode()[0].numpy()
        array([0., 2.], dtype=float32)
        >>> actions, log_probs = policy.experimental_sample_and_log_prob(seed=[1, 2])
        >>> np.allclose(policy.log_prob(actions.numpy()), log_probs, atol=1e-4)
        True
        >>> bool(np.isfinite(policy.log_prob([1.0, 4.0])).all())
        True

    References:
        Haarnoja et al. (2018), "Soft actor-critic: off-policy maximum entropy deep
        reinforcement learning with a stochastic actor", appendix C, eq. 21.
    """

    def __init__(
        self,
        loc: Any,
        scale: Any,
        low: Any = -1.0,
        high: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "SquashedNormal",
    ) -> None:
        parameters = dict(locals())
        for name_of, bound in (("low", low), ("high", high)):
            known = _parameters.known_value(bound)
            if known is not None:
                checks.check_finite("SquashedNormal", name_of, known)
        with tf.name_scope(name) as name:
            tensors = _parameters.location_scale_between(
                "SquashedNormal", loc, scale, low=low, high=high
            )
            self._loc, self._scale, self._low, self._high = tensors
            self._raw_of: Callable[[Any], Any] = lambda value: None  # noqa: ARG005
            super().__init__(
                dtype=self._loc.dtype,
                reparameterization_type=tfd.FULLY_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(
        cls,
        dtype: Any,  # noqa: ARG003
        num_classes: Any = None,  # noqa: ARG003
    ) -> dict[str, Any]:
        def event(self: SquashedNormal) -> int:
            return self.event_shape.rank

        properties = tfp.util.ParameterProperties
        positive = tfp.bijectors.Softplus
        return {
            "loc": properties(event),
            "scale": properties(event, default_constraining_bijector_fn=positive),
            # They have no batch axes: their rank is the event's.
            "low": properties(event_ndims=None),
            "high": properties(event_ndims=None),
        }

    @property
    def loc(self) -> Any:
        """Mean of the normal before squashing."""
        return self._loc

    @property
    def scale(self) -> Any:
        """Standard deviation of the normal before squashing."""
        return self._scale

    @property
    def low(self) -> Any:
        """Lower bounds."""
        return self._low

    @property
    def high(self) -> Any:
        """Upper bounds."""
        return self._high

    def _event_shape(self) -> tf.TensorShape:
        return tf.broadcast_static_shape(self._low.shape, self._high.shape)

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.broadcast_dynamic_shape(tf.shape(self._low), tf.shape(self._high))

    def _call_sample_n(self, sample_shape: Any, seed: Any) -> tf.Tensor:
        raw = self._loc + self._scale * self._noise(sample_shape, seed)
        value = _squash.squash(raw, self._low, self._high)
        drawn = weakref.ref(value)
        self._raw_of = lambda value: raw if drawn() is value else None
        return value

    def _sample_and_log_prob(
        self, sample_shape: Any, seed: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        noise = self._noise(sample_shape, seed)
        raw = self._loc + self._scale * noise
        value = _squash.squash(raw, self._low, self._high)
        return value, self._log_density(raw, noise)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        low, high = self._low, self._high
        drawn = self._raw_of(value)
        raw = _squash.unsquash(value, low, high) if drawn is None else drawn
        scale = tf.convert_to_tensor(self._scale)
        noise = precision.quotient(raw - self._loc, scale)
        density = self._log_density(raw, noise)
        if drawn is not None:
            return density
        beyond = tf.reduce_any((value < low) | (value > high), self._event_axes())
        return tf.where(beyond, tf.constant(-np.inf, density.dtype), density)

    def _mode(self) -> tf.Tensor:
        mode = _squash.squash(tf.convert_to_tensor(self._loc), self._low, self._high)
        return tf.broadcast_to(mode, self._shape())

    def _default_event_space_bijector(self) -> Any:
        return tfp.bijectors.Sigmoid(self._low, self._high)

    def _noise(self, sample_shape: Any, seed: Any) -> tf.Tensor:
        """Standard normal numbers in the shape of a draw."""
        known = _parameters.known_value(sample_shape)
        if known is None:
            outer = tf.reshape(tf.convert_to_tensor(sample_shape, tf.int32), [-1])
        else:
            outer = np.ravel(known).astype(np.int32)
        shape = tf.concat([outer, self._shape()], axis=0)
        return _draws.normal(shape, seed, self.dtype)

    def _shape(self) -> Any:
        """Batch and event shape, as numbers where they are known."""
        shape = self.batch_shape + self.event_shape
        if shape.is_fully_defined():
            return shape.as_list()
        return tf.concat([self.batch_shape_tensor(), self.event_shape_tensor()], axis=0)

    def _event_axes(self) -> list[int]:
        return list(range(-self.event_shape.rank, 0))

    def _log_density(self, raw: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        half = _squash.half_range(self._low, self._high)
        unit = tf.reduce_sum(tf.math.log(half) + _LOG_SQRT_2_PI)
        densities = -0.5 * tf.square(noise) - _squash.log_slope(raw)
        densities -= tf.math.log(self._scale)
        return tf.reduce_sum(densities, self._event_axes()) - unit

    def _parameter_control_dependencies(
        self,
        is_init: bool,  # noqa: ARG002
    ) -> list[Any]:
        if not self.validate_args:
            return []
        return [
            tf.debugging.assert_positive(self._scale, "`scale` must be positive"),
            tf.debugging.assert_less(self._low, self._high, "`low` must be < `high`"),
        ]

    def _sample_control_dependencies(self, value: tf.Tensor) -> list[Any]:
        if not self.validate_args:
            return []
        inside = tf.reduce_all((value >= self._low) & (value <= self._high))
        return [tf.debugging.Assert(inside, ["values must lie within the bounds"])]


@tfd.RegisterKL(SquashedNormal, SquashedNormal)
def _kl_squashed_normals(
    a: SquashedNormal, b: SquashedNormal, name: str | None = None
) -> tf.Tensor:
    """That of the normals: squashing both alike changes nothing."""
    _parameters.check_same_bounds(a, b, "low", "high")
    with tf.name_scope(name or "kl_squashed_normals"):
        log_ratio = tf.math.log(a.scale) - tf.math.log(b.scale)
        gains = tf.math.expm1(2.0 * log_ratio) - 2.0 * log_ratio
        gap = precision.quotient(a.loc - b.loc, tf.convert_to_tensor(b.scale))
        divergence = 0.5 * (gains + tf.square(gap))
        same = tf.equal(a.low, b.low) & tf.equal(a.high, b.high)
        divergence = tf.where(same, divergence, tf.constant(np.nan, divergence.dtype))
        return tf.reduce_sum(divergence, a._event_axes())
