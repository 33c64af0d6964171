"""Keras networks as plain data, alike in every process."""

import hashlib
import json
import re
from typing import Any

import keras

# Packages of which Keras finds the classes wherever a run is opened.
_FOUND = {"keras", "tfrl"}


def config_of(network: keras.layers.Layer) -> dict[str, Any]:
    """Returns the configuration of a network, from which Keras makes it again.

    Names that Keras counted, such as `dense_7`, are counted anew.

    Raises:
        ValueError: if another process could not make it; the message is a description
            that differs for networks that differ.

    Example:
        >>> one, two = (keras.layers.Dense(2) for _ in range(2))
        >>> config_of(one) == config_of(two) != config_of(keras.layers.Dense(3))
        True
    """
    kind = f"{type(network).__module__}.{type(network).__qualname__}"
    names: dict[str, str] = {}
    packages: set[str] = set()
    try:
        found = keras.saving.serialize_keras_object(network)
        _look(found, names, packages)
    except (NotImplementedError, TypeError, ValueError):
        found, packages = {"weights": [[*x.shape] for x in network.weights]}, {kind}
    found = _renamed(found, names)
    if packages <= _FOUND:
        return found
    text = json.dumps(found, sort_keys=True, default=lambda x: type(x).__name__)
    digest = hashlib.sha256(text.encode()).hexdigest()
    raise ValueError(f"an object of {kind}, digest {digest[:12]}")


def _look(part: Any, names: dict[str, str], packages: set[str]) -> None:
    """Collects counted names, with what they become, and packages of classes."""
    if isinstance(part, list | tuple):
        for inner in part:
            _look(inner, names, packages)
    if not isinstance(part, dict):
        return
    if part.get("module"):
        packages.add(str(part["module"]).partition(".")[0])
    config = part.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    if isinstance(name, str):
        base = re.sub(r"_\d+$", "", name)
        is_counted = base.replace("_", "") == str(part.get("class_name")).lower()
        if is_counted and name not in names:
            count = sum(re.sub(r"_\d+$", "", x) == base for x in names)
            names[name] = f"{base}_{count}" if count else base
    for inner in part.values():
        _look(inner, names, packages)


def _renamed(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, list | tuple):
        is_place = [type(x) for x in part] == [str, int, int]  # layer, node, output
        first = [names.get(part[0], part[0])] if is_place else []
        return [*first, *(_renamed(x, names) for x in part[len(first) :])]
    if not isinstance(part, dict):
        return part
    # What was built before it is put together gets other names for its weights.
    return {
        key: names.get(x, x)
        if key == "name" and isinstance(x, str)
        else _renamed(x, names)
        for key, x in part.items()
        if key != "build_config"
    }
