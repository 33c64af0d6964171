"""A line through points, with jumps where two points have the same time."""

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import compile


class Polyline:
    """The function that joins points by straight lines and is flat outside of them.

        f(t) = v[i] + (v[i + 1] - v[i]) * (t - t[i]) / (t[i + 1] - t[i]),
        t[i] <= t < t[i + 1]

    At a time that several points have it takes the value of the last one.

    Args:
        points: pairs (time, value) of finite numbers, at least one, times ascending.

    Example:
        >>> jump = Polyline([(0, 1.0), (10, 0.5), (10, 0.1)])
        >>> jump(-1.0), jump(5.0), jump(10.0), jump(11.0)
        (1.0, 0.75, 0.1, 0.1)
        >>> jump(tf.constant(5.0)).numpy()
        np.float32(0.75)
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self._times = [float(time) for time, _ in points]
        self._values = [float(value) for _, value in points]
        # A row for each number of points passed: flat before the first, after the
        # last, and between points of the same time, where no progress ever is.
        starts = np.array([self._times[0], *self._times])
        firsts = np.array([self._values[0], *self._values])
        lengths = np.append(np.diff(starts), 0.0)
        rises = np.append(np.diff(firsts), 0.0)
        flat = lengths == 0.0
        self._table = np.stack(
            [starts, np.where(flat, 1.0, lengths), firsts, np.where(flat, 0.0, rises)],
            axis=-1,
        )

    def __call__(self, progress: Any) -> Any:
        if tf.is_tensor(progress):
            return _interpolated(progress, self._table[1:, 0], self._table)
        passed = bisect.bisect_right(self._times, progress)
        start, length, first, rise = self._table[passed].tolist()
        return first + rise * min(max((progress - start) / length, 0.0), 1.0)


@compile.compiled
def _interpolated(progress: tf.Tensor, times: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    times, table = tf.cast(times, progress.dtype), tf.cast(table, progress.dtype)
    reached = progress[..., tf.newaxis] >= times
    row = tf.gather(table, tf.reduce_sum(tf.cast(reached, tf.int32), axis=-1))
    start, length, first, rise = tf.unstack(row, 4, axis=-1)
    return first + rise * tf.clip_by_value((progress - start) / length, 0.0, 1.0)
