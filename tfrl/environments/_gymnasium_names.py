"""What snapshots know of Gymnasium by name: which attributes hold state."""

from typing import Any

import gymnasium

ENVIRONMENTS = (gymnasium.Env, gymnasium.vector.VectorEnv)
# Attributes of environments and wrappers that tell how they were made.
_HOW_MADE = {"metadata", "_metadata", "_saved_kwargs", "_ezpickle_kwargs", "spec"}
# Where a space keeps its random generator: all of it that can change.
_GENERATOR = "_np_random"


def can_change(value: Any, name: str, item: Any) -> bool:
    """Tells whether an attribute is part of the state of an object.

    Args:
        value: the object.
        name: of the attribute.
        item: what the attribute is.
    """
    if isinstance(value, gymnasium.Space):
        return name == _GENERATOR or _holds_space(item)
    return not (isinstance(value, ENVIRONMENTS) and name in _HOW_MADE)


def _holds_space(item: Any) -> bool:
    if not isinstance(item, dict | list | tuple):
        return isinstance(item, gymnasium.Space)
    return any(map(_holds_space, item.values() if isinstance(item, dict) else item))
