"""Hyper-parameters that change over a run: numbers, or schedules of its progress."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.schedules import progress as progresses

# A number, or a schedule: a function of a share, a count of updates or of steps.
Scheduled = float | Callable[..., Any]


def check(where: str, name: str, value: Any, kind: str = "constant") -> None:
    """Raises unless a hyper-parameter is a positive number or a schedule.

    Args:
        where: the asking class, for the message.
        name: of the hyper-parameter.
        value: number or schedule.
        kind: "linear" for a number that falls to 0 over the run.

    Raises:
        ValueError: if it is no positive number, or a schedule is to fall besides.

    Example:
        >>> check("PPO", "clip", 0.2)
    """
    if not callable(value):
        checks.check_positive(where, name, value)
    elif kind == "linear":
        raise ValueError(
            f"`{where}`: `{name}_schedule` expected 'constant' where `{name}` is a "
            "schedule itself; got 'linear'"
        )


def first(value: Scheduled) -> float:
    """Returns a hyper-parameter before the first update.

    Args:
        value: number or schedule.

    Returns:
        A number; in a graph, where schedules are not known, 1.

    Example:
        >>> first(0.5)
        0.5
    """
    found = at(progresses.Progress(), value=(value, "constant"))["value"]
    return float(found) if tf.executing_eagerly() else 1.0


def at(
    progress: progresses.Progress | None, **values: tuple[Scheduled, str]
) -> dict[str, tf.Tensor]:
    """Returns hyper-parameters at a progress.

    A schedule of `tfrl.schedules` follows the progress that it names, one of Keras the
    number of updates.

        linear:  value * max(0, 1 - percent)

    Args:
        progress: how far the run has come; that in context if None.
        **values: a number or schedule, and "constant" or "linear", by name.

    Returns:
        float32 `[]` by name.

    Example:
        >>> half = progresses.Progress(percent=0.5)
        >>> float(at(half, clip=(0.2, "linear"))["clip"])
        0.10000000149011612
    """
    done = progresses.current_progress() if progress is None else progress

    def found(value: Any, kind: str) -> tf.Tensor:
        if callable(value):
            measure = getattr(value, "progress_type", "iterations")
            return tf.cast(value(getattr(done, measure)), tf.float32)
        if kind == "constant":
            return tf.constant(value, tf.float32)
        left = 1.0 - tf.cast(done.percent, tf.float32)
        return np.float32(value) * tf.maximum(left, 0.0)

    return {name: found(*pair) for name, pair in values.items()}
