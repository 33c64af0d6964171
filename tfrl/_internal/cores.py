"""How many cores a process may use."""

import os


def n_cores() -> int:
    """Returns how many cores this process may use; of systems without limits, all.

    Example:
        >>> n_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
