"""Means and variances: of a batch, of parts put together, and to normalize with.

Nothing here subtracts two large squares: values are centred first, so that a mean of
1e6 leaves a variance of 1 intact even in float32. Results are float64; they have the
size of one value, not of a batch. `advance_moment_stream` follows
a stream of batches.
"""

from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tfrl.core import checks, compile

TensorLike: TypeAlias = tf.types.experimental.TensorLike


class Moments(NamedTuple):
    """Mean and variance of a set of values, element by element.

    Attributes:
        mean: `shape` float64.
        variance: `shape` float64, divided by the weight, not by the weight - 1; the
            empty nest `()` where only the mean is wanted.

    Example:
        >>> Moments(mean=2.0, variance=1.0).variance
        1.0
    """

    mean: tf.Tensor
    variance: Any


def batch_moments(
    values: TensorLike,
    event_rank: int = 0,
    weights: TensorLike | None = None,
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
        values: `[..., *shape]`, floating.
        event_rank: number of trailing axes, those of `shape`, that are kept.
        weights: `[...]`, not negative, how often each value counts; 1 by default. A
            value of weight 0 is not looked at, be it NaN.
        with_variance: whether the variance is wanted.

    Returns:
        The sum of the weights, `[]` float64, and the moments; zeros where that sum
        is 0.

    Raises:
        TypeError: if `values` is not floating.
        ValueError: if `values` has too few axes or `weights` another shape.

    Example:
        >>> count, moments = batch_moments(tf.constant([[1.0, 5.0], [3.0, 5.0]]), 1)
        >>> float(count), moments.mean.numpy(), moments.variance.numpy()
        (2.0, array([2., 5.]), array([1., 0.]))

    References:
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance,
        eq. 1.5 and section 3, "shifted data".
    """
    values = checks.as_tensor("batch_moments", "values", values)
    checks.check_floating("batch_moments", "values", values)
    checks.check_rank("batch_moments", "values", values, at_least=event_rank)
    if values.shape.rank is None:
        raise ValueError(
            "`batch_moments`: `values` expected a known rank; got an unknown one; "
            "use tf.ensure_shape"
        )
    if weights is not None:
        weights = checks.as_tensor("batch_moments", "weights", weights)
        weights = tf.cast(weights, _wide(values))
        outer = values.shape[: values.shape.rank - event_rank]
        if not weights.shape.is_compatible_with(outer):
            raise ValueError(
                "`batch_moments`: `weights` expected the batch shape of `values` "
                f"{outer}; got {weights.shape}; give one for each value"
            )
    return _batch_moments(values, weights, event_rank, with_variance)


def merge_moments(old: Moments, new: Moments, share: TensorLike) -> Moments:
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

    Raises:
        TypeError: if `old` or `new` are no moments.

    Example:
        >>> one = Moments(tf.constant(0.0), tf.constant(1.0))
        >>> two = Moments(tf.constant(4.0), tf.constant(1.0))
        >>> [float(part) for part in merge_moments(one, two, 0.5)]
        [2.0, 5.0]

    References:
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance,
        eq. 2.1.
    """
    _check_moments("merge_moments", old=old, new=new)
    delta = new.mean - old.mean
    step = share * delta
    mean = old.mean + step
    if isinstance(old.variance, tuple):
        return Moments(mean, ())
    gap = new.variance - old.variance + delta * (delta - step)
    return Moments(mean, old.variance + share * gap)


def pool_moments(parts: Moments, weights: TensorLike) -> Moments:
    """Moments of any number of sets of values put together.

        mean     = sum(w[k] * means[k]) / sum(w)
        variance = sum(w[k] * (variances[k] + (means[k] - mean)^2)) / sum(w)

    Args:
        parts: moments of each set, `[K, *shape]`.
        weights: `[K]`, not negative; a set of weight 0 must be finite all the same.

    Returns:
        The moments of all, `shape`; zeros where the weights add up to 0.

    Raises:
        TypeError: if `parts` are no moments or `weights` no numbers.

    Example:
        >>> parts = Moments(tf.constant([0.0, 4.0]), tf.constant([1.0, 1.0]))
        >>> [float(part) for part in pool_moments(parts, tf.constant([3.0, 1.0]))]
        [1.0, 4.0]
    """
    _check_moments("pool_moments", parts=parts)
    dtype = parts.mean.dtype
    weights = checks.as_tensor("pool_moments", "weights", weights, None, dtype)
    weights = tf.cast(weights, dtype)

    def average(values: tf.Tensor) -> tf.Tensor:
        return tf.math.divide_no_nan(
            tf.tensordot(weights, values, 1), tf.reduce_sum(weights)
        )

    mean = average(parts.mean)
    if isinstance(parts.variance, tuple):
        return Moments(mean, ())
    return Moments(mean, average(parts.variance + (parts.mean - mean) ** 2))


def _check_moments(where: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if not (hasattr(value, "mean") and hasattr(value, "variance")):
            raise TypeError(
                f"`{where}`: `{name}` expected `Moments`; got {type(value).__name__}"
            )


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

    Example:
        >>> batches = [batch_moments(tf.constant([1.0, 3.0]))]
        >>> pool_over_replicas(batches) is batches
        True
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


def standardize(
    values: TensorLike,
    moments: Moments,
    variance_epsilon: TensorLike = 1e-10,
    clip_value: TensorLike | None = None,
    *,
    zero_mean: bool = True,
    unit_std: bool = False,
    learned: bool = False,
) -> tf.Tensor:
    """Values less their mean, over their standard deviation.

        y = (x - mean) / sqrt(variance + variance_epsilon)
        y = x / sqrt(variance + mean^2 + variance_epsilon)     without `zero_mean`
        y = (x - mean) / sqrt(1 + variance_epsilon)            with `unit_std`

    float32 values are centred by a float32 mean and its remainder, one after the
    other: as exact as in float64.

    Args:
        values: `[..., *shape]`, floating.
        moments: `shape`.
        variance_epsilon: added to the variance.
        clip_value: bound on the absolute result; None for none.
        zero_mean: whether to subtract the mean.
        unit_std: whether to leave the spread as it is.
        learned: whether the moments were updated with these very values just before.
            They are then centred by their first row, as `batch_moments` did it, so
            that a graph computes that difference once; rounding is relative to the
            distance from that row.

    Returns:
        `[..., *shape]`, dtype of `values`. Gradients flow to `values` alone.

    Raises:
        TypeError: if `values` is not floating.
        ValueError: if the shape of `values` does not end in that of the moments.

    Example:
        >>> _, moments = batch_moments(tf.constant([1.0, 3.0]))
        >>> standardize(tf.constant([1.0, 4.0]), moments).numpy().round(4)
        array([-1.,  2.], dtype=float32)
    """
    values = checks.as_tensor("standardize", "values", values)
    checks.check_floating("standardize", "values", values)
    rank, shape = values.shape.rank, moments.mean.shape
    if rank is not None and shape.rank is not None:
        ending = values.shape[max(rank - shape.rank, 0) :]
        if not ending.is_compatible_with(shape):
            raise ValueError(
                "`standardize`: `values` expected a shape ending in that of "
                f"`moments` {shape}; got {values.shape}; put the batch axes in front"
            )
    if not tf.is_tensor(variance_epsilon):
        variance_epsilon = tf.constant(variance_epsilon, tf.float64)
    # In float64 whatever the dtype of the values: 1e-10 is 0 in float16.
    epsilon = tf.cast(variance_epsilon, tf.float64)
    mean, variance = map(tf.stop_gradient, moments)
    return _standardize(
        values, mean, variance, epsilon, clip_value, zero_mean, unit_std, learned
    )


def _wide(values: tf.Tensor) -> tf.DType:
    """What to compute with: float64 costs nothing where there is little to compute."""
    size = values.shape.num_elements()
    small = size is not None and size <= 8192
    return tf.float64 if small or values.dtype == tf.float64 else tf.float32


@compile.compiled(static=("event_rank", "with_variance"))
def _batch_moments(
    values: tf.Tensor,
    weights: tf.Tensor | None,
    event_rank: int,
    with_variance: bool,
) -> tuple[tf.Tensor, Moments]:
    rows = _as_rows(values, event_rank)
    if weights is None:
        known = rows.shape[0]
        count = tf.shape(rows)[0] if known is None else tf.constant(known)
    else:
        weights = tf.reshape(weights, [-1] + [1] * event_rank)
        count = tf.reduce_sum(weights)
    count = tf.cast(count, tf.float64)
    if rows.dtype == tf.float64:
        mean = _average(rows, weights, count)
        if not with_variance:
            return count, Moments(mean, ())
        squares = tf.square(rows - mean)
        return count, Moments(mean, _average(squares, weights, count))
    if weights is None:
        rows, shift = _from_near(rows)
    else:
        shift = _average(rows, weights, count)  # the first row may not count
        rows -= shift
    offset = tf.cast(_average(rows, weights, count), tf.float64)
    mean = tf.cast(shift, tf.float64) + offset
    if not with_variance:
        return count, Moments(mean, ())
    squares = tf.cast(_average(tf.square(rows), weights, count), tf.float64)
    squares = tf.cond(
        tf.math.is_finite(tf.reduce_sum(squares)),
        lambda: squares,
        lambda: _average(tf.square(tf.cast(rows, tf.float64)), weights, count),
    )
    return count, Moments(mean, tf.maximum(squares - offset**2, 0))


def _as_rows(values: tf.Tensor, event_rank: int) -> tf.Tensor:
    rows = tf.cast(values, _wide(values))
    if values.shape.rank == event_rank + 1:
        return rows
    shape = tf.shape(values)[values.shape.rank - event_rank :]
    return tf.reshape(rows, tf.concat([[-1], shape], 0))


def _from_near(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows less what `batch_moments` subtracts from them, and that."""
    if rows.dtype == tf.float64:
        near = _finite(_average(rows, None, tf.cast(tf.shape(rows)[0], tf.float64)))
        return rows - near, near
    # By how much rows are shifted matters to no derivative of what is made of them.
    first = tf.stop_gradient(rows[0] if rows.shape[0] else tf.reduce_sum(rows[:1], 0))
    first = _finite(first)
    return rows - first, first


def _finite(shift: tf.Tensor) -> tf.Tensor:
    """A shift by which no row spoils the others: 0 instead of NaN and the like."""
    usable = tf.abs(shift) <= min(1e150, float(shift.dtype.max))
    return tf.where(usable, shift, tf.zeros_like(shift))


def _average(rows: tf.Tensor, weights: tf.Tensor | None, count: tf.Tensor) -> tf.Tensor:
    """Weighted mean over the first axis, 0 where nothing counts."""
    if weights is None and rows.shape[0]:
        return tf.reduce_mean(rows, 0)
    if weights is not None:
        rows = tf.math.multiply_no_nan(rows, tf.cast(weights, rows.dtype))
    divisor = tf.where(count > 0, count, tf.ones_like(count))
    return tf.reduce_sum(rows, 0) / tf.cast(divisor, rows.dtype)


@compile.compiled(static=("zero_mean", "unit_std", "learned"))
def _standardize(
    values: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    epsilon: tf.Tensor,
    limit: tf.Tensor | None,
    zero_mean: bool,
    unit_std: bool,
    learned: bool,
) -> tf.Tensor:
    wide = _wide(values)
    square = tf.ones_like(variance) if unit_std else variance
    square = square if zero_mean else square + mean**2
    # Of small tensors: XLA repeats all else for each row of the large one.
    scale = tf.math.rsqrt(square + epsilon)
    if not zero_mean:
        result = tf.cast(values, wide) * tf.cast(scale, wide)
    else:
        if learned:  # the graph has this difference already, from the update
            result, near = _from_near(_as_rows(values, mean.shape.rank))
        else:
            near = tf.cast(mean, wide)
            result = tf.cast(values, wide) - near
        result *= tf.cast(scale, wide)
        if learned or wide != tf.float64:
            result -= tf.cast((mean - tf.cast(near, tf.float64)) * scale, wide)
    result = tf.cast(result, values.dtype)
    if limit is not None:
        limit = tf.cast(limit, values.dtype)
        result = tf.clip_by_value(result, -limit, limit)
    if result.shape.rank == values.shape.rank:
        return result
    return tf.reshape(result, tf.shape(values))
