"""What of the context a trace has read while it was made."""

import contextlib
import contextvars
import dataclasses
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

Reads = dict[Callable[[], Any], None]

_recorders: contextvars.ContextVar[tuple[Reads, ...]] = contextvars.ContextVar(
    "tfrl_context_reads", default=()
)


def note(read: Callable[[], Any]) -> None:
    """Tells all recorders around the call that something is read."""
    for reads in _recorders.get():
        reads[read] = None


@contextlib.contextmanager
def recorded() -> Iterator[Reads]:
    """Notes what is read inside.

    Yields:
        A dict whose keys are what read them, in order.

    Example:
        >>> with recorded() as reads:
        ...     note(dict)
        >>> list(reads)
        [<class 'dict'>]
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
