"""Schedules that go from one value to another along a curve, over a given stretch."""
# What overrides a method is documented where that is.
# ruff: noqa: D102

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.schedules import _schedule, schedulers


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class CosineScheduler(schedulers.Scheduler):
    """Half a cosine: slow at both ends, fast between.

        x = clip(progress / duration, 0, 1)
        value = final_value + (initial_value - final_value) * (1 + cos(pi * x)) / 2

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        initial_value: value at progress 0.
        duration: progress at which the final value is reached, greater than 0.
        final_value: value from there on.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is not finite, or `duration` not positive.

    Example:
        >>> rate = CosineScheduler("iterations", 1.0, 100)
        >>> [round(rate(step), 6) for step in (0, 50, 100, 1000)]
        [1.0, 0.5, 0.0, 0.0]

    References:
        Loshchilov, Hutter, 2017, SGDR: Stochastic Gradient Descent with Warm Restarts,
        equation 5.
    """

    progress_type: str
    initial_value: float
    duration: float
    final_value: float = 0.0

    def __post_init__(self) -> None:
        _schedule.check_progress_type(self)
        _schedule.check_numbers(self, "initial_value", "duration", "final_value")
        checks.check_positive("CosineScheduler", "duration", self.duration)

    def value_at(self, progress: Any) -> Any:
        part = _part(progress, 0.0, self.duration)
        return _half_cosine(part, self.initial_value, self.final_value)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class PolynomialScheduler(schedulers.Scheduler):
    """A power of what is left of a stretch.

        x = clip((progress - start) / duration, 0, 1)
        value = final_value + (initial_value - final_value) * (1 - x)^power

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        initial_value: value until `start`.
        final_value: value from `start + duration` on.
        power: greater than 0: 1 is a straight line, more falls fast at first.
        duration: length of the stretch, greater than 0.
        start: where it begins, at least 0.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is outside its range or not finite.

    Example:
        >>> rate = PolynomialScheduler("iterations", 4.0, 0.0, 2.0, 10, start=5)
        >>> rate(5), rate(10), rate(15)
        (4.0, 1.0, 0.0)
    """

    progress_type: str
    initial_value: float
    final_value: float
    power: float
    duration: float
    start: float = 0

    def __post_init__(self) -> None:
        _schedule.check_progress_type(self)
        _schedule.check_numbers(self, "initial_value", "final_value", "power")
        _schedule.check_numbers(self, "duration", "start", low=0.0)
        for name in ("power", "duration"):
            checks.check_positive("PolynomialScheduler", name, getattr(self, name))

    def value_at(self, progress: Any) -> Any:
        left = 1.0 - _part(progress, self.start, self.duration)
        rise = self.initial_value - self.final_value
        return self.final_value + rise * left**self.power


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class OneCycleScheduler(schedulers.Scheduler):
    """Up to a peak and far down again, both by half a cosine.

        from peak_value / initial_divisor                       at progress 0
        to   peak_value                                         at rise * duration
        to   peak_value / initial_divisor / final_divisor       from duration on

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        peak_value: the value at the peak.
        duration: progress at which the end is reached, greater than 0.
        rise: share of it until the peak, in (0, 1).
        initial_divisor: how many times less the value is at the beginning, positive.
        final_divisor: how many times less than that it is at the end, positive.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is outside its range or not finite.

    Example:
        >>> rate = OneCycleScheduler("iterations", 8.0, 100, rise=0.2,
        ...                          initial_divisor=4.0, final_divisor=2.0)
        >>> [round(rate(step), 6) for step in (0, 10, 20, 60, 100)]
        [2.0, 5.0, 8.0, 4.5, 1.0]

    References:
        Smith, Topin, 2019, Super-Convergence: Very Fast Training of Neural Networks
        Using Large Learning Rates, section 3.
    """

    progress_type: str
    peak_value: float
    duration: float
    rise: float = 0.3
    initial_divisor: float = 25.0
    final_divisor: float = 1e4

    def __post_init__(self) -> None:
        where = "OneCycleScheduler"
        _schedule.check_progress_type(self)
        names = ("duration", "rise", "initial_divisor", "final_divisor")
        _schedule.check_numbers(self, "peak_value", *names)
        for name in names:
            checks.check_positive(where, name, getattr(self, name))
        if not self.rise < 1:
            raise ValueError(
                f"`{where}`: `rise` expected a number in (0, 1); got {self.rise}"
            )

    def value_at(self, progress: Any) -> Any:
        peak, top = self.peak_value, self.rise * self.duration
        first = peak / self.initial_divisor
        last = first / self.final_divisor
        up = _half_cosine(_part(progress, 0.0, top), first, peak)
        down = _half_cosine(_part(progress, top, self.duration - top), peak, last)
        if tf.is_tensor(progress):
            return tf.where(progress < top, up, down)
        return up if progress < top else down


def _part(progress: Any, start: float, length: float) -> Any:
    """How much of a stretch is done, in [0, 1]."""
    part = (progress - start) / length
    if tf.is_tensor(part):
        return tf.clip_by_value(part, 0.0, 1.0)
    return min(max(part, 0.0), 1.0)


def _half_cosine(part: Any, first: float, last: float) -> Any:
    # Of a square of the sine: what is left at the end is exactly nothing.
    tensor = tf.is_tensor(part)
    left = (tf.sin if tensor else math.sin)(math.pi / 2 * (1.0 - part)) ** 2
    return last + (first - last) * left
