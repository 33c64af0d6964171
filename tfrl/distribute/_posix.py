"""Checks that the system is POSIX."""

import errno
import os
import signal
import sys


def check_posix(
    where: str,
    what: str = "a process can end with the one that started it",
    instead: str = "use `multiprocessing` there",
) -> None:
    """Raises an OSError on systems without process groups and signals that can wait.

    Args:
        where: name of the class or function that needs them.
        what: what works on POSIX systems.
        instead: what to do elsewhere.
    """
    if not (hasattr(os, "killpg") and hasattr(signal, "pthread_sigmask")):
        raise OSError(
            errno.ENOSYS,
            f"`{where}`: expected a POSIX system, where {what}; got {sys.platform}; "
            f"{instead}",
        )
