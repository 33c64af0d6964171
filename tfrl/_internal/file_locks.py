"""Locks on open files, that end with the process, and what else systems lack.

POSIX systems have `fcntl`, Windows has `msvcrt`, whose locks only one can hold. Where
there is neither, locking is an error: nothing that needs a lock works without.
"""

import errno
import importlib
import os
import time
from collections.abc import Callable
from typing import Any


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
# What is locked on Windows can be neither read nor written: a byte that no file has.
_LOCKED_BYTE = 1 << 40
_LOOK_AGAIN_SECONDS = 0.02


def lock_file(file: int, shared: bool = False, wait: bool = True) -> None:
    """Locks an open file for this descriptor, until it is closed or unlocked.

    Args:
        file: descriptor.
        shared: whether others may hold a shared lock at the same time; on Windows
            they wait.
        wait: whether to wait for others.

    Raises:
        BlockingIOError: if another has the lock and `wait` is False.
        OSError: if the system has no locks.

    Example:
        >>> with open(os.devnull) as file:
        ...     lock_file(file.fileno())
    """
    if _fcntl is not None:
        kind = _fcntl.LOCK_SH if shared else _fcntl.LOCK_EX
        _fcntl.flock(file, kind | (0 if wait else _fcntl.LOCK_NB))
        return
    while True:
        try:
            _call(file, "LK_NBLCK")
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "another has the lock") from error
        time.sleep(_LOOK_AGAIN_SECONDS)


def unlock_file(file: int) -> None:
    """Gives a lock back, also if copies of the descriptor stay open.

    Args:
        file: descriptor.

    Example:
        >>> with open(os.devnull) as file:
        ...     lock_file(file.fileno())
        ...     unlock_file(file.fileno())
    """
    if _fcntl is not None:
        _fcntl.flock(file, _fcntl.LOCK_UN)
    else:
        _call(file, "LK_UNLCK")


def has_posix_files() -> bool:
    """Whether files have the locks, and folders the ways, of POSIX systems.

    There a file can be renamed while it is open, and a folder flushed to the disk.

    Returns:
        False on Windows.

    Example:
        >>> has_posix_files() == (os.name == "posix")
        True
    """
    return _fcntl is not None


def call_in_forked_children(function: Callable[[], None]) -> None:
    """Has a function called in processes forked from this one, where there are any.

    Args:
        function: without arguments.

    Example:
        >>> call_in_forked_children(lambda: None)
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _call(file: int, action: str) -> None:
    if _msvcrt is None:
        raise OSError(
            errno.ENOSYS,
            "`tfrl`: expected a system with file locks, fcntl or msvcrt; got neither; "
            "saving and reading of folders needs them",
        )
    place = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(file, getattr(_msvcrt, action), 1)
    finally:
        os.lseek(file, place, os.SEEK_SET)
