"""Which phase of a run the current code belongs to: rollout, replay, evaluation, ...

The mode lives in a context variable: every thread and every asyncio task starts with
`ExeMode.OTHER`. Inside `tf.function` it is read while tracing; what `compiled` and
`jit` make has a trace for each mode.
"""

import contextlib
import contextvars
import enum
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from tfrl._internal import arguments
from tfrl.core import context

P = ParamSpec("P")
R = TypeVar("R")


class ExeMode(enum.IntEnum):
    """Phases of a run.

    Example:
        >>> ExeMode.REPLAY.name
        'REPLAY'
    """

    OTHER = 0
    ROLLOUT = 1
    REPLAY = 2
    EVAL = 3
    PRETRAIN = 4


_exe_mode: contextvars.ContextVar[ExeMode] = contextvars.ContextVar(
    "tfrl_exe_mode", default=ExeMode.OTHER
)


def set_exe_mode(mode: int) -> ExeMode:
    """Sets the execution mode until somebody sets another.

    Prefer the contexts below: they put the old mode back.

    Args:
        mode: an `ExeMode` or its number.

    Returns:
        The mode before the call.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> previous = set_exe_mode(ExeMode.EVAL)
        >>> is_eval()
        True
        >>> set_exe_mode(previous)
        <ExeMode.EVAL: 3>
    """
    new, old = _checked("set_exe_mode", mode), _exe_mode.get()
    _exe_mode.set(new)
    return old


def exe_mode_name(mode: int | None = None) -> str:
    """Returns the name of the execution mode.

    Args:
        mode: the mode to name; None for the current one.

    Returns:
        "other", "rollout", "replay", "eval" or "pretrain".

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> with replay_context():
        ...     exe_mode_name()
        'replay'
    """
    return _read("exe_mode_name", mode).name.lower()


def is_rollout(mode: int | None = None) -> bool:
    """Whether experience is being collected.

    Args:
        mode: the mode to judge; None for the current one.

    Returns:
        True in `rollout_context` and functions under `mark_rollout`.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> is_rollout(), is_rollout(ExeMode.ROLLOUT)
        (False, True)
    """
    return _read("is_rollout", mode) is ExeMode.ROLLOUT


def is_replay(mode: int | None = None) -> bool:
    """Whether stored experience is being learned from.

    Args:
        mode: the mode to judge; None for the current one.

    Returns:
        True in `replay_context` and functions under `mark_replay`.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> is_replay(), is_replay(ExeMode.REPLAY)
        (False, True)
    """
    return _read("is_replay", mode) is ExeMode.REPLAY


def is_eval(mode: int | None = None) -> bool:
    """Whether a policy is being evaluated or played.

    Args:
        mode: the mode to judge; None for the current one.

    Returns:
        True in `eval_context` and functions under `mark_eval`.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> is_eval(), is_eval(ExeMode.EVAL)
        (False, True)
    """
    return _read("is_eval", mode) is ExeMode.EVAL


def is_pretrain(mode: int | None = None) -> bool:
    """Whether weights are being trained before the run proper.

    Args:
        mode: the mode to judge; None for the current one.

    Returns:
        True in `pretrain_context` and functions under `mark_pretrain`.

    Raises:
        ValueError: if there is no such mode.

    Example:
        >>> is_pretrain(), is_pretrain(ExeMode.PRETRAIN)
        (False, True)
    """
    return _read("is_pretrain", mode) is ExeMode.PRETRAIN


def is_training(alg: Any, mode: int | None = None) -> bool:
    """Whether an algorithm is being trained.

    An on-policy algorithm trains on what it rolls out, any algorithm on what is
    replayed: `(alg.on_policy and rollout) or replay`.

    Args:
        alg: an object with a boolean `on_policy`.
        mode: the mode to judge; None for the current one.

    Returns:
        The value of the formula.

    Raises:
        TypeError: if `alg` has no `on_policy`.
        ValueError: if there is no such mode.

    Example:
        >>> import types
        >>> is_training(types.SimpleNamespace(on_policy=True), ExeMode.ROLLOUT)
        True
    """
    if not hasattr(alg, "on_policy"):
        raise arguments.wrong_type(
            "is_training", "alg", alg, "an object with `on_policy`"
        )
    current = _read("is_training", mode)
    on_policy = bool(alg.on_policy) and current is ExeMode.ROLLOUT
    return on_policy or current is ExeMode.REPLAY


def rollout_context() -> contextlib.AbstractContextManager[None]:
    """Marks the code inside as collecting experience; restores the mode after it.

    Returns:
        The context.

    Example:
        >>> with rollout_context():
        ...     is_rollout()
        True
    """
    return _mode_context(ExeMode.ROLLOUT)


def replay_context() -> contextlib.AbstractContextManager[None]:
    """Marks the code inside as learning from replay; restores the mode after it.

    Returns:
        The context.

    Example:
        >>> with replay_context():
        ...     is_replay()
        True
    """
    return _mode_context(ExeMode.REPLAY)


def eval_context() -> contextlib.AbstractContextManager[None]:
    """Marks the code inside as evaluation; restores the mode after it.

    Returns:
        The context.

    Example:
        >>> with eval_context():
        ...     is_eval()
        True
    """
    return _mode_context(ExeMode.EVAL)


def pretrain_context() -> contextlib.AbstractContextManager[None]:
    """Marks the code inside as pretraining; restores the mode after it.

    Returns:
        The context.

    Example:
        >>> with pretrain_context():
        ...     is_pretrain()
        True
    """
    return _mode_context(ExeMode.PRETRAIN)


def mark_rollout(func: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function to run in `rollout_context`.

    Args:
        func: the function.

    Returns:
        The function with its name, documentation and signature.

    Example:
        >>> mark_rollout(is_rollout)()
        True
    """
    return _mode_context(ExeMode.ROLLOUT)(func)


def mark_replay(func: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function to run in `replay_context`.

    Args:
        func: the function.

    Returns:
        The function with its name, documentation and signature.

    Example:
        >>> mark_replay(is_replay)()
        True
    """
    return _mode_context(ExeMode.REPLAY)(func)


def mark_eval(func: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function to run in `eval_context`.

    Args:
        func: the function.

    Returns:
        The function with its name, documentation and signature.

    Example:
        >>> mark_eval(is_eval)()
        True
    """
    return _mode_context(ExeMode.EVAL)(func)


def mark_pretrain(func: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function to run in `pretrain_context`.

    Args:
        func: the function.

    Returns:
        The function with its name, documentation and signature.

    Example:
        >>> mark_pretrain(is_pretrain)()
        True
    """
    return _mode_context(ExeMode.PRETRAIN)(func)


@contextlib.contextmanager
def _mode_context(mode: ExeMode) -> Iterator[None]:
    old = set_exe_mode(mode)
    try:
        yield
    finally:
        set_exe_mode(old)


def _read(where: str, mode: int | None) -> ExeMode:
    if mode is None:
        return context.followed(_exe_mode.get)
    return _checked(where, mode)


def _checked(where: str, mode: int) -> ExeMode:
    arguments.check_one_of(where, "mode", mode, [known.value for known in ExeMode])
    return ExeMode(mode)
