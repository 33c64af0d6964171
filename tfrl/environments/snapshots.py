"""The inner state of environments, captured to resume a run in the middle of episodes.

A snapshot is a nest of plain values and numpy arrays. It holds the data attributes of
the environment, of its wrappers and sub-environments and of the simple Python objects
they own, and the states of their random generators. Nothing is imported or created by
name on restoring: a snapshot is read into an environment built as the first one was.

What a process holds outside of Python attributes cannot be seen: a simulator behind
an integer handle, the global generators of `random` and `numpy.random`, variables of
a closure.
"""

import collections
import enum
import functools
import logging
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

# What never changes, or is no state: not captured, left as it is in the new object.
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
# Constructor arguments and descriptions, not state.
_CONSTANT_NAMES = ("metadata", "_metadata", "_saved_kwargs", "_ezpickle_kwargs", "spec")
_SCALARS = (type(None), bool, int, float, str, bytes)
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_SEQUENCES = {"list": list, "tuple": tuple, "set": set}
_ENVIRONMENTS = (gymnasium.Env, gymnasium.vector.VectorEnv)


class _Plain:
    """Has the size of every object whose whole state is its `__dict__`."""


def capture(env: Any) -> dict[str, Any] | None:
    """Captures the state of an environment, or tells that it cannot be captured.

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
    try:
        return _Capture(env).snapshot
    except _UncapturableError:
        return None


def uncapturable(env: Any) -> str | None:
    """Tells why `capture` cannot capture an environment.

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
    try:
        _Capture(env)
    except _UncapturableError as error:
        return str(error)
    return None


def restore(env: Any, snapshot: dict[str, Any]) -> None:
    """Puts an environment into the state that was captured of one like it.

    Args:
        env: an environment built in the same way; its own state is overwritten.
        snapshot: what `capture` returned.

    Raises:
        ValueError: if the environment's id, or a class or count of its parts, is not
            the captured one; then nothing has been changed.

    Example:
        >>> restore(gym.make("Acrobot-v1"), capture(gym.make("CartPole-v1")))
        Traceback (most recent call last):
        ...
        ValueError: `restore`: `env` expected the environment captured, CartPole-v1; \
got Acrobot-v1; build it as it was
    """
    if _id(env) != snapshot["id"]:
        raise ValueError(
            f"`restore`: `env` expected the environment captured, {snapshot['id']}; "
            f"got {_id(env)}; build it as it was"
        )
    plan = _Restoration(snapshot["nodes"])
    plan.build(snapshot["root"], env, "env")
    plan.carry_out()


class _UncapturableError(Exception):
    """Names what is more than plain data."""


class _MismatchError(ValueError):
    def __init__(self, path: str, expected: str, got: str) -> None:
        super().__init__(
            f"`restore`: `env` expected the structure captured, {expected} at {path}; "
            f"got {got}; build it as it was"
        )


def _id(env: Any) -> str | None:
    return getattr(getattr(env.unwrapped, "spec", None), "id", None)


def _class_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_constant(name: str, value: Any) -> bool:
    # A drawing surface shows the state but holds none.
    drawn = type(value).__module__.split(".")[0] == "pygame"
    return name in _CONSTANT_NAMES or isinstance(value, _CONSTANTS) or drawn


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what can change; of a space that is only its random generators."""
    for name, item in vars(value).items():
        of_space = isinstance(value, gymnasium.Space)
        if of_space and name not in ("_np_random", "spaces", "feature_space"):
            continue
        if not _is_constant(name, item):
            yield name, item


class _Capture:
    """Walks an environment once; every object met twice becomes one node."""

    def __init__(self, env: Any) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []
        self._memory: dict[int, list[tuple[dict[str, Any], np.ndarray]]] = {}
        root = self._value(env, "env")
        self._join_views()
        self.snapshot = {"id": _id(env), "root": root, "nodes": self._nodes}

    def _value(self, value: Any, path: str) -> Any:
        if type(value) in _SCALARS or isinstance(value, np.generic):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = len(self._nodes)
            # Keeps the id from being given to another object.
            self._alive.append(value)
            node: dict[str, Any] = {}
            self._nodes.append(node)
            self._fill(node, value, path)
        return {"node": self._known[id(value)]}

    def _fill(self, node: dict[str, Any], value: Any, path: str) -> None:
        kind = type(value)
        if kind is np.ndarray and not value.dtype.hasobject:
            order = "F" if value.flags.f_contiguous else "C"
            node.update(kind="array", value=value.copy(), order=order)
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            self._alive.append(owner)
            self._memory.setdefault(id(owner), []).append((node, value))
        elif kind in _SEQUENCES.values():
            node.update(kind=kind.__name__, items=self._items(value, path))
        elif kind is collections.deque:
            items = self._items(value, path)
            node.update(kind="deque", items=items, maxlen=value.maxlen)
        elif kind is dict:
            node.update(
                kind="dict",
                keys=self._items(value, f"{path} (keys)"),
                items=[self._item(value[key], f"{path}[{key!r}]") for key in value],
            )
        elif isinstance(value, enum.Enum):
            node.update(kind="enum", type=_class_of(value), name=value.name)
        elif kind is np.random.Generator:
            state = value.bit_generator.state
            node.update(kind="generator", state=state)
            if state["bit_generator"] not in _BIT_GENERATORS:
                raise self._uncapturable(value.bit_generator, path)
        else:
            self._fill_object(node, value, path)

    def _fill_object(self, node: dict[str, Any], value: Any, path: str) -> None:
        is_part = isinstance(value, (*_ENVIRONMENTS, gymnasium.Space))
        is_simple = (
            type(value).__basicsize__ == _Plain.__basicsize__
            and hasattr(value, "__dict__")
            and type(value).__module__.split(".")[0] not in sys.stdlib_module_names
        )
        if not (is_simple or is_part and hasattr(value, "__dict__")):
            raise self._uncapturable(value, path)
        attributes = {}
        kept = sorted(set(vars(value)) - {name for name, _ in _attributes(value)})
        for name, item in _attributes(value):
            attributes[name] = self._value(item, f"{path}.{name}")
        node.update(
            kind="object", type=_class_of(value), attributes=attributes, kept=kept
        )

    def _items(self, values: Any, path: str) -> list[Any]:
        return [self._item(item, f"{path}[{i}]") for i, item in enumerate(values)]

    def _item(self, value: Any, path: str) -> Any:
        return self._value(value, path)

    def _join_views(self) -> None: ...

    def _uncapturable(self, value: Any, path: str) -> _UncapturableError:
        return _UncapturableError(f"{path} is of type {_class_of(value)}")
