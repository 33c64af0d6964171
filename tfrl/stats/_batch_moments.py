"""Means and variances: of a batch, of parts put together, and to normalize with.

Nothing here subtracts two large squares: values are centred first, so that a mean of
1e6 leaves a variance of 1 intact even in float32. Results are float64; they have the
size of one value, not of a batch. Callers check the arguments.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tfrl.core import compile


class Moments(NamedTuple):
    """Mean and variance of a set of values, element by element.

    Attributes:
        mean: `shape` float64.
        variance: `shape` float64, divided by the weight, not by the weight - 1; the
            empty nest `()` where only the mean is wanted.
    """

    mean: tf.Tensor
    variance: Any


@compile.compiled(static=("event_rank", "with_variance"))
def batch_moments(
    values: tf.Tensor,
    event_rank: int = 0,
    weights: tf.Tensor | None = None,
    with_variance: bool = True,
) -> tuple[tf.Tensor, Moments]:
    """Moments of a batch over its leading axes.

        mean     = sum(w * x) / sum(w)
        variance = sum(w * (x - mean)^2) / sum(w)

    The sums run over differences from one row of the batch, in float32 (float64 for
    float64 values, for a batch that is known to be small, and where the squares exceed
    float32); variance + mean^2 is never formed. Shifting by a row costs at most a
    relative error of the number of rows times that of a sum.

    Args:
        values: `[..., *shape]`, floating, of known rank.
        event_rank: number of trailing axes, those of `shape`, that are kept.
        weights: `[...]`, not negative, how often each value counts; 1 by default. A
            value of weight 0 is not looked at, be it NaN.
        with_variance: whether the variance is wanted.

    Returns:
        The sum of the weights, `[]` float64, and the moments; zeros where that sum
        is 0.

    References:
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance,
        eq. 1.5 and section 3, "shifted data".
    """
    shape = tf.shape(values)[values.shape.rank - event_rank :]
    rows = tf.cast(values, _wide(values))
    rows = tf.reshape(rows, tf.concat([[-1], shape], 0))
    count = tf.cast(tf.shape(rows)[0], tf.float64)
    # A sum of at most one row: there is none in an empty batch.
    shift = tf.reduce_sum(rows[:1], 0)
    if weights is not None:
        weights = tf.reshape(tf.cast(weights, rows.dtype), [-1] + [1] * event_rank)
        count = tf.cast(tf.reduce_sum(weights), tf.float64)
        shift = _average(rows, weights, count)  # the first row may not count
    # Not by NaN or the like: no row must spoil the others. By how much rows are shifted
    # matters to no derivative of what is made of them.
    usable = tf.abs(shift) <= min(1e150, float(shift.dtype.max))
    shift = tf.stop_gradient(tf.where(usable, shift, tf.zeros_like(shift)))
    rows -= shift
    offset = tf.cast(_average(rows, weights, count), tf.float64)
    mean = tf.cast(shift, tf.float64) + offset
    if not with_variance:
        return count, Moments(mean, ())
    squares = tf.cast(_average(tf.square(rows), weights, count), tf.float64)
    if rows.dtype != tf.float64:
        squares = tf.cond(
            tf.math.is_finite(tf.reduce_sum(squares)),
            lambda: squares,
            lambda: _average(tf.square(tf.cast(rows, tf.float64)), weights, count),
        )
    return count, Moments(mean, tf.maximum(squares - offset**2, 0))


def merge_moments(old: Moments, new: Moments, share: Any) -> Moments:
    """Moments of two sets of values put together.

        delta     = new.mean - old.mean
        mean'     = old.mean + share * delta
        variance' = old.variance
            + share * (new.variance - old.variance + (1 - share) * delta^2)

    Args:
        old: moments of the one set.
        new: moments of the other, of the same shape.
        share: `[]`, weight of `new` among both, in [0, 1].

    Returns:
        The moments of both; without a variance where `old` has none.

    References:
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance,
        eq. 2.1.
    """
    delta = new.mean - old.mean
    step = share * delta
    mean = old.mean + step
    if isinstance(old.variance, tuple):
        return Moments(mean, ())
    gap = new.variance - old.variance + delta * (delta - step)
    return Moments(mean, old.variance + share * gap)


def pool_moments(parts: Moments, weights: tf.Tensor) -> Moments:
    """Moments of any number of sets of values put together.

        mean     = sum(w[k] * means[k]) / sum(w)
        variance = sum(w[k] * (variances[k] + (means[k] - mean)^2)) / sum(w)

    Args:
        parts: moments of each set, `[K, *shape]`.
        weights: `[K]`, not negative; a set of weight 0 must be finite all the same.

    Returns:
        The moments of all, `shape`; zeros where the weights add up to 0.
    """
    weights = tf.cast(weights, parts.mean.dtype)

    def average(values: tf.Tensor) -> tf.Tensor:
        return tf.math.divide_no_nan(
            tf.tensordot(weights, values, 1), tf.reduce_sum(weights)
        )

    mean = average(parts.mean)
    if isinstance(parts.variance, tuple):
        return Moments(mean, ())
    return Moments(mean, average(parts.variance + (parts.mean - mean) ** 2))


def pool_over_replicas(
    batches: list[tuple[tf.Tensor, Moments]],
) -> list[tuple[tf.Tensor, Moments]]:
    """Turns moments of each replica's batch into those of the global batch.

    The formula is that of `pool_moments`, over replicas. Outside `strategy.run`, or
    with one replica, nothing changes.

    Args:
        batches: what `batch_moments` returned, of one or more tensors.

    Returns:
        The same for the global batch, equal on all replicas.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return batches

    def add(nest: list) -> list:
        return context.all_reduce(tf.distribute.ReduceOp.SUM, nest)

    counts = [count for count, _ in batches]
    totals, sums = add([counts, [count * own.mean for count, own in batches]])
    means = [tf.math.divide_no_nan(*pair) for pair in zip(sums, totals, strict=True)]
    if any(isinstance(own.variance, tuple) for _, own in batches):
        return list(zip(totals, (Moments(mean, ()) for mean in means), strict=True))
    spreads = add(
        [
            count * (own.variance + (own.mean - mean) ** 2)
            for (count, own), mean in zip(batches, means, strict=True)
        ]
    )
    variances = map(tf.math.divide_no_nan, spreads, totals)
    return list(zip(totals, map(Moments, means, variances), strict=True))


@compile.compiled(static=("zero_mean", "unit_std"))
def standardize(
    values: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    epsilon: tf.Tensor,
    clip_value: Any = None,
    zero_mean: bool = True,
    unit_std: bool = False,
) -> tf.Tensor:
    """Values less their mean, over their standard deviation.

        y = (x - mean) / sqrt(variance + epsilon)
        y = x / sqrt(variance + mean^2 + epsilon)     without `zero_mean`
        y = (x - mean) / sqrt(1 + epsilon)            with `unit_std`

    float32 values are centred by a float32 mean and its remainder, one after the
    other: as exact as in float64.

    Args:
        values: `[..., *shape]`, floating.
        mean: `shape`, float64.
        variance: `shape`, float64.
        epsilon: added to the variance; float64: 1e-10 is 0 in float16.
        clip_value: bound on the absolute result; None for none.
        zero_mean: whether to subtract the mean.
        unit_std: whether to leave the spread as it is.

    Returns:
        `[..., *shape]`, dtype of `values`. Gradients flow to `values` alone.
    """
    mean, variance, wide = *map(tf.stop_gradient, (mean, variance)), _wide(values)
    square = tf.ones_like(variance) if unit_std else variance
    square = square if zero_mean else square + mean**2
    # Of small tensors: XLA repeats all else for each row of the large one.
    scale = tf.math.rsqrt(square + epsilon)
    result = tf.cast(values, wide)
    if zero_mean:
        near = tf.cast(mean, wide)
        rest = tf.cast((mean - tf.cast(near, tf.float64)) * scale, wide)
        result = (result - near) * tf.cast(scale, wide) - rest
    else:
        result *= tf.cast(scale, wide)
    result = tf.cast(result, values.dtype)
    if clip_value is None:
        return result
    limit = tf.cast(clip_value, values.dtype)
    return tf.clip_by_value(result, -limit, limit)


def _wide(values: tf.Tensor) -> tf.DType:
    """What to compute with: float64 costs nothing where there is little to compute."""
    size = values.shape.num_elements()
    small = size is not None and size <= 8192
    return tf.float64 if small or values.dtype == tf.float64 else tf.float32


def _average(rows: tf.Tensor, weights: tf.Tensor | None, count: tf.Tensor) -> tf.Tensor:
    """Weighted mean over the first axis, 0 where nothing counts."""
    if weights is not None:
        rows = tf.math.multiply_no_nan(rows, tf.cast(weights, rows.dtype))
    divisor = tf.where(count > 0, count, tf.ones_like(count))
    return tf.reduce_sum(rows, 0) / tf.cast(divisor, rows.dtype)
