"""Methods that do not run at the same time."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def atomic(func: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a method hold its object's lock while it runs.

    The lock is the attribute `_lock`, and has to be re-entrant if atomic methods call
    each other, such as `threading.RLock()`. Where it is None the method runs as it is.

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
