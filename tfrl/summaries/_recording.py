"""When summaries are recorded, under which names, and how they are written.

What is here decides and writes; whether TensorFlow records at all is asked once, at the
door of the public functions, by `when_recording`.
"""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.scalar import summary_v2 as scalar_summary

from tfrl._internal import checks
from tfrl.core import context
from tfrl.ops import gradients

_BUCKETS = 30
_HISTOGRAM = histogram_summary.histogram_pb("", []).value[0].metadata
_SCALAR = scalar_summary.scalar_pb("", 0.0).value[0].metadata


def is_recording() -> bool | None:
    """Whether summaries are recorded now; None if only the graph will know."""
    known = tf.get_static_value(tf.summary.should_record_summaries())
    return None if known is None else bool(known)


def has_writer() -> bool:
    """Whether summaries would be written if they were recorded."""
    with tf.summary.record_if(True):
        return is_recording() is not False


def when_recording(record: Callable[[], None]) -> None:
    """Calls `record` where summaries are recorded, and computes nothing elsewhere.

    In a graph, what `record` makes lies in a branch that is not run otherwise; without
    a writer, or under `tf.summary.record_if(False)`, nothing enters the graph.
    """

    def ungated() -> None:
        # Asked once is enough: the condition may be a function of the step.
        with tf.summary.record_if(True):
            record()

    when(tf.summary.should_record_summaries(), ungated)


def when(condition: tf.Tensor, record: Callable[[], None]) -> None:
    """Calls `record` if a scalar bool says so, in a graph within `tf.cond`."""
    known = tf.get_static_value(condition)
    if known is not None:
        if known:
            record()
        return
    scope = tf.get_current_name_scope()

    def branch() -> bool:
        # The branch has a scope of its own, which is not to be seen in the tags.
        with in_scope(scope):
            record()
        return True

    tf.cond(condition, branch, lambda: False)


def in_scope(scope: str) -> contextlib.AbstractContextManager[Any]:
    """Enters the very scope that `tf.get_current_name_scope` returned."""
    return tf.name_scope(f"{scope}/" if scope else "")


def current_step(where: str) -> Any:
    """The step of TensorFlow's summaries, a number or a tensor."""
    step = context.followed(tf.summary.experimental.get_step)
    if step is None:
        raise ValueError(
            f"`{where}`: expected a step of the summaries; got none; call "
            "tf.summary.experimental.set_step(variable) before"
        )
    return step


def call_site(depth: int) -> tuple[str, int]:
    """File and line from which the function `depth` calls above this one was called."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame.f_back if frame else None
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def named_leaves(prefix: str, nest: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a nest in the order of `tf.nest`, each with its tag.

    A tag is the prefix, a slash and the path, joined by dots; a nest that is a leaf
    itself has the prefix as its tag.
    """
    for path, leaf in _paths("", nest):
        yield f"{prefix}/{path}" if path else prefix, leaf


def _paths(path: str, nest: Any) -> Iterator[tuple[str, Any]]:
    parts: list[tuple[Any, Any]]
    if isinstance(nest, Mapping):
        parts = [(key, nest[key]) for key in sorted(nest)]
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        parts = list(zip(nest._fields, nest, strict=True))
    elif isinstance(nest, list | tuple):
        parts = list(enumerate(nest))
    elif hasattr(nest, "__attrs_attrs__"):
        names = [attribute.name for attribute in nest.__attrs_attrs__]
        parts = [(name, getattr(nest, name)) for name in names]
    elif hasattr(nest, "__tf_flatten__"):
        # Rebuilt around markers, the node shows which attribute holds which part.
        static, data = nest.__tf_flatten__()
        marks = tuple(object() for _ in data)
        held = vars(type(nest).__tf_unflatten__(static, marks)).items()
        owners = {id(mark): key for key, mark in held}
        parts = [(owners[id(m)], x) for m, x in zip(marks, data, strict=True)]
    else:
        yield path, nest
        return
    for key, part in parts:
        yield from _paths(f"{path}.{key}" if path else str(key), part)


def numbers(where: str, name: str, value: Any) -> tf.Tensor:
    """The value as a tensor of real numbers; sparse gradients become dense."""
    tensor = checks.as_tensor(where, name, value)
    if tensor.dtype.is_complex:
        raise TypeError(
            f"`{where}`: `{name}` expected real numbers; got {tensor.dtype.name}"
        )
    return tensor


def write_mean(tag: str, values: tf.Tensor) -> None:
    """Writes the mean, of integers and halves in float32."""
    wide = values if values.dtype == tf.float64 else tf.cast(values, tf.float32)
    tf.summary.scalar(tag, tf.reduce_mean(wide))


def write_mean_and_histogram(tag: str, values: tf.Tensor) -> None:
    """Writes `<tag>/value`, a histogram of finite values, and `<tag>/mean`."""
    write_histogram(f"{tag}/value", values)
    write_mean(f"{tag}/mean", values)


def write_norm(tag: str, values: tf.Tensor, with_histogram: bool) -> None:
    """Writes `<tag>`, a histogram of finite values, and `<tag>_norm`."""
    if with_histogram:
        write_histogram(tag, values)
    floats = values if values.dtype.is_floating else tf.cast(values, tf.float32)
    tf.summary.scalar(f"{tag}_norm", gradients.global_norm([floats]))


def write_histogram(
    tag: str,
    values: tf.Tensor,
    low: Any = None,
    high: Any = None,
    count: int = _BUCKETS,
    step: Any = None,
) -> None:
    """Writes how many values lie in each of `count` equal parts of [low, high].

    Values beyond count as the nearest end. Nothing is written of no values, or where
    one of them is not finite after that. TensorBoard's own histogram needs memory for
    `count` float64 of each value.
    """
    low = tf.cast(-math.inf if low is None else low, tf.float64)
    high = tf.cast(math.inf if high is None else high, tf.float64)
    flat = tf.reshape(tf.cast(values, tf.float64), [-1])
    buckets, is_complete = _buckets(flat, low, high, count)

    def record() -> None:
        with tf.summary.experimental.summary_scope(tag, values=[buckets]) as (name, _):
            tf.summary.write(name, buckets, step, _HISTOGRAM)

    when(is_complete, record)


def write_each(tags: tf.Tensor, values: tf.Tensor) -> None:
    """Writes one scalar per tag, where the tags are known at run time only."""
    scope = tf.get_current_name_scope()
    if scope:
        tags = tf.strings.join([f"{scope}/", tags])

    def write(index: tf.Tensor) -> tuple[tf.Tensor]:
        value = tf.cast(values[index], tf.float32)
        tf.summary.write(tags[index], value, metadata=_SCALAR)
        return (index + 1,)

    tf.while_loop(lambda index: index < tf.size(tags), write, (tf.constant(0),))


# One trace for all histograms: made anew for each, it is most of the time in which a
# graph is built.
@functools.partial(
    tf.function,
    input_signature=[
        tf.TensorSpec([None], tf.float64),
        tf.TensorSpec([], tf.float64),
        tf.TensorSpec([], tf.float64),
        tf.TensorSpec([], tf.int32),
    ],
    autograph=False,
)
def _buckets(
    values: tf.Tensor, low: tf.Tensor, high: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows of lower edge, upper edge and count, and whether all values are in them."""
    inside = tf.clip_by_value(values, low, high)
    first = tf.where(tf.math.is_inf(low), tf.reduce_min(inside), low)
    last = tf.where(tf.math.is_inf(high), tf.reduce_max(inside), high)
    edges = tf.linspace(first, last, count + 1)
    indices = tf.searchsorted(edges[1:-1], inside, side="right")
    counts = tf.math.bincount(indices, minlength=count, maxlength=count)
    are_finite = tf.math.is_finite(inside) & ~tf.math.is_nan(values)
    is_complete = tf.reduce_all(are_finite) & (tf.size(values) > 0)
    columns = [edges[:-1], edges[1:], tf.cast(counts, tf.float64)]
    return tf.stack(columns, axis=1), is_complete
