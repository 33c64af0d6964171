"""Losses that predict a scalar as a distribution over a grid of integers.

A target is transformed, clipped to the grid and split between its neighbours there. The
loss is the divergence of the prediction from that split, so that a perfect prediction
costs 0; its gradient is that of the cross entropy, but for the exception that
`DiscreteRegressionLoss` describes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfrl._internal import operands, precision
from tfrl.core import compile
from tfrl.losses import scalar_prediction

TensorLike: TypeAlias = operands.TensorLike


@dataclasses.dataclass(frozen=True)
class _GridLoss(scalar_prediction.TransformedLoss):
    """What both losses share: their arguments and their grid."""

    inverse_after_mean: bool = False

    def _values(self, count: Any, dtype: tf.DType) -> tf.Tensor:
        """The grid in the domain in which expectations are taken."""
        grid = _grid(count, dtype)
        return grid if self._is_linear else self.restored(grid)

    @property
    def _is_linear(self) -> bool:
        """Whether expectations are taken on the integers themselves."""
        return self.transform is None or self.inverse_after_mean

    def _loss(
        self,
        divergence: Callable[..., tf.Tensor],
        logits: TensorLike,
        target: TensorLike,
    ) -> tf.Tensor:
        where = type(self).__name__
        logits = operands.leading(where, "pred", logits, axes=1)
        target = operands.alike(where, "target", target, "pred", logits)
        if not target.shape.is_compatible_with(logits.shape[:-1]):
            raise ValueError(
                f"`{where}`: `target` expected the shape of `pred` {logits.shape} "
                f"without the last axis; got {target.shape}"
            )
        scores = precision.widened(logits)
        target = tf.stop_gradient(precision.widened(target))
        position = self.transformed(target)
        values = None
        if not self._is_linear:
            # One more than the grid, for targets beyond its end.
            values = self.restored(_grid(_count(logits), scores.dtype, beyond=1))
        return tf.cast(divergence(scores, position, target, values), logits.dtype)

    def _masses(self, size: int) -> tf.Tensor:
        """Probability of each grid value under 1 / (1 + x^2) in the target's domain."""
        grid = _grid(size, tf.float64)
        half = tf.constant(0.5, tf.float64)
        centers = self.restored(grid)
        rights = self.restored(grid + half)
        lefts = self.restored(grid - half)
        masses = (rights - lefts) / (1 + centers**2)
        return masses / tf.reduce_sum(masses)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class DiscreteRegressionLoss(_GridLoss):
    """Cross entropy of a categorical distribution over a grid of integers.

        v[i] = i - (n - 1) // 2                        for i = 0 ... n - 1, of n logits
        q    = softmax(pred), q[i] the probability of the grid value v[i]
        y    = transform(target), clipped to the grid
        p    = 1 - w at v[i] <= y < v[i + 1], w at v[i + 1], 0 elsewhere
        w    = y - v[i]                                        if inverse_after_mean
        w    = (target - g(v[i])) / (g(v[i + 1]) - g(v[i]))    otherwise
        loss = sum over i of p[i] * log(p[i] / q[i])

    with g the inverse of the transform: either way the expectation of p, as
    `calc_expectation` computes it, is the target, within the grid. That spans
    `[-((n - 1) // 2), n // 2]`: for an even n it has one value more above 0 than below.

    With `DiscreteRegressionLoss(SqrtLinearTransform(0.001), inverse_after_mean=True)`
    it is the value loss of MuZero.

    Without `inverse_after_mean` let the grid reach beyond all targets. One beyond the
    last value belongs to that value whole; but up to the value that would follow, the
    entropy of its split between these two is taken off the loss, which is then 0, and
    without gradient, as soon as q[n - 1] is exp(-entropy), a number from 1/2 to 1.

    Args:
        transform: applied to the target; None leaves it as it is.
        inverse_after_mean: whether the expectation is taken in the transformed domain
            and then inverted. That is biased (towards 0, where the inverse is convex)
            and less noisy. Without a transform it changes nothing.

    Raises:
        TypeError: if `transform` is not one.

    Example:
        >>> loss = DiscreteRegressionLoss()
        >>> logits = tf.math.log([[0.25, 0.25, 0.5]])  # of -1, 0, 1
        >>> loss(logits, [0.5]).numpy().round(3)
        array([0.347], dtype=float32)
        >>> loss.calc_expectation(logits).numpy()
        array([0.25], dtype=float32)

    References:
        Schrittwieser et al. (2020), "Mastering Atari, Go, Chess and Shogi by Planning
        with a Learned Model", appendix F.
    """

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element of the batch.

        Args:
            pred: `[..., n]`, floating, the logits.
            target: `[...]`, in the untransformed domain. No gradient flows to it.

        Returns:
            `[...]`.

        Raises:
            ValueError: if the shapes do not fit.
            TypeError: if `pred` is not floating, or the dtypes differ.
        """
        return self._loss(_categorical_divergence, pred, target)

    def calc_expectation(self, logits: TensorLike) -> tf.Tensor:
        """Returns the mean of the predicted distributions in the untransformed domain.

            expectation = sum over i of q[i] * inverse_transform(v[i])
            expectation = inverse_transform(sum over i of q[i] * v[i])
                                                        if inverse_after_mean

        Args:
            logits: `[..., n]`, floating.

        Returns:
            `[...]`.

        Raises:
            ValueError: if `logits` has no axis.
            TypeError: if it is not floating.
        """
        where = "DiscreteRegressionLoss.calc_expectation"
        logits = operands.leading(where, "logits", logits, axes=1)
        scores = precision.widened(logits)
        values = self._values(_count(logits), scores.dtype)
        mean = tf.reduce_sum(tf.nn.softmax(scores) * values, axis=-1)
        if self._is_linear:
            mean = self.restored(mean)
        return tf.cast(mean, logits.dtype)

    def initial_bias(self, size: int, dtype: Any) -> tf.Tensor:
        """Returns logits of about a Cauchy distribution in the untransformed domain.

        Args:
            size: n, how many outputs the layer has.
            dtype: a floating dtype.

        Returns:
            `[size]`, logarithms of the mass of 1 / (1 + x^2) around each grid value.
        """
        return tf.cast(tf.math.log(self._masses(size)), dtype)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class OrderedDiscreteRegressionLoss(_GridLoss):
    """Cross entropies of being at least each value of a grid of integers.

        v[i] = i - (n - 1) // 2                        for i = 0 ... n - 1, of n logits
        q    = sigmoid(pred), q[i] the probability that the target is at least v[i]
        y    = transform(target), clipped to the grid
        p    = 1 up to v[i] <= y < v[i + 1], w at v[i + 1], 0 beyond
        w    = y - v[i]                                        if inverse_after_mean
        w    = (target - g(v[i])) / (g(v[i + 1]) - g(v[i]))    otherwise
        loss = sum over i of KL(Bernoulli(p[i]) || Bernoulli(q[i]))

    with g the inverse of the transform: either way the expectation of p, as
    `calc_expectation` computes it, is the target, within the grid. That spans
    `[-((n - 1) // 2), n // 2]`: for an even n it has one value more above 0 than below.
    Unlike the classes of `DiscreteRegressionLoss`, the outputs know their order.

    Args:
        transform: applied to the target; None leaves it as it is.
        inverse_after_mean: whether the expectation is taken in the transformed domain
            and then inverted. That is biased (towards 0, where the inverse is convex)
            and less noisy. Without a transform it changes nothing: `calc_expectation`
            then has the form of True.

    Raises:
        TypeError: if `transform` is not one.

    Example:
        >>> loss = OrderedDiscreteRegressionLoss()
        >>> logits = tf.constant([[50.0, 0.0, 0.0]])  # of >= -1, >= 0, >= 1
        >>> loss(logits, [0.5]).numpy().round(3)
        array([0.693], dtype=float32)
        >>> loss.calc_expectation(logits).numpy()
        array([0.], dtype=float32)
    """

    def __call__(self, pred: TensorLike, target: TensorLike) -> tf.Tensor:
        """Returns one loss per element of the batch.

        Args:
            pred: `[..., n]`, floating, the logits.
            target: `[...]`, in the untransformed domain. No gradient flows to it.

        Returns:
            `[...]`.

        Raises:
            ValueError: if the shapes do not fit.
            TypeError: if `pred` is not floating, or the dtypes differ.
        """
        return self._loss(_ordered_divergence, pred, target)

    def calc_expectation(self, logits: TensorLike) -> tf.Tensor:
        """Returns the mean of the predicted distributions in the untransformed domain.

        The logits are made to fall first, r[i] = sigmoid(min over j <= i of logits[j]),
        and then give the grid value v[i] the mass r[i] - r[i + 1]:

            expectation = sum over i of (r[i] - r[i + 1]) * inverse_transform(v[i])
            expectation = inverse_transform(v[0] - 1 + sum over i of r[i])
                                        if inverse_after_mean or without a transform

        The mass that is left, 1 - r[0], counts at 0 in the first, at v[0] - 1 in the
        second form; training makes it vanish.

        Args:
            logits: `[..., n]`, floating.

        Returns:
            `[...]`.

        Raises:
            ValueError: if `logits` has no axis.
            TypeError: if it is not floating.
        """
        where = "OrderedDiscreteRegressionLoss.calc_expectation"
        logits = operands.leading(where, "logits", logits, axes=1)
        tails = tf.sigmoid(_cumulative_minimum(precision.widened(logits)))
        values = self._values(_count(logits), tails.dtype)
        # Where the mass that is left counts; summed by parts, tails are not subtracted.
        rest = values[:1] - 1 if self._is_linear else tf.zeros_like(values[:1])
        steps = values - tf.concat([rest, values[:-1]], axis=0)
        mean = tf.reduce_sum(tails * steps, axis=-1) + rest[0]
        if self._is_linear:
            mean = self.restored(mean)
        return tf.cast(mean, logits.dtype)

    def initial_bias(self, size: int, dtype: Any) -> tf.Tensor:
        """Returns logits of about a Cauchy distribution in the untransformed domain.

        Args:
            size: n, how many outputs the layer has.
            dtype: a floating dtype.

        Returns:
            `[size]`, log-odds of the mass of 1 / (1 + x^2) from each grid value on;
            probabilities are kept 1e-20 away from 0.
        """
        masses = self._masses(size)
        least = tf.constant(1e-20, tf.float64)
        above = tf.maximum(tf.cumsum(masses, reverse=True), least)
        below = tf.maximum(tf.cumsum(masses, exclusive=True), least)
        return tf.cast(tf.math.log(above) - tf.math.log(below), dtype)


@compile.compiled
def _categorical_divergence(
    logits: tf.Tensor, position: tf.Tensor, target: tf.Tensor, values: tf.Tensor | None
) -> tf.Tensor:
    lower, share, beyond = _split(_count(logits), position, target, values)
    # log_softmax of two places alone: what is subtracted has no gradient in the end.
    scores = logits - tf.stop_gradient(tf.reduce_max(logits, axis=-1, keepdims=True))
    total = tf.math.log(tf.reduce_sum(tf.exp(scores), axis=-1))
    # Not even a logit of -inf counts where nothing is expected.
    loss = tf.math.multiply_no_nan(total - _picked(scores, lower), 1 - share)
    loss += tf.math.multiply_no_nan(total - _picked(scores, lower + 1), share)
    return tf.nn.relu(loss - _entropy(share + beyond))


@compile.compiled
def _ordered_divergence(
    logits: tf.Tensor, position: tf.Tensor, target: tf.Tensor, values: tf.Tensor | None
) -> tf.Tensor:
    lower, share, _ = _split(_count(logits), position, target, values)
    # -p * log(q) - (1 - p) * log(1 - q) with one softplus for all p: of -logits where p
    # is 1, and not even a logit of inf counts there.
    whole = tf.floor(share)
    lower, part = lower + whole, share - whole
    index = tf.cast(tf.range(_count(logits)), logits.dtype)
    signs = tf.sign(index - (lower[..., tf.newaxis] + 0.5))
    loss = tf.reduce_sum(tf.math.softplus(signs * logits), axis=-1)
    loss -= tf.math.multiply_no_nan(_picked(logits, lower + 1), part)
    return tf.nn.relu(loss - _entropy(share))


def _picked(rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """One element of each row; of the last ones, where the place is beyond them."""
    count, batch = _count(rows), tf.shape(places)
    # NaN has any place.
    columns = tf.clip_by_value(tf.cast(places, tf.int32), 0, count - 1)
    starts = tf.reshape(tf.range(tf.reduce_prod(batch)) * count, batch)
    return tf.gather(tf.reshape(rows, [-1]), starts + columns)


def _split(
    count: tf.Tensor, position: tf.Tensor, target: tf.Tensor, values: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """How targets spread over the grid.

    Returns:
        Index of the grid value below each target; the share of the next one; the share
        of a value beyond the end, where the target is between that and the last.
    """
    low = tf.cast(-((count - 1) // 2), position.dtype)
    position = tf.clip_by_value(position, low, tf.cast(count // 2, position.dtype))
    floor = tf.floor(position)
    lower = floor - low
    if values is None:
        share = position - floor
    else:
        # NaN has any index; its share stays NaN.
        index = tf.clip_by_value(tf.cast(lower, tf.int32), 0, count - 1)
        left = tf.gather(values, index)
        gap = tf.gather(values, index + 1) - left
        share = tf.clip_by_value((target - left) / gap, 0, 1)
    is_last = lower == tf.cast(count - 1, lower.dtype)
    zeros = tf.zeros_like(share)
    return lower, tf.where(is_last, zeros, share), tf.where(is_last, share, zeros)


def _entropy(share: tf.Tensor) -> tf.Tensor:
    return -tf.math.xlogy(share, share) - tf.math.xlog1py(1 - share, -share)


def _cumulative_minimum(tensor: tf.Tensor) -> tf.Tensor:
    """Running minimum along the last axis, in as many steps as its size has bits."""
    count = _count(tensor)
    index = tf.range(count)

    def doubled(step: Any, lowest: tf.Tensor) -> tuple[Any, tf.Tensor]:
        earlier = tf.roll(lowest, step, axis=-1)
        lowest = tf.where(index >= step, tf.minimum(lowest, earlier), lowest)
        return 2 * step, lowest

    return tf.while_loop(
        lambda step, _: step < count, doubled, (1, tensor), maximum_iterations=31
    )[1]


def _grid(count: Any, dtype: tf.DType, beyond: int = 0) -> tf.Tensor:
    return tf.cast(tf.range(count + beyond) - (count - 1) // 2, dtype)


def _count(logits: tf.Tensor) -> Any:
    """Size of the last axis, a Python number where it is known."""
    size = logits.shape[-1]
    return tf.shape(logits)[-1] if size is None else size
