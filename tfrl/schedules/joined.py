"""Schedules made of other schedules, one after the other."""
# What overrides a method is documented where that is.
# ruff: noqa: D102

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import arguments, checks
from tfrl.schedules import _schedule, schedulers


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class JoinedScheduler(schedulers.Scheduler):
    """One schedule after the other, each with a progress of its own.

        value = s[i](progress - p[i])    for p[i] <= progress < p[i + 1]

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`; that of all schedules.
        schedules: pairs (p, s): where a schedule begins, and the schedule or a number.
            p ascends from 0.

    Raises:
        TypeError: if `schedules` is not made of such pairs.
        ValueError: if it does not begin at 0 or does not ascend, or a schedule follows
            another progress.

    Example:
        >>> rise = tfrl.schedules.LinearScheduler("iterations", [(0, 0.0), (10, 1.0)])
        >>> fall = tfrl.schedules.CosineScheduler("iterations", 1.0, 100)
        >>> rate = JoinedScheduler("iterations", [(0, rise), (10, 1.0), (50, fall)])
        >>> [round(rate(step), 6) for step in (5, 20, 100, 150)]
        [0.5, 1.0, 0.5, 0.0]
    """

    progress_type: str
    schedules: Sequence[tuple[float, Any]]

    def __post_init__(self) -> None:
        where, given = "JoinedScheduler", self.schedules
        _schedule.check_progress_type(self)
        expected = "pairs (progress, schedule)"
        if not isinstance(given, list | tuple) or not given:
            raise checks.wrong_type(where, "schedules", given, f"a list of {expected}")
        pairs = []
        for pair in given:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise checks.wrong_type(where, "schedules", pair, expected)
            arguments.check_number(where, "schedules", pair[0])
            checks.check_finite(where, "schedules", pair[0])
            pairs.append((pair[0], _part(self, "schedules", pair[1])))
        starts = [start for start, _ in pairs]
        if starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(
                f"`{where}`: `schedules` expected progress that ascends from 0; got "
                f"{starts}"
            )
        object.__setattr__(self, "schedules", tuple(pairs))

    def get_config(self) -> dict[str, Any]:
        pairs = [
            [start, keras.saving.serialize_keras_object(schedule)]
            for start, schedule in self.schedules
        ]
        return {"progress_type": self.progress_type, "schedules": pairs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "JoinedScheduler":
        pairs = [(start, _made(schedule)) for start, schedule in config["schedules"]]
        return cls(config["progress_type"], pairs)

    def value_at(self, progress: Any) -> Any:
        if not tf.is_tensor(progress):
            start, schedule = max(
                (pair for pair in self.schedules if pair[0] <= progress),
                default=self.schedules[0],
                key=lambda pair: pair[0],
            )
            return schedule.value_at(progress - start)
        value = self.schedules[0][1].value_at(progress)
        for start, schedule in self.schedules[1:]:
            # No progress before its own beginning: a power of it might be NaN.
            own = schedule.value_at(tf.maximum(progress - start, 0.0))
            value = tf.where(progress >= start, own, value)
        return value


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class WarmUpScheduler(schedulers.Scheduler):
    """A straight line up to where a schedule begins, and then the schedule.

        value = initial_value + (schedule(0) - initial_value) * progress / period
                                                       where progress < period
        value = schedule(progress - period)            elsewhere

    Before progress 0 it is `initial_value`.

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`; that of the schedule too.
        period: length of the warm-up, greater than 0.
        schedule: what follows, a schedule or a number.
        initial_value: value at progress 0.

    Raises:
        TypeError: if an argument is not a number, or `schedule` no schedule.
        ValueError: if a number is outside its range or not finite, or the schedule
            follows another progress.

    Example:
        >>> fall = tfrl.schedules.CosineScheduler("iterations", 1.0, 20)
        >>> rate = WarmUpScheduler("iterations", 10, fall)
        >>> [round(rate(step), 6) for step in (0, 5, 10, 20, 30)]
        [0.0, 0.5, 1.0, 0.5, 0.0]

    References:
        Goyal et al., 2017, Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour,
        section 2.2.
    """

    progress_type: str
    period: float
    schedule: Any
    initial_value: float = 0.0

    def __post_init__(self) -> None:
        _schedule.check_progress_type(self)
        _schedule.check_numbers(self, "period", "initial_value")
        checks.check_positive("WarmUpScheduler", "period", self.period)
        object.__setattr__(self, "schedule", _part(self, "schedule", self.schedule))

    def get_config(self) -> dict[str, Any]:
        schedule = keras.saving.serialize_keras_object(self.schedule)
        return {**super().get_config(), "schedule": schedule}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUpScheduler":
        return cls(**{**config, "schedule": _made(config["schedule"])})

    def value_at(self, progress: Any) -> Any:
        rise = float(self.schedule.value_at(0.0)) - self.initial_value
        begun = (
            tf.maximum(progress, 0.0) if tf.is_tensor(progress) else max(progress, 0)
        )
        line = self.initial_value + rise * (begun / self.period)
        if not tf.is_tensor(progress):
            left = progress - self.period
            return line if left < 0 else self.schedule.value_at(left)
        left = progress - self.period
        later = self.schedule.value_at(tf.maximum(left, 0.0))
        return tf.where(left < 0, line, later)


def _part(owner: Any, name: str, value: Any) -> _schedule.Schedule:
    """A schedule of the owner's progress that an argument gives, checked."""
    where, kind = type(owner).__name__, owner.progress_type
    if isinstance(value, schedulers.Scheduler):
        if value.progress_type != kind:
            raise ValueError(
                f"`{where}`: `{name}` expected schedules of {kind!r}; got one of "
                f"{value.progress_type!r}"
            )
        return value
    if isinstance(value, schedulers.ConstantScheduler):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        checks.check_finite(where, name, value)
        return schedulers.ConstantScheduler(value)
    raise checks.wrong_type(where, name, value, "a Scheduler or a number")


def _made(config: Any) -> Any:
    return keras.saving.deserialize_keras_object(config)
