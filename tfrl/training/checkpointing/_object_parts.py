"""What objects of any class consist of, and the switch that keeps one out."""

import collections
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import pytree

_SWITCH = "_checkpoint_enabled"
_GENERATORS = tf.random.Generator | np.random.Generator


def enable(module: Any, flag: bool) -> None:
    """Says whether a checkpoint looks into an object.

    Raises:
        AttributeError: if the object takes no attributes.

    Example:
        >>> module = tf.Module()
        >>> enable(module, False)
        >>> is_enabled(module)
        False
    """
    setattr(module, _SWITCH, flag)


def is_enabled(module: Any) -> bool:
    """Tells what `enable` said of an object; True if nothing.

    Example:
        >>> is_enabled(tf.Module())
        True
    """
    return bool(getattr(module, _SWITCH, True))


def is_foreign(part: Any) -> bool:
    """Whether Keras would not know of what a layer keeps under a private name.

    Example:
        >>> is_foreign([tf.Module()]), is_foreign([keras.layers.Dense(1)])
        (True, False)
    """
    if isinstance(part, list | tuple | Mapping):
        parts = part.values() if isinstance(part, Mapping) else part
        return bool(part) and all(map(is_foreign, parts))
    return isinstance(part, tf.Module | tf.Variable | pytree.PyTreeNode | _GENERATORS)


def disabled_layers(item: Any) -> list[Any]:
    """Returns the layers inside a Keras object that are not to be saved.

    Example:
        >>> layer = keras.layers.Dense(1)
        >>> enable(layer, False)
        >>> disabled_layers(keras.Sequential([layer])) == [layer]
        True
    """
    return list(_disabled(item, set()))


def _disabled(item: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the layers inside a Keras object that are not to be saved."""
    left = [part for key, part in vars(item).items() if not key.startswith("_")]
    left += getattr(item, "layers", None) or []
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, keras.layers.Layer):
            if is_enabled(part):
                yield from _disabled(part, seen)
            else:
                yield part
        elif isinstance(part, Mapping):
            left.extend(part.values())
        elif isinstance(part, list | tuple):
            left.extend(part)


def parts(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yields keys, indices or attributes of an object, and what is there.

    Example:
        >>> list(parts({"a": [1]})), list(parts([2]))
        ([('a', [1])], [(0, 2)])
    """
    if isinstance(item, Mapping):
        yield from item.items()
    elif isinstance(item, tuple) and hasattr(item, "_fields"):
        yield from zip(item._fields, item, strict=True)
    elif isinstance(item, list | tuple | collections.deque):
        yield from enumerate(item)
    elif _is_entered(item):
        for key, part in _attributes(item).items():
            # Those of TensorFlow's own bookkeeping.
            if not key.startswith(("_self_", "__")):
                yield key, part


def _attributes(item: Any) -> dict[str, Any]:
    found = dict(getattr(item, "__dict__", {}))
    for cls in type(item).__mro__:
        slots = vars(cls).get("__slots__", ())
        for key in [slots] if isinstance(slots, str) else slots:
            if not key.startswith("__") and hasattr(item, key):
                found[key] = getattr(item, key)
    return found


def _is_entered(item: Any) -> bool:
    if isinstance(item, type | ModuleType):
        return False
    # TensorFlow's own objects (functions, strategies, tensors) hold half the process.
    home = type(item).__module__.partition(".")[0]
    return isinstance(item, tf.Module) or home not in ("tensorflow", "builtins")
