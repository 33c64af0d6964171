"""Ends the processes of vector environments, whatever has become of them."""

import contextlib
import time
from typing import Any

# So long may processes take to close their environments where a call was broken off.
_CLOSING_SECONDS = 1.0


def close(envs: Any) -> None:
    """Closes a vector environment, also one of which a process has ended before.

    Nothing is lost by that: nobody asks for what it would play.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 1, "async")
        >>> envs.processes[0].kill()
        >>> close(envs)
        >>> envs.closed
        True
    """
    try:
        envs.close()
    except (ConnectionError, EOFError):
        vector = envs.unwrapped
        if not hasattr(vector, "processes"):
            raise
        end_processes(vector)


def end_processes(vector: Any) -> None:
    """Closes an `AsyncVectorEnv`, whose own `close` would wait for lost answers.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 1, "async")
        >>> end_processes(envs)
        >>> envs.processes[0].exitcode
        0
    """
    vector.closed = True
    for pipe in vector.parent_pipes:
        with contextlib.suppress(OSError):  # of one that has ended
            pipe.send(("close", None))
    deadline = time.monotonic() + _CLOSING_SECONDS
    for process in vector.processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
    for process in vector.processes:
        process.join()
