"""The inner state of environments, captured to resume a run in the middle of episodes.

A snapshot is a nest of plain values and numpy arrays. It holds the data attributes of
the environment, of its wrappers and sub-environments and of the simple Python objects
they own, and the states of their random generators. Nothing is imported or created by
name on restoring: a snapshot is read into an environment built like the first one.

State outside of Python attributes cannot be seen: a simulator behind an integer handle,
the global generators of `random` and `numpy.random`, variables of a closure, arguments
of `functools.partial`, the object of a method that no attribute holds.
"""

import collections
import enum
import functools
import logging
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from tfrl._internal import arguments

_ENVIRONMENTS = (gymnasium.Env, gymnasium.vector.VectorEnv)
# Attributes of environments and wrappers that tell how they were made.
_HOW_MADE = {"metadata", "_metadata", "_saved_kwargs", "_ezpickle_kwargs", "spec"}
_HOW_MADE |= {"compiled"}
# Where a space keeps its random generator: all of it that can change.
_GENERATOR = "_np_random"
# What never changes or is no state: it is not captured and not touched.
_CONSTANTS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    functools.partial,
    np.ufunc,
    np.dtype,
    pathlib.PurePath,
    logging.Logger,
    gymnasium.envs.registration.EnvSpec,
)
_SCALARS = (type(None), bool, int, float, str, bytes)
_COLLECTIONS: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
_DICTS: dict[str, Callable[..., Any]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
}
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class _Plain:
    """Has the size of every object whose whole state is its `__dict__`."""


def capture(env: Any) -> dict[str, Any] | None:
    """Captures the state of an environment, or returns None if it cannot.

    Args:
        env: environment, wrapped or not, or vector environment that runs in this
            process.

    Returns:
        Plain values in dictionaries with text keys, lists and numpy arrays, none of
        them shared with the environment; or `None` if `uncapturable` has a reason.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> _ = env.reset(seed=3)
        >>> snapshot = capture(env)
        >>> after = env.step(1)[0]
        >>> copy = gym.make("CartPole-v1")
        >>> restore(copy, snapshot)
        >>> bool((copy.step(1)[0] == after).all())
        True
    """
    arguments.check_type("capture", "env", env, _ENVIRONMENTS, "an environment")
    return _attempt(env)[0]


def uncapturable(env: Any) -> str | None:
    """Returns why `capture` cannot capture an environment.

    Args:
        env: environment or vector environment.

    Returns:
        Path and type of the first attribute that is more than plain data, such as an
        object of a simulator written in C or a worker process; `None` if there is
        none.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> uncapturable(env) is None
        True
        >>> env.unwrapped.engine = memoryview(b"")
        >>> uncapturable(env)
        'env.env.env.env.engine is of type builtins.memoryview'
    """
    return _attempt(env)[1]


def restore(env: Any, snapshot: dict[str, Any]) -> None:
    """Puts an environment into the state that was captured from one like it.

    Args:
        env: an environment built in the same way; its own state is overwritten.
        snapshot: what `capture` returned.

    Raises:
        ValueError: if the environment's id, or a class or count of its parts (a
            `StructureError`), is not the captured one; then nothing has been changed.

    Example:
        >>> restore(gym.make("Acrobot-v1"), capture(gym.make("CartPole-v1")))
        Traceback (most recent call last):
        ...
        ValueError: `restore`: `env` expected the environment captured, CartPole-v1; \
got Acrobot-v1; begin a new episode in this one
    """
    arguments.check_type("restore", "env", env, _ENVIRONMENTS, "an environment")
    if not isinstance(snapshot, dict) or "id" not in snapshot:
        expected = "what `capture` returned"
        raise arguments.wrong_type("restore", "snapshot", snapshot, expected)
    if _id(env) != snapshot["id"]:
        raise ValueError(
            f"`restore`: `env` expected the environment captured, {snapshot['id']}; "
            f"got {_id(env)}; begin a new episode in this one"
        )
    count = getattr(env, "num_envs", None)
    if snapshot.get("num_envs", count) != count:
        raise ValueError(
            f"`restore`: `env` expected {snapshot['num_envs']} environments, as were "
            f"captured; got {count}"
        )
    plan = _Restoration(snapshot["nodes"])
    plan.build(snapshot["root"], env, "env")
    for step in plan.steps:
        step()


class StructureError(ValueError):
    """Raised for an environment built differently from the captured one."""


class _UncapturableError(Exception):
    """Of what is more than plain data, and where it is."""


def _attempt(env: Any) -> tuple[dict[str, Any] | None, str | None]:
    try:
        return _Capture(env).snapshot, None
    except _UncapturableError as error:
        return None, f"{error.args[1]} is of type {_class_of(error.args[0])}"
    except RecursionError:
        return None, "env owns too deep a nest"


def _mismatch(path: str, expected: Any, got: Any) -> StructureError:
    return StructureError(
        f"`restore`: `env` expected the structure captured, {expected} at {path}; "
        f"got {got}"
    )


def _id(env: Any) -> str | None:
    return getattr(getattr(env.unwrapped, "spec", None), "id", None)


def _class_of(value: Any) -> str:
    # Types that SWIG makes, as those of Box2D, have no module.
    kind = type(value)
    return f"{getattr(kind, '__module__', None)}.{kind.__qualname__}"


def _is_constant(value: Any) -> bool:
    # A drawing surface shows the state but holds none.
    return isinstance(value, _CONSTANTS) or _class_of(value).startswith("pygame.")


def _is_simple(value: Any) -> bool:
    """Tells whether an object's class is made in Python and its state its `__dict__`.

    Classes made in C, or with slots, have room for more in their instances. Objects
    of the standard library (files, processes) stand for more than they hold.
    """
    is_foreign = _class_of(value).split(".")[0] not in sys.stdlib_module_names
    has_only_dict = type(value).__basicsize__ == _Plain.__basicsize__
    return is_foreign and has_only_dict and hasattr(value, "__dict__")


def _can_change(value: Any, name: str, item: Any) -> bool:
    """Tells whether an attribute is part of the state of an object."""
    if isinstance(value, gymnasium.Space):
        return name == _GENERATOR or _holds_space(item)
    return not (isinstance(value, _ENVIRONMENTS) and name in _HOW_MADE)


def _holds_space(item: Any) -> bool:
    if not isinstance(item, dict | list | tuple):
        return isinstance(item, gymnasium.Space)
    return any(map(_holds_space, item.values() if isinstance(item, dict) else item))


def _attributes(value: Any) -> dict[str, Any]:
    """Returns what can change."""
    return {
        name: item
        for name, item in vars(value).items()
        if _can_change(value, name, item) and not _is_constant(item)
    }


class _Capture:
    """Walks an environment once; what is met twice becomes one node."""

    def __init__(self, env: Any) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._known: dict[int, int] = {}
        # Keeps the ids above from being given to other objects.
        self._alive: list[Any] = []
        self._arrays: list[tuple[dict[str, Any], np.ndarray]] = []
        root = self._value(env, "env")
        self._join_views()
        count = getattr(env, "num_envs", None)
        self.snapshot = {"id": _id(env), "num_envs": count, "root": root}
        self.snapshot["nodes"] = self._nodes

    def _value(self, value: Any, path: str) -> Any:
        is_number = isinstance(value, np.generic) and value.dtype.kind in "biufcSUMm"
        if type(value) in _SCALARS or is_number:
            return value
        if id(value) not in self._known:
            self._alive.append(value)
            self._known[id(value)] = len(self._nodes)
            node: dict[str, Any] = {}
            self._nodes.append(node)
            node.update(self._describe(node, value, path))
        return {"node": self._known[id(value)]}

    def _describe(self, node: dict[str, Any], value: Any, path: str) -> dict[str, Any]:
        kind = type(value)
        if kind is np.ndarray and value.dtype.kind in "biufcSUMm":
            self._arrays.append((node, value))
            order = "C" if value.flags.c_contiguous or value.ndim < 2 else "F"
            return {"kind": "array", "value": value.copy(), "order": order}
        if kind in _COLLECTIONS.values():
            items = self._items(value, path)
            maxlen = getattr(value, "maxlen", None)
            return {"kind": kind.__name__, "items": items, "maxlen": maxlen}
        if kind in _DICTS.values():
            keys = self._items(value, f"{path}, key ")
            items = [self._item(value[key], f"{path}[{key!r}]") for key in value]
            return {"kind": kind.__name__, "keys": keys, "items": items}
        if isinstance(value, enum.Enum):
            return {"kind": "enum", "type": _class_of(value), "name": value.name}
        if kind is np.random.Generator:
            state = value.bit_generator.state
            if state["bit_generator"] not in _BIT_GENERATORS:
                raise _UncapturableError(value.bit_generator, path)
            return {"kind": "generator", "state": state}
        if not _is_simple(value):
            raise _UncapturableError(value, path)
        node.update(kind="object", type=_class_of(value))
        attributes = _attributes(value)
        captured = {x: self._value(y, f"{path}.{x}") for x, y in attributes.items()}
        untouched = sorted(set(vars(value)) - set(captured))
        return {"attributes": captured, "untouched": untouched}

    def _items(self, values: Any, path: str) -> list[Any]:
        return [self._item(item, f"{path}[{i}]") for i, item in enumerate(values)]

    def _item(self, value: Any, path: str) -> Any:
        if _is_constant(value):
            self._nodes.append({"kind": "constant", "type": _class_of(value)})
            return {"node": len(self._nodes) - 1}
        # Collections grow and shrink; a restored one can hold an object only if the
        # fresh one has its like, which is sure for parts of environments alone.
        is_part = isinstance(value, (*_ENVIRONMENTS, gymnasium.Space))
        if isinstance(value, enum.Enum) or _is_simple(value) and not is_part:
            raise _UncapturableError(value, path)
        return self._value(value, path)

    def _join_views(self) -> None:
        """Lets arrays that are views of the same memory be so again."""
        groups: dict[int, list[tuple[dict[str, Any], np.ndarray]]] = {}
        for node, array in self._arrays:
            owner = _owner(array)
            self._alive.append(owner)
            key = owner if owner.base is None else owner.base
            groups.setdefault(id(key), []).append((node, array))
        for group in groups.values():
            if len(group) > 1:
                self._join(group)

    def _join(self, group: list[tuple[dict[str, Any], np.ndarray]]) -> None:
        owner = _owner(group[0][1])
        dense = owner if owner.flags.c_contiguous else owner.T
        if owner.base is not None or not dense.flags.c_contiguous:
            raise _UncapturableError(owner.base, "the memory of some arrays")
        value = dense.reshape(-1).view(np.uint8).copy()
        memory = {"node": len(self._nodes)}
        self._nodes.append({"kind": "array", "value": value, "order": "C"})
        start = owner.__array_interface__["data"][0]
        for node, array in group:
            offset = array.__array_interface__["data"][0] - start
            node.update(kind="view", memory=memory, value=None, dtype=array.dtype.str)
            node.update(shape=array.shape, strides=array.strides, offset=offset)


def _owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Restoration:
    """Builds everything captured beside a fresh environment, then puts it in."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = nodes
        self._built: dict[int, Any] = {}
        self._reused: set[int] = set()
        self.steps: list[Callable[[], Any]] = []

    def build(self, value: Any, fresh: Any, path: str) -> Any:
        """Builds a value; `fresh` is what the fresh environment has in its place."""
        if not isinstance(value, dict):
            return value
        index = value["node"]
        if index not in self._built:
            self._built[index] = self._make(index, fresh, path)
        return self._built[index]

    def _make(self, index: int, fresh: Any, path: str) -> Any:
        node = self._nodes[index]
        match node["kind"]:
            case "array":
                return node["value"].copy(node["order"])
            case "view":
                memory = self.build(node["memory"], None, path)
                shape, strides = tuple(node["shape"]), tuple(node["strides"])
                return np.ndarray(shape, node["dtype"], memory, node["offset"], strides)
            case "generator":
                return self._generator(node["state"], fresh)
            case "constant" | "enum" | "object" if _class_of(fresh) != node["type"]:
                raise _mismatch(path, node["type"], _class_of(fresh))
            case "constant":
                return fresh
            case "enum":
                return type(fresh)[node["name"]]
            case "object":
                return self._object(index, fresh, path)
            case kind if kind in _DICTS:
                return self._dict(index, fresh, path)
        return self._collection(index, fresh, path)

    def _generator(self, state: dict[str, Any], fresh: Any) -> np.random.Generator:
        made = getattr(np.random, state["bit_generator"])(0)
        made.state = state
        current = getattr(fresh, "bit_generator", None)
        if type(current) is not type(made) or id(fresh) in self._reused:
            return np.random.Generator(made)
        # Others may hold the fresh generator, or a method of it.
        self._reused.add(id(fresh))
        self.steps.append(functools.partial(setattr, current, "state", state))
        return fresh

    def _collection(self, index: int, fresh: Any, path: str) -> Any:
        node = self._nodes[index]
        make, items = _COLLECTIONS[node["kind"]], node["items"]
        others = list(fresh) if type(fresh) is make else []
        self._check_length(items, others, path)
        others += [None] * (len(items) - len(others))
        built = (
            self.build(item, other, f"{path}[{i}]")
            for i, (item, other) in enumerate(zip(items, others, strict=False))
        )
        if make not in (list, collections.deque):
            return make(built)
        new: Any = [] if make is list else collections.deque((), node["maxlen"])
        # Known before its items are: it may contain itself.
        self._built[index] = new
        new.extend(built)
        return new

    def _dict(self, index: int, fresh: Any, path: str) -> Any:
        node = self._nodes[index]
        kind = _DICTS[node["kind"]]
        others = fresh if type(fresh) is kind else {}
        self._check_length(node["items"], others, path)
        new = self._built[index] = kind()
        for key_node, item in zip(node["keys"], node["items"], strict=True):
            key = self.build(key_node, None, path)
            new[key] = self.build(item, others.get(key), f"{path}[{key!r}]")
        return new

    def _check_length(self, items: list[Any], others: Any, path: str) -> None:
        links = [item["node"] for item in items if isinstance(item, dict)]
        has_parts = any(self._nodes[link]["kind"] == "object" for link in links)
        if has_parts and len(others) != len(items):
            raise _mismatch(path, f"{len(items)} items", f"{len(others)}")

    def _object(self, index: int, fresh: Any, path: str) -> Any:
        if id(fresh) in self._reused:
            raise _mismatch(path, "an object of its own", "one that is used twice")
        node, own = self._nodes[index], vars(fresh)
        self._reused.add(id(fresh))
        self._built[index] = fresh
        for name, value in node["attributes"].items():
            new = self.build(value, own.get(name), f"{path}.{name}")
            self.steps.append(functools.partial(own.__setitem__, name, new))
        for name in _attributes(fresh):
            if name not in node["attributes"] and name not in node["untouched"]:
                self.steps.append(functools.partial(own.pop, name))
        return fresh
