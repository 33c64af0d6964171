"""What all schedules share: how they are called, saved and checked."""

import dataclasses
import functools
import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.schedules import _polyline, progress

_PROGRESS_TYPES = tuple(field.name for field in dataclasses.fields(progress.Progress))
_PAIRS = "write [(10, 1.0), (20, 0.5)]"


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A function of one number, configured by the fields of a dataclass.

    Subclasses define `value_at`, or `_points` to be joined by straight lines.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Double(Schedule):
        ...     def value_at(self, progress):
        ...         return 2 * progress
        >>> Double().applied(3), Double().applied(tf.constant(3)).numpy()
        (6.0, np.float32(6.0))
    """

    def value_at(self, progress: Any) -> Any:
        """Returns the value at a progress, by operations that both kinds know.

        Args:
            progress: a float, or a tensor of float32 or float64 of any shape.

        Returns:
            A float, or a tensor of the same dtype and shape.
        """
        return self._line(progress)

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
        if isinstance(progress, np.ndarray) and progress.ndim == 0:
            progress = progress.item()
        if isinstance(progress, numbers.Real):
            checks.check_finite(type(self).__name__, "progress", progress)
            return float(self.value_at(float(progress)))
        given = checks.as_tensor(
            type(self).__name__, "progress", progress, numeric=False
        )
        if not (given.dtype.is_floating or given.dtype.is_integer):
            raise TypeError(
                f"`{type(self).__name__}`: `progress` expected a number or a tensor of "
                f"numbers; got {progress!r}; convert it"
            )
        floating = given.dtype.is_floating
        if floating:
            checks.check_finite(type(self).__name__, "progress", given)
        # Boundaries are met exactly: no integer up to 2^53 is rounded.
        wide = tf.float64 if not floating or given.dtype == tf.float64 else tf.float32
        value = self.value_at(tf.cast(given, wide))
        return tf.cast(value, given.dtype if floating else tf.float32)

    @functools.cached_property
    def _line(self) -> _polyline.Polyline:
        return _polyline.Polyline(self._points())

    def _points(self) -> Sequence[tuple[float, float]]:
        raise NotImplementedError


def check_pairs(schedule: Any) -> tuple[tuple[float, float], ...]:
    """Checks type and pairs of a schedule, and makes its pairs hashable.

    Args:
        schedule: a frozen dataclass with `progress_type` and `schedule`.

    Returns:
        The pairs.

    Raises:
        TypeError: if `schedule` is not made of pairs of numbers.
        ValueError: if they are not finite or do not ascend, or the type is unknown.
    """
    where, given = type(schedule).__name__, schedule.schedule
    check_progress_type(where, schedule.progress_type)
    if not isinstance(given, list | tuple) or not given:
        raise TypeError(
            f"`{where}`: `schedule` expected a list of pairs (progress, value); "
            f"got {given!r}; {_PAIRS}"
        )
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(
                f"`{where}`: `schedule` expected pairs (progress, value); "
                f"got {pair!r}; {_PAIRS}"
            )
        for number in pair:
            check_number(where, "schedule", number)
    pairs = tuple((time, value) for time, value in given)
    checks.check_finite(where, "schedule", pairs)
    times = [time for time, _ in pairs]
    if sorted(times) != times:
        raise ValueError(
            f"`{where}`: `schedule` expected progress that ascends; got {times}; "
            "sort it"
        )
    object.__setattr__(schedule, "schedule", pairs)
    return pairs


def check_number(where: str, name: str, value: Any) -> None:
    """Raises a TypeError unless `value` is a number and no bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"`{where}`: `{name}` expected a number; got {value!r}; "
            "convert it with float()"
        )


def check_progress_type(where: str, progress_type: str) -> None:
    """Raises a ValueError unless `Progress` has a field of that name."""
    checks.check_one_of(where, "progress_type", progress_type, _PROGRESS_TYPES)
