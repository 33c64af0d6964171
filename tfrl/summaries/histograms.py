"""Histogram summaries of numbers, actions and the parameters of distributions."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks
from tfrl.core import specs
from tfrl.distributions import cauchy, modes, squashed, truncated
from tfrl.summaries import _recording

tfd = tfp.distributions

_MOST_BUCKETS = 1 << 20
_LOCATION_SCALE = (
    tfd.Normal,
    cauchy.StableCauchy,
    squashed.SquashedNormal,
    truncated.TruncatedDistribution,
)


def histogram_continuous(
    name: str,
    data: Any,
    bucket_min: Any = None,
    bucket_max: Any = None,
    bucket_count: int = 30,
    step: Any = None,
) -> None:
    """Records how numbers are spread over buckets of equal width.

        edge k = bucket_min + k / bucket_count * (bucket_max - bucket_min)

    Numbers beyond the range count in the bucket at that end. Nothing is recorded of
    data that is empty or, so limited, not finite. Not to be compiled by XLA, which
    cannot write summaries.

    Args:
        name: tag.
        data: numbers of any shape and dtype; counted in float64.
        bucket_min: lower end of the range, None for the least of `data`.
        bucket_max: upper end, None for the greatest.
        bucket_count: number of buckets.
        step: step of this point; None for that of `tf.summary.experimental.get_step`.

    Raises:
        TypeError: if `bucket_count` is no int.
        ValueError: if `bucket_count` is not in [1, 1048576], or a known `bucket_max`
            below `bucket_min`; also by TensorFlow if there is a writer but no step.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         histogram_continuous("td_error", tf.random.normal([256]), -3.0, 3.0)
    """
    where = "histogram_continuous"
    count = checks.check_whole_number(
        where, "bucket_count", bucket_count, low=1, high=_MOST_BUCKETS
    )
    _check_ends(where, bucket_min, bucket_max)

    def record() -> None:
        values = _recording.numbers(where, "data", data)
        _recording.write_histogram(name, values, bucket_min, bucket_max, count, step)

    _recording.when_recording(record)


def histogram_discrete(
    name: str, data: Any, bucket_min: int, bucket_max: int, step: Any = None
) -> None:
    """Records how often each of the integers from `bucket_min` to `bucket_max` occurs.

    Bucket k reaches from k - 0.5 to k + 0.5; other integers are not counted. Not to be
    compiled by XLA, which cannot write summaries.

    Args:
        name: tag.
        data: integers or bools of any shape.
        bucket_min: the least integer counted.
        bucket_max: the greatest one.
        step: step of this point; None for that of `tf.summary.experimental.get_step`.

    Raises:
        TypeError: if a bound is no int, or `data` has other numbers.
        ValueError: if `bucket_max` is below `bucket_min`, or more than 1,048,575 above
            it; also by TensorFlow if there is a writer but no step.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         histogram_discrete("action", tf.constant([0, 1, 1, 3]), 0, 3)
    """
    where = "histogram_discrete"
    for end, value in (("bucket_min", bucket_min), ("bucket_max", bucket_max)):
        checks.check_whole_number(where, end, value, low=-(2**53))
    _check_ends(where, bucket_min, bucket_max)
    _check_count(where, "bucket_max", bucket_max, bucket_min)
    _recording.when_recording(
        lambda: _write_discrete(where, name, data, bucket_min, bucket_max, step)
    )


def summarize_action(actions: Any, action_specs: Any, name: str = "action") -> None:
    """Records histograms of actions over the ranges of their specs.

    Discrete actions are counted one by one under `<name>/<i>`, where i counts the
    leaves. Of continuous ones, each dimension d has a histogram
    `<name>/<i>/<d>/value` and a mean `<name>/<i>/<d>/mean`; an infinite or missing
    bound gives way to the least or greatest action. Leaves whose spec has more than one
    axis are left out. Not to be compiled by XLA.

    Args:
        actions: nest of `[..., *shape]`.
        action_specs: the same nest of specs, bounded where actions are discrete.
        name: first part of the tags.

    Raises:
        TypeError: if one of `action_specs` is no spec.
        ValueError: if the nests differ, or the spec of a discrete action has no bounds,
            or some that are more than 1,048,575 apart.

    Example:
        >>> import tempfile
        >>> spec = tfrl.core.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_action(tf.zeros([8, 2]), spec)
    """
    where = "summarize_action"
    leaves, leaf_specs = tf.nest.flatten(actions), tf.nest.flatten(action_specs)
    try:
        tf.nest.assert_same_structure(actions, action_specs)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `actions` expected the structure of `action_specs`, a nest of "
            f"{len(leaf_specs)}; got one of {len(leaves)}"
        ) from error
    for spec in leaf_specs:
        expected = "tensor specs, as `spec_from_space` makes them"
        checks.check_type(where, "action_specs", spec, tf.TensorSpec, expected)
        if spec.dtype.is_floating or spec.shape.rank > 1:
            continue
        if not isinstance(spec, specs.BoundedTensorSpec):
            raise ValueError(
                f"`{where}`: `action_specs` expected bounds of discrete actions; got "
                f"{spec}"
            )
        _check_count(where, "action_specs", *_discrete_ends(spec)[::-1])

    def record() -> None:
        for i, (leaf, spec) in enumerate(zip(leaves, leaf_specs, strict=True)):
            if spec.shape.rank <= 1:
                _write_action(f"{name}/{i}", leaf, spec)

    _recording.when_recording(record)


def summarize_distribution(name: str, distributions: Any) -> None:
    """Records histograms and means of what tells distributions apart.

    Of a `Normal`, `SquashedNormal`, `StableCauchy`, `TruncatedDistribution` or `Beta`,
    alone or within `Independent` and `TransformedDistribution`, each dimension d has

        <name>_loc/<i>/<d>/value          <name>_loc/<i>/<d>/mean
        <name>_log_scale/<i>/<d>/value    <name>_log_scale/<i>/<d>/mean

    where i counts the leaves; of a `Beta`, loc is the mean and log_scale the logarithm
    of the standard deviation; of a truncated one both are those before truncation. The
    last axis is that of dimensions; what has a single axis, a batch, is one dimension.
    Tensors stand for what is certain: they have no `log_scale`. Other distributions are
    left out. Not to be compiled by XLA.

    Args:
        name: first part of the tags.
        distributions: nest of distributions and tensors.

    Raises:
        ValueError: if the size of the last axis is not known.

    Example:
        >>> import tempfile
        >>> policy = tfrl.distributions.DiagMultivariateNormal(
        ...     tf.zeros([8, 2]), tf.ones([8, 2]))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_distribution("policy", policy)
    """

    def record() -> None:
        for i, leaf in enumerate(tf.nest.flatten(distributions)):
            for part, values in _location_and_scale(leaf).items():
                for d, column in enumerate(_columns(values)):
                    tag = f"{name}_{part}/{i}/{d}"
                    _recording.write_mean_and_histogram(tag, column)

    _recording.when_recording(record)


def _check_ends(where: str, low: Any, high: Any) -> None:
    ends = (low, high)
    for name, end in zip(("bucket_min", "bucket_max"), ends, strict=True):
        if end is not None:
            checks.as_tensor(where, name, end)
    if any(end is None or tf.is_symbolic_tensor(end) for end in ends):
        return
    if not high >= low:
        raise ValueError(
            f"`{where}`: `bucket_max` expected at least `bucket_min` {low}; got {high}"
        )


def _check_count(where: str, name: str, high: int, low: int) -> None:
    count = int(high) - int(low) + 1
    if count > _MOST_BUCKETS:
        raise ValueError(
            f"`{where}`: `{name}` expected bounds of {_MOST_BUCKETS} buckets at most; "
            f"got {low} and {high}"
        )


def _discrete_ends(spec: specs.BoundedTensorSpec) -> tuple[int, int]:
    return int(spec.minimum.min()), int(spec.maximum.max())


def _write_discrete(
    where: str, name: str, data: Any, low: int, high: int, step: Any
) -> None:
    values = _recording.numbers(where, "data", data)
    if values.dtype.is_floating:
        raise TypeError(
            f"`{where}`: `data` expected integers; got {values.dtype.name}; "
            "use `histogram_continuous`"
        )
    values = tf.reshape(tf.cast(values, tf.int64), [-1])
    values = tf.boolean_mask(values, (values >= low) & (values <= high))
    n_buckets = int(high) - int(low) + 1
    _recording.write_histogram(name, values, low - 0.5, high + 0.5, n_buckets, step)


def _write_action(tag: str, action: Any, spec: Any) -> None:
    values = _recording.numbers("summarize_action", "actions", action)
    if not spec.dtype.is_floating:
        low, high = _discrete_ends(spec)
        _write_discrete("summarize_action", tag, values, low, high, step=None)
        return
    ends = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    for d, column in enumerate(_columns(values) if spec.shape.rank else [values]):
        least, most = (_finite(end, d) for end in ends)
        _recording.write_histogram(f"{tag}/{d}/value", column, least, most)
        _recording.write_mean(f"{tag}/{d}/mean", column)


def _finite(bound: Any, d: int) -> float | None:
    if bound is None:
        return None
    number = float(bound.flat[min(d, bound.size - 1)])
    return number if abs(number) < float("inf") else None


def _location_and_scale(leaf: Any) -> dict[str, tf.Tensor]:
    if tf.is_tensor(leaf) and leaf.dtype.is_floating:
        return {"loc": tf.convert_to_tensor(leaf)}
    if not isinstance(leaf, tfd.Distribution):
        return {}
    try:
        base = modes.get_base_dist(leaf)
    except NotImplementedError:
        return {}
    if isinstance(base, _LOCATION_SCALE):
        loc, scale = tf.convert_to_tensor(base.loc), tf.convert_to_tensor(base.scale)
        log_scale = tf.math.log(scale + tf.zeros_like(loc))
        return {"log_scale": log_scale, "loc": loc + tf.zeros_like(scale)}
    if isinstance(base, tfd.Beta):
        return {"log_scale": 0.5 * tf.math.log(base.variance()), "loc": base.mean()}
    return {}


def _columns(values: tf.Tensor) -> list[tf.Tensor]:
    """What the last axis is made of; all of a tensor of less than two axes."""
    rank = values.shape.rank
    if rank is not None and rank < 2:
        return [values]
    if rank is None or values.shape[-1] is None:
        raise ValueError(
            "`summarize`: expected a last axis of known size, that of the dimensions; "
            f"got shape {values.shape}; use tf.ensure_shape"
        )
    return tf.unstack(values, axis=-1)
