"""Calls in gin's words: what it binds to a function, and calls written as bindings."""

import inspect
from collections.abc import Mapping
from typing import Any

import gin

from tfrl.training.configuring import _gin_hooks

# What stands for something to be called; all else of `_kept_arguments` is no name.
_MARKS = ("=call", "=partial", "=name")


def bound(target: Any) -> tuple[Any, dict[str, Any]] | None:
    """Returns the function behind one that gin configures, and what is bound to it.

    Args:
        target: anything.

    Returns:
        None of anything else, the function itself among it.
    """
    try:
        configured = gin.get_configurable(target)
    except (KeyError, TypeError, ValueError):
        # It is not known to gin, or cannot be looked up at all.
        return None
    if configured is not target:
        return None
    return inspect.unwrap(target), gin.get_bindings(target)


def imported() -> list[str]:
    """Returns the modules that the configuration imports."""
    found = (each for _, each in _gin_hooks.statements(gin.config_str()))
    return [each.module for each in found if isinstance(each, _gin_hooks.Import)]


def written(
    name: str, arguments: Mapping[str, Any], names: Mapping[str, str]
) -> list[str] | None:
    """Writes a call as gin bindings.

    Args:
        name: of what is called.
        arguments: of the call by name, as `_kept_arguments.kept` returns them.
        names: how configurations call what `_kept_arguments` calls "module:name".

    Returns:
        The lines; None if gin has no words for it.
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
