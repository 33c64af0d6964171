"""Means and variances: of a batch, and of a stream of batches.

Nothing here subtracts two large squares: values are centred first, so that a mean of
1e6 leaves a variance of 1 intact even in float32. Moments are float64; they have the
size of one value, not of a batch.

A stream is a record that functions take and return. The normalizers of this room keep
one in variables, `tfrl.layers.RunningNormalization` in the weights of a Keras layer.
"""

import reprlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import compile

Rule: TypeAlias = Literal["exponential", "adaptive", "window"]

_SETTINGS = {
    "exponential": "update_rate",
    "adaptive": "speed",
    "window": "window_size",
}


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
def _batch_moments(
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
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance:
        Analysis and Recommendations.
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


def usable_moments(
    where: str, name: str, values: Any, shape: tf.TensorShape, weights: Any
) -> tuple[tf.Tensor, Moments]:
    """Moments in float64 of the usable rows of a batch, which are checked first.

    Args:
        where: function that asks, for messages.
        name: of `values`, likewise.
        values: `[..., *shape]`; rows with NaN, or beyond 1e150, count for nothing.
        shape: of a row.
        weights: `[...]`, how often each row counts; None for once.

    Returns:
        As of `_batch_moments`.

    Raises:
        ValueError: if the shapes do not fit, or a weight that is known is negative or
            not finite.
    """
    values = tf.cast(checks.as_tensor(where, name, values), tf.float64)
    outer = operands.axes_before(where, name, values, shape, at_least=1)
    inner = list(range(outer, values.shape.rank))
    # NaN is not less than anything; squares of more exceed float64.
    usable = tf.cast(tf.reduce_all(tf.abs(values) <= 1e150, inner), tf.float64)
    if weights is not None:
        weights = checks.as_tensor(where, "weights", weights)
        if not weights.shape.is_compatible_with(values.shape[:outer]):
            raise ValueError(
                f"`{where}`: `weights` expected the batch shape of `{name}` "
                f"{values.shape[:outer]}; got {weights.shape}; give one each"
            )
        checks.check_within(where, "weights", weights, 0.0, float("inf"))
        checks.check_finite(where, "weights", weights)
        usable *= tf.cast(weights, tf.float64)
    return _batch_moments(values, shape.rank, usable)


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
        Chan, Golub and LeVeque, 1983, Algorithms for Computing the Sample Variance:
        Analysis and Recommendations.
    """
    delta = new.mean - old.mean
    step = share * delta
    mean = old.mean + step
    if isinstance(old.variance, tuple):
        return Moments(mean, ())
    gap = new.variance - old.variance + delta * (delta - step)
    return Moments(mean, old.variance + share * gap)


def _pooled(parts: Moments, weights: tf.Tensor) -> Moments:
    """Moments of any number of sets of values put together.

        mean     = sum(w[k] * means[k]) / sum(w)
        variance = sum(w[k] * (variances[k] + (means[k] - mean)^2)) / sum(w)

    Args:
        parts: moments of each set, `[K, *shape]`.
        weights: `[K]` float64, not negative; a set of weight 0 must be finite, too.

    Returns:
        The moments of all, `shape`; zeros where the weights add up to 0.
    """
    total = tf.reduce_sum(weights)
    mean = tf.math.divide_no_nan(tf.tensordot(weights, parts.mean, 1), total)
    if isinstance(parts.variance, tuple):
        return Moments(mean, ())
    sums = tf.tensordot(weights, parts.variance + (parts.mean - mean) ** 2, 1)
    return Moments(mean, tf.math.divide_no_nan(sums, total))


def _pooled_over_replicas(
    batches: list[tuple[tf.Tensor, Moments]],
) -> list[tuple[tf.Tensor, Moments]]:
    """Turns moments of each replica's batch into those of the global batch.

    The formula is that of `_pooled`, over replicas. Outside `strategy.run`, or
    with one replica, nothing changes.

    Args:
        batches: what `_batch_moments` returned, of one or more tensors.

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
    means = list(map(tf.math.divide_no_nan, sums, totals))
    variances: Any = [()] * len(means)
    if not isinstance(batches[0][1].variance, tuple):
        spreads = [
            count * (own.variance + (own.mean - mean) ** 2)
            for (count, own), mean in zip(batches, means, strict=True)
        ]
        variances = map(tf.math.divide_no_nan, add(spreads), totals)
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


class MomentStream(NamedTuple):
    """What is kept of the batches seen so far, of one or more values.

    Attributes:
        count: `[]` int64, number of batches.
        mass: `[]` float64, how much of the weights of an endless stream is spent, 1 in
            the long run; not used by windows.
        moments: a pair of each value, its `mean` and its `variance`, `shape` float64;
            the variance is `()` where it is not wanted.
        window: such pairs of the last batches of each value, `[window_size, *shape]`;
            empty for other rules.

    Example:
        >>> start_moment_stream([[2]], "window", 3).window[0].mean.shape
        TensorShape([3, 2])
    """

    count: tf.Tensor
    mass: tf.Tensor
    moments: list[Moments]
    window: list[Moments]

    def to_normalize(self) -> list[Moments]:
        """Returns the moments, of mean 0 and variance 1 where no batch was seen."""
        # Without a batch variances are 0.
        unseen = tf.cast(self.count < 1, tf.float64)
        return [
            known._replace(variance=known.variance + unseen) for known in self.moments
        ]

    def normalize(
        self,
        values: Sequence[Any],
        variance_epsilon: Any = 1e-10,
        clip_value: Any = None,
        *,
        zero_mean: bool = True,
        unit_std: bool = False,
        start_at_zero: bool = False,
    ) -> list[tf.Tensor]:
        """Returns the values less their mean, over their standard deviation.

            y = (x - mean) / sqrt(variance + variance_epsilon)
            y = x / sqrt(variance + mean^2 + variance_epsilon)     without `zero_mean`
            y = (x - mean) / sqrt(1 + variance_epsilon)            with `unit_std`

        float32 values are centred by a float32 mean and its remainder, one after the
        other: as exact as in float64. Gradients flow to the values alone.

        Args:
            values: for each value of the stream `[..., *shape]`, floating.
            variance_epsilon: added to the variance.
            clip_value: bound on the absolute result; None, and 0 or less, for none.
            zero_mean: whether to subtract the mean.
            unit_std: whether to take the standard deviation for 1.
            start_at_zero: whether the variance is 0, not 1, where no batch was seen.

        Returns:
            A tensor for each, in its shape and dtype.

        Raises:
            TypeError: if a value is not floating.
            ValueError: if there are more or fewer values than the stream has, or the
                shape of one does not end in that of its moments.
        """
        values = _checked("MomentStream.normalize", self, values)
        if isinstance(clip_value, int | float):
            clip_value = clip_value if clip_value > 0 else None
        elif clip_value is not None:
            where = "MomentStream.normalize"
            clip_value = checks.as_tensor(where, "clip_value", clip_value)
        # In float64 whatever the dtype of the values: 1e-10 is 0 in float16.
        epsilon = tf.cast(
            tf.convert_to_tensor(variance_epsilon, dtype_hint=tf.float64), tf.float64
        )
        found = self.moments if start_at_zero else self.to_normalize()
        return [
            standardize(value, *known, epsilon, clip_value, zero_mean, unit_std)
            for value, known in zip(values, found, strict=True)
        ]


def start_moment_stream(
    shapes: Sequence[Sequence[int]],
    rule: Rule,
    setting: Any,
    with_variance: bool = True,
    where: str = "start_moment_stream",
) -> MomentStream:
    """Returns a stream that saw nothing, of means 0 and variances 0.

    Args:
        shapes: the shape of each value, without batch axes.
        rule: see `advance_moment_stream`.
        setting: see `advance_moment_stream`.
        with_variance: whether variances are wanted.
        where: name of the asking function, for the error message.

    Returns:
        The stream.

    Raises:
        ValueError: if `rule` is unknown or `setting` outside its range.

    Example:
        >>> start_moment_stream([[]], "adaptive", 8.0).moments[0].mean.numpy().item()
        0.0
    """
    checks.check_one_of(where, "rule", rule, list(_SETTINGS))
    name, rows = _SETTINGS[rule], []
    if not isinstance(setting, tf.Variable):
        checks.check_positive(where, name, setting)
        checks.check_finite(where, name, setting)
        if rule == "exponential":
            checks.check_within(where, name, setting, 0, 1)
    if rule == "window":
        if setting != int(setting):
            raise ValueError(
                f"`{where}`: `{name}` expected an integer; got {setting!r}; round it"
            )
        rows = [_zeros([int(setting), *shape], with_variance) for shape in shapes]
    return MomentStream(
        count=tf.zeros([], tf.int64),
        mass=tf.zeros([], tf.float64),
        moments=[_zeros(shape, with_variance) for shape in shapes],
        window=rows,
    )


def advance_moment_stream(
    stream: MomentStream,
    values: Sequence[Any],
    rule: Rule,
    setting: Any,
    weights: Any = None,
    where: str = "advance_moment_stream",
) -> MomentStream:
    """Returns the stream after one more batch.

    The batch is first averaged over its leading axes, variance included, by `weights`
    where they are given. Rules:

        exponential: rate = update_rate
        adaptive:    rate = speed / (max(floor(speed), 1) + count)
            mass'    = mass + rate * (1 - mass)
            moments' = merge_moments(moments, batch, rate / mass')
        window:      moments' = pool(the last window_size batches)

    Dividing by the mass makes the first share 1, so that the moments are those of the
    batches alone, not of a start at 0. With `speed` s the batch t of T weighs about as
    (t / T)^(s - 1): 1 is the plain average of batches, more forgets the early ones.

    In a replica of `tf.distribute` the batch is that of all replicas. A batch without
    rows, or of weight 0, changes nothing, and neither does one that holds NaN or an
    infinity: what one such value touched would be NaN for ever. (Nor does one whose
    mean exceeds 1e150 or whose variance exceeds 1e300, squares of which float64 cannot
    hold.) No gradient flows through the result.

    Args:
        stream: what `start_moment_stream` or this function returned.
        values: for each value of the stream `[..., *shape]`, floating.
        rule: "exponential", "adaptive" or "window".
        setting: `update_rate` in (0, 1], `speed` > 0 or `window_size`; scalar.
        weights: `[...]`, not negative, how often each row of every value counts within
            its batch; bools are a mask, None is 1. What has weight 0 is not looked at.
        where: name of the asking function, for the error message.

    Returns:
        The new stream.

    Raises:
        TypeError: if `stream` is none, a value is not floating or `setting` no number.
        ValueError: if `rule` is unknown, there are more or fewer values than the stream
            has, the shape of a value does not end in that of its moments, or that of
            `weights` is another than its beginning.

    Example:
        >>> half = {"rule": "exponential", "setting": 0.5}
        >>> stream = start_moment_stream([[]], **half)
        >>> for batch in (tf.constant([1.0, 3.0]), tf.constant([5.0, 5.0])):
        ...     stream = advance_moment_stream(stream, [batch], **half)
        >>> round(float(stream.moments[0].mean), 4)
        4.0
    """
    checks.check_one_of(where, "rule", rule, list(_SETTINGS))
    values = [tf.stop_gradient(value) for value in _checked(where, stream, values)]
    if weights is not None:
        weights = tf.stop_gradient(checks.as_tensor(where, "weights", weights))
        for value, kept in zip(values, stream.moments, strict=True):
            outer = value.shape[: value.shape.rank - kept.mean.shape.rank]
            if not weights.shape.is_compatible_with(outer):
                raise ValueError(
                    f"`{where}`: `weights` expected the batch shape of `values` "
                    f"{outer}; got {weights.shape}; give one for each row"
                )
    if not tf.is_tensor(setting):
        # 0.1 must not pass by float32.
        setting = checks.as_tensor(where, "setting", setting, dtype_hint=tf.float64)
    setting = tf.cast(setting, tf.float64)
    context = tf.distribute.get_replica_context()
    replicated = context is not None and context.num_replicas_in_sync > 1
    # Replicas talk to each other in their own context only, not in a nested function.
    advance = _advance if replicated else _compiled_advance
    return advance(stream, values, weights, setting, rule)


def _checked(where: str, stream: Any, values: Sequence[Any]) -> list[tf.Tensor]:
    """The values of a stream as tensors."""
    if not isinstance(stream, MomentStream):
        raise TypeError(
            f"`{where}`: `stream` expected a `MomentStream`; got "
            f"{type(stream).__name__}; make one by `start_moment_stream`"
        )
    if not isinstance(values, list | tuple) or len(values) != len(stream.moments):
        raise (ValueError if isinstance(values, list | tuple) else TypeError)(
            f"`{where}`: `values` expected a list of {len(stream.moments)}, one for "
            f"each value of the stream; got {reprlib.repr(values)}"
        )
    tensors = [operands.floating(where, "values", value) for value in values]
    for tensor, kept in zip(tensors, stream.moments, strict=True):
        operands.axes_before(where, "values", tensor, kept.mean.shape)
    return tensors


def _zeros(shape: Sequence[int], with_variance: bool) -> Moments:
    zeros = tf.zeros(shape, tf.float64)
    return Moments(zeros, zeros if with_variance else ())


def _advance(
    stream: MomentStream,
    values: list[tf.Tensor],
    weights: tf.Tensor | None,
    setting: tf.Tensor,
    rule: Rule,
) -> MomentStream:
    with_variance = not isinstance(stream.moments[0].variance, tuple)
    batches = [
        _batch_moments(value, kept.mean.shape.rank, weights, with_variance)
        for value, kept in zip(values, stream.moments, strict=True)
    ]
    counts, batch = zip(*_pooled_over_replicas(batches), strict=True)
    # NaN is not less than anything.
    usable = [count > 0 for count in counts]
    for own in batch:
        for part, bound in zip(tf.nest.flatten(own), (1e150, 1e300), strict=False):
            usable.append(tf.reduce_all(tf.abs(part) <= bound))
    learned = _with_window if rule == "window" else _with_rate
    return tf.cond(
        tf.reduce_all(tf.stack(usable)),
        lambda: learned(stream, batch, setting, rule),
        lambda: stream,
    )


_compiled_advance = compile.compiled(static=("rule",))(_advance)


def _with_rate(
    stream: MomentStream, batch: Sequence[Moments], rate: tf.Tensor, rule: Rule
) -> MomentStream:
    if rule == "adaptive":
        start = tf.maximum(tf.floor(rate), 1)
        rate = rate / (start + tf.cast(stream.count, tf.float64))
    mass = stream.mass + rate * (1 - stream.mass)
    share = tf.math.divide_no_nan(rate, mass)
    merged = [
        merge_moments(old, new, share)
        for old, new in zip(stream.moments, batch, strict=True)
    ]
    return stream._replace(count=stream.count + 1, mass=mass, moments=merged)


def _with_window(
    stream: MomentStream, batch: Sequence[Moments], *_: Any
) -> MomentStream:
    size = tf.shape(stream.window[0].mean, tf.int64)[0]
    slot, count = [[stream.count % size]], stream.count + 1
    window = tf.nest.map_structure(
        lambda rows, row: tf.tensor_scatter_nd_update(rows, slot, row[tf.newaxis]),
        stream.window,
        list(batch),
    )
    filled = tf.cast(tf.range(size) < count, tf.float64)
    pooled = [_pooled(rows, filled) for rows in window]
    return stream._replace(count=count, moments=pooled, window=window)
