"""A process that ends with the one that started it, however that ends."""

import os
import signal
import threading
import time

_STARTER = "TFRL_ENDS_WITH"


def variables() -> dict[str, str]:
    """Returns what a child that calls `watch` needs in its environment.

    Example:
        >>> variables() == {"TFRL_ENDS_WITH": str(os.getpid())}
        True
    """
    return {_STARTER: str(os.getpid())}


def watch() -> None:
    """Has this process end, as by SIGTERM, when its parent does, if that asked for it.

    On Windows, where nobody becomes the parent of an orphan, it goes on.

    Example:
        >>> watch()
    """
    # Processes that this one starts have other parents.
    starter = os.environ.pop(_STARTER, None)
    if starter is not None and os.name == "posix":
        given = (int(starter),)
        threading.Thread(target=_end_with, args=given, daemon=True).start()


def _end_with(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(0.2)
    os.kill(os.getpid(), _ending())


def _ending() -> int:
    """Returns a signal that asks the process to end for the first time.

    A run catches each of them once: the second one would break off what it is saving.
    """
    known = signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) not in known:
            return number
    return signal.SIGTERM
