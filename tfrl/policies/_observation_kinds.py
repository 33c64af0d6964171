"""Descriptions of observation spaces that JSON can hold, and what fits them.

["flat", shape]                   numbers
["one_hot", sizes, starts]        choices
["image", shape]                  height x width x channels
["image", shape, axis]            the same with the height on another axis
["dict", [[key, kind], ...]]      parts by name
["tuple", [[index, kind], ...]]   parts by place
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl.core import checks, spaces
from tfrl.stats import moments

LEAST_PIXELS = 36  # of which three convolutions leave one


_DTYPES = {"flat": "float32", "image": "uint8", "one_hot": "int64"}


def description(space: gym.Space, *, images: bool = True) -> list[Any]:
    """Returns the description of a space, as `SpaceEncoder.describe` documents it.

    Args:
        space: of one environment.
        images: whether images must be such that height and width can be told.
    """
    describe = functools.partial(description, images=images)
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple) and not len(space.spaces):
        raise ValueError(
            "`SpaceEncoder.describe`: `space` must have a part at least, in each Dict "
            f"and Tuple; got {space}; leave it out, or show something"
        )
    if isinstance(space, gym.spaces.Dict):
        return ["dict", [[key, describe(part)] for key, part in space.items()]]
    if isinstance(space, gym.spaces.Tuple):
        return ["tuple", [[i, describe(part)] for i, part in enumerate(space)]]
    if isinstance(space, gym.spaces.Discrete):
        return ["one_hot", [int(space.n)], [int(space.start)]]
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ["one_hot", space.nvec.tolist(), space.start.tolist()]
    if isinstance(space, gym.spaces.Box) and space.dtype == np.uint8:
        if len(space.shape) in (3, 4):
            return _image(list(space.shape)) if images else ["image", list(space.shape)]
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return ["flat", list(space.shape)]
    raise TypeError(
        "`SpaceEncoder.describe`: `space` expected Box, Discrete, MultiDiscrete of "
        "one axis, MultiBinary, or a Dict or Tuple of those; "
        f"got {space}; wrap the environment to give one"
    )


def moments_of(space: gym.Space, is_kept: bool) -> Any:
    """Returns moments of the float parts of a space, `()` of others or if none."""
    if not is_kept:
        return ()
    return tuple(
        moments.RunningMoments.create(spec.shape) if spec.dtype.is_floating else ()
        for spec in tf.nest.flatten(spaces.spec_from_space(space))
    )


def mapped(function: Callable[..., Any], kind: list[Any], *nests: Any) -> Any:
    """Returns a nest like the space of `function(name of the kind, *leaves)`."""
    if kind[0] not in ("dict", "tuple"):
        return function(kind[0], *nests)
    parts = {
        key: mapped(function, part, *(x[key] for x in nests)) for key, part in kind[1]
    }
    return parts if kind[0] == "dict" else tuple(parts.values())


def cast(kind: list[Any], observations: Any) -> Any:
    """Returns observations as networks of others get them: floats as float32."""

    def leaf(name: str, value: Any) -> Any:
        return keras.ops.cast(value, "float32") if name == "flat" else value

    return mapped(leaf, kind, observations)


def zeros(kind: list[Any], shapes: Any) -> Any:
    """Returns zeros for a nest of shapes, of one row where the batch is unknown."""

    def leaf(name: str, shape: Any) -> Any:
        return tf.zeros([shape[0] or 1, *shape[1:]], _DTYPES[name])

    return mapped(leaf, kind, shapes)


def inputs(kind: list[Any], shapes: Any) -> Any:
    """Returns Keras inputs for a nest of shapes `[B, ...]`, named after the parts."""

    def made(kind: list[Any], shape: Any, name: str) -> Any:
        if kind[0] not in ("dict", "tuple"):
            name = name or "observations"
            return keras.Input(shape[1:], dtype=_DTYPES[kind[0]], name=name)
        parts = {
            key: made(part, shape[key], f"{name}_{key}" if name else str(key))
            for key, part in kind[1]
        }
        return parts if kind[0] == "dict" else tuple(parts.values())

    return made(kind, shapes, "")


def image_axes(kind: list[Any]) -> list[int]:
    """Returns the axes of an image in the order height, width, all others."""
    _, shape, height = [*kind, 0][:3]
    others = [i for i in range(len(shape)) if i not in (height, height + 1)]
    return [height, height + 1, *others]


def image_shape(kind: list[Any]) -> list[int]:
    """Returns `[height, width, channels]`; frames of a stack are channels."""
    sizes = [kind[1][axis] for axis in image_axes(kind)]
    return [*sizes[:2], math.prod(sizes[2:])]


def as_batch(where: str, kind: list[Any], nest: Any) -> Any:
    """Returns a nest of arrays `[B, ...]` as it is, or made of lists, checked.

    Args:
        where: the asking function, for the error message.
        kind: description of the space.
        nest: of arrays, tensors, or lists of numbers.

    Raises:
        TypeError: if a part is neither.
        ValueError: as of `checked_rows`; if a list for choices or pixels has others.
    """
    if _fits(kind, nest) is not None:
        return nest
    nest = _arrays(where, kind, nest, "observations")
    checked_rows(where, kind, nest, lambda leaf: leaf.shape, "observations")
    return nest


def _fits(kind: list[Any], nest: Any) -> int | None:
    """Returns the rows of what surely fits, by comparing shapes of NumPy arrays."""
    name, inner = kind[:2]
    if name not in ("dict", "tuple"):
        if type(nest) is not np.ndarray or not nest.shape:
            return None
        rows, *shape = nest.shape
        return rows if shape in _fitting(kind) else None
    if type(nest) is not {"dict": dict, "tuple": tuple}[name]:
        return None
    if len(nest) != len(inner) or not inner:
        return None
    found = {
        _fits(part, nest[key]) if name == "tuple" or key in nest else None
        for key, part in inner
    }
    return found.pop() if len(found) == 1 else None


def _arrays(where: str, kind: list[Any], nest: Any, name: str) -> Any:
    if kind[0] == "dict" and isinstance(nest, Mapping):
        parts = {
            key: _arrays(where, part, nest[key], f"{name}[{key!r}]")
            for key, part in kind[1]
            if key in nest
        }
        return {**nest, **parts}
    if kind[0] == "tuple" and isinstance(nest, list | tuple):
        pairs = zip(nest, kind[1], strict=False)
        return tuple(
            _arrays(where, part, leaf, f"{name}[{i}]")
            for i, (leaf, (_, part)) in enumerate(pairs)
        )
    if hasattr(nest, "shape") or kind[0] in ("dict", "tuple"):
        return nest
    try:
        array = np.asarray(nest)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"`{where}`: `{name}` must be an array of numbers, or equally long lists "
            f"of them; got {nest!r:.80}"
        )
    if kind[0] == "flat":
        return array.astype(np.float32)
    with np.errstate(invalid="ignore"):
        cast = array.astype(np.uint8 if kind[0] == "image" else np.int64)
    if np.any(cast != array):
        what = "pixels of 0 to 255" if kind[0] == "image" else "whole numbers"
        raise ValueError(f"`{where}`: `{name}` must be {what}; got {nest!r:.80}")
    return cast


def checked_rows(
    where: str,
    kind: list[Any],
    nest: Any,
    shape_of: Callable[[Any], Any],
    name: str = "inputs",
) -> int | None:
    """Returns how many rows a nest of observations has; None if that is unknown.

    Args:
        where: the asking class, for the error message.
        kind: description of the space.
        nest: of `[B, ...]`, or of their shapes.
        shape_of: the shape of a leaf of `nest`.
        name: of the nest, for the error message.

    Raises:
        ValueError: if a part is missing or of another shape, or rows differ.
    """
    rows: dict[str, int] = {}
    for leaf, shape, fitting in _leaves(where, kind, nest, shape_of, name):
        if not any(shape.is_compatible_with([None, *fit]) for fit in fitting):
            raise ValueError(
                f"`{where}`: `{leaf}` must have shape {['B', *fitting[0]]}, that of "
                f"the observation space; got {shape}"
            )
        if shape.rank and shape[0] is not None:
            rows[leaf] = shape[0]
    if len(set(rows.values())) > 1:
        raise ValueError(
            f"`{where}`: all parts of `{name}` must have one number of rows; got {rows}"
        )
    return next(iter(rows.values()), None)


def _leaves(
    where: str, kind: list[Any], nest: Any, shape_of: Callable[[Any], Any], name: str
) -> list[tuple[str, tf.TensorShape, list[list[int]]]]:
    """Name, shape and fitting shapes of one row, of each leaf."""
    if kind[0] in ("dict", "tuple"):
        found = []
        for key, part in kind[1]:
            try:
                inner = nest[key]
            except (IndexError, KeyError, TypeError) as error:
                got = list(nest) if isinstance(nest, dict) else type(nest).__name__
                raise ValueError(
                    f"`{where}`: `{name}` must be a {kind[0]} with {key!r}; got {got}"
                ) from error
            found += _leaves(where, part, inner, shape_of, f"{name}[{key!r}]")
        return found
    try:
        return [(name, tf.TensorShape(shape_of(nest)), _fitting(kind))]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `{name}` must be one array; got {type(nest).__name__}"
        ) from error


def check_finite(where: str, observations: Any, *, clipped: bool = False) -> None:
    """Raises if an eager array or tensor of a nest has a NaN or an infinity.

    Of what is not finite a network makes parameters from which actions outside of
    their space are drawn. Infinities pass that are `clipped` before it sees them.
    """
    if tf.inside_function():
        return
    for leaf in tf.nest.flatten(observations):
        is_array = isinstance(leaf, np.ndarray | tf.Tensor)
        if is_array and tf.as_dtype(leaf.dtype).is_floating:
            numbers = np.asarray(leaf)
            if not np.isfinite(numbers).all() and clipped:
                numbers = np.where(np.isinf(numbers), 0, numbers)
            checks.check_finite(where, "observations", numbers)


def _fitting(kind: list[Any]) -> list[list[int]]:
    """Shapes of one row of a leaf."""
    if kind[0] != "one_hot":
        return [kind[1]]
    # A choice of one is a number, or a vector of one.
    return [[len(kind[1])]] if len(kind[1]) > 1 else [[], [1]]


def ensured(where: str, kind: list[Any], leaf: Any) -> Any:
    """A leaf of the observations, of which the run checks what is not known yet.

    Args:
        where: the asking class, for the error message.
        kind: description of a space that has no parts.
        leaf: `[B, ...]`, of a shape that may fit.

    Returns:
        The leaf, of known dimensions behind the batch where its rank is known.
    """
    shape, fitting = tf.TensorShape(leaf.shape), _fitting(kind)
    if shape.rank is None and len(fitting) > 1:
        return leaf
    (fit,) = [fit for fit in fitting if shape.is_compatible_with([None, *fit])]
    if shape.rank is not None and shape[1:].is_fully_defined():
        return leaf
    return tf.ensure_shape(leaf, [None, *fit], name=f"{where}_inputs")


def _image(shape: list[int]) -> list[Any]:
    axes = range(len(shape) - 1)
    found = [i for i in axes if min(shape[i : i + 2]) > max(_without(shape, i))]
    if not found:
        raise ValueError(
            "`SpaceEncoder.describe`: `space` must show which axes of its images are "
            "height and width: two neighbours, each longer than all other axes; got "
            f"{shape}; stack frames by `tfrl.environments.StackChannels`, resize or "
            "transpose images by a wrapper, or give them as floats to have them "
            "flattened"
        )
    (height,) = found
    if min(shape[height : height + 2]) < LEAST_PIXELS:
        raise ValueError(
            f"`SpaceEncoder.describe`: `space` must have images of {LEAST_PIXELS}x"
            f"{LEAST_PIXELS} pixels at least; got {shape}; resize them by a wrapper, "
            "or give them as floats to have them flattened"
        )
    last = height == 0 and len(shape) == 3
    return ["image", shape] if last else ["image", shape, height]


def _without(shape: list[int], height: int) -> list[int]:
    return shape[:height] + shape[height + 2 :]
