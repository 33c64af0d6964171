"""Descriptions of observation spaces that JSON can hold, and what fits them.

["flat", shape]                   numbers
["one_hot", sizes, starts]        choices
["image", shape]                  height x width x channels
["image", shape, axis]            the same with the height on another axis
["dict", [[key, kind], ...]]      parts by name
["tuple", [[index, kind], ...]]   parts by place
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

LEAST_PIXELS = 36  # of which three convolutions leave one


def description(space: gym.Space) -> list[Any]:
    """Returns the description of a space, as `SpaceEncoder.describe` documents it."""
    spaces = gym.spaces
    if isinstance(space, spaces.Dict):
        return ["dict", [[key, description(part)] for key, part in space.items()]]
    if isinstance(space, spaces.Tuple):
        return ["tuple", [[i, description(part)] for i, part in enumerate(space)]]
    if isinstance(space, spaces.Discrete):
        return ["one_hot", [int(space.n)], [int(space.start)]]
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ["one_hot", space.nvec.tolist(), space.start.tolist()]
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        if len(space.shape) in (3, 4):
            return _image(list(space.shape))
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return ["flat", list(space.shape)]
    raise TypeError(
        "`SpaceEncoder.describe`: `space` expected Box, Discrete, MultiDiscrete of "
        "one axis, MultiBinary, or a Dict or Tuple of those; "
        f"got {space}; wrap the environment to give one"
    )


def image_axes(kind: list[Any]) -> list[int]:
    """Returns the axes of an image in the order height, width, all others."""
    _, shape, height = [*kind, 0][:3]
    others = [i for i in range(len(shape)) if i not in (height, height + 1)]
    return [height, height + 1, *others]


def image_shape(kind: list[Any]) -> list[int]:
    """Returns `[height, width, channels]`; frames of a stack are channels."""
    sizes = [kind[1][axis] for axis in image_axes(kind)]
    return [*sizes[:2], math.prod(sizes[2:])]


def checked_rows(
    where: str, kind: list[Any], nest: Any, shape_of: Callable[[Any], Any]
) -> int | None:
    """Returns how many rows a nest of observations has; None if that is unknown.

    Args:
        where: the asking class, for the error message.
        kind: description of the space.
        nest: of `[B, ...]`, or of their shapes.
        shape_of: the shape of a leaf of `nest`.

    Raises:
        ValueError: if a part is missing or of another shape, or rows differ.
    """
    rows: dict[str, int] = {}
    for name, shape, fitting in _leaves(where, kind, nest, shape_of, "inputs"):
        if not any(shape.is_compatible_with([None, *fit]) for fit in fitting):
            raise ValueError(
                f"`{where}`: `{name}` must have shape {['B', *fitting[0]]}, that of "
                f"the observation space; got {shape}"
            )
        if shape.rank and shape[0] is not None:
            rows[name] = shape[0]
    if len(set(rows.values())) > 1:
        raise ValueError(
            f"`{where}`: all parts of `inputs` must have one number of rows; got {rows}"
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
    fitting = [kind[1]]
    if kind[0] == "one_hot":
        # A choice of one is a number, or a vector of one.
        fitting = [[len(kind[1])]] if len(kind[1]) > 1 else [[], [1]]
    try:
        return [(name, tf.TensorShape(shape_of(nest)), fitting)]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `{name}` must be one array; got {type(nest).__name__}"
        ) from error


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
