"""What of an environment, and of the objects that it owns, can change."""

import logging
import pathlib
import sys
import types
from typing import Any

import gymnasium
import numpy as np

from tfrl.environments import _callables

ENVIRONMENTS = (gymnasium.Env, gymnasium.vector.VectorEnv)
# Attributes of environments and wrappers that tell how they were made.
_HOW_MADE = {"metadata", "_metadata", "_saved_kwargs", "_ezpickle_kwargs", "spec"}
_HOW_MADE |= {"compiled", "env_fns"}
# Where a space keeps its random generator: all of it that can change.
_GENERATOR = "_np_random"
# What never changes or is no state: it is not captured and not touched.
_CONSTANTS = (
    types.ModuleType,
    type,
    np.ufunc,
    np.dtype,
    pathlib.PurePath,
    logging.Logger,
    gymnasium.envs.registration.EnvSpec,
)


class _Plain:
    """Has the size of every object whose whole state is its `__dict__`."""


def class_of(value: Any) -> str:
    # Types that SWIG makes, as those of Box2D, have no module.
    kind = type(value)
    return f"{getattr(kind, '__module__', None)}.{kind.__qualname__}"


def is_constant(value: Any, above: tuple[int, ...] = ()) -> bool:
    if isinstance(value, _callables.KINDS):
        # A function may be a variable of its own closure.
        above = *above, id(value)
        inside = _callables.carried(value).values()
        return all(id(x) in above or is_constant(x, above) for x in inside)
    # A drawing surface shows the state but holds none.
    return isinstance(value, _CONSTANTS) or class_of(value).startswith("pygame.")


def is_simple(value: Any) -> bool:
    """Tells whether an object's class is made in Python and its state its `__dict__`.

    Classes made in C, or with slots, have room for more in their instances. Objects
    of the standard library (files, processes) stand for more than they hold.
    """
    is_foreign = class_of(value).split(".")[0] not in sys.stdlib_module_names
    has_only_dict = type(value).__basicsize__ == _Plain.__basicsize__
    return is_foreign and has_only_dict and hasattr(value, "__dict__")


def _can_change(value: Any, name: str, item: Any) -> bool:
    """Tells whether an attribute is part of the state of an object."""
    if isinstance(value, gymnasium.Space):
        return name == _GENERATOR or _holds_space(item)
    return not (isinstance(value, ENVIRONMENTS) and name in _HOW_MADE)


def _holds_space(item: Any) -> bool:
    if not isinstance(item, dict | list | tuple):
        return isinstance(item, gymnasium.Space)
    return any(map(_holds_space, item.values() if isinstance(item, dict) else item))


def attributes(value: Any) -> dict[str, Any]:
    """Returns what can change."""
    return {
        name: item
        for name, item in vars(value).items()
        if _can_change(value, name, item) and not is_constant(item)
    }
