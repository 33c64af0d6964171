"""What a checkpoint takes from an object: variables, arrays, buffers and generators.

Objects are searched by attributes, keys and indices, as `core.nest.get_all_parameters`
does; `tf.train.Checkpoint` would lose Keras layers in lists and in dictionaries.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import pytree
from tfrl.replay import episodes, numpy_storage, ring_buffer, variable_buffer
from tfrl.replay.sampling import prioritized, uniform
from tfrl.training.checkpointing import _keras_names, _named_arrays

_SWITCH = "_checkpoint_enabled"
# What `tfrl.replay.save` saves.
REPLAYS = (
    episodes.EpisodeStore,
    numpy_storage.NumpyStorage,
    prioritized.PrioritizedReplay,
    ring_buffer.RingBuffer,
    uniform.UniformReplay,
    variable_buffer.VariableStorage,
)
# What `tf.train.Checkpoint` saves and a search for variables does not find.
_LOST = (
    tf.data.Iterator,
    tf.lookup.experimental.DenseHashTable,
    tf.lookup.experimental.MutableHashTable,
    tf.train.experimental.PythonState,
)
_KERAS = (keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer)
_GENERATORS = tf.random.Generator | np.random.Generator
_SPECIAL = ("optimizer", "opt_state", "replay_buffer", "data_transformer")


@dataclasses.dataclass
class Contents:
    """What was found in an item.

    Attributes:
        arrays: variables, and the leaves of an immutable item, by name.
        replays: buffers, stores and samplers of `tfrl.replay`, by name.
        generators: of NumPy, by name.
        immutable: whether the item is a nest of arrays, which a load replaces.
    """

    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)
    replays: dict[str, tf.Module] = dataclasses.field(default_factory=dict)
    generators: dict[str, np.random.Generator] = dataclasses.field(default_factory=dict)
    immutable: bool = False

    def names(self) -> list[str]:
        """Returns all names."""
        return [*self.arrays, *self.replays, *self.generators]


def search(where: str, name: str, item: Any) -> Contents:
    """Finds what a checkpoint takes from an item.

    Args:
        where: name of the function that asks.
        name: of the item; the names of what is in it begin with it.
        item: module, layer, optimizer, buffer, generator, variable, `PyTreeNode`, or
            dictionary, list or tuple of these.

    Returns:
        What was found.

    Raises:
        TypeError: if nothing can be saved of it, or something in it would be lost.
        ValueError: if a layer is not built, two names are equal, or a list holds
            itself.

    Example:
        >>> layer = keras.layers.Dense(2)
        >>> layer.build((None, 3))
        >>> list(search("save", "net", {"critics": [layer]}).arrays)
        ['net.critics.0.kernel', 'net.critics.0.bias']
    """
    try:
        return _found(where, name, item)
    except RecursionError as error:
        raise ValueError(
            f"`{where}`: `{name}` expected objects nested some hundred times at most; "
            f"got a {type(item).__name__} nested deeper, or that holds itself; pass "
            "its parts as items of their own"
        ) from error


def _found(where: str, name: str, item: Any) -> Contents:
    found = Contents()
    if _is_nest_of_arrays(item):
        found.immutable = True
        leaves = _named_arrays.name_arrays(item, name)
        # A slash in a key is one in the path of a Keras variable.
        dotted = [re.sub("/|~1", ".", key).replace("~0", "~") for key in leaves]
        found.arrays = dict(
            zip(_keras_names.renumbered(dotted), leaves.values(), strict=True)
        )
        if len(found.arrays) < len(leaves):
            raise ValueError(
                f"`{where}`: `{name}` expected keys whose names, joined by dots, "
                f"differ; got {list(leaves)}; rename one"
            )
        return found
    _check_no_arrays(where, name, item)
    _visit(where, name, item, found, set())
    known = isinstance(item, tf.Module | Mapping | list | tuple) or isinstance(
        item, _KERAS
    )
    if not found.names() and not known and is_enabled(item):
        raise TypeError(
            f"`{where}`: `{name}` expected modules, layers, optimizers, buffers, "
            f"generators, variables or `PyTreeNode`s; got {type(item).__name__}, in "
            "which there is none; leave it out"
        )
    return found


def special_kind(name: str, item: Any = None) -> str | None:
    """Tells whether a name belongs to a part that loads may leave out.

    Args:
        name: a name in `Contents`.
        item: the item it is of, if known.

    Returns:
        "optimizer", "replay_buffer" or "data_transformer", or None.

    Example:
        >>> special_kind("agent.state.opt_state.0"), special_kind("agent.net.kernel")
        ('optimizer', None)
    """
    if isinstance(item, keras.optimizers.Optimizer):
        return "optimizer"
    for part in name.split("."):
        word = part.strip("_").removesuffix("s")
        for kind in _SPECIAL:
            if word == kind or word.endswith(f"_{kind}"):
                return "optimizer" if kind == "opt_state" else kind
    return None


class Parts:
    """What items consist of, all together.

    Attributes:
        found: contents by the item's name.
        arrays: as in `Contents`, of all items.
        replays: likewise.
        generators: likewise.
        kinds: the `special_kind` of names that have one.

    Args:
        where: as for `search`, which see for errors.
        items: by name.

    Example:
        >>> Parts("save", {"scale": tf.Variable(1.0)}).names()
        ['scale']
    """

    def __init__(self, where: str, items: Mapping[str, Any]) -> None:
        self.found = {name: search(where, name, items[name]) for name in items}
        self.arrays: dict[str, Any] = {}
        self.replays: dict[str, tf.Module] = {}
        self.generators: dict[str, np.random.Generator] = {}
        self.kinds: dict[str, str] = {}
        for item, contents in self.found.items():
            self.arrays.update(contents.arrays)
            self.replays.update(contents.replays)
            self.generators.update(contents.generators)
            for name in contents.names():
                kind = special_kind(name, items[item])
                if kind is not None:
                    self.kinds[name] = kind
        self.kinds.update(dict.fromkeys(self.replays, "replay_buffer"))

    def names(self) -> list[str]:
        """Returns all names."""
        return [*self.arrays, *self.replays, *self.generators]


def enable(module: Any, flag: bool) -> None:
    """Says whether `search` looks into an object.

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


def _visit(where: str, name: str, item: Any, found: Contents, seen: set[int]) -> None:
    if id(item) in seen or not is_enabled(item):
        return
    seen.add(id(item))
    if isinstance(item, tf.Variable | keras.Variable):
        _add(where, found.arrays, name, item)
    elif isinstance(item, REPLAYS):
        _add(where, found.replays, name, item)
    elif isinstance(item, np.random.Generator):
        _add(where, found.generators, name, item)
    elif isinstance(item, tf.random.Generator):
        _visit(where, f"{name}.state", item.state, found, seen)
    elif isinstance(item, _LOST):
        raise TypeError(
            f"`{where}`: `{name}` expected what can be saved; got a "
            f"{type(item).__name__}; keep its content in variables, or call "
            "enable_checkpoint with it and False"
        )
    elif isinstance(item, pytree.PyTreeNode):
        raise _immutable(where, name, item)
    elif isinstance(item, _KERAS):
        _visit_keras(where, name, item, found, seen)
    else:
        for key, part in _parts(item):
            _visit(where, f"{name}.{key}", part, found, seen)


def _check_no_arrays(where: str, name: str, item: Any) -> None:
    """Raises if an array lies in a dictionary or list beside what is assigned to.

    Those in modules are constants.
    """
    if isinstance(item, Mapping | list | tuple):
        for key, part in _parts(item):
            _check_no_arrays(where, f"{name}.{key}", part)
    elif _is_array(item):
        raise _immutable(where, name, item)


def _immutable(where: str, name: str, item: Any) -> TypeError:
    return TypeError(
        f"`{where}`: `{name}` expected nothing immutable inside of what is loaded in "
        f"place; got a {type(item).__name__}; pass it as an item of its own"
    )


def _visit_keras(
    where: str, name: str, item: Any, found: Contents, seen: set[int]
) -> None:
    if isinstance(item, keras.layers.Layer) and not item.built:
        raise ValueError(
            f"`{where}`: `{name}` expected built layers; got {item.name!r}, which has "
            "no variables yet; call it once, or its `build`"
        )
    hidden = {id(each) for layer in _disabled(item, set()) for each in layer.variables}
    own = f"{getattr(item, 'path', item.name)}/"
    paths = [each.path.removeprefix(own).replace("/", ".") for each in item.variables]
    if isinstance(item, keras.optimizers.Optimizer):
        # Their names depend on how many layers there were before.
        paths = [str(i) for i in range(len(paths))]
    counts: collections.Counter = collections.Counter()
    for path, variable in zip(
        _keras_names.renumbered(paths), item.variables, strict=True
    ):
        counts[path] += 1
        if id(variable) not in seen | hidden:
            seen.add(id(variable))
            same = f":{counts[path] - 1}" if counts[path] > 1 else ""
            _add(where, found.arrays, f"{name}.{path}{same}", variable)
    for key, part in vars(item).items():
        own = key.startswith("_")
        if not own or not key.startswith("_self_") and _is_foreign(part):
            _visit(where, f"{name}.{key}", part, found, seen)


def _is_foreign(part: Any) -> bool:
    """Whether Keras would not know of what a layer keeps under a private name."""
    if isinstance(part, list | tuple | Mapping):
        parts = part.values() if isinstance(part, Mapping) else part
        return bool(part) and all(map(_is_foreign, parts))
    return isinstance(part, tf.Module | tf.Variable | pytree.PyTreeNode | _GENERATORS)


def _disabled(item: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the layers inside a Keras object that are not to be saved."""
    parts = [part for key, part in vars(item).items() if not key.startswith("_")]
    parts += getattr(item, "layers", None) or []
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, keras.layers.Layer):
            if is_enabled(part):
                yield from _disabled(part, seen)
            else:
                yield part
        elif isinstance(part, Mapping):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part


def _parts(item: Any) -> Iterator[tuple[Any, Any]]:
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


def _add(where: str, group: dict[str, Any], name: str, item: Any) -> None:
    if name in group:
        raise ValueError(
            f"`{where}`: expected every part under a name of its own; got two of "
            f"{name!r}; rename one"
        )
    group[name] = item


def _is_nest_of_arrays(item: Any) -> bool:
    """Whether a load must replace the item, as nothing in it can be changed."""
    if isinstance(item, pytree.PyTreeNode):
        return True
    if isinstance(item, Mapping):
        parts = list(item.values())
    elif isinstance(item, list | tuple):
        parts = list(item)
    else:
        return _is_array(item)
    return bool(parts) and all(map(_is_nest_of_arrays, parts))


def _is_array(item: Any) -> bool:
    is_variable = isinstance(item, tf.Variable | keras.Variable)
    return isinstance(item, np.ndarray | np.generic) or (
        tf.is_tensor(item) and not is_variable
    )
