"""Rooms whose files are imported only when one of their names is asked for."""

import gc
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def imported(module: str) -> ModuleType:
    """Imports a module, and collects no garbage meanwhile.

    The imports of TensorFlow and Keras make 600,000 objects that stay. To look through
    them again and again takes a seventh of the time.

    Args:
        module: its full name.

    Example:
        >>> imported("tfrl.host").__name__
        'tfrl.host'
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collects:
            gc.enable()


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
            return imported(f"{room}.{name}")
        for file in files if name in names else ():
            if file in names:
                continue
            module = imported(f"{room}.{file}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return get, lambda: list(names)
