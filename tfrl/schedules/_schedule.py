"""What all schedules share: a function of one number, and checks of its arguments."""

import bisect
import dataclasses
import functools
import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks
from tfrl.core import compile
from tfrl.schedules import progress

_PROGRESS_TYPES = tuple(field.name for field in dataclasses.fields(progress.Progress))


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A function of one number, configured by the fields of a dataclass.

    Subclasses define `value_at`, or `_points` to be joined by straight lines, flat
    outside of them. At a time that several points have, it takes the value of the last.
    """

    def value_at(self, progress: Any) -> Any:
        """Returns the value at a progress, by operations that both kinds know.

        Args:
            progress: a float, or a tensor of float32 or float64 of any shape.

        Returns:
            A float, or a tensor of the same dtype and shape.
        """
        if tf.is_tensor(progress):
            return _interpolated(progress, self._table[1:, 0], self._table)
        passed = bisect.bisect_right(self._table[1:, 0], progress)
        start, length, first, rise = self._table[passed].tolist()
        return first + rise * min(max((progress - start) / length, 0.0), 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor by name."""
        return {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self)
        }

    def applied(self, progress: Any) -> Any:
        """Returns the value at what a caller may give as progress.

        Args:
            progress: number, array, tensor or variable.

        Returns:
            A float for a number; else a tensor, of the floating dtype that `progress`
            has, of float32 if it is of integers.

        Raises:
            TypeError: if `progress` is not numeric.
            ValueError: if it is known not to be finite.
        """
        where = type(self).__name__
        if isinstance(progress, np.ndarray) and progress.ndim == 0:
            progress = progress.item()
        if isinstance(progress, numbers.Real):
            checks.check_finite(where, "progress", progress)
            return float(self.value_at(float(progress)))
        given = checks.as_tensor(where, "progress", progress, numeric=False)
        floating = given.dtype.is_floating
        if floating:
            checks.check_finite(where, "progress", given)
        elif not given.dtype.is_integer:
            expected = "a number or a tensor of numbers"
            raise checks.wrong_type(where, "progress", progress, expected)
        # Boundaries are met exactly: no integer up to 2^53 is rounded.
        wide = tf.float64 if not floating or given.dtype == tf.float64 else tf.float32
        value = self.value_at(tf.cast(given, wide))
        return tf.cast(value, given.dtype if floating else tf.float32)

    @functools.cached_property
    def _table(self) -> np.ndarray:
        """Start, length, first value and rise, for each number of points passed.

        Flat before the first point, after the last, and between points of the same
        time, where no progress ever is.
        """
        times, values = np.array(self._points(), np.float64).T
        starts, firsts = np.append(times[0], times), np.append(values[0], values)
        lengths = np.append(np.diff(starts), 0.0)
        rises = np.where(lengths > 0.0, np.append(np.diff(firsts), 0.0), 0.0)
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        return np.stack([starts, lengths, firsts, rises], axis=-1)

    def _points(self) -> Sequence[tuple[float, float]]:
        raise NotImplementedError


@compile.compiled
def _interpolated(progress: tf.Tensor, times: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    times, table = tf.cast(times, progress.dtype), tf.cast(table, progress.dtype)
    reached = progress[..., tf.newaxis] >= times
    row = tf.gather(table, tf.reduce_sum(tf.cast(reached, tf.int32), axis=-1))
    start, length, first, rise = tf.unstack(row, 4, axis=-1)
    return first + rise * tf.clip_by_value((progress - start) / length, 0.0, 1.0)


def check_progress_type(schedule: Any) -> None:
    where, kind = type(schedule).__name__, schedule.progress_type
    checks.check_one_of(where, "progress_type", kind, _PROGRESS_TYPES)


def check_numbers(schedule: Any, *names: str, low: float | None = None) -> None:
    where = type(schedule).__name__
    for name in names:
        value = getattr(schedule, name)
        arguments.check_number(where, name, value, low)
        checks.check_finite(where, name, value)
