"""Nests in what JSON has, and back: lists stay lists, tuples stay tuples."""

from collections.abc import Callable
from typing import Any


def encoded(nest: Any, leaf: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Returns a nest in lists and dicts with strings for keys.

    Args:
        nest: nest of dicts, lists and tuples.
        leaf: function of a leaf that returns it under a name of its kind.
    """
    if isinstance(nest, dict):
        # JSON would make other keys strings.
        if not all(isinstance(key, str) for key in nest):
            return {"items": [[key, encoded(part, leaf)] for key, part in nest.items()]}
        return {"dict": {key: encoded(part, leaf) for key, part in nest.items()}}
    if isinstance(nest, list | tuple):
        kind = "list" if isinstance(nest, list) else "tuple"
        return {kind: [encoded(part, leaf) for part in nest]}
    return leaf(nest)


def decoded(config: dict[str, Any], leaf: Callable[[Any], Any]) -> Any:
    """Returns the nest that `encoded` was given.

    Args:
        config: what it returned.
        leaf: function of what it kept of a leaf that returns the leaf.
    """
    ((kind, content),) = config.items()
    if kind in ("dict", "items"):
        pairs = content.items() if kind == "dict" else content
        return {key: decoded(part, leaf) for key, part in pairs}
    if kind in ("list", "tuple"):
        parts = [decoded(part, leaf) for part in content]
        return parts if kind == "list" else tuple(parts)
    return leaf(content)
