"""Rooms whose files are imported only when one of their names is asked for."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any


def door(
    room: str, names: Sequence[str], files: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a room.

    Args:
        room: the room's `__name__`.
        names: its `__all__`.
        files: of the room, which have those names that it does not import itself. A
            folder with a door of its own is a name itself.

    Example:
        >>> get, names = door("tfrl.host", ["Stepper", "door"], ["stepping"])
        >>> get("Stepper").__name__, names()
        ('Stepper', ['Stepper', 'door'])
    """

    def get(name: str) -> Any:
        if name in files and name in names:
            return importlib.import_module(f"{room}.{name}")
        for file in files if name in names else ():
            if file in names:
                continue
            module = importlib.import_module(f"{room}.{file}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return get, lambda: list(names)
