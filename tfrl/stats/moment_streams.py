"""Means and variances of a stream of batches, by how much older ones count.

A stream is a record that functions take and return; the normalizers of this room keep
one in variables, `tfrl.layers.RunningNormalization` in the weights of a Keras layer.
"""

import reprlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import compile
from tfrl.stats import _batch_moments

Rule: TypeAlias = Literal["exponential", "adaptive", "window"]

_SETTINGS = {
    "exponential": "update_rate",
    "adaptive": "speed",
    "window": "window_size",
}


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
    moments: list[_batch_moments.Moments]
    window: list[_batch_moments.Moments]

    def to_normalize(self) -> list[_batch_moments.Moments]:
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
        if isinstance(clip_value, int | float) and clip_value <= 0:
            clip_value = None
        # In float64 whatever the dtype of the values: 1e-10 is 0 in float16.
        epsilon = tf.cast(
            tf.convert_to_tensor(variance_epsilon, dtype_hint=tf.float64), tf.float64
        )
        found = self.moments if start_at_zero else self.to_normalize()
        return [
            _batch_moments.standardize(
                value, *known, epsilon, clip_value, zero_mean, unit_std
            )
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
) -> MomentStream:
    """Returns the stream after one more batch.

    The batch is first averaged over its leading axes, variance included, by `weights`
    where they are given. Rules:

        exponential: rate = update_rate
        adaptive:    rate = speed / (max(floor(speed), 1) + count)
            mass'    = mass + rate * (1 - mass)
            moments' = merge_moments(moments, batch, rate / mass')
        window:      moments' = pool_moments(the last window_size batches)

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
    where = "advance_moment_stream"
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


def _zeros(shape: Sequence[int], with_variance: bool) -> _batch_moments.Moments:
    zeros = tf.zeros(shape, tf.float64)
    return _batch_moments.Moments(zeros, zeros if with_variance else ())


def _advance(
    stream: MomentStream,
    values: list[tf.Tensor],
    weights: tf.Tensor | None,
    setting: tf.Tensor,
    rule: Rule,
) -> MomentStream:
    batches = _batch_moments.pool_over_replicas(
        [
            _batch_moments.batch_moments(
                value,
                event_rank=kept.mean.shape.rank,
                weights=weights,
                with_variance=not isinstance(kept.variance, tuple),
            )
            for value, kept in zip(values, stream.moments, strict=True)
        ]
    )
    counts, batch = zip(*batches, strict=True)
    # NaN is not less than anything.
    bounds = [
        tf.reduce_all(tf.abs(part) <= bound)
        for own in batch
        for part, bound in zip(own, (1e150, 1e300), strict=True)
        if not isinstance(part, tuple)
    ]
    usable = tf.reduce_all(tf.stack([count > 0 for count in counts] + bounds))
    rate = setting
    if rule == "adaptive":
        start = tf.maximum(tf.floor(setting), 1)
        rate = setting / (start + tf.cast(stream.count, tf.float64))

    def learned() -> MomentStream:
        if rule == "window":
            return _with_window(stream, batch)
        return _with_rate(stream, batch, rate)

    return tf.cond(usable, learned, lambda: stream)


_compiled_advance = compile.compiled(static=("rule",))(_advance)


def _with_rate(
    stream: MomentStream, batch: Sequence[_batch_moments.Moments], rate: tf.Tensor
) -> MomentStream:
    mass = stream.mass + rate * (1 - stream.mass)
    share = tf.math.divide_no_nan(rate, mass)
    merged = [
        _batch_moments.merge_moments(old, new, share)
        for old, new in zip(stream.moments, batch, strict=True)
    ]
    return stream._replace(count=stream.count + 1, mass=mass, moments=merged)


def _with_window(
    stream: MomentStream, batch: Sequence[_batch_moments.Moments]
) -> MomentStream:
    size = tf.shape(stream.window[0].mean, tf.int64)[0]
    slot, count = [[stream.count % size]], stream.count + 1
    window = tf.nest.map_structure(
        lambda rows, row: tf.tensor_scatter_nd_update(rows, slot, row[tf.newaxis]),
        stream.window,
        list(batch),
    )
    filled = tf.cast(tf.range(size) < count, tf.float64)
    pooled = [_batch_moments.pool_moments(rows, filled) for rows in window]
    return stream._replace(count=count, moments=pooled, window=window)
