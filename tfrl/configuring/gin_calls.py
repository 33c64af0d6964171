"""Calls in gin's words: what it binds to a function, and calls written as bindings."""

import inspect
from collections.abc import Mapping
from typing import Any

import gin

from tfrl.configuring import _gin_hooks

# What stands for something to be called; all else that `run.json` marks is no name.
_MARKS = ("=call", "=partial", "=name")


def bound_call(target: Any) -> tuple[Any, dict[str, Any]] | None:
    """Returns the function behind one that gin configures, and what is bound to it.

    Args:
        target: anything.

    Returns:
        None of anything else, the function itself among it.

    Example:
        >>> bound_call(len) is None
        True
    """
    try:
        configured = gin.get_configurable(target)
    except (KeyError, TypeError, ValueError):
        # It is not known to gin, or cannot be looked up at all.
        return None
    if configured is not target:
        return None
    return inspect.unwrap(target), gin.get_bindings(target)


def imported_modules() -> list[str]:
    """Returns the modules that the configuration imports.

    Returns:
        Their names, in the order of the configuration.

    Example:
        >>> tfrl.configuring.clear()
        >>> imported_modules()
        []
    """
    found = (each for _, each in _gin_hooks.statements(gin.config_str()))
    return [each.module for each in found if isinstance(each, _gin_hooks.Import)]


def written_call(
    name: str, arguments: Mapping[str, Any], names: Mapping[str, str]
) -> list[str] | None:
    """Writes a call as gin bindings.

    Args:
        name: of what is called.
        arguments: of the call by name, nested calls among them as `run.json` has them.
        names: how configurations call functions, by "module:name".

    Returns:
        The lines; None if gin has no words for it.

    Example:
        >>> written_call("Trainer", {"seed": 3}, {})
        ['Trainer.seed = 3']
    """
    calls: dict[str, Mapping[str, Any]] = {name: arguments}
    lines, waiting = [], [name]
    while waiting:
        name = waiting.pop(0)
        for parameter, value in calls[name].items():
            text = repr(value)
            marks = (
                {key for key in value if key in _MARKS} if type(value) is dict else ()
            )
            if marks:
                (kind,) = marks
                inner = names.get(value[kind])
                given = {key: item for key, item in value.items() if key != kind}
                # One name has one set of bindings.
                if inner is None or calls.setdefault(inner, given) is not given:
                    return None
                waiting.append(inner)
                text = f"@{inner}()" if kind == "=call" else f"@{inner}"
            elif "'=" in text or not _gin_hooks.is_writable(value):
                # Marks that are further inside would be read as text.
                return None
            lines.append(f"{name}.{parameter} = {text}")
    return lines
