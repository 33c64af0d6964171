"""The signal of a terminal that is closed."""

import signal


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
