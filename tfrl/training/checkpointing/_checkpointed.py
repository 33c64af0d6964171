"""What a checkpoint takes from an object: variables, arrays, buffers and generators.

Objects are searched by attributes, keys and indices, as `core.nest.get_all_parameters`
does; `tf.train.Checkpoint` would lose Keras layers in lists and in dictionaries.
"""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import pytree
from tfrl.replay import episodes, numpy_storage, ring_buffer, variable_buffer
from tfrl.replay.sampling import prioritized, uniform
from tfrl.training.checkpointing import (
    _keras_names,
    _layer_paths,
    _named_arrays,
    _nest_paths,
    _object_parts,
)

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
_SPECIAL = ("optimizer", "opt_state", "replay_buffer", "data_transformer")


@dataclasses.dataclass
class Contents:
    """What was found in an item.

    Attributes:
        arrays: variables, and the leaves of an immutable item, by name.
        replays: buffers, stores and samplers of `tfrl.replay`, by name.
        generators: of NumPy, by name.
        paths: of all of these, by name.
        old: their names in checkpoints of format 1.
        lost: of names in these that do not tell which layer was meant, the layer.
        slots: names of the variables of optimizers.
        immutable: whether the item is a nest of arrays, which a load replaces.
    """

    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)
    replays: dict[str, tf.Module] = dataclasses.field(default_factory=dict)
    generators: dict[str, np.random.Generator] = dataclasses.field(default_factory=dict)
    paths: dict[str, _layer_paths.Path] = dataclasses.field(default_factory=dict)
    old: dict[str, str] = dataclasses.field(default_factory=dict)
    lost: dict[str, str] = dataclasses.field(default_factory=dict)
    slots: set[str] = dataclasses.field(default_factory=set)
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
    path = (_layer_paths.Step(name),)
    walk = _Search(where)
    if _is_nest_of_arrays(item):
        walk.add_nest(path, item)
        return walk.found
    _check_no_arrays(where, name, item)
    walk.visit(path, name, item)
    known = isinstance(item, tf.Module | Mapping | list | tuple) or isinstance(
        item, _KERAS
    )
    if not walk.found.names() and not known and _object_parts.is_enabled(item):
        raise TypeError(
            f"`{where}`: `{name}` expected modules, layers, optimizers, buffers, "
            f"generators, variables or `PyTreeNode`s; got {type(item).__name__}, in "
            "which there is none; leave it out"
        )
    return walk.found


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
        paths: as in `Contents`; those of what an optimizer keeps of a variable tell
            the variable.
        old: likewise.
        lost: likewise.

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
        self.paths: dict[str, _layer_paths.Path] = {}
        self.old: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        for item, contents in self.found.items():
            self.arrays.update(contents.arrays)
            self.replays.update(contents.replays)
            self.generators.update(contents.generators)
            self.paths.update(contents.paths)
            self.old.update(contents.old)
            self.lost.update(contents.lost)
            for name in contents.names():
                kind = special_kind(name, items[item])
                if kind is not None:
                    self.kinds[name] = kind
        self.kinds.update(dict.fromkeys(self.replays, "replay_buffer"))
        slots = {name for each in self.found.values() for name in each.slots}
        self.paths.update(_layer_paths.of_slots(self.arrays, self.paths, slots))

    def names(self) -> list[str]:
        """Returns all names."""
        return [*self.arrays, *self.replays, *self.generators]


class _Search:
    """A walk through an item; `old` is the name of a part in format 1."""

    def __init__(self, where: str) -> None:
        self.found = Contents()
        self._where = where
        self._seen: set[int] = set()

    def visit(self, path: _layer_paths.Path, old: str, item: Any) -> None:
        if id(item) in self._seen or not _object_parts.is_enabled(item):
            return
        self._seen.add(id(item))
        name = _layer_paths.joined(path)
        if isinstance(item, tf.Variable | keras.Variable):
            self._add(self.found.arrays, path, old, item)
        elif isinstance(item, REPLAYS):
            self._add(self.found.replays, path, old, item)
        elif isinstance(item, np.random.Generator):
            self._add(self.found.generators, path, old, item)
        elif isinstance(item, tf.random.Generator):
            inner = (*path, _layer_paths.Step("state"))
            self.visit(inner, f"{old}.state", item.state)
        elif isinstance(item, _LOST):
            raise TypeError(
                f"`{self._where}`: `{name}` expected what can be saved; got a "
                f"{type(item).__name__}; keep its content in variables, or call "
                "enable_checkpoint with it and False"
            )
        elif isinstance(item, pytree.PyTreeNode):
            raise _immutable(self._where, name, item)
        elif isinstance(item, _KERAS):
            self._visit_keras(path, old, item)
        else:
            self._visit_parts(path, old, item, list(_object_parts.parts(item)))

    def add_nest(self, path: _layer_paths.Path, nest: Any) -> None:
        """Adds the leaves of an immutable item."""
        self.found.immutable = True
        (item,) = path
        leaves = _named_arrays.name_arrays(nest, item.token)
        # A slash in a key is one in the path of a Keras variable.
        names = [re.sub("/|~1", ".", key).replace("~0", "~") for key in leaves]
        paths = list(_nest_paths.leaf_paths(path, nest))
        if len({*map(_layer_paths.joined, paths)}) < len(paths):
            raise ValueError(
                f"`{self._where}`: `{item.token}` expected keys whose names, joined by "
                f"dots, differ; got {list(leaves)}; rename one"
            )
        self._add_arrays("", names, paths, leaves.values())

    def _visit_parts(
        self,
        path: _layer_paths.Path,
        old: str,
        item: Any,
        parts: list[tuple[Any, Any]],
    ) -> None:
        listed = isinstance(item, list | tuple | collections.deque)
        steps = _layer_paths.steps(parts, listed and not hasattr(item, "_fields"))
        for (key, _), (step, part) in zip(parts, steps, strict=True):
            self.visit((*path, step), f"{old}.{key}", part)

    def _visit_keras(self, path: _layer_paths.Path, old: str, item: Any) -> None:
        if isinstance(item, keras.layers.Layer) and not item.built:
            raise ValueError(
                f"`{self._where}`: `{_layer_paths.joined(path)}` expected built "
                f"layers; got {item.name!r}, which has no variables yet; call it "
                "once, or its `build`"
            )
        own = f"{getattr(item, 'path', item.name)}/"
        variables = item.variables
        names = [each.path.removeprefix(own).replace("/", ".") for each in variables]
        if isinstance(item, keras.optimizers.Optimizer):
            # Their names depend on how many layers there were before.
            names = [str(i) for i in range(len(names))]
            paths = [(*path, _layer_paths.Step(name)) for name in names]
            self.found.slots.update(map(_layer_paths.joined, paths))
        else:
            inner = _layer_paths.variable_paths(item)
            paths = [(*path, *inner[id(each)]) for each in variables]
        hidden = {
            id(v)
            for layer in _object_parts.disabled_layers(item)
            for v in layer.variables
        }
        self._add_arrays(f"{old}.", names, paths, variables, self._seen | hidden)
        self._seen.update(map(id, variables))
        parts = [
            (key, part)
            for key, part in vars(item).items()
            if not key.startswith("_")
            or not key.startswith("_self_")
            and _object_parts.is_foreign(part)
        ]
        self._visit_parts(path, old, item, parts)

    def _add_arrays(
        self,
        old: str,
        names: Sequence[str],
        paths: Sequence[_layer_paths.Path],
        arrays: Iterable[Any],
        hidden: Collection[int] = (),
    ) -> None:
        """Adds arrays under their paths; `names` are those before any counting."""
        given = {str(step.layer) for path in paths for step in path if step.given}
        counts: collections.Counter = collections.Counter()
        for name, new, path, array in zip(
            names, _keras_names.renumbered(names), paths, arrays, strict=True
        ):
            same = f":{counts[new]}" if counts[new] else ""
            counts[new] += 1
            if id(array) not in hidden:
                self._add(self.found.arrays, path, f"{old}{new}{same}", array)
                for layer in _keras_names.lost(name, new, given):
                    self.found.lost[_layer_paths.joined(path)] = layer

    def _add(
        self, group: dict[str, Any], path: _layer_paths.Path, old: str, item: Any
    ) -> None:
        name = _layer_paths.joined(path)
        _named_arrays.check_name(self._where, path[0].token, name)
        if name in group:
            raise ValueError(
                f"`{self._where}`: expected every part under a name of its own; got "
                f"two of {name!r}; rename one"
            )
        group[name] = item
        self.found.paths[name], self.found.old[name] = path, old


def _check_no_arrays(where: str, name: str, item: Any) -> None:
    """Raises if an array lies in a dictionary or list beside what is assigned to.

    Those in modules are constants.
    """
    if isinstance(item, Mapping | list | tuple):
        for key, part in _object_parts.parts(item):
            _check_no_arrays(where, f"{name}.{key}", part)
    elif _is_array(item):
        raise _immutable(where, name, item)


def _immutable(where: str, name: str, item: Any) -> TypeError:
    return TypeError(
        f"`{where}`: `{name}` expected nothing immutable inside of what is loaded in "
        f"place; got a {type(item).__name__}; pass it as an item of its own"
    )


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
