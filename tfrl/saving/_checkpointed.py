"""What a checkpoint takes from objects: variables, arrays, buffers and generators.

Objects are searched by attributes, keys and indices, as `core.nest.get_all_parameters`
does; `tf.train.Checkpoint` would lose Keras layers in lists and in dictionaries.
"""

import collections
from collections.abc import Container, Iterator, Mapping
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import named_arrays
from tfrl.core import pytree
from tfrl.replay import episodes, ring_buffer
from tfrl.replay.memory import numpy_storage, variable_storage
from tfrl.replay.sampling import prioritized, uniform
from tfrl.saving import _layer_paths

# What `tfrl.replay.save` saves.
REPLAYS = (
    episodes.EpisodeStore,
    numpy_storage.NumpyStorage,
    prioritized.PrioritizedReplay,
    ring_buffer.RingBuffer,
    uniform.UniformReplay,
    variable_storage.VariableStorage,
)
# What `tf.train.Checkpoint` saves and a search for variables does not find.
_LOST = (
    tf.data.Iterator,
    tf.lookup.experimental.DenseHashTable,
    tf.lookup.experimental.MutableHashTable,
    tf.train.experimental.PythonState,
)
_KERAS = (keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer)


class Parts:
    """What items consist of.

    Attributes:
        arrays: variables, and the leaves of immutable items, by name.
        replays: buffers, stores and samplers of `tfrl.replay`, by name.
        generators: of NumPy, by name.
        paths: of all of these, by name; those of what an optimizer keeps of a variable
            tell the variable.
        kinds: the `special_kind` of names that have one.
        immutable: names of the leaves, by item, of items that are nests of arrays,
            which a load replaces, in the order of `tf.nest`.
        keras_names: of objects of Keras and of nests their paths, what Keras calls
            their variables, and the paths to these.
        layers: of Keras.
        counted: what Keras calls those layers of nests that were given no name.

    Args:
        where: name of the function that asks.
        items: by name: module, layer, optimizer, buffer, generator, variable,
            `PyTreeNode`, or dictionary, list or tuple of these.
        nests: names of items that are nests of arrays whatever is in them: variables
            count as their values, and there may be `tf.TensorSpec`s and None.

    Raises:
        TypeError: if nothing can be saved of one, or something in it would be lost.
        ValueError: if a layer is not built, two names are equal, or a list holds
            itself.

    Example:
        >>> layer = keras.layers.Dense(2)
        >>> layer.build((None, 3))
        >>> list(Parts("save", {"net": {"critics": [layer]}}).arrays)
        ['net.critics.0.kernel', 'net.critics.0.bias']
    """

    def __init__(
        self, where: str, items: Mapping[str, Any], nests: Container[str] = ()
    ) -> None:
        self.arrays: dict[str, Any] = {}
        self.replays: dict[str, tf.Module] = {}
        self.generators: dict[str, np.random.Generator] = {}
        self.paths: dict[str, _layer_paths.Path] = {}
        self.kinds: dict[str, str] = {}
        self.immutable: dict[str, list[str]] = {}
        self.keras_names: list[tuple[Any, list[str], list[Any]]] = []
        self.layers: list[keras.layers.Layer] = []
        self.counted: set[str] = set()
        self._where, self._slots = where, set[str]()
        for name, item in items.items():
            self._seen: set[int] = set()
            before = len(self.paths)
            try:
                self._add_item(name, item, name in nests)
            except RecursionError as error:
                raise ValueError(
                    f"`{where}`: `{name}` expected objects nested some hundred times "
                    f"at most; got a {type(item).__name__} nested deeper, or that "
                    "holds itself; pass its parts as items of their own"
                ) from error
            fresh = list(self.paths)[before:]
            kinds = {n: _layer_paths.special_kind(n, item) for n in fresh}
            self.kinds.update({n: kind for n, kind in kinds.items() if kind})
        self.kinds.update(dict.fromkeys(self.replays, "replay_buffer"))
        self.paths.update(_layer_paths.of_slots(self.arrays, self.paths, self._slots))

    def _add_item(self, name: str, item: Any, is_nest: bool) -> None:
        path, before = (_layer_paths.Step(name),), len(self.paths)
        if is_nest or _is_nest_of_arrays(item):
            self._add_nest(path, item)
            return
        self._check_no_arrays(name, item)
        self._visit(path, item)
        known = (tf.Module, Mapping, list, tuple, *_KERAS)
        is_known = isinstance(item, known) or not _layer_paths.is_enabled(item)
        if len(self.paths) == before and not is_known:
            raise TypeError(
                f"`{self._where}`: `{name}` expected modules, layers, optimizers, "
                "buffers, generators, variables or `PyTreeNode`s; got "
                f"{type(item).__name__}, in which there is none"
            )

    def _add_nest(self, path: _layer_paths.Path, nest: Any) -> None:
        """Adds the leaves of an immutable item."""
        leaves = named_arrays.name_arrays(nest, path[0].token)
        paths = list(_leaf_paths(path, nest, {}, self.counted))
        # A slash in a key is one in the path of a Keras variable.
        names = [
            key.replace("/", ".").replace("~1", ".").replace("~0", "~")
            for key in leaves
        ]
        self.keras_names.append(((), names, paths))
        # Words in a key are joined by dots, too.
        names = _layer_paths.told_apart([*map(_layer_paths.joined, paths)])
        for name, each, leaf in zip(names, paths, leaves.values(), strict=True):
            self._add(self.arrays, each, leaf, name)
        self.immutable[path[0].token] = names

    def _visit(self, path: _layer_paths.Path, item: Any) -> None:
        if id(item) in self._seen or not _layer_paths.is_enabled(item):
            return
        self._seen.add(id(item))
        if isinstance(item, tf.Variable | keras.Variable):
            self._add(self.arrays, path, item)
        elif isinstance(item, REPLAYS):
            self._add(self.replays, path, item)
        elif isinstance(item, np.random.Generator):
            self._add(self.generators, path, item)
        elif isinstance(item, tf.random.Generator):
            self._visit((*path, _layer_paths.Step("state")), item.state)
        elif isinstance(item, _LOST):
            raise TypeError(
                f"`{self._where}`: `{_layer_paths.joined(path)}` expected what can be "
                f"saved; got a {type(item).__name__}; keep its content in variables, "
                "or call enable_checkpoint with it and False"
            )
        elif isinstance(item, pytree.PyTreeNode):
            raise self._immutable(_layer_paths.joined(path), item)
        else:
            if isinstance(item, _KERAS):
                self._add_variables(path, item)
            listed = isinstance(item, list | tuple | collections.deque)
            listed = listed and not hasattr(item, "_fields")
            for step, part in _layer_paths.steps(parts_of(item), listed):
                self._visit((*path, step), part)

    def _add_variables(self, path: _layer_paths.Path, item: Any) -> None:
        """Adds the variables of a Keras object."""
        if isinstance(item, keras.layers.Layer) and not item.built:
            raise ValueError(
                f"`{self._where}`: `{_layer_paths.joined(path)}` expected built "
                f"layers; got {item.name!r}, which has no variables yet; call it "
                "once, or its `build`"
            )
        if isinstance(item, keras.layers.Layer):
            self.layers.append(item)
        own = f"{getattr(item, 'path', item.name)}/"
        variables = item.variables
        names = [each.path.removeprefix(own).replace("/", ".") for each in variables]
        is_optimizer = isinstance(item, keras.optimizers.Optimizer)
        inner: dict[int, _layer_paths.Path | None]
        if is_optimizer:
            # Their names depend on how many layers there were before.
            names = [str(k) for k in range(len(variables))]
            inner = {
                id(x): (_layer_paths.Step(str(k)),) for k, x in enumerate(variables)
            }
        else:
            inner = _layer_paths.variable_paths(item, disabled=False)
        places = [(*path, *(inner[id(each)] or ())) for each in variables]
        self.keras_names.append((path, names, places))
        for variable, place in zip(variables, places, strict=True):
            if inner[id(variable)] is not None and id(variable) not in self._seen:
                self._add(self.arrays, place, variable)
                if is_optimizer:
                    self._slots.add(_layer_paths.joined(place))
            self._seen.add(id(variable))

    def _add(
        self,
        group: dict[str, Any],
        path: _layer_paths.Path,
        item: Any,
        name: str | None = None,
    ) -> None:
        name = _layer_paths.joined(path) if name is None else name
        named_arrays.check_name(self._where, path[0].token, name)
        if name in self.paths:
            raise ValueError(
                f"`{self._where}`: expected every part under a name of its own; got "
                f"two of {name!r}; rename one"
            )
        group[name], self.paths[name] = item, path

    def _check_no_arrays(self, name: str, item: Any) -> None:
        """Raises if an array lies in a dictionary or list beside what is assigned to.

        Those in modules are constants.
        """
        if isinstance(item, Mapping | list | tuple):
            for key, part in parts_of(item):
                self._check_no_arrays(f"{name}.{key}", part)
        elif _is_array(item):
            raise self._immutable(name, item)

    def _immutable(self, name: str, item: Any) -> TypeError:
        return TypeError(
            f"`{self._where}`: `{name}` expected nothing immutable inside of what is "
            f"loaded in place; got a {type(item).__name__}; pass it as an item of its "
            "own"
        )


def _is_nest_of_arrays(item: Any) -> bool:
    """Whether a load must replace the item, as nothing in it can be changed."""
    if isinstance(item, Mapping | list | tuple):
        parts = [part for _, part in parts_of(item)]
        return bool(parts) and all(map(_is_nest_of_arrays, parts))
    return isinstance(item, pytree.PyTreeNode) or _is_array(item)


def _is_array(item: Any) -> bool:
    is_variable = isinstance(item, tf.Variable | keras.Variable)
    is_tensor = tf.is_tensor(item) and not is_variable
    return is_tensor or isinstance(item, np.ndarray | np.generic)


def _leaf_paths(
    path: _layer_paths.Path,
    nest: Any,
    known: Mapping[str, _layer_paths.Path],
    counted: set[str],
) -> Iterator[_layer_paths.Path]:
    """Yields the paths to the leaves of a nest, in the order of `tf.nest`.

    Where a node holds a layer, the paths of its variables are keys, and stand for
    their places in the layer, which `known` has by these keys. What Keras calls it and
    the layers in it is added to `counted`, of those that were given no name.
    """
    parts = named_arrays.children(_layer_paths.joined(path), nest)
    if parts is None:
        yield path
        return
    if isinstance(nest, pytree.PyTreeNode):
        # Paths may say of one variable what the state's own keys say of another.
        for value in sorted(vars(nest).values(), key=lambda x: hasattr(x, "names")):
            layer = _layer_of(value)
            if layer is not None:
                known = {**known, **_places_by_key(layer, value)}
                inner = [
                    type(x).__name__
                    for x in layer._flatten_layers()
                    if not _layer_paths.is_given(x)
                ]
                counted |= {*map(_layer_paths.snake_case, inner)}
    for key, part in parts:
        step = _layer_paths.Step(str(key).replace("/", "."))
        steps = known.get(key, (step,)) if isinstance(key, str) else (step,)
        yield from _leaf_paths((*path, *steps), part, known, counted)


def _layer_of(value: Any) -> Any:
    """Returns the layer that a field of a node is or holds, None if there is none."""
    for layer in (value, getattr(value, "layer", None)):
        if isinstance(layer, keras.layers.Layer):
            return layer
    return None


def _places_by_key(layer: Any, value: Any) -> dict[str, Any]:
    """Returns the paths of a layer's variables by the keys of `TrainState`."""
    # Keys are of the time when the state was made, and Keras may change paths.
    keys = None if layer is value else getattr(value, "names", None)
    paths = _layer_paths.variable_paths(layer)
    variables = list({id(each): each for each in layer.variables}.values())
    if keys is None:
        keys = _layer_paths.told_apart([each.path for each in variables])
    return {key: paths[id(each)] for key, each in zip(keys, variables, strict=False)}


def parts_of(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yields keys, indices or attributes of an object, and what is there.

    Of Keras' objects private attributes count only if Keras does not know of them.

    Example:
        >>> list(parts_of({"a": [1]})), list(parts_of([2]))
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
            is_known = isinstance(item, _KERAS) and not _is_foreign(part)
            # The last ones are of TensorFlow's own bookkeeping.
            hidden = ("_",) if is_known else ("_self_", "__")
            if not key.startswith(hidden):
                yield key, part


def _is_foreign(part: Any) -> bool:
    """Whether Keras would not know of what a layer keeps under a private name."""
    if isinstance(part, list | tuple | Mapping):
        values = part.values() if isinstance(part, Mapping) else part
        return bool(values) and all(map(_is_foreign, values))
    return isinstance(
        part, tf.Module | tf.Variable | pytree.PyTreeNode | tf.random.Generator
    )


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
