"""What callables carry: variables of closures, arguments, the objects of methods."""

import functools
import sys
import types
from collections.abc import Iterable
from typing import Any

KINDS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
)
_SCALARS = (type(None), bool, int, float, str, bytes)


def carried(value: Any) -> dict[str, Any]:
    """Returns what a callable carries that could change, by where it is.

    A function that is imported by its name belongs to its module, as global variables
    do, and carries nothing. Numbers and texts are left out where nobody can replace
    them: in arguments and default values.
    """
    if isinstance(value, functools.partial):
        arguments = _named("args", enumerate(value.args))
        arguments |= _named("keywords", value.keywords.items())
        return {"func": value.func, **_without_scalars(arguments)}
    if not isinstance(value, types.FunctionType):
        func = getattr(value, "__func__", None)
        # Else it is compiled and carries nothing.
        own = {"__func__": func} if isinstance(func, types.FunctionType) else {}
        return {"__self__": value.__self__, **own}
    if _is_global(value):
        return {}
    defaults = _named("__defaults__", enumerate(value.__defaults__ or ()))
    defaults |= _named("__kwdefaults__", (value.__kwdefaults__ or {}).items())
    own = _named("__dict__", vars(value).items())
    return {**_variables(value), **_without_scalars(defaults), **own}


def put(value: Any, contents: dict[str, Any]) -> None:
    """Replaces what a function or a `functools.partial` carries, in place."""

    def replaced(where: str, items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        return {key: contents.get(f"{where}[{key!r}]", item) for key, item in items}

    if isinstance(value, functools.partial):
        arguments = tuple(replaced("args", enumerate(value.args)).values())
        keywords = replaced("keywords", value.keywords.items())
        func = contents.get("func", value.func)
        value.__setstate__((func, arguments, keywords, vars(value)))  # type: ignore[attr-defined]
        return
    for name, cell in _cells(value).items():
        if name in contents:
            cell.cell_contents = contents[name]
    defaults = replaced("__defaults__", enumerate(value.__defaults__ or ()))
    value.__defaults__ = tuple(defaults.values()) or None
    keywords = replaced("__kwdefaults__", (value.__kwdefaults__ or {}).items())
    value.__kwdefaults__ = keywords or None
    vars(value).update(replaced("__dict__", vars(value).items()))


def rebound(method: Any, contents: dict[str, Any]) -> Any:
    """Returns a method, bound to what `contents` has in place of its object."""
    new = contents.get("__self__", method.__self__)
    if isinstance(method, types.MethodType):
        return types.MethodType(contents.get("__func__", method.__func__), new)
    return method if new is method.__self__ else getattr(new, method.__name__)


def name_of(value: Any) -> str:
    """Returns the name by which a callable is known again."""
    if isinstance(value, functools.partial):
        return f"partial of {name_of(value.func)}"
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _named(where: str, items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return {f"{where}[{key!r}]": item for key, item in items}


def _without_scalars(items: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in items.items() if type(x) not in _SCALARS}


def _cells(value: types.FunctionType) -> dict[str, Any]:
    names = value.__code__.co_freevars
    return _named("__closure__", zip(names, value.__closure__ or (), strict=True))


def _variables(value: types.FunctionType) -> dict[str, Any]:
    filled = {}
    for name, cell in _cells(value).items():
        try:
            filled[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return filled


def _is_global(value: types.FunctionType) -> bool:
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
