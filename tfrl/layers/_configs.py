"""What layers are made of in what JSON has: nests, and functions and modules by name.

A function or class is named by its module, from where it is taken again; modules are
not imported for it, so that a file cannot run what its reader has not imported.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import Any

_PLAIN = (bool, int, float, str, type(None))


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


def described(where: str, value: Any) -> Any:
    """Returns plain data from which `made` makes a value again.

    Args:
        where: name of the function that it was given to, for messages.
        value: a number, text, what a module has under a name, `flax.linen.Module`
            with such fields, or a nest of them.

    Returns:
        The data.

    Raises:
        ValueError: if a part is something else.

    Example:
        >>> import json
        >>> described("from_jax", (json.dumps, 3))
        {'tuple': [{'name': 'json:dumps'}, 3]}
    """
    if isinstance(value, _PLAIN):
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [described(where, part) for part in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: described(where, part) for key, part in value.items()}}
    name = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    if _named(name) is not value:
        name = _place_of(value)
    if name:
        return {"name": name}
    if dataclasses.is_dataclass(value) and _is_linen(type(value)):
        fields = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init and field.name not in ("parent", "name")
        }
        defaults = {field.name: field.default for field in dataclasses.fields(value)}
        given = {k: x for k, x in fields.items() if x is not defaults[k]}
        parts = {key: described(where, part) for key, part in given.items()}
        return {"linen": described(where, type(value)), "fields": parts}
    raise ValueError(
        f"`{where}`: expected functions, classes and objects with a name in a module, "
        f"to be saved or cloned; got {value!r:.80}; define it at the top of a module, "
        "or pass `AsKeras` a factory decorated by "
        "keras.saving.register_keras_serializable"
    )


def made(where: str, data: Any) -> Any:
    """Returns what `described` was given.

    Args:
        where: name of the function that it is for, for messages.
        data: what `described` returned.

    Returns:
        The value.

    Raises:
        ValueError: if a name is not there, or no module of Flax where one should be.

    Example:
        >>> made("from_jax", {"list": [1, {"name": "dataclasses:replace"}]})[0]
        1
    """
    if isinstance(data, _PLAIN):
        return data
    for kind, build in (("list", list), ("tuple", tuple)):
        if kind in data:
            return build(made(where, part) for part in data[kind])
    if "dict" in data:
        return {key: made(where, part) for key, part in data["dict"].items()}
    if "linen" in data:
        cls = made(where, data["linen"])
        if isinstance(cls, type) and _is_linen(cls):
            return cls(**{k: made(where, part) for k, part in data["fields"].items()})
    found = _named(data["name"]) if "name" in data else None
    if found is None:
        raise ValueError(
            f"`{where}`: expected what a module that is imported has; got "
            f"{data!r:.80}; import the module that defines it"
        )
    return found


def warn_if_unnamed(layer: Any) -> None:
    """Warns of a layer that a model could not be saved or cloned with.

    Args:
        layer: with `get_config`, and `warns_if_unnamed`; of others nothing is said.

    Example:
        >>> warn_if_unnamed(3)
    """
    if getattr(layer, "warns_if_unnamed", False):
        try:
            layer.get_config()
        except ValueError as error:
            text = f"a model with this layer cannot be saved or cloned: {error}"
            warnings.warn(text, stacklevel=3)


def _named(name: str) -> Any:
    module, _, attribute = str(name).partition(":")
    return getattr(sys.modules.get(module), attribute, None)


def _place_of(value: Any) -> str:
    """The name under which a module has an object, empty if none has."""
    for module, content in list(sys.modules.items()):
        for name, found in list(getattr(content, "__dict__", {}).items()):
            if found is value:
                return f"{module}:{name}"
    return ""


def _is_linen(cls: type) -> bool:
    linen = sys.modules.get("flax.linen")
    return linen is not None and issubclass(cls, linen.Module)
