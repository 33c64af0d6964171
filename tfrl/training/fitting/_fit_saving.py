"""What a `FitModel` is saved as, refused if it could not be loaded again."""

from collections.abc import Mapping
from typing import Any

import keras

# Packages whose classes Keras finds by their module.
_KNOWN = ("keras", "keras_hub", "keras_cv", "keras_nlp")


def described(parts: Mapping[str, Any], where: str = "FitModel") -> dict[str, Any]:
    """Returns parts of a model in what JSON has.

    Args:
        parts: by the names of arguments.
        where: name of the model's class, for messages.

    Returns:
        What `keras.saving.deserialize_keras_object` takes.

    Raises:
        ValueError: if a function or class within would not be found by it.

    Example:
        >>> described({"reduction": "sum", "network": keras.layers.ReLU()})["reduction"]
        'sum'
    """
    for name, part in parts.items():
        each = part.values() if isinstance(part, Mapping) else [part]
        if any(getattr(x, "__name__", "") == "<lambda>" for x in each):
            _refuse(where, name, "a lambda")
    found: dict[str, Any] = keras.saving.serialize_keras_object(dict(parts))
    for name, config in found.items():
        _check(where, name, config)
    return found


def _check(where: str, name: str, config: Any) -> None:
    if isinstance(config, list | tuple):
        for part in config:
            _check(where, name, part)
    if not isinstance(config, dict):
        return
    kind = str(config.get("class_name"))
    if kind == "function":
        try:
            keras.saving.deserialize_keras_object(config)
        except (TypeError, ValueError):
            _refuse(where, name, f"the function {config['config']!r}")
    elif "registered_name" in config and not kind.startswith("__"):
        registered = config["registered_name"] or kind
        is_found = keras.saving.get_registered_object(registered) is not None
        if not is_found and str(config["module"]).partition(".")[0] not in _KNOWN:
            _refuse(where, name, f"{kind!r} of {config['module']}")
    for part in config.values():
        _check(where, name, part)


def _refuse(where: str, name: str, what: str) -> None:
    raise ValueError(
        f"`{where}`: `{name}` expected what can be loaded again, decorated by "
        f"keras.saving.register_keras_serializable, to be saved; got {what}, which is "
        "not; decorate it, save within keras.saving.custom_object_scope, or save "
        "weights alone"
    )
