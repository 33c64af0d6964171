"""Training progress, which schedules read when called without an argument.

The record lives in a context variable: every thread and every asyncio task starts with
zeros.
"""

import contextlib
import contextvars
import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import context


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far training has come, in four measures.

    A field may also be a variable or a scalar tensor, such as an optimizer's
    `iterations`: a `tf.function` then reads it whenever it runs, while a number is
    read when the function is traced.

    Args:
        percent: share of the training that is done, in [0, 1].
        iterations: training iterations done, at least 0.
        env_steps: environment steps done, at least 0.
        global_counter: the step of the summaries, at least 0.

    Raises:
        TypeError: if a field is no number, variable or tensor.
        ValueError: if a number is outside its range or not finite.

    Example:
        >>> Progress(percent=0.5, iterations=100).env_steps
        0
    """

    percent: Any = 0.0
    iterations: Any = 0
    env_steps: Any = 0
    global_counter: Any = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            most = 1.0 if field.name == "percent" else float("inf")
            if isinstance(value, numbers.Real):
                checks.check_within("Progress", field.name, value, 0, most)
                checks.check_finite("Progress", field.name, value)
            elif not hasattr(value, "dtype"):
                expected = "a number, a variable or a scalar tensor"
                raise checks.wrong_type("Progress", field.name, value, expected)


# What is done where nothing is told.
NOTHING_DONE = Progress()
_progress: contextvars.ContextVar[Progress] = contextvars.ContextVar(
    "tfrl_progress", default=NOTHING_DONE
)


def current_progress() -> Progress:
    """Returns how far training has come.

    Returns:
        What the innermost `progress_context` was given; zeros outside of any.

    Example:
        >>> current_progress().iterations
        0
    """
    found = _progress.get()
    # What a trace tells itself is no value of the context that it is made in.
    told = any(tf.is_symbolic_tensor(x) for x in vars(found).values())
    return found if told else context.followed(_progress.get)


@contextlib.contextmanager
def progress_context(progress: Progress) -> Iterator[None]:
    """Makes `progress` the current one for the code inside; restores the old after it.

    Args:
        progress: what schedules called inside without an argument read.

    Yields:
        Nothing.

    Raises:
        TypeError: if `progress` is not a `Progress`.

    Example:
        >>> halve = tfrl.schedules.ExponentialScheduler("iterations", 8.0, 0.5, 10)
        >>> with progress_context(Progress(iterations=20)):
        ...     halve()
        2.0
    """
    if not isinstance(progress, Progress):
        where = "progress_context"
        raise checks.wrong_type(where, "progress", progress, "a `Progress`")
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)
