"""Which classes data may name, and how their objects are taken apart and made.

Admitted are what `keras.saving` knows (`register_keras_serializable`,
`custom_object_scope`, `get_custom_objects`) and the records of tfrl: public named
tuples, dataclasses and enums of its rooms. Names are looked up among these; none is
ever imported.
"""

import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import keras

_PACKAGE = __name__.split(".")[0]


def name_of(admitted: Any) -> str | None:
    """Returns the name by which data may refer to a class or function.

    Args:
        admitted: the class or function.

    Returns:
        What `named` takes; None if it is not admitted.

    Example:
        >>> from tfrl.core import records
        >>> name_of(records.TimeStep), name_of(int)
        ('tfrl.core.TimeStep', None)
    """
    registered = keras.saving.get_registered_name(admitted)
    if keras.saving.get_registered_object(registered) is admitted:
        return registered
    room = ".".join(getattr(admitted, "__module__", "").split(".")[:2])
    own = f"{room}.{admitted.__name__}"
    return own if _own_record(own) is admitted else None


def named(name: str) -> Any:
    """Returns the class or function that data may call so.

    Args:
        name: what `name_of` returned.

    Returns:
        The class or function.

    Raises:
        ValueError: if nothing admitted has that name.

    Example:
        >>> named("tfrl.core.StepType").__members__["MID"].value
        1
    """
    found = keras.saving.get_registered_object(name) or _own_record(name)
    if found is None:
        raise ValueError(
            f"{name!r} is not registered (keras.saving.register_keras_serializable), "
            "or not imported yet"
        )
    return found


def fields_of(cls: Any) -> tuple[str, ...] | None:
    """Returns the names of what a record holds.

    Args:
        cls: a class.

    Returns:
        The fields of a dataclass or named tuple, in order; None for other classes.

    Example:
        >>> from tfrl.core import records
        >>> fields_of(records.LossInfo)
        ('loss', 'extra')
    """
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple(cls._fields)
    return None


def _own_record(name: str) -> Any:
    # Names are those of the doors: a class may move between the files of a room.
    room, _, short = name.rpartition(".")
    door = sys.modules.get(room)
    if not room.startswith(f"{_PACKAGE}.") or short not in getattr(door, "__all__", ()):
        return None
    found = getattr(door, short)
    is_enum = isinstance(found, enum.EnumMeta)
    return found if is_enum or fields_of(found) is not None else None


def parts_of(value: Any) -> tuple[str, Any, list[Any]] | None:
    """Takes an object of an admitted class apart.

    Args:
        value: any object.

    Returns:
        Its kind, one of `MAKERS`, what identifies it, and the objects it consists of;
        None if its class is not admitted, or itself if it is a class or function.

    Raises:
        TypeError: if it has more than would come back.

    Example:
        >>> from tfrl.core import records
        >>> parts_of(records.LossInfo(1.0, ()))
        ('named_tuple', ['tfrl.core.LossInfo', ['loss', 'extra']], [1.0, ()])
    """
    is_named = isinstance(value, type | types.FunctionType)
    cls = value if is_named else type(value)
    name = name_of(cls)
    if name is None:
        return None
    if is_named:
        return "named", name, []
    if isinstance(value, enum.Enum):
        known = cls.__members__.get(value.name) is value
        return ("enum", [name, value.name], []) if known else None
    _check_class(name, cls)
    if _has_config(cls):
        config = value.get_config()
        _check_config(name, config)
        return "config", name, [config]
    fields = fields_of(cls)
    if fields is None:
        return None
    _check_record(name, value, fields)
    kind = "named_tuple" if issubclass(cls, tuple) else "record"
    return kind, [name, list(fields)], [getattr(value, field) for field in fields]


def _check_record(name: str, value: Any, fields: tuple[str, ...]) -> None:
    """Refuses records that would come back with less than they have."""
    cls = type(value)
    if not issubclass(cls, tuple):
        object.__new__(cls)  # Raises for those that are built on another type.
    further = [
        key
        for key in getattr(value, "__dict__", {})
        if key not in fields
        and not isinstance(getattr(cls, key, None), functools.cached_property)
    ]
    if further:
        raise TypeError(f"{name!r} has {further} beside its fields")


def _has_config(cls: Any) -> bool:
    return hasattr(cls, "get_config") and hasattr(cls, "from_config")


def _check_class(name: str, cls: Any) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"{name!r} is no class")
    if hasattr(cls, "variables"):
        raise TypeError(
            f"{name!r} has variables, which its configuration does not hold; use a "
            "checkpoint or the .keras format"
        )


def _check_config(name: str, config: Any) -> None:
    """Refuses configurations that Keras' own, open deserializer would read on."""
    if type(config) is not dict:
        raise TypeError(f"the configuration of {name!r} is no dict")
    waiting, seen = [config], set()
    for value in waiting:
        if isinstance(value, dict) and "class_name" in value:
            raise TypeError(f"the configuration of {name!r} holds another Keras object")
        if isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)


def _make_enum(static: list[str], _: list[Any]) -> Any:
    name, member = static
    cls = named(name)
    if not isinstance(cls, enum.EnumMeta):
        raise TypeError(f"{name!r} is no enum")
    return cls.__members__[member]


def _make_configured(name: str, items: list[Any]) -> Any:
    """Makes an object of its configuration, which runs its class' `from_config`."""
    (config,) = items
    cls = named(name)
    _check_class(name, cls)
    if not _has_config(cls):
        raise TypeError(f"{name!r} is made of no configuration")
    _check_config(name, config)
    return cls.from_config(dict(config))


def _make_named_tuple(static: list[Any], values: list[Any]) -> Any:
    return tuple.__new__(_record_class(static, values), values)


def _make_record(static: list[Any], values: list[Any]) -> Any:
    """Makes a dataclass' object; its `__init__` does not run."""
    record = object.__new__(_record_class(static, values))
    for name, value in zip(static[1], values, strict=True):
        object.__setattr__(record, name, value)
    return record


def _record_class(static: list[Any], values: list[Any]) -> Any:
    name, fields = static
    cls = named(name)
    _check_class(name, cls)
    if fields_of(cls) != tuple(fields):
        raise ValueError(
            f"{name!r} had the fields {fields} and now has {fields_of(cls)}"
        )
    if len(fields) != len(values):
        raise ValueError(f"{len(values)} values are for the fields {fields}")
    return cls


# By kind: what makes an object of what identifies it and of what it consists of.
MAKERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "named": lambda name, _: named(name),
    "enum": _make_enum,
    "config": _make_configured,
    "named_tuple": _make_named_tuple,
    "record": _make_record,
}
