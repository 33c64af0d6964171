"""Scalar summaries of batches, losses and their parts, and when they are recorded.

XLA cannot write summaries: record outside what a compiled function returns.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import pytree
from tfrl.distribute import per_process
from tfrl.summaries import _recording

_R = TypeVar("_R")
_Writer = Callable[[str, tf.Tensor], None]


def run_under_record_context(
    func: Callable[[], _R],
    summary_dir: str | os.PathLike[str],
    summary_interval: int,
    flush_secs: float,
    summarize_first_interval: bool = True,
    summary_max_queue: int = 10,
) -> _R:
    """Calls a function while TensorFlow's summaries are recorded at an interval.

        recorded at step s:  s mod interval = 0, or s < interval if the first one counts

    The step is that of `tf.summary.experimental.set_step`: give it an int64
    `tf.Variable` and count there, so that `tf.function`s see it move. Of several
    processes only that of rank 0 writes (`tfrl.distribute.PerProcessContext`).

    Args:
        func: what to run, without arguments.
        summary_dir: where the event file goes; `~` is the home folder.
        summary_interval: how many steps from one recorded step to the next.
        flush_secs: after how many seconds points are written to the disk at the latest.
        summarize_first_interval: whether every step of the first interval is recorded.
        summary_max_queue: how many points wait for the disk at most.

    Returns:
        What `func` returned.

    Raises:
        TypeError: if `summary_interval` or `summary_max_queue` is no int.
        ValueError: if one of the numbers is not positive and finite, or `summary_dir`
            cannot be written; while `func` runs, if it records and has set no step.

    Example:
        >>> import tempfile
        >>> def train():
        ...     step = tf.Variable(0, dtype=tf.int64)
        ...     tf.summary.experimental.set_step(step)
        ...     recorded = []
        ...     for _ in range(5):
        ...         if tf.summary.should_record_summaries():
        ...             recorded.append(int(step))
        ...         step.assign_add(1)
        ...     return recorded
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     run_under_record_context(
        ...         train, directory, 2, flush_secs=10, summarize_first_interval=False)
        [0, 2, 4]
        >>> tf.summary.experimental.set_step(None)
    """
    where = "run_under_record_context"
    check = checks.check_whole_number
    checks.check_type(where, "func", func, Callable, "a function without arguments")
    checks.as_path(where, "summary_dir", summary_dir)
    interval = check(where, "summary_interval", summary_interval, low=1)
    queue = check(where, "summary_max_queue", summary_max_queue, low=1)
    checks.check_positive(where, "flush_secs", flush_secs)
    checks.check_finite(where, "flush_secs", flush_secs)
    if per_process.PerProcessContext().ddp_rank > 0:
        return func()

    def is_recorded() -> Any:
        step = _recording.current_step(where)
        recorded = tf.equal(step % interval, 0)
        return recorded | (step < interval) if summarize_first_interval else recorded

    folder = os.path.expanduser(summary_dir)
    try:
        writer = tf.summary.create_file_writer(
            folder, queue, flush_millis=int(1000 * flush_secs)
        )
    except tf.errors.OpError as error:
        raise ValueError(
            f"`{where}`: `summary_dir` expected a folder that can be made and written; "
            f"got {folder}"
        ) from error
    try:
        with writer.as_default(), tf.summary.record_if(is_recorded):
            return func()
    finally:
        writer.close()


def add_mean_summary(name: str, value: Any) -> None:
    """Records the mean of numbers under `name`.

    Nothing is computed where nothing is recorded. Not to be compiled by XLA, which
    cannot write summaries.

    Args:
        name: tag.
        value: numbers of any shape. Of integers and halves the mean is in float32; of
            no numbers at all it is nan (see `safe_mean_summary`).

    Raises:
        TypeError: if `value` has other contents than real numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         add_mean_summary("rollout/rewards", tf.constant([0.0, 1.0]))
    """
    _write("add_mean_summary", _recording.write_mean, name, value)


def add_mean_hist_summary(name: str, value: Any) -> None:
    """Records the mean of numbers under `<name>/mean`, a histogram as `<name>/value`.

    The histogram has 30 buckets from the least to the greatest number, and is left out
    where a number is not finite. Gated as `add_mean_summary`; not to be compiled by
    XLA.

    Args:
        name: first part of the tags.
        value: numbers of any shape. Of no numbers at all the mean is nan, and there is
            no histogram (see `safe_mean_hist_summary`).

    Raises:
        TypeError: if `value` has other contents than real numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         add_mean_hist_summary("advantages", tf.random.normal([256]))
    """
    write = _recording.write_mean_and_histogram
    _write("add_mean_hist_summary", write, name, value)


def safe_mean_summary(name: str, value: Any, mask: Any = None) -> None:
    """Records the mean of those numbers that count, nothing if none does.

    Gated as `add_mean_summary`; not to be compiled by XLA.

    Args:
        name: tag.
        value: numbers of any shape, maybe none.
        mask: bools of the same shape, True where a number counts; None for everywhere.

    Raises:
        TypeError: if `value` has other contents than real numbers.
        ValueError: if the shapes differ.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         safe_mean_summary(
        ...             "returns", tf.constant([3.0, 0.0]), tf.constant([True, False]))
    """
    _safely("safe_mean_summary", _recording.write_mean, name, value, mask)


def safe_mean_hist_summary(name: str, value: Any, mask: Any = None) -> None:
    """Records mean and histogram of those numbers that count, nothing if none does.

    As `add_mean_hist_summary` otherwise.

    Args:
        name: first part of the tags.
        value: numbers of any shape, maybe none.
        mask: bools of the same shape, True where a number counts; None for everywhere.

    Raises:
        TypeError: if `value` has other contents than real numbers.
        ValueError: if the shapes differ.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         safe_mean_hist_summary("returns", tf.zeros([0]))
    """
    write = _recording.write_mean_and_histogram
    _safely("safe_mean_hist_summary", write, name, value, mask)


def add_nested_summaries(prefix: str, data: Any) -> None:
    """Records the tensors of a nest as scalars under `<prefix>/<path>`.

    A path joins keys and field names by dots: `{"b": {"c": x}}` gives `<prefix>/b.c`.
    Of a tensor of several numbers the mean is recorded. Leaves which are no tensors or
    variables of numbers are left out. Gated as `add_mean_summary`; not to be compiled
    by XLA.

    Args:
        prefix: first part of the tags.
        data: dictionary or NamedTuple, nested.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         add_nested_summaries("train", {"entropy": tf.constant(0.5)})
    """
    _recording.when_recording(lambda: _write_nested(prefix, data))


def summarize_nest(prefix: str, nest: Any) -> None:
    """Records mean and histogram of every tensor of a nest.

    The tags are `<prefix>/<path>/mean` and `<prefix>/<path>/value`, where a path joins
    keys, field names and indices by dots. As `add_mean_hist_summary` otherwise.

    Args:
        prefix: first part of the tags.
        nest: of tensors, variables or arrays; None leaves are left out.

    Raises:
        TypeError: if a leaf has other contents than real numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_nest("observation", {"position": tf.zeros([8, 2])})
    """

    def record() -> None:
        for tag, leaf in _recording.named_leaves(prefix, nest):
            if leaf is not None:
                values = _recording.numbers("summarize_nest", "nest", leaf)
                _recording.write_mean_and_histogram(tag, values)

    _recording.when_recording(record)


def summarize_loss(loss_info: Any) -> None:
    """Records a loss as `loss` and its parts as `loss/<path>`.

    As of `add_nested_summaries`; a loss per element is recorded by its mean.

    Args:
        loss_info: a `LossInfo`, or anything with its two attributes. A `loss` of None
            or `()` is left out, and so is an `extra` which is no dictionary or
            NamedTuple.

    Example:
        >>> import tempfile
        >>> info = tfrl.core.LossInfo(tf.constant([0.5]), {"entropy": tf.constant(1.0)})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_loss(info)
    """
    if not (hasattr(loss_info, "loss") and hasattr(loss_info, "extra")):
        raise checks.wrong_type("summarize_loss", "loss_info", loss_info, "a LossInfo")
    loss, extra = loss_info.loss, loss_info.extra

    def record() -> None:
        if loss is not None and not isinstance(loss, tuple):
            values = _recording.numbers("summarize_loss", "loss_info", loss)
            _recording.write_mean("loss", values)
        if isinstance(extra, Mapping | pytree.PyTreeNode) or hasattr(extra, "_fields"):
            _write_nested("loss", extra)

    _recording.when_recording(record)


def summarize_per_category_loss(
    loss_info: Any,
    summarize_count: bool = False,
    label_names: Sequence[str] | None = None,
) -> None:
    """Records the mean loss of every category that occurs.

        loss/loss_for_category_<c> = mean of the losses whose label is c

    and, if asked for, `loss/sample_count_for_category_<c>`. Gated as
    `add_mean_summary`; not to be compiled by XLA.

    Args:
        loss_info: has `loss`, `[T, B]` or `[B]`, and `batch_label`, integers of the
            same shape: as an attribute of its own, or under that name in its `extra`.
            Nothing is recorded without labels.
        summarize_count: whether to record how many samples each category has.
        label_names: names of the categories 0, 1, ...; None for the numbers.

    Raises:
        ValueError: if the shapes differ, or, as far as is known, a label has no name.
        TypeError: if labels are not integers.

    Example:
        >>> import tempfile
        >>> info = tfrl.core.LossInfo(
        ...     tf.constant([1.0, 3.0, 5.0]), {"batch_label": tf.constant([0, 1, 1])})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_per_category_loss(info, label_names=["walk", "run"])
    """
    where, extra = "summarize_per_category_loss", getattr(loss_info, "extra", ())
    labels = getattr(loss_info, "batch_label", ())
    if isinstance(labels, tuple) and isinstance(extra, Mapping):
        labels = extra.get("batch_label", ())
    if labels is None or isinstance(labels, tuple):
        return
    checks.check_same_shape(where, loss=loss_info.loss, batch_label=labels)

    def record() -> None:
        losses = _recording.numbers(where, "loss", loss_info.loss)
        losses = tf.reshape(tf.cast(losses, tf.float32), [-1])
        numbers = tf.reshape(_recording.numbers(where, "batch_label", labels), [-1])
        if not numbers.dtype.is_integer:
            raise TypeError(
                f"`{where}`: `batch_label` expected integers; got {numbers.dtype.name}"
            )
        found, indices, counts = tf.unique_with_counts(numbers)
        means = tf.math.unsorted_segment_mean(losses, indices, tf.size(found))
        names = _category_names(where, found, label_names)
        _recording.write_each("loss/loss_for_category_" + names, means)
        if summarize_count:
            _recording.write_each("loss/sample_count_for_category_" + names, counts)

    _recording.when_recording(record)


def _write(where: str, write: _Writer, name: str, value: Any) -> None:
    _recording.when_recording(
        lambda: write(name, _recording.numbers(where, "value", value))
    )


def _safely(where: str, write: _Writer, name: str, value: Any, mask: Any) -> None:
    if mask is not None:
        checks.check_same_shape(where, value=value, mask=mask)

    def record() -> None:
        values = _recording.numbers(where, "value", value)
        if mask is not None:
            kept = tf.reshape(tf.cast(mask, tf.bool), [-1])
            values = tf.boolean_mask(tf.reshape(values, [-1]), kept)
        _recording.when(tf.size(values) > 0, lambda: write(name, values))

    _recording.when_recording(record)


def _write_nested(prefix: str, data: Any) -> None:
    for tag, leaf in _recording.named_leaves(prefix, data):
        if tf.is_tensor(leaf) or isinstance(leaf, keras.Variable):
            values = tf.convert_to_tensor(leaf)
            if values.dtype.is_floating or values.dtype.is_integer:
                _recording.write_mean(tag, values)


def _category_names(
    where: str, labels: tf.Tensor, names: Sequence[str] | None
) -> tf.Tensor:
    if names is None:
        return tf.strings.as_string(labels)
    known = tf.get_static_value(labels)
    beyond = [] if known is None else known[(known < 0) | (known >= len(names))]
    if len(beyond):
        raise ValueError(
            f"`{where}`: `label_names` expected a name for each label; got "
            f"{len(names)} names and the label {beyond[0]}"
        )
    return tf.gather(tf.constant(list(names)), labels)
