"""One-hot categoricals with straight-through and Gumbel-softmax gradients."""

import inspect
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws
from tfrl.distributions import _families

tfd = tfp.distributions

T = TypeVar("T")


def _by_name(cls: type[T]) -> type[T]:
    """Has a class refuse `probs` and `logits` by position.

    TensorFlow Probability has them the other way round, and logits that are not
    negative would pass for probabilities. It hands all arguments of a constructor on by
    position, so that they must be looked at before. What stands before the two is a
    number: an argument with axes is one of them in a wrong place.
    """
    signature = inspect.signature(cls)
    most = list(signature.parameters).index("probs")

    def new(kind: type[T], *args: Any, **kwargs: Any) -> T:
        missing = "probs" not in kwargs and "logits" not in kwargs
        if len(args) > most or (missing and any(map(_has_axes, args))):
            raise TypeError(
                f"`{cls.__name__}`: `probs` and `logits` expected by name, as their "
                "order is not the same everywhere; got one by position; write "
                "probs=... or logits=..."
            )
        return object.__new__(kind)

    cls.__new__ = new  # type: ignore[method-assign, assignment]
    cls.__signature__ = signature  # type: ignore[attr-defined]
    return cls


class _DifferentiableOneHot(tfp.distributions.OneHotCategorical):
    """What the distributions here share: float events, a mode with a gradient.

    Events have the parameter's dtype. A value's class is its greatest entry's.

    Args:
        parameters: the `locals()` of the constructor.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        where = type(self).__name__
        probs, logits = parameters["probs"], parameters["logits"]
        if (probs is None) == (logits is None):
            raise ValueError(
                f"`{where}`: `probs` or `logits` expected one of them; got "
                f"{'neither' if probs is None else 'both'}"
            )
        key, value = ("probs", probs) if logits is None else ("logits", logits)
        checks.check_rank(where, key, value, at_least=1)
        known = _families.known_value(probs)
        if known is not None:
            checks.check_within(where, "probs", known, 0.0, np.inf)
        dtype = tf.as_dtype(getattr(value, "dtype", tf.float32))
        common = ("validate_args", "allow_nan_stats", "name")
        super().__init__(logits, probs, dtype, **{x: parameters[x] for x in common})
        _families.keep(self, parameters)

    _parameter_properties = tfd.OneHotCategorical.parameter_properties

    @property
    def reparameterization_type(self) -> Any:
        """Fully reparameterized: draws carry a gradient estimate."""
        return tfd.FULLY_REPARAMETERIZED

    def probs_parameter(self, name: str | None = None) -> tf.Tensor:
        """Returns the probabilities, which sum to 1."""
        return tf.exp(self.logits_parameter(name))

    def logits_parameter(self, name: str | None = None) -> tf.Tensor:
        """Returns the logarithms of the probabilities."""
        with tf.name_scope(name or "logits_parameter"):
            if self.logits is not None:
                return tf.nn.log_softmax(self.logits)
            return _log_shares(tf.convert_to_tensor(self.probs))

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        chosen = tf.one_hot(tf.argmax(x, -1), tf.shape(x)[-1], True, False)
        log_probs = self.logits_parameter()
        none = tf.zeros([], log_probs.dtype)
        return tf.reduce_sum(tf.where(chosen, log_probs, none), axis=-1)

    def _entropy(self) -> tf.Tensor:
        log_probs = self.logits_parameter()
        probs = tf.exp(log_probs)
        finite = tf.where(probs > 0.0, log_probs, 0.0)
        return -tf.reduce_sum(probs * finite, axis=-1)

    def _mean(self) -> tf.Tensor:
        return self.probs_parameter()

    def _variance(self) -> tf.Tensor:
        probs = self.probs_parameter()
        return probs * (1.0 - probs)

    def _covariance(self) -> tf.Tensor:
        probs = self.probs_parameter()
        return tf.linalg.diag(probs) - probs[..., :, None] * probs[..., None, :]

    def _mode(self) -> tf.Tensor:
        # Of the parameter itself: its logarithm may round to a tie.
        scores = self.probs if self.logits is None else self.logits
        return _straight_through(tf.convert_to_tensor(scores), self.probs_parameter())


@_by_name
class OneHotCategoricalStraightThrough(_DifferentiableOneHot):
    """A one-hot choice whose gradient is that of its probabilities.

    Draws and the mode are exactly one-hot; backwards they count as `probs`:

        x = one_hot(i) + probs - stop_gradient(probs)

    Args:
        probs: `[..., K]` floats >= 0; divided by their sum.
        logits: `[..., K]` floats, -inf for a class that is never drawn; exactly one
            of the two is given, by name.
        validate_args: whether to check values at run time too: that `probs` sum to 1
            and scored values are one-hot.
        allow_nan_stats: as for any TFP distribution; no statistic is undefined.
        name: prefix of the ops.

    Raises:
        TypeError: if `probs` or `logits` is given by position.
        ValueError: if both or none of `probs` and `logits` are given, it has no axis,
            or a known probability is negative.

    Example:
        >>> dist = OneHotCategoricalStraightThrough(probs=[0.2, 0.8])
        >>> dist.mode().numpy().tolist()
        [0.0, 1.0]

    References:
        Bengio, Leonard, Courville, 2013, Estimating or Propagating Gradients Through
        Stochastic Neurons for Conditional Computation.
    """

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "OneHotCategoricalStraightThrough",
    ) -> None:
        super().__init__(locals())

    _parameter_properties = tfd.OneHotCategorical.parameter_properties

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        log_probs, probs = self.logits_parameter(), self.probs_parameter()
        noise = _gumbel(n, log_probs, seed)
        return _straight_through(log_probs + noise, probs)


@_by_name
class OneHotCategoricalGumbelSoftmax(_DifferentiableOneHot):
    """A one-hot choice whose draws carry the Gumbel-softmax gradient.

        y = softmax((log probs + G) / tau),   G independent standard Gumbel
        x = one_hot(argmax y) + y - stop_gradient(y)   if `hard_sample`, else y

    The most probable entry of y is a categorical draw, whatever `tau`. The mode has
    the gradient of `probs`. `log_prob` is the categorical's, of a value's greatest
    entry; the entropy and the moments are the categorical's too.

    Args:
        hard_sample: whether draws are one-hot, not soft; a bool, or a scalar tensor of
            one.
        tau: temperature > 0, a number or a scalar tensor; a higher one makes y more
            uniform, the gradient less noisy and more biased.
        probs: `[..., K]` floats >= 0; divided by their sum.
        logits: `[..., K]` floats, -inf for a class that is never drawn; exactly one
            of the two is given, by name.
        validate_args: whether to check values at run time too: that `probs` sum to 1
            and scored values are one-hot.
        allow_nan_stats: as for any TFP distribution; no statistic is undefined.
        name: prefix of the ops.

    Raises:
        TypeError: if `probs` or `logits` is given by position, `hard_sample` is no bool
            or `tau` no number.
        ValueError: if both or none of `probs` and `logits` are given, it has no axis,
            a known probability is negative or `tau` is not positive or not a scalar.

    Example:
        >>> dist = OneHotCategoricalGumbelSoftmax(tau=0.5, logits=[0.0, 1.0])
        >>> float(tf.reduce_sum(dist.sample()))
        1.0

    References:
        Jang, Gu, Poole, 2017, Categorical Reparameterization with Gumbel-Softmax.
    """

    def __init__(
        self,
        hard_sample: bool = True,
        tau: float | tf.Tensor = 1.0,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "OneHotCategoricalGumbelSoftmax",
    ) -> None:
        _check_flag("OneHotCategoricalGumbelSoftmax", hard_sample)
        _check_temperature("OneHotCategoricalGumbelSoftmax", tau)
        super().__init__(locals())
        self._hard_sample = hard_sample
        self._tau = tau

    _parameter_properties = tfd.OneHotCategorical.parameter_properties

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        log_probs = self.logits_parameter()
        scores = (log_probs + _gumbel(n, log_probs, seed)) / self._tau
        soft = tf.nn.softmax(scores)
        if tf.is_tensor(self._hard_sample):
            return tf.where(self._hard_sample, _straight_through(scores, soft), soft)
        return _straight_through(scores, soft) if self._hard_sample else soft


def _has_axes(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return isinstance(value, list | tuple) or (
        shape is not None and tf.TensorShape(shape).rank != 0
    )


def _check_flag(where: str, hard_sample: Any) -> None:
    flag = checks.as_tensor(where, "hard_sample", hard_sample)
    if flag.dtype != tf.bool or not flag.shape.is_compatible_with([]):
        raise TypeError(
            f"`{where}`: `hard_sample` expected a bool, as the first argument by "
            f"position too; got {hard_sample!r}"
        )


def _check_temperature(where: str, tau: Any) -> None:
    tensor = checks.as_tensor(where, "tau", tau)
    if tensor.dtype == tf.bool:
        raise TypeError(f"`{where}`: `tau` expected a number; got {tau!r}")
    checks.check_rank(where, "tau", tensor, exact=0)
    _families.check_positive(where, tau=tau)


def _log_shares(probs: tf.Tensor) -> tf.Tensor:
    # The quotient may underflow, and so may its gradient's denominator.
    unit = tf.stop_gradient(tf.reduce_max(probs, axis=-1, keepdims=True))
    total = tf.reduce_sum(probs / unit, axis=-1, keepdims=True)
    some = tf.not_equal(probs, 0.0)
    logs = tf.math.log(tf.where(some, probs, tf.ones_like(probs)))
    nothing = tf.constant(-np.inf, probs.dtype)
    return tf.where(some, logs - tf.math.log(unit) - tf.math.log(total), nothing)


def _straight_through(scores: tf.Tensor, soft: tf.Tensor) -> tf.Tensor:
    # The bracket is exactly 0, so that the sum stays exactly one-hot.
    hard = tf.one_hot(tf.argmax(scores, -1), tf.shape(scores)[-1], dtype=scores.dtype)
    return hard + (soft - tf.stop_gradient(soft))


def _gumbel(n: Any, like: tf.Tensor, seed: Any) -> tf.Tensor:
    # Standard Gumbel noise, n times the shape of another tensor.
    shape = tf.concat([[n], tf.shape(like)], axis=0)
    return draws.gumbel(shape, seed, like.dtype)


@tfd.RegisterKL(_DifferentiableOneHot, _DifferentiableOneHot)
def _kl_one_hots(
    a: _DifferentiableOneHot, b: _DifferentiableOneHot, name: str | None = None
) -> tf.Tensor:
    """Infinite where `b` rules out a class of `a`; without what `a` rules out."""
    with tf.name_scope(name or "kl_one_hots"):
        log_probs, others = a.logits_parameter(), b.logits_parameter()
        probs, none = tf.exp(log_probs), tf.zeros([], a.dtype)
        counts, excluded = tf.not_equal(probs, none), tf.equal(others, -np.inf)
        known = counts & ~excluded
        gaps = tf.where(known, log_probs, none) - tf.where(known, others, none)
        infinite = tf.where(counts & excluded, tf.constant(np.inf, a.dtype), none)
        return tf.reduce_sum(probs * gaps, axis=-1) + tf.reduce_sum(infinite, axis=-1)
