"""A process that ends with its parent: a pipe tells that this one is gone.

The parent gives it as the standard input, and alone holds the other end.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

_ASKED = "TFRL_ENDS_WITH_PARENT"


def options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns arguments of `subprocess.Popen` for a child that calls `watch`.

    The child is told when `stdin` of what `Popen` returns is closed, as it is when this
    process ends, however it does.

    Args:
        environment: variables of the child.

    Example:
        >>> sorted(options({}))
        ['env', 'stdin']
    """
    return {"stdin": subprocess.PIPE, "env": {**environment, _ASKED: "1"}}


def watch() -> None:
    """Has this process end, as by SIGTERM, when its parent does, if that asked for it.

    Example:
        >>> watch()
    """
    # Processes that this one starts have other parents.
    if os.environ.pop(_ASKED, None) is None:
        return
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # who asks for input has the end of it, and does not wait
    os.close(nothing)
    threading.Thread(target=_wait, args=[pipe], name="tfrl-parent", daemon=True).start()


def _wait(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written
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
