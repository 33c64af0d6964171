"""Standard output as what a run can do without: where it fails, the run goes on."""

import contextlib
import io
import os
import select
import sys
from typing import Any


class Spare:
    r"""What is written here goes to standard output, or nowhere if that takes nothing.

    A reader that is gone, a full disk and a closed terminal are no reason to end a run.

    Args:
        name: of the stream in `sys`, looked up at each call.

    Example:
        >>> Spare("stdout").write("half way\n")
        half way
        9
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _stream(self) -> Any:
        stream = getattr(sys, self._name)
        # Rich puts itself in place of it while it draws.
        return getattr(stream, "rich_proxied_file", stream)

    @property
    def encoding(self) -> str:
        """That of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        isatty = getattr(self._stream, "isatty", None)
        return isatty is not None and bool(isatty())

    def fileno(self) -> int:
        """The number of the stream; an OSError if it has none."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._stream.fileno())

    def write(self, text: str) -> int:
        """Writes a text, or loses it."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hands on what was written, or loses it."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._stream.flush()


STDOUT, STDERR = Spare("stdout"), Spare("stderr")


def say(text: str) -> None:
    """Prints a line at once, or loses it.

    Args:
        text: the line.

    Example:
        >>> say("half way")
        half way
    """
    print(text, file=STDOUT, flush=True)


def complain(text: str) -> None:
    """Prints a line to stderr at once, or loses it.

    Args:
        text: the line.

    Example:
        >>> complain("tfrl: nothing is wrong")
    """
    print(text, file=STDERR, flush=True)


def is_unread() -> bool:
    """Returns whether whoever read standard output has left, as `| head` does.

    Example:
        >>> is_unread()
        False
    """
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    if not hasattr(select, "poll"):
        return False
    asked = select.poll()
    asked.register(number, 0)  # errors are always told
    return any(event & select.POLLERR for _, event in asked.poll(0))


def settle() -> None:
    """Lets the process end without a complaint about what could not be written.

    Python would fail at its end for what a stream still holds.

    Example:
        >>> settle()
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
