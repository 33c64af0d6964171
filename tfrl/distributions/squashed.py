"""A normal distribution squashed into finite bounds by tanh."""

import functools
import math
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws, precision
from tfrl.core import compile
from tfrl.distributions import _families

tfd = tfp.distributions

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)


class SquashedNormal(_families.Bounded):
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

    Gradients of the `log_prob` of that very tensor go by its u to the parameters, and
    none to the tensor itself. For the gradient by a draw score a copy of it, made while
    the tape records: `log_prob(tf.identity(draw))`.

    Values are floats of any dtype, as environments have them. `cdf` is the chance that
    all numbers of an event are at most the value's, and `quantile` its inverse for
    events of one number; they are the normal's, and exact.

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

    _bound_names = ("low", "high")
    _parameter_properties = _families.location_scale(_families.EVENT_RANK, _bound_names)

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
            known = _families.known_value(bound)
            if known is not None:
                checks.check_finite("SquashedNormal", name_of, known)
        with tf.name_scope(name) as parameters["name"]:
            super().__init__(parameters)
        self._raw_of: Callable[[Any], Any] = lambda value: None  # noqa: ARG005

    low = property(operator.attrgetter("_least"), doc="Lower bounds.")
    high = property(operator.attrgetter("_greatest"), doc="Upper bounds.")

    def _call_sample_n(self, sample_shape: Any, seed: Any) -> tf.Tensor:
        raw, value = self._drawn(self._noise(sample_shape, seed))
        drawn = weakref.ref(value)
        self._raw_of = lambda value: raw if drawn() is value else None
        return value

    def _sample_and_log_prob(
        self, sample_shape: Any, seed: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        noise = self._noise(sample_shape, seed)
        raw, value = self._drawn(noise)
        return value, self._log_density(raw, noise)

    def sample_and_score(self, seed: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws an event without gradient, and scores it.

        Args:
            seed: int, int32 `[2]` tensor or None.

        Returns:
            The draw and its log-probability, exactly however near to a bound it is,
            with the gradient of `log p` at the fixed draw, the score.

        Example:
            >>> dist = SquashedNormal([0.0, 30.0], 1.0)
            >>> action, log_prob = dist.sample_and_score(seed=0)
            >>> action.shape, bool(np.isfinite(log_prob).all())
            (TensorShape([2]), True)
        """
        raw = tf.stop_gradient(self._loc + self._scale * self._noise([], seed))
        noise = precision.quotient(raw - self._loc, self._scale)
        value = tf.stop_gradient(precision.squash(raw, self.low, self.high))
        return value, self._log_density(raw, noise)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        value = _families.as_values(self, value)
        raw = self._raw_of(value)
        given = self._loc, self._scale, self.low, self.high
        rank = self.event_shape.rank
        if raw is None:
            return _log_prob(value, *given, event_rank=rank)
        return _raw_log_prob(raw, *given, event_rank=rank)

    def _cdf(self, value: tf.Tensor) -> tf.Tensor:
        chances = self._below(value, tfd.Normal.cdf, 0.0, 1.0)
        return tf.reduce_prod(chances, list(range(-self.event_shape.rank, 0)))

    def _log_cdf(self, value: tf.Tensor) -> tf.Tensor:
        logs = self._below(value, tfd.Normal.log_cdf, -np.inf, 0.0)
        return tf.reduce_sum(logs, list(range(-self.event_shape.rank, 0)))

    def _below(
        self, value: tf.Tensor, of_raw: Any, least: float, most: float
    ) -> tf.Tensor:
        """The chance that each number is at most a value: the normal's."""
        value = _families.as_values(self, value)
        raw = precision.unsquash(value, self.low, self.high)
        inside = of_raw(tfd.Normal(self._loc, self._scale), raw)
        least, most = (tf.constant(x, inside.dtype) for x in (least, most))
        inside = tf.where(value <= self.low, least, inside)
        return tf.where(value >= self.high, most, inside)

    def _quantile(self, value: tf.Tensor) -> tf.Tensor:
        if self.event_shape.rank:
            raise NotImplementedError(
                "`SquashedNormal.quantile`: expected events of one number, as of "
                f"scalar bounds; got events of shape {self.event_shape.as_list()}"
            )
        chance = _families.as_values(self, value)
        raw = tfd.Normal(self._loc, self._scale).quantile(chance)
        return precision.squash(raw, self.low, self.high)

    def _mode(self) -> tf.Tensor:
        mode = precision.squash(tf.convert_to_tensor(self._loc), self.low, self.high)
        return tf.broadcast_to(mode, self._shape())

    def _noise(self, sample_shape: Any, seed: Any) -> tf.Tensor:
        """Standard normal numbers in the shape of a draw."""
        known = _families.known_value(sample_shape)
        if known is None:
            outer = tf.reshape(tf.convert_to_tensor(sample_shape, tf.int32), [-1])
        else:
            outer = np.ravel(known).astype(np.int32)
        shape = self._shape()
        static = isinstance(shape, list) and isinstance(outer, np.ndarray)
        shape = [*outer, *shape] if static else tf.concat([outer, shape], axis=0)
        return draws.normal(shape, seed, self.dtype)

    def _shape(self) -> Any:
        """Batch and event shape, as numbers where they are known."""
        # Not `batch_shape`, which takes TensorFlow Probability 100 microseconds.
        tensors = self._loc, self._scale, self.low, self.high
        shapes = [tensor.shape for tensor in tensors]
        shape = functools.reduce(tf.broadcast_static_shape, shapes)
        if shape.is_fully_defined():
            return shape.as_list()
        return tf.concat([self.batch_shape_tensor(), self.event_shape_tensor()], axis=0)

    def _drawn(self, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _draw(noise, self._loc, self._scale, self.low, self.high)

    def _log_density(self, raw: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        given = raw, noise, self._scale, self.low, self.high
        return _log_density(*given, event_rank=self.event_shape.rank)


@compile.compiled
def _draw(
    noise: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws before and after they are squashed."""
    raw = loc + scale * noise
    return raw, precision.squash(raw, low, high)


@compile.compiled(static=("event_rank",))
def _log_density(
    raw: tf.Tensor,
    noise: tf.Tensor,
    scale: tf.Tensor,
    low: tf.Tensor,
    high: tf.Tensor,
    event_rank: int,
) -> tf.Tensor:
    unit = tf.reduce_sum(tf.math.log(precision.half_range(low, high)) + _LOG_SQRT_2_PI)
    densities = -0.5 * tf.square(noise) - precision.tanh_log_slope(raw)
    densities -= tf.math.log(scale)
    return tf.reduce_sum(densities, list(range(-event_rank, 0))) - unit


@compile.compiled(static=("event_rank",))
def _raw_log_prob(
    raw: tf.Tensor,
    loc: tf.Tensor,
    scale: tf.Tensor,
    low: tf.Tensor,
    high: tf.Tensor,
    event_rank: int,
) -> tf.Tensor:
    """Of a draw whose number before it was squashed is known."""
    noise = precision.quotient(raw - loc, tf.convert_to_tensor(scale))
    return _log_density(raw, noise, scale, low, high, event_rank=event_rank)


@compile.compiled(static=("event_rank",))
def _log_prob(
    value: tf.Tensor,
    loc: tf.Tensor,
    scale: tf.Tensor,
    low: tf.Tensor,
    high: tf.Tensor,
    event_rank: int,
) -> tf.Tensor:
    raw = precision.unsquash(value, low, high)
    density = _raw_log_prob(raw, loc, scale, low, high, event_rank=event_rank)
    beyond = (value < low) | (value > high)
    beyond = tf.reduce_any(beyond, list(range(-event_rank, 0)))
    return tf.where(beyond, tf.constant(-np.inf, density.dtype), density)


@tfd.RegisterKL(SquashedNormal, SquashedNormal)
def _kl_squashed_normals(
    a: SquashedNormal, b: SquashedNormal, name: str | None = None
) -> tf.Tensor:
    """That of the normals: squashing both alike changes nothing."""
    _families.check_same_bounds(a, b, "low", "high")
    with tf.name_scope(name or "kl_squashed_normals"):
        log_ratio = tf.math.log(a.scale) - tf.math.log(b.scale)
        gains = tf.math.expm1(2.0 * log_ratio) - 2.0 * log_ratio
        gap = precision.quotient(a.loc - b.loc, tf.convert_to_tensor(b.scale))
        divergence = 0.5 * (gains + tf.square(gap))
        same = tf.equal(a.low, b.low) & tf.equal(a.high, b.high)
        divergence = tf.where(same, divergence, tf.constant(np.nan, divergence.dtype))
        return tf.reduce_sum(divergence, list(range(-a.event_shape.rank, 0)))
