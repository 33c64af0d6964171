"""Losses between numbers and their targets, per element.

They reduce over no batch axis. A loss of more than one axis of numbers per element is
`MeanSquaredLoss`; of several quantiles per number, `multi_quantile_huber_loss`.
"""

import dataclasses
import math
from typing import Any, Self, TypeAlias

import keras
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile

TensorLike: TypeAlias = operands.TensorLike


def huber_function(x: TensorLike, delta: TensorLike = 1.0) -> tf.Tensor:
    """Huber's function: a parabola near 0, straight lines of slope `delta` beyond.

        h(x) = x^2 / 2                     where |x| < delta
        h(x) = delta * (|x| - delta / 2)   elsewhere

    Args:
        x: `[...]`, floating, observed minus predicted values.
        delta: scalar > 0, where the parabola ends.

    Returns:
        `[...]`, the dtype of `x`.

    Raises:
        ValueError: if `delta` is not a positive finite scalar.
        TypeError: if `x` is not floating.

    Example:
        >>> huber_function([-0.5, 0.0, 3.0], delta=2.0).numpy()
        array([0.125, 0.   , 4.   ], dtype=float32)

    References:
        Huber (1964), "Robust Estimation of a Location Parameter".
    """
    where = "huber_function"
    x = operands.leading(where, "x", x)
    checks.check_positive(where, "delta", delta)
    checks.check_finite(where, "delta", delta)
    checks.check_rank(where, "delta", delta, exact=0)
    return _huber(x, delta)


def element_wise_huber_loss(x: TensorLike, y: TensorLike) -> tf.Tensor:
    """Huber loss with a threshold of 1 between labels and predictions.

        loss = huber_function(x - y, delta=1)

    The two arguments may change places.

    Args:
        x: `[...]`, floating, the labels.
        y: the shape of `x`, the predictions.

    Returns:
        `[...]`, one loss per element.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if `x` is not floating, or the dtypes differ.

    Example:
        >>> element_wise_huber_loss([0.0, 1.0], [0.5, 4.0]).numpy()
        array([0.125, 2.5  ], dtype=float32)
    """
    where = "element_wise_huber_loss"
    x = operands.leading(where, "x", x)
    y = operands.equal(where, "y", y, "x", x)
    return _huber_of_difference(x, y)


def element_wise_squared_loss(x: TensorLike, y: TensorLike) -> tf.Tensor:
    """Squared difference between labels and predictions.

        loss = (x - y)^2

    The two arguments may change places.

    Args:
        x: `[...]`, floating, the labels.
        y: the shape of `x`, the predictions.

    Returns:
        `[...]`, one loss per element.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if `x` is not floating, or the dtypes differ.

    Example:
        >>> element_wise_squared_loss([0.0, 1.0], [0.5, 4.0]).numpy()
        array([0.25, 9.  ], dtype=float32)
    """
    where = "element_wise_squared_loss"
    x = operands.leading(where, "x", x)
    y = operands.equal(where, "y", y, "x", x)
    return tf.math.squared_difference(x, y)


def multi_quantile_huber_loss(
    quantiles: TensorLike,
    target: TensorLike,
    delta: TensorLike = 0.1,
    *,
    fractions: TensorLike | None = None,
    target_weights: TensorLike | None = None,
) -> tf.Tensor:
    """Loss of several quantiles of a number, given one or more samples of it.

        tau[k]  = fractions[k], or (k + 0.5) / n where none are given
        d[k, j] = target[j] - quantiles[k]
        h(d)    = d^2 / (2 * delta)        where |d| < delta
        h(d)    = |d| - delta / 2          elsewhere
        loss    = mean over k and j of |tau[k] - (1 if d[k, j] < 0 else 0)| * h(d[k, j])

    With `delta = 0`, h(d) = |d|: the pinball loss, whose minimum is at the quantiles.
    A larger `delta` is smoother and draws the quantiles towards the mean.

    The mean over `k` makes losses of different `n` comparable; the paper sums over it,
    as `tfrl.losses.quantile_td_loss` does. Gradients flow to `quantiles` and `target`:
    wrap a bootstrapped target in `tf.stop_gradient`.

    Args:
        quantiles: `[..., n]`, floating; element `k` estimates the quantile at `tau[k]`.
        target: `[...]`, one sample each, or `[..., m]`, m samples each.
        delta: scalar >= 0, where the parabola ends.
        fractions: `[n]` or `[..., n]`, tau in [0, 1], in any order: those that a
            network was asked for (IQN) or has proposed (FQF).
        target_weights: `[..., m]`, weights of the samples instead of 1 / m in the mean
            over them. A sample of weight 0 may be infinite or NaN.

    Returns:
        `[...]`, one loss per element.

    Raises:
        ValueError: if the shapes do not fit, `delta` is negative or no scalar, or a
            fraction is known to be outside [0, 1].
        TypeError: if `quantiles` is not floating, or the dtypes differ.

    Example:
        >>> multi_quantile_huber_loss([[0.0, 4.0]], [2.0], delta=0.0).numpy()
        array([0.5], dtype=float32)
        >>> multi_quantile_huber_loss([[0.0, 4.0]], [[2.0, 4.0]], delta=0.0).numpy()
        array([0.5], dtype=float32)
        >>> multi_quantile_huber_loss([[0.0, 4.0]], [2.0], 0.0, fractions=[0.0, 1.0])
        <tf.Tensor: shape=(1,), dtype=float32, numpy=array([0.], dtype=float32)>

    References:
        Dabney, Rowland, Bellemare, Munos (2018), "Distributional Reinforcement Learning
        with Quantile Regression", equation 10, divided by `delta` and n; with
        `fractions` Dabney, Ostrovski, Silver, Munos (2018), "Implicit Quantile Networks
        for Distributional Reinforcement Learning", equation 3.
    """
    where = "multi_quantile_huber_loss"
    quantiles = operands.leading(where, "quantiles", quantiles, axes=1)
    target = operands.alike(where, "target", target, "quantiles", quantiles)
    checks.check_within(where, "delta", delta, 0.0, math.inf)
    batch = quantiles.shape[:-1]
    if target.shape.rank == batch.rank:
        target = target[..., tf.newaxis]
    if not target.shape[:-1].is_compatible_with(batch):
        raise ValueError(
            f"`{where}`: `target` expected the batch shape {batch} of `quantiles`, or "
            f"that and one more axis; got {target.shape}"
        )
    checks.check_rank(where, "delta", delta, exact=0)
    if fractions is not None:
        checks.check_within(where, "fractions", fractions, 0.0, 1.0)
        fractions = operands.along_last(
            where, "fractions", fractions, "quantiles", quantiles
        )
    if target_weights is not None:
        target_weights = operands.equal(
            where, "target_weights", target_weights, "target", target
        )
    return _quantile_loss(quantiles, target, delta, fractions, target_weights)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class MeanSquaredLoss:
    """Squared error, averaged over all but the batch axes.

        loss = mean over the other axes of (pred - target)^2

    Args:
        batch_dims: how many leading axes are batch axes.
        debug_summaries: accepted so that existing calls work; the loss writes none.
        name: what the loss is called in reports.

    Raises:
        ValueError: if `batch_dims` is negative.

    Example:
        >>> loss = MeanSquaredLoss(batch_dims=1)
        >>> loss([[1.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]).numpy()
        array([2.5, 2. ], dtype=float32)
    """

    batch_dims: int = 1
    debug_summaries: bool = True
    name: str = "MSELoss"

    def __post_init__(self) -> None:
        checks.check_within(
            "MeanSquaredLoss", "batch_dims", self.batch_dims, 0, math.inf
        )

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element of the batch axes.

        Args:
            pred: `[*batch, ...]`, floating, the prediction.
            target: the shape of `pred`.

        Returns:
            `[*batch]`.

        Raises:
            ValueError: if the shapes differ, or there are fewer axes than batch axes.
            TypeError: if `pred` is not floating, or the dtypes differ.
        """
        where = "MeanSquaredLoss"
        pred = operands.leading(where, "pred", pred, axes=self.batch_dims)
        target = operands.equal(where, "target", target, "pred", pred)
        errors = tf.math.squared_difference(
            precision.widened(pred), precision.widened(target)
        )
        axes = list(range(self.batch_dims, errors.shape.rank))
        return tf.cast(tf.reduce_mean(errors, axes), pred.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, for `keras.saving`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the loss of a configuration that `get_config` returned."""
        return cls(**config)


@compile.compiled
def _huber_of_difference(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return _huber(x - y, tf.ones([], x.dtype))


@compile.compiled
def _huber(x: tf.Tensor, delta: TensorLike) -> tf.Tensor:
    delta = precision.number(delta, x.dtype)
    # Clipped: the parabola would overflow where it is not selected, and 0 * inf in the
    # gradient is NaN.
    near = tf.clip_by_value(x, -delta, delta)
    size = tf.abs(x)
    return tf.where(size < delta, 0.5 * tf.square(near), delta * (size - 0.5 * delta))


@compile.compiled(jit_compile=True)
def _quantile_loss(
    quantiles: tf.Tensor,
    target: tf.Tensor,
    delta: TensorLike,
    fractions: tf.Tensor | None,
    weights: tf.Tensor | None,
) -> tf.Tensor:
    dtype = quantiles.dtype
    quantiles, target = precision.widened(quantiles), precision.widened(target)
    delta = tf.stop_gradient(precision.number(delta, quantiles.dtype))
    if fractions is None:
        count = tf.shape(quantiles)[-1]
        taus = tf.cast(tf.range(count), quantiles.dtype) + 0.5
        taus = taus / tf.cast(count, quantiles.dtype)
    else:
        taus = tf.stop_gradient(precision.widened(fractions))
    if weights is not None:
        weights = tf.stop_gradient(precision.widened(weights))
    loss = _mean_height(quantiles, target, delta, taus[..., tf.newaxis], weights)
    return tf.cast(loss, dtype)


def _mean_height(
    quantiles: tf.Tensor,
    target: tf.Tensor,
    delta: tf.Tensor,
    taus: tf.Tensor,
    weights: tf.Tensor | None,
) -> tf.Tensor:
    counted = tf.shape(quantiles)[-1]
    if weights is None:
        counted *= tf.shape(target)[-1]
    weight = 1 / tf.cast(counted, quantiles.dtype)

    def weighed(each: tf.Tensor, axes: int) -> tf.Tensor:
        """Times the weights of the samples, `axes` axes behind those of the batch."""
        if weights is None:
            return each
        of_samples = weights if axes == 1 else weights[..., tf.newaxis, :]
        return tf.math.multiply_no_nan(each, of_samples)

    @tf.custom_gradient
    def height(quantiles: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, Any]:
        errors, units, shares = _errors(quantiles, target, delta, taus)
        # Parabola and lines in one: u * (e - delta * u / 2), u = clip(e / delta, -1, 1)
        heights = weighed(units * shares * (errors - (0.5 * delta) * units), 2)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # Made again, not kept: n * m numbers for each loss. Graphs make them once.
            errors, units, shares = _errors(quantiles, target, delta, taus)
            # The pinball loss has the slope of the right-hand side at its kink.
            is_kink = (errors == 0) & (delta == 0)
            slopes = shares * tf.where(is_kink, tf.ones_like(units), units)
            each = (weight * upstream)[..., tf.newaxis]
            by_target = each * weighed(tf.reduce_sum(slopes, -2), 1)
            return -each * tf.reduce_sum(weighed(slopes, 2), -1), by_target

        return weight * tf.reduce_sum(heights, [-2, -1]), gradient

    return height(quantiles, target)


def _errors(
    quantiles: tf.Tensor, target: tf.Tensor, delta: tf.Tensor, taus: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Errors `[..., n, m]`, in units of delta but at most 1, and their weights."""
    errors = target[..., tf.newaxis, :] - quantiles[..., :, tf.newaxis]
    # Of a delta of 0 the greatest number takes the place of the reciprocal.
    some = tf.where(delta > 0, delta, tf.ones_like(delta))
    steep = tf.fill([], errors.dtype.max)
    units = errors * tf.where(delta > 0, tf.minimum(1 / some, steep), steep)
    one = tf.ones([], errors.dtype)
    # One pass over n * m numbers, where tf.clip_by_value takes two.
    units = tf.raw_ops.ClipByValue(t=units, clip_value_min=-one, clip_value_max=one)
    return errors, units, tf.where(errors < 0, 1 - taus, taus)
