"""Schedules: numbers that follow the progress of training.

A schedule is a function without memory: the same progress always gives the same value,
also after training went back to a checkpoint. It takes a number and returns a float,
or takes a tensor and returns a tensor, in `tf.function` and under XLA too. Each is a
Keras `LearningRateSchedule`: an optimizer takes, saves and loads those of 'iterations'.
"""
# What overrides a method is documented where that is.
# ruff: noqa: D102

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import arguments, checks
from tfrl.schedules import _schedule, progress


class Scheduler(_schedule.Schedule):
    """Base class of the schedules that know which progress they follow.

    Called with a progress it returns the value there; called without one it reads
    the current progress of its type from `current_progress`:

    - "percent": share of the training that is done, in [0, 1], as is every progress
      that a schedule names;
    - "iterations": training iterations;
    - "env_steps": environment steps;
    - "global_counter": the step of the summaries.

    In an optimizer, which counts its updates, it must be of type "iterations".

    A subclass defines `value_at`, and `get_config` if its constructor takes more than
    the type; or it is a frozen dataclass, which has that and equality for free.

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter".

    Raises:
        ValueError: if there is no such type.

    Example:
        >>> class Harmonic(Scheduler):
        ...     def value_at(self, progress):
        ...         return 1.0 / (1.0 + progress)
        >>> harmonic = Harmonic("iterations")
        >>> harmonic(3), harmonic(tf.constant([0, 1])).numpy(), harmonic()
        (0.25, array([1. , 0.5], dtype=float32), 1.0)
    """

    progress_type: str

    def __init__(self, progress_type: str) -> None:
        self.progress_type = progress_type
        _schedule.check_progress_type(self)

    def __call__(self, progress: Any = None) -> Any:
        if isinstance(progress, keras.Variable):
            check_counts_updates("keras.optimizers.Optimizer", self)
        return self.applied(self.progress() if progress is None else progress)

    def progress(self) -> Any:
        """Returns the current progress of this schedule's type.

        Returns:
            The field of `current_progress()`.
        """
        return getattr(progress.current_progress(), self.progress_type)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() if dataclasses.is_dataclass(self) else {}
        return {"progress_type": self.progress_type, **config}


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class ConstantScheduler(_schedule.Schedule):
    """The same value at any progress.

    Args:
        value: a number.

    Raises:
        TypeError: if it is none.
        ValueError: if it is not finite.

    Example:
        >>> ConstantScheduler(0.3)(1_000_000)
        0.3
    """

    value: float

    def __post_init__(self) -> None:
        _schedule.check_numbers(self, "value")

    def __call__(self, progress: Any = None) -> Any:
        return self.applied(0 if progress is None else progress)

    def value_at(self, progress: Any) -> Any:
        if tf.is_tensor(progress):
            return tf.fill(tf.shape(progress), tf.constant(self.value, progress.dtype))
        return self.value


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class StepScheduler(Scheduler):
    """One value for each stretch of progress.

        value = v[i],    i the first with progress < p[i];    v[-1] from p[-1] on

    With a warm-up the value rises from 0 along a straight line to `v[0]`:

        value = v[0] * (progress - start) / warm_up_period

    from `start` to `start + warm_up_period`, and is 0 before `start`.

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        schedule: pairs (p, v): where a stretch ends, and the value until then. Ends
            ascend; a stretch without length, such as a first one until 0, is never in
            effect.
        warm_up_period: length of the warm-up, at least 0.
        start: where it begins, at least 0.

    Raises:
        TypeError: if `schedule` is not made of pairs of numbers.
        ValueError: if ends descend, a number is not finite or negative, or the warm-up
            does not end before the first stretch.

    Example:
        >>> rate = StepScheduler("iterations", [(10, 1.0), (20, 0.5)], warm_up_period=4)
        >>> rate(1), rate(4), rate(9), rate(10), rate(99)
        (0.25, 1.0, 1.0, 0.5, 0.5)
    """

    progress_type: str
    schedule: Sequence[tuple[float, float]]
    warm_up_period: float = 0
    start: float = 0

    def __post_init__(self) -> None:
        pairs = _checked_pairs(self)
        _schedule.check_numbers(self, "warm_up_period", "start", low=0.0)
        end = self.start + self.warm_up_period
        if end > 0 and not end < pairs[0][0]:
            raise ValueError(
                "`StepScheduler`: `warm_up_period` expected start + warm_up_period < "
                f"{pairs[0][0]}, where the first stretch ends; got {self.start} + "
                f"{self.warm_up_period}"
            )

    def _points(self) -> Sequence[tuple[float, float]]:
        first = self.schedule[0][1]
        warm = self.start + self.warm_up_period
        points = [(self.start, 0.0), (warm, first)] if warm > 0 else []
        points.append((self.schedule[0][0], first))
        for (end, value), (_, following) in itertools.pairwise(self.schedule):
            points += [(end, value), (end, following)]
        return points


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class LinearScheduler(Scheduler):
    """Straight lines between given values.

        value = v[i] + (v[i + 1] - v[i]) * (progress - p[i]) / (p[i + 1] - p[i])

    for p[i] <= progress < p[i + 1], and v[-1] from p[-1] on.

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        schedule: two or more pairs (p, v), p ascending from 0. Where two have the same
            p the value jumps.

    Raises:
        TypeError: if `schedule` is not made of pairs of numbers.
        ValueError: if it has less than two pairs, does not begin at 0 or descends, or
            a number is not finite.

    Example:
        >>> epsilon = LinearScheduler("env_steps", [(0, 1.0), (100, 0.5), (300, 0.1)])
        >>> epsilon(0), epsilon(50), epsilon(100), epsilon(1000)
        (1.0, 0.75, 0.5, 0.1)
    """

    progress_type: str
    schedule: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        pairs = _checked_pairs(self)
        if len(pairs) < 2 or pairs[0][0] != 0:
            raise ValueError(
                "`LinearScheduler`: `schedule` expected two or more pairs, the first "
                f"one at progress 0; got {checks.shown(self.schedule)}; add (0, value)"
            )

    def _points(self) -> Sequence[tuple[float, float]]:
        return self.schedule


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class ExponentialScheduler(Scheduler):
    """Exponential decay.

        value = initial_value * decay_rate^(progress / decay_time)

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        initial_value: value at progress 0.
        decay_rate: factor for every `decay_time` of progress, greater than 0.
        decay_time: a length of progress, greater than 0.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is outside its range.

    Example:
        >>> rate = ExponentialScheduler("iterations", 8.0, 0.5, 10)
        >>> rate(0), rate(10), rate(20)
        (8.0, 4.0, 2.0)
    """

    progress_type: str
    initial_value: float
    decay_rate: float
    decay_time: float

    def __post_init__(self) -> None:
        _schedule.check_progress_type(self)
        _schedule.check_numbers(self, "initial_value", "decay_rate", "decay_time")
        for name in ("decay_rate", "decay_time"):
            checks.check_positive("ExponentialScheduler", name, getattr(self, name))

    def value_at(self, progress: Any) -> Any:
        return self.initial_value * self.decay_rate ** (progress / self.decay_time)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True)
class CyclicalScheduler(Scheduler):
    """Back and forth between two values for ever.

        n = progress / half_cycle_size
        "step":    base_lr if n mod 2 < 1, else bound_lr
        "linear":  base_lr + (bound_lr - base_lr) * (n mod 2 if n mod 2 < 1
                                                     else 2 - n mod 2)

    For "percent" n is rounded, so that 0.3 / 0.1 is 3: to 10 digits after the point,
    in a tensor of less than float64 to 5.

    Args:
        progress_type: "percent", "iterations", "env_steps" or "global_counter", see
            `Scheduler`.
        base_lr: value at progress 0.
        bound_lr: value after half a cycle, less or greater.
        half_cycle_size: length of half a cycle, greater than 0.
        switch_mode: "step" or "linear".

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is outside its range or there is no such mode.

    Example:
        >>> actor_turn = CyclicalScheduler("iterations", 0.0, 1.0, 1)
        >>> [actor_turn(n) for n in range(4)]
        [0.0, 1.0, 0.0, 1.0]

    References:
        Smith, 2017, Cyclical Learning Rates for Training Neural Networks, section 3.
    """

    progress_type: str
    base_lr: float
    bound_lr: float
    half_cycle_size: float
    switch_mode: str = "step"

    def __post_init__(self) -> None:
        where = "CyclicalScheduler"
        _schedule.check_progress_type(self)
        _schedule.check_numbers(self, "base_lr", "bound_lr", "half_cycle_size")
        checks.check_positive(where, "half_cycle_size", self.half_cycle_size)
        checks.check_one_of(where, "switch_mode", self.switch_mode, ("step", "linear"))

    def _points(self) -> Sequence[tuple[float, float]]:
        base, bound = self.base_lr, self.bound_lr
        if self.switch_mode == "step":
            return [(0, base), (1, base), (1, bound)]
        return [(0, base), (1, bound), (2, base)]

    def value_at(self, progress: Any) -> Any:
        halves = progress / self.half_cycle_size
        if self.progress_type == "percent":
            halves = _rounded(halves)
        return super().value_at(halves % 2.0)


@keras.saving.register_keras_serializable(package="tfrl")
@dataclasses.dataclass(frozen=True, init=False)
class StepwiseLinearFunction(_schedule.Schedule):
    """Straight lines between given values, flat outside of them.

        value = v[i] + (v[i + 1] - v[i]) * (timestep - t[i]) / (t[i + 1] - t[i])

    for t[i] <= timestep < t[i + 1]; v[0] before and v[-1] after.

    Args:
        *steps: two or more pairs (t, v) of an int and a number, t ascending.

    Raises:
        TypeError: if there are less than two, or one is no such pair.
        ValueError: if the times do not ascend, or a value is not finite.

    Example:
        >>> epsilon = StepwiseLinearFunction((0, 1.0), (1_000_000, 0.1))
        >>> epsilon(-5), epsilon(500_000), epsilon(2_000_000)
        (1.0, 0.55, 0.1)
    """

    steps: tuple[tuple[int, float], ...]

    def __init__(self, *steps: tuple[int, float]) -> None:
        where = "StepwiseLinearFunction"
        if len(steps) < 2 or not all(map(_is_step, steps)):
            expected = "two or more tuples (int, number)"
            raise checks.wrong_type(where, "steps", steps, expected)
        times = [time for time, _ in steps]
        if not all(map(operator.lt, times, times[1:])):
            raise ValueError(
                f"`{where}`: `steps` expected times that ascend; got {times}"
            )
        checks.check_finite(where, "steps", [value for _, value in steps])
        object.__setattr__(self, "steps", steps)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "StepwiseLinearFunction":
        return cls(*map(tuple, config["steps"]))

    def __call__(self, timestep: Any) -> Any:
        return self.applied(timestep)

    def _points(self) -> Sequence[tuple[float, float]]:
        return self.steps


def as_scheduler(value_or_scheduler: Any) -> Callable[..., Any]:
    """Makes sure that something can be called like a schedule.

    Args:
        value_or_scheduler: a number, or anything that can be called.

    Returns:
        The same object if it can be called, else a `ConstantScheduler`.

    Raises:
        TypeError: if it is neither.

    Example:
        >>> as_scheduler(0.5)
        ConstantScheduler(value=0.5)
    """
    if callable(value_or_scheduler):
        return value_or_scheduler
    arguments.check_number("as_scheduler", "value_or_scheduler", value_or_scheduler)
    return ConstantScheduler(value_or_scheduler)


def check_counts_updates(where: str, schedule: Any) -> None:
    """Raises unless a schedule is one for an optimizer, which gives its count.

    Args:
        where: the asking function, for the message.
        schedule: any function; a `Scheduler` tells which progress it follows.

    Raises:
        ValueError: if it follows another progress.

    Example:
        >>> check_counts_updates("adam", ConstantScheduler(0.1))
    """
    kind = getattr(schedule, "progress_type", "iterations")
    if kind != "iterations":
        raise ValueError(
            f"`{where}`: `learning_rate` expected a schedule of 'iterations', as an "
            f"optimizer counts its updates; got {type(schedule).__name__} of {kind!r}; "
            "give it to an agent as its `learning_rate`, or in `fit` to the callback "
            "`FollowSchedule`"
        )


def _rounded(halves: Any) -> Any:
    if not tf.is_tensor(halves):
        return round(halves, 10) if math.isfinite(halves) else halves
    unit = 1e10 if halves.dtype == tf.float64 else 1e5
    return tf.round(halves * unit) / unit


def _is_step(step: Any) -> bool:
    if not isinstance(step, tuple) or len(step) != 2:
        return False
    time, value = step
    bools = isinstance(time, bool) or isinstance(value, bool)
    return isinstance(time, int) and isinstance(value, int | float) and not bools


def _checked_pairs(schedule: Any) -> tuple[tuple[float, float], ...]:
    """The pairs of a frozen dataclass with `progress_type` and `schedule`, hashable."""
    where, given = type(schedule).__name__, schedule.schedule
    _schedule.check_progress_type(schedule)
    if not isinstance(given, list | tuple) or not given:
        expected = "a list of pairs (progress, value)"
        raise checks.wrong_type(where, "schedule", given, expected)
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            expected = "pairs (progress, value)"
            raise checks.wrong_type(where, "schedule", pair, expected)
        for number in pair:
            arguments.check_number(where, "schedule", number)
    pairs = tuple((time, value) for time, value in given)
    checks.check_finite(where, "schedule", pairs)
    times = [time for time, _ in pairs]
    if sorted(times) != times:
        raise ValueError(
            f"`{where}`: `schedule` expected progress that ascends; got {times}"
        )
    object.__setattr__(schedule, "schedule", pairs)
    return pairs
