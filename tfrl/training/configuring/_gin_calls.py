"""Calls in gin's words: what it binds to a function, and calls written as bindings."""

import ast
import inspect
import re
from collections.abc import Mapping
from typing import Any

import gin

_IMPORT = re.compile(r"^(?:from (\S+) )?import (\S+)", re.MULTILINE)


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
    found = _IMPORT.findall(gin.config_str())
    return [".".join(filter(None, names)) for names in found]


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
            text = _literal(value)
            if text is None and isinstance(value, dict):
                kind, *_ = [key for key in value if key.startswith("=")] or [""]
                inner = names.get(value.get(kind, ""))
                given = {key: item for key, item in value.items() if key != kind}
                # One name has one set of bindings.
                if inner is None or calls.setdefault(inner, given) is not given:
                    return None
                waiting.append(inner)
                text = f"@{inner}()" if kind == "=call" else f"@{inner}"
            if text is None:
                return None
            lines.append(f"{name}.{parameter} = {text}")
    return lines


def _literal(value: Any) -> str | None:
    """The text of what gin reads as it is, if it is that."""
    text = repr(value)
    try:
        alike = ast.literal_eval(text) == value
    except (ValueError, SyntaxError):
        return None
    return text if alike and "'=" not in text else None
