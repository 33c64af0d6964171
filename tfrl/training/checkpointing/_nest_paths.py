"""The paths to the arrays of a nest, through the layers that its nodes hold."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from tfrl.core import pytree
from tfrl.training.checkpointing import _layer_paths, _named_arrays


def leaf_paths(
    path: _layer_paths.Path,
    nest: Any,
    known: Mapping[str, _layer_paths.Path] | None = None,
) -> Iterator[_layer_paths.Path]:
    """Yields the paths to the leaves of a nest.

    Where a node holds a layer, the paths of its variables are keys, and stand for
    their places in the layer.

    Args:
        path: to the nest.
        nest: as for `_named_arrays.name_arrays`.
        known: places of variables by such keys.

    Yields:
        Paths in the order of `tf.nest`.

    Example:
        >>> path = (_layer_paths.Step("net"),)
        >>> [_layer_paths.joined(each) for each in leaf_paths(path, {"b": [1], "a": 2})]
        ['net.a', 'net.b.0']
    """
    known = {} if known is None else known
    parts = _named_arrays.children(_layer_paths.joined(path), nest)
    if parts is None:
        yield path
        return
    if isinstance(nest, pytree.PyTreeNode):
        for value in vars(nest).values():
            known = {**known, **_keyed(value)}
    for key, part in parts:
        step = _layer_paths.Step(str(key).replace("/", "."))
        steps = known.get(key, (step,)) if isinstance(key, str) else (step,)
        yield from leaf_paths((*path, *steps), part, known)


def _keyed(value: Any) -> dict[str, _layer_paths.Path]:
    """Returns the paths of a layer's variables by the keys of `TrainState`."""
    layer, keys = value, None
    if not isinstance(layer, keras.layers.Layer):
        # Keys are of the time when the state was made, and Keras may change paths.
        layer, keys = getattr(value, "layer", None), getattr(value, "names", None)
    if not isinstance(layer, keras.layers.Layer):
        return {}
    paths = _layer_paths.variable_paths(layer)
    variables = list({id(each): each for each in layer.variables}.values())
    if keys is None:
        counts: collections.Counter = collections.Counter()
        keys = []
        for variable in variables:
            same = f":{counts[variable.path]}" if counts[variable.path] else ""
            counts[variable.path] += 1
            keys.append(f"{variable.path}{same}")
    return {key: paths[id(each)] for key, each in zip(keys, variables, strict=False)}
