"""Locks: methods that never run at the same time, in threads or in processes."""

import functools
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import synchronize
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Nobody needs the lock for long: who holds it for a minute died with it.
_PATIENCE_SECONDS = 60.0


def atomic(func: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a method hold its object's lock while it runs.

    The lock is the attribute `_lock`; it must be re-entrant, such as
    `threading.RLock()`, if atomic methods call each other. Where it is None the method
    runs as it is.

    Args:
        func: a method.

    Returns:
        The method, with the same name, signature and docstring.

    Example:
        >>> import threading
        >>> class Counter:
        ...     def __init__(self):
        ...         self._lock, self.count = threading.RLock(), 0
        ...
        ...     @atomic
        ...     def add(self):
        ...         self.count += 1
        >>> counter = Counter()
        >>> counter.add()
        >>> counter.count
        1
    """

    @functools.wraps(func)
    def locked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        owner: Any = args[0]
        lock = owner._lock
        if not lock:
            return func(*args, **kwargs)
        with lock:
            return func(*args, **kwargs)

    return locked


class Shared(NamedTuple):
    """What the processes share: int64 words, and the lock over them."""

    words: Any
    lock: synchronize.RLock


def shared(num_environments: int) -> Shared:
    """Makes what `_Positions` of several processes share; it travels to new ones."""
    # Locks of this context serve processes that are spawned and forked. The last words
    # say whether waiting was stopped, and who holds the lock.
    context = multiprocessing.get_context("spawn")
    return Shared(context.RawArray("q", 2 * num_environments + 2), context.RLock())


class ProcessLock:
    """A re-entrant lock of threads and processes that reports a dead holder."""

    def __init__(self, parts: Shared) -> None:
        self._lock, self._holder = parts.lock, np.frombuffer(parts.words, np.int64)[-1:]

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            raise TimeoutError(
                "`tfrl.replay`: a shared store expected its lock to be free within "
                f"{_PATIENCE_SECONDS:.0f} s; got it held by process "
                f"{self._holder[0]}, which may have been killed inside a call; "
                "make a new buffer"
            )
        self._holder[0] = os.getpid()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
