"""A distribution whose draws are clipped: what lay beyond a bound is at the bound."""

import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, operands, precision
from tfrl.distributions import _families

tfd = tfp.distributions

_OF_BASE = tfp.util.BatchedComponentProperties()
_OF_BOUND = tfp.util.ParameterProperties()


class Clipped(tfp.distributions.AutoCompositeTensorDistribution):
    """The distribution of `y = clip(x, low, high)` with x from another distribution.

    What is beyond a bound comes to lie at it, so that both bounds have a probability,
    and what is between has a density:

        log p(y) = log P(x <= low)      where y = low
        log p(y) = log p_x(y)           where low < y < high
        log p(y) = log P(x >= high)     where y = high
        log p(y) = -inf                 elsewhere

    That is the density with respect to length between the bounds plus one at each of
    them: `exp` of it sums to 1 over both bounds and the integral between them. A policy
    whose actions an environment clips has these log-probabilities of clipped actions:
    those of a plain normal would promise that more of an action beyond a bound changes
    something.

    So `cdf(y)` is 0 below `low`, that of x from there on, and 1 from `high` on.

    Draws are reparameterised if those of x are; what is clipped gets no gradient.
    `mode()` is where the bounds take the mode of x, and what one acts by without noise.
    Mean, deviation and entropy have no closed form and raise `NotImplementedError`.

    Args:
        distribution: the distribution of x, of single floats, with a `cdf`. For actions
            of several numbers wrap it: `tfd.Independent(Clipped(...), 1)`.
        low: lower bound, a shape that broadcasts to the batch; -inf for none.
        high: upper bound, above `low`, likewise; inf for none.
        validate_args: whether to check values at run time too.
        allow_nan_stats: as of every TFP distribution.
        name: prefix of the operations' names.

    Raises:
        TypeError: if `distribution` is not one of floats.
        ValueError: if its events are not single numbers, known bounds do not increase,
            or a shape does not fit.

    Example:
        >>> dist = Clipped(tfp.distributions.Normal(0.0, 1.0), -1.0, 1.0)
        >>> tf.exp(dist.log_prob([-1.0, 0.0, 1.0, 2.0])).numpy().round(3)
        array([0.159, 0.399, 0.159, 0.   ], dtype=float32)
        >>> draws = dist.sample(1000, seed=[1, 2])
        >>> 0.1 < float(tf.reduce_mean(tf.cast(draws == 1.0, tf.float32))) < 0.2
        True

    References:
        Fujita, Maeda (2018), "Clipped Action Policy Gradient", section 3.
    """

    def __init__(
        self,
        distribution: Any,
        low: Any,
        high: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Clipped",
    ) -> None:
        parameters = dict(locals())
        _check(distribution, low, high)
        dtype = distribution.dtype
        with tf.name_scope(name) as name:
            self._distribution = distribution
            self._low, self._high = (
                x
                if isinstance(x, tf.Variable)
                else checks.as_tensor("Clipped", k, x, dtype)
                for k, x in (("low", low), ("high", high))
            )
            super().__init__(
                dtype=dtype,
                reparameterization_type=distribution.reparameterization_type,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    _parameter_properties = _families.annotated(
        lambda dtype: {  # noqa: ARG005
            "distribution": _OF_BASE,
            "low": _OF_BOUND,
            "high": _OF_BOUND,
        }
    )

    distribution = property(
        operator.attrgetter("_distribution"), doc="Distribution of x."
    )
    low = property(operator.attrgetter("_low"), doc="Lower bound.")
    high = property(operator.attrgetter("_high"), doc="Upper bound.")

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        return self._clipped(self.distribution.sample(n, seed=seed))

    def _clipped(self, value: tf.Tensor) -> tf.Tensor:
        return tf.minimum(tf.maximum(value, self.low), self.high)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        dist, value, low, high = self._widened("log_prob", value)
        result = dist.log_prob(tf.minimum(tf.maximum(value, low), high))
        for bound, mass, there in (
            (low, dist.log_cdf, value <= low),
            (high, dist.log_survival_function, value >= high),
        ):
            known = _families.known_value(bound)
            # Where there is no bound, nothing is asked that gradients would go through.
            if known is None or np.any(np.isfinite(known)):
                result = tf.where(there, mass(_finite(bound)), result)
        beyond = (value < low) | (value > high)
        result = tf.where(beyond, tf.constant(-np.inf, result.dtype), result)
        return tf.cast(result, self.dtype)

    def _cdf(self, value: tf.Tensor) -> tf.Tensor:
        return self._cumulated("cdf", value, 0.0, 1.0)

    def _log_cdf(self, value: tf.Tensor) -> tf.Tensor:
        return self._cumulated("log_cdf", value, -np.inf, 0.0)

    def _survival_function(self, value: tf.Tensor) -> tf.Tensor:
        return self._cumulated("survival_function", value, 1.0, 0.0)

    def _log_survival_function(self, value: tf.Tensor) -> tf.Tensor:
        return self._cumulated("log_survival_function", value, 0.0, -np.inf)

    def _cumulated(
        self, name: str, value: tf.Tensor, least: float, most: float
    ) -> tf.Tensor:
        dist, value, low, high = self._widened(name, value)
        result = getattr(dist, name)(tf.minimum(tf.maximum(value, low), high))
        result = tf.where(value >= high, tf.constant(most, result.dtype), result)
        result = tf.where(value < low, tf.constant(least, result.dtype), result)
        return tf.cast(result, self.dtype)

    def _widened(self, name: str, value: Any) -> tuple[Any, ...]:
        """The distribution of x, a value and the bounds, in at least float32.

        In what is narrower TFP has neither the normal's `cdf` nor some others.
        """
        value = checks.as_tensor(f"Clipped.{name}", "value", value, self.dtype)
        dist = self.distribution
        if dist.dtype in (tf.float16, tf.bfloat16):
            given = dist.parameters.items()
            arrays = [
                k for k, v in given if hasattr(v, "dtype") and hasattr(v, "shape")
            ]
            dist = dist.copy(
                **{k: precision.widened(dist.parameters[k]) for k in arrays}
            )
        numbers = value, self.low, self.high
        return dist, *(tf.cast(number, dist.dtype) for number in numbers)

    def _mode(self) -> tf.Tensor:
        mode = self._clipped(self.distribution.mode())
        return tf.broadcast_to(mode, self.batch_shape_tensor())

    def _default_event_space_bijector(self) -> Any:
        return tfp.bijectors.Sigmoid(self.low, self.high)


def _finite(bound: Any) -> tf.Tensor:
    bound = tf.convert_to_tensor(bound)
    return tf.where(tf.math.is_inf(bound), tf.zeros_like(bound), bound)


def _check(distribution: Any, low: Any, high: Any) -> None:
    where = "Clipped"
    if not (
        isinstance(distribution, tfd.Distribution)
        and getattr(distribution.dtype, "is_floating", False)
    ):
        expected = "a TFP distribution of floats"
        raise checks.wrong_type(where, "distribution", distribution, expected)
    if distribution.event_shape.rank != 0:
        raise ValueError(
            f"`{where}`: `distribution` expected events of single numbers; got shape "
            f"{distribution.event_shape}; clip each, and wrap in tfd.Independent"
        )
    known = [_families.known_value(bound) for bound in (low, high)]
    if all(bound is not None for bound in known) and not np.all(np.less(*known)):
        raise ValueError(
            f"`{where}`: `high` expected numbers > `low` {checks.shown(low)}; got "
            f"{checks.shown(high)}"
        )
    for name, bound in (("low", low), ("high", high)):
        checks.as_tensor(where, name, bound)
        operands.check_broadcasts(where, name, bound, distribution.batch_shape)
