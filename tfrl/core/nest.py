"""Nests: detach, batch, stack and flatten them, find the variables in them.

A nest is whatever `tf.nest` flattens. None is a leaf; the functions here leave it
alone.
"""

import collections
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks

_KERAS_OWNERS = (keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer)


def detach(nests: Any) -> Any:
    """Returns the nest with no gradient flowing back through it.

    Args:
        nests: nest of tensors, variables and distributions. Variables become tensors;
            numpy arrays and Python objects stay as they are.

    Returns:
        The same structure; a distribution has its parameters detached.

    Raises:
        TypeError: if a distribution does not show its parameters to `tf.nest`
            (TensorFlow Probability's own classes do).

    Example:
        >>> x = tf.Variable(3.0)
        >>> with tf.GradientTape() as tape:
        ...     y = x * detach({"x": x})["x"]
        >>> float(tape.gradient(y, x))
        3.0
    """

    def stop(leaf: Any) -> Any:
        if tf.is_tensor(leaf):
            return tf.stop_gradient(leaf)
        if hasattr(leaf, "log_prob"):
            raise TypeError(
                "`detach`: `nests` expected distributions that are composite tensors; "
                f"got {type(leaf).__name__}; derive it from "
                "tfp.distributions.AutoCompositeTensorDistribution"
            )
        return leaf

    return tf.nest.map_structure(stop, nests, expand_composites=True)


def get_all_parameters(obj: Any) -> list[tuple[str, Any]]:
    """Returns every variable that can be reached from an object.

    The search goes breadth first through attributes, lists, tuples, sets and
    mappings, visits each object once, and does not enter functions, classes and
    modules of code. From a Keras layer, metric or optimizer it takes `variables` and
    follows only public attributes.

    Args:
        obj: any object.

    Returns:
        Pairs of path and variable (`tf.Variable` or `keras.Variable`, trainable or
        not). The path joins attribute names, keys and indices by dots, such as
        "critics.0.kernel"; a variable reached twice has the first path.

    Example:
        >>> module = tf.Module()
        >>> module.scales = {"a": tf.Variable(1.0)}
        >>> [path for path, variable in get_all_parameters(module)]
        ['scales.a']
    """
    found: list[tuple[str, Any]] = []
    seen: dict[int, Any] = {}
    queue: collections.deque[tuple[str, Any]] = collections.deque([("", obj)])
    while queue:
        path, item = queue.popleft()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, tf.Variable | keras.Variable):
            found.append((path, item))
        else:
            queue.extend(
                (f"{path}.{key}" if path else str(key), part)
                for key, part in _parts(item)
            )
    return found


def batch_to_single(pytree: Any, index: int = 0) -> Any:
    """Returns one element of a batch, `leaf[index]` of every leaf.

    Args:
        pytree: nest of arrays or tensors `[B, ...]`.
        index: which one, from the end if negative.

    Returns:
        The nest without the batch axis; numpy stays numpy.

    Raises:
        TypeError: if a leaf is no array or has no axis, or `index` is no integer.
        ValueError: if `index` is not in a batch.

    Example:
        >>> batch_to_single({"a": np.array([[1, 2], [3, 4]])}, index=-1)
        {'a': array([3, 4])}
    """
    where = "batch_to_single"
    if not tf.is_tensor(index):
        index = checks.check_whole_number(where, "index", index)

    def pick(leaf: Any) -> Any:
        shape = getattr(leaf, "shape", None)
        if shape is None or len(shape) == 0:
            raise checks.wrong_type(where, "pytree", leaf, "arrays with a batch axis")
        size = shape[0]
        if size is not None and isinstance(index, int):
            checks.check_whole_number(where, "index", index, -size, size - 1)
        return leaf[index]

    return map_leaves(pick, pytree)


def single_to_batch(pytree: Any) -> Any:
    """Returns a batch of one: every leaf with a new first axis of size 1.

    Args:
        pytree: nest of numbers, arrays or tensors.

    Returns:
        The nest with leaves `[1, ...]`; tensors stay tensors, all else is numpy.

    Example:
        >>> single_to_batch({"a": np.array([3, 4])})
        {'a': array([[3, 4]])}
    """
    return map_leaves(functools.partial(_expand, axis=0), pytree)


def stack_trees(*trees: Sequence[Any]) -> tuple[Any, ...]:
    """Stacks the leaves of nests of the same structure along a new first axis.

    Args:
        *trees: sequences of nests of arrays; those of one sequence are stacked. Of
            sequences of different lengths `n`, all are cut to the shortest.

    Returns:
        A nest of tensors `[n, ...]` per sequence.

    Raises:
        TypeError: if an argument is not a list or tuple.
        ValueError: if the nests of a sequence differ in structure, or one is empty.

    Example:
        >>> (params,) = stack_trees([{"w": tf.zeros([2])}, {"w": tf.ones([2])}])
        >>> params["w"].shape
        TensorShape([2, 2])
    """
    where, kinds = "stack_trees", (list, tuple)
    for sequence in trees:
        checks.check_type(where, "trees", sequence, kinds, "lists or tuples of nests")
        if not sequence:
            raise ValueError(f"`{where}`: `trees` expected nests to stack; got none")
        for tree in sequence[1:]:
            tf.nest.assert_same_structure(sequence[0], tree)
    length = min((len(sequence) for sequence in trees), default=0)
    return tuple(
        tf.nest.map_structure(
            lambda *leaves: None if leaves[0] is None else tf.stack(leaves),
            *sequence[:length],
        )
        for sequence in trees
    )


def merge_dicts(*dicts: Mapping[Any, Any]) -> dict:
    """Returns one dict with the entries of all.

    Args:
        *dicts: mappings. Where keys coincide the last one wins, with a warning.

    Returns:
        A new dict.

    Example:
        >>> merge_dicts({"a": 1}, {"b": 2})
        {'a': 1, 'b': 2}
    """
    merged: dict[Any, Any] = {}
    for mapping in dicts:
        twice = [key for key in mapping if key in merged]
        if twice:
            warnings.warn(
                f"`merge_dicts`: `dicts` expected distinct keys; got {twice} twice; "
                "the last value is kept",
                stacklevel=2,
            )
        merged.update(mapping)
    return merged


def tree_ravel(pytree: Any) -> tf.Tensor:
    """Returns all elements of a nest as one vector.

    Args:
        pytree: nest of arrays or tensors, flattened in the order of `tf.nest`.

    Returns:
        `[n]`, of the dtype numpy promotes those of the leaves to.

    Raises:
        ValueError: if there is no leaf.

    Example:
        >>> tree_ravel({"b": np.array([[1, 2]]), "a": np.array([3])}).numpy()
        array([3, 1, 2])
    """
    given = [leaf for leaf in tf.nest.flatten(pytree) if leaf is not None]
    leaves = [*map(tf.convert_to_tensor, given)]
    if not leaves:
        raise ValueError(f"`tree_ravel`: `pytree` expected an array; got {pytree!r}")
    dtype = np.result_type(*(leaf.dtype.as_numpy_dtype for leaf in leaves))
    return tf.concat(
        [tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in leaves], axis=0
    )


def unvectorize(
    f: Callable[..., Any],
    in_axes: int | None | tuple[int | None, ...] = 0,
    out_axes: int | None | tuple[int | None, ...] = 0,
) -> Callable[..., Any]:
    """Returns the function of one element that a function of batches contains.

    Each argument gets a batch axis of size 1, each result loses it.

    Args:
        f: function of nests of arrays, whose results are a nest or a tuple of nests.
        in_axes: where the batch axis goes in, for all arguments or one per argument;
            None passes an argument as it is.
        out_axes: where it is taken out, for all results or, if `f` returns a tuple,
            one per result; None returns a result as it is.

    Returns:
        A function of as many arguments.

    Raises:
        TypeError: when called, if `out_axes` is a tuple and the result is not.
        ValueError: when called, if the axes are not as many as arguments or results,
            or an axis to be taken out is not of size 1.

    Example:
        >>> total = unvectorize(lambda batch: tf.reduce_sum(batch, axis=1))
        >>> float(total(tf.constant([1.0, 2.0])))
        3.0
    """

    @functools.wraps(f)
    def single(*args: Any) -> Any:
        batches = [
            arg
            if axis is None
            else map_leaves(functools.partial(_expand, axis=axis), arg)
            for arg, axis in zip(args, _axes("in_axes", in_axes, args), strict=True)
        ]
        result = f(*batches)
        if not isinstance(result, tuple):
            if isinstance(out_axes, tuple):
                raise TypeError(
                    "`unvectorize`: `out_axes` expected an int or None for a function "
                    f"with one result; got {out_axes}"
                )
            return _squeeze(result, out_axes)
        pairs = zip(result, _axes("out_axes", out_axes, result), strict=True)
        singles = [_squeeze(part, axis) for part, axis in pairs]
        make = getattr(type(result), "_make", type(result))
        return make(singles)

    return single


def map_leaves(function: Callable[[Any], Any], nest: Any) -> Any:
    """Returns the nest of what a function makes of each leaf but None."""
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else function(leaf), nest
    )


def _expand(leaf: Any, axis: int) -> Any:
    if tf.is_tensor(leaf):
        return tf.expand_dims(leaf, axis)
    return np.expand_dims(leaf, axis)


def _squeeze(nest: Any, axis: int | None) -> Any:
    def squeeze(leaf: Any) -> Any:
        shape = tf.TensorShape(np.shape(leaf) if not tf.is_tensor(leaf) else leaf.shape)
        rank = shape.rank
        if rank is not None and (
            not -rank <= axis < rank or shape[axis] not in (1, None)
        ):
            raise ValueError(
                f"`unvectorize`: `out_axes` expected an axis of size 1; "
                f"got axis {axis} of shape {shape}"
            )
        if tf.is_tensor(leaf):
            return tf.squeeze(leaf, axis)
        return np.squeeze(leaf, axis)

    return nest if axis is None else map_leaves(squeeze, nest)


def _axes(name: str, axes: Any, values: Sequence[Any]) -> Sequence[int | None]:
    if not isinstance(axes, tuple):
        return [axes] * len(values)
    if len(axes) != len(values):
        raise ValueError(
            f"`unvectorize`: `{name}` expected {len(values)} axes, one for each "
            f"{'argument' if name == 'in_axes' else 'result'}; got {axes}"
        )
    return axes


def _parts(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yields key and value of what `get_all_parameters` looks at inside `item`."""
    if isinstance(item, Mapping):
        yield from item.items()
    elif isinstance(item, list | tuple | set | frozenset | collections.deque):
        yield from enumerate(item)
    elif isinstance(item, _KERAS_OWNERS):
        own = f"{getattr(item, 'path', None)}/"
        for variable in item.variables:
            yield variable.path.removeprefix(own).replace("/", "."), variable
        for key, value in vars(item).items():
            if not key.startswith("_"):
                yield key, value
    elif _is_walked(item):
        yield from vars(item).items()


def _is_walked(item: Any) -> bool:
    if isinstance(item, type | ModuleType) or not hasattr(item, "__dict__"):
        return False
    # TensorFlow's own objects (functions, strategies, tensors) hold half the process.
    home = type(item).__module__.partition(".")[0]
    return isinstance(item, tf.Module) or home not in ("tensorflow", "builtins")
