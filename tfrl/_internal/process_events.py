"""Events that one process sets and another waits for."""

import os
import select
import weakref
from collections.abc import Sequence
from contextlib import suppress


class ProcessEvent:
    """An event of processes, without a lock that a killed one could keep.

    It is a pipe: who sets it writes to that, and who waits for it empties it. Any
    number of processes may set it; one waits.

    Args:
        fds: file descriptors of both ends, of an event of another process, which stay
            its own; None makes a new pipe.

    Attributes:
        fds: file descriptors of both ends, to be passed to another process.

    Example:
        >>> event = ProcessEvent()
        >>> there = ProcessEvent(event.fds)
        >>> event.wait(0.0)
        False
        >>> there.set()
        >>> event.wait(9.0), event.wait(0.0)
        (True, False)
    """

    def __init__(self, fds: Sequence[int] | None = None) -> None:
        if fds is None:
            fds = os.pipe()
            for fd in fds:
                os.set_blocking(fd, False)
                weakref.finalize(self, os.close, fd)
        self.fds = tuple(fds)
        self._poll = select.poll()
        self._poll.register(self.fds[0], select.POLLIN)

    def set(self) -> None:
        """Wakes who waits, or will wait next."""
        with suppress(BlockingIOError):  # of a full pipe, which is set
            os.write(self.fds[1], b"\0")

    def wait(self, seconds: float) -> bool:
        """Waits until it is set, at most so long, and clears it.

        Look for what happened after that: nothing is missed then.

        Returns:
            Whether it was set.
        """
        if not self._poll.poll(1e3 * seconds):
            return False
        with suppress(BlockingIOError):  # if another emptied it
            os.read(self.fds[0], 1 << 16)
        return True
