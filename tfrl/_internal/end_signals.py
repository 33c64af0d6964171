"""Signals that end a process: which there are, and whose handler they keep."""

import contextlib
import signal
import threading
from collections.abc import Iterator


def hangups() -> list[int]:
    """Returns SIGHUP, to be treated as SIGTERM is, if it would end this process.

    Windows has none, and under `nohup` it is ignored.

    Example:
        >>> before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        >>> hangups()
        []
        >>> _ = signal.signal(signal.SIGHUP, before)
    """
    number = getattr(signal, "SIGHUP", None)
    if number is None or signal.getsignal(number) == signal.SIG_IGN:
        return []
    return [int(number)]


@contextlib.contextmanager
def kept_sigterm() -> Iterator[None]:
    """Keeps the handler of SIGTERM, where TensorFlow and Ray set their own.

    Example:
        >>> before = signal.getsignal(signal.SIGTERM)
        >>> with kept_sigterm():
        ...     _ = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        >>> signal.getsignal(signal.SIGTERM) == before
        True
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)
