"""Values that belong to the calling context, and the traces that depend on them.

A trace computes with what was current while it was made. What `compiled` and `jit` make
has another trace for another value, if the value is read by `followed`.
"""

import contextlib
import contextvars
import dataclasses
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
Reads = dict[Callable[[], Any], None]

_recorders: contextvars.ContextVar[tuple[Reads, ...]] = contextvars.ContextVar(
    "tfrl_context_reads", default=()
)


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
    for reads in _recorders.get():
        reads[read] = None
    return read()


@contextlib.contextmanager
def recorded() -> Iterator[Reads]:
    """Notes what is read inside.

    Yields:
        A dict whose keys are what read them, in order.
    """
    reads: Reads = {}
    token = _recorders.set((*_recorders.get(), reads))
    try:
        yield reads
    finally:
        _recorders.reset(token)


def key(value: Any) -> Hashable:
    """What tells a value from others in the key of a cache.

    Args:
        value: anything. Variables, and objects that cannot be hashed, are told apart
            by identity; dataclasses by their fields.

    Returns:
        The key; it keeps alive what it stands for.

    Example:
        >>> key(3) == key(3), key([3]) == key([3])
        (True, False)
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return type(value), *[key(getattr(value, field.name)) for field in fields]
    try:
        hash(value)
    except TypeError:
        # Equal to another one that is bound to the very same object.
        return types.MethodType(id, value)
    return value
