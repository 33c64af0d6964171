"""Timing summaries: how long parts of a program take."""

import contextlib
import threading
import time
from collections.abc import Hashable

import tensorflow as tf

from tfrl.summaries import _recording

# By place in the program: the step of the last point, and seconds measured since.
_INTERVALS: dict[Hashable, tuple[int, float]] = {}
_LOCK = threading.Lock()


def record_time(tag: str) -> contextlib.AbstractContextManager[None]:
    """Measures the seconds per step that a part of the program takes.

        point at step s = seconds spent inside since the last point / (s - its step)

    For `with`, once or again and again, and as a decorator of a function. Every place
    in the program counts for itself, also with equal tags. A point is made at the end
    of the first measurement that is recorded (`tf.summary.record_if`) at a later step
    than the last one, so count the step inside or between measurements. The time
    includes that which devices need for what was started inside, and no other: they
    are waited for at both ends (`tf.test.experimental.sync_devices`). Without a writer
    nothing is measured and nothing waited for. What ends by an exception does not
    count.

    Args:
        tag: of the points.

    Returns:
        A context manager and decorator.

    Raises:
        ValueError: on entering, if there is a writer and no step, or inside a
            `tf.function`, which would only measure how it is traced.

    Example:
        >>> import tempfile
        >>> step = tf.Variable(0, dtype=tf.int64)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=step):
        ...         for _ in range(3):
        ...             with record_time("time/update"):
        ...                 _ = tf.random.normal([64, 64]) @ tf.random.normal([64, 64])
        ...             _ = step.assign_add(1)
    """
    return _Measurement(tag, (_recording.call_site(1), tag))


class _Measurement(contextlib.ContextDecorator):
    """Measures from each entry to the exit that belongs to it, in every thread."""

    def __init__(self, tag: str, key: Hashable) -> None:
        self._tag, self._key = tag, key
        self._local = threading.local()

    def __enter__(self) -> None:
        start = None
        if _recording.has_writer():
            if not tf.executing_eagerly():
                raise ValueError(
                    "`record_time`: expected to be entered outside of a tf.function; "
                    f"got {self._tag!r} inside of one; measure the call of the function"
                )
            _begin(self._key, int(_recording.current_step("record_time")))
            tf.test.experimental.sync_devices()
            start = time.perf_counter()
        self._local.__dict__.setdefault("starts", []).append(start)

    def __exit__(self, kind: object, *_: object) -> None:
        start = self._local.starts.pop()
        if start is not None and kind is None:
            tf.test.experimental.sync_devices()
            _end(self._tag, self._key, time.perf_counter() - start)


def _begin(key: Hashable, step: int) -> None:
    with _LOCK:
        known = _INTERVALS.get(key)
        # A step that went back belongs to another run.
        if known is None or step < known[0]:
            _INTERVALS[key] = step, 0.0


def _end(tag: str, key: Hashable, seconds: float) -> None:
    step = int(_recording.current_step("record_time"))
    with _LOCK:
        first, before = _INTERVALS[key]
        seconds += before
        if step <= first or not _recording.is_recording():
            _INTERVALS[key] = first, seconds
            return
        _INTERVALS[key] = step, 0.0
    tf.summary.scalar(tag, seconds / (step - first))
