"""Values that belong to the calling context, and the traces that depend on them.

A trace computes with what was current while it was made. What `compiled` and `jit` make
has another trace for another value, if the value is read by what is here.
"""

from collections.abc import Callable
from typing import TypeVar

from tfrl.core import _reads

T = TypeVar("T")


def followed(read: Callable[[], T]) -> T:
    """Reads a value of the context, which a trace being made then depends on.

    Args:
        read: returns the value, such as `get` of a `contextvars.ContextVar`; hashable,
            and always the same for one value.

    Returns:
        What `read` returns.

    Example:
        >>> import contextvars
        >>> mode = contextvars.ContextVar("mode", default="train")
        >>> followed(mode.get)
        'train'
    """
    _reads.note(read)
    return read()
