"""Small aids for the Python around the tensors."""

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from tfrl._internal import arguments

# What runs while modules are reloaded.
_KEPT = ("importlib", __name__)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def add_method(cls: type) -> Callable[[F], F]:
    """Returns a decorator that makes a function a method of `cls`.

    Args:
        cls: the class to extend.

    Returns:
        A decorator; it sets `cls.<name of the function>` and returns the function.

    Example:
        >>> class Robot:
        ...     name = "R2"
        >>> @add_method(Robot)
        ... def greet(self):
        ...     return f"I am {self.name}"
        >>> Robot().greet()
        'I am R2'
    """

    def add(function: F) -> F:
        setattr(cls, function.__name__, function)
        return function

    return add


def as_list(x: Any) -> list:
    """Returns `x` as a list.

    Args:
        x: anything.

    Returns:
        `[]` for None, the same object for a list, the elements of a tuple, otherwise
        `[x]`.

    Example:
        >>> as_list(None), as_list((1, 2)), as_list("ab")
        ([], [1, 2], ['ab'])
    """
    if x is None:
        return []
    if isinstance(x, list):
        return x
    return list(x) if isinstance(x, tuple) else [x]


def tuplify2d(x: Any) -> tuple[Any, Any]:
    """Returns `x` for both of two dimensions.

    Args:
        x: a tuple of two, which is returned, or one value of any other type.

    Returns:
        A tuple of length 2.

    Raises:
        ValueError: if `x` is a tuple of another length.

    Example:
        >>> tuplify2d(3), tuplify2d((1, 2))
        ((3, 3), (1, 2))
    """
    if not isinstance(x, tuple):
        return x, x
    if len(x) != 2:
        raise ValueError(f"`tuplify2d`: `x` expected a tuple of length 2; got {x!r}")
    return x


def call_stack() -> list[str]:
    """Returns the stack of calls that led here, for debugging.

    Returns:
        One string per call with file, line and code, the innermost last.

    Example:
        >>> "call_stack" in call_stack()[-1]
        True
    """
    return [entry.strip() for entry in traceback.format_stack()[:-1]]


def docstring(obj: Any) -> Callable[[T], T]:
    """Returns a decorator that copies the docstring of `obj`.

    Args:
        obj: any object with a `__doc__`.

    Returns:
        A decorator that sets `__doc__` of what it decorates and returns it.

    Example:
        >>> def square(x):
        ...     '''Returns x * x.'''
        >>> @docstring(square)
        ... def fast_square(x):
        ...     return x * x
        >>> fast_square.__doc__
        'Returns x * x.'
    """

    def copy(target: T) -> T:
        target.__doc__ = obj.__doc__
        return target

    return copy


def reload_recursive(
    module: ModuleType | str, reload_external_modules: bool = False
) -> None:
    """Reloads a module and what it uses, dependencies first.

    Only modules beneath `module` (`package.part` of `package`) are reloaded with it.
    Objects made before, and names imported from a reloaded module elsewhere, keep the
    old code.

    Args:
        module: the module, or its name.
        reload_external_modules: whether to reload also every other module written in
            Python that they refer to; few large libraries survive that.

    Raises:
        TypeError: if `module` is neither a module nor a name.
        ValueError: if `module` was not imported.

    Example:
        >>> import json
        >>> reload_recursive("json")
    """
    where = "reload_recursive"
    if isinstance(module, str):
        module = importlib.import_module(module)
    arguments.check_type(where, "module", module, ModuleType, "a module or its name")
    beneath = {
        name: loaded
        for name, loaded in list(sys.modules.items())
        if name == module.__name__ or name.startswith(f"{module.__name__}.")
        # Anything may stand there, such as None, which blocks an import.
        if isinstance(loaded, ModuleType)
    }
    if module.__name__ not in beneath or module.__spec__ is None:
        raise ValueError(f"`{where}`: `module` expected to be imported; got {module!r}")
    ordered: dict[str, ModuleType] = {}
    seen: set[str] = set()

    def order(loaded: ModuleType) -> None:
        """Appends a module to `ordered` after those that it refers to."""
        if loaded.__name__ in seen:
            return
        seen.add(loaded.__name__)
        for value in list(vars(loaded).values()):
            used = sys.modules.get(_home(value))
            if isinstance(used, ModuleType) and (
                _is_written_in_python(used)
                if reload_external_modules
                else used.__name__ in beneath
            ):
                order(used)
        ordered[loaded.__name__] = loaded

    for loaded in beneath.values():
        order(loaded)
    # A package runs its submodules' imports, so it goes last.
    ordered[module.__name__] = ordered.pop(module.__name__)
    for loaded in ordered.values():
        importlib.reload(loaded)


def _home(value: Any) -> str:
    """The name of the module that a value is or comes from; "" if it does not say."""
    # Proxies of what does not exist yet raise whatever they like when asked.
    with contextlib.suppress(Exception):
        is_module = isinstance(value, ModuleType)
        name = value.__name__ if is_module else value.__module__
        return name if isinstance(name, str) else ""
    return ""


def _is_written_in_python(module: ModuleType) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", "")
    return str(origin).endswith(".py") and module.__name__ not in _KEPT
