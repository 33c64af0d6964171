"""What layers of other libraries are made of, by names, in what JSON has.

A function or class is named by its module, from where it is taken again; modules are
not imported for it, so that a file cannot run what its reader has not imported.
"""

import dataclasses
import sys
import warnings
from typing import Any

_PLAIN = (bool, int, float, str, type(None))


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
