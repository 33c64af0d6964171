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
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, gym_checks
from tfrl.stats import moments

_DTYPES = {"flat": "float32", "image": "uint8", "one_hot": "int64"}


def description(
    space: gym.Space,
    *,
    images: bool = True,
    place: str = "`SpaceEncoder.describe`: `space`",
) -> list[Any]:
    """Returns the description of a space, as `SpaceEncoder.describe` documents it.

    Args:
        space: of one environment.
        images: whether images must be such that height and width can be told.
        place: function and argument, for the error messages.
    """
    is_dict = isinstance(space, gym.spaces.Dict)
    if is_dict or isinstance(space, gym.spaces.Tuple):
        if not len(space.spaces):
            raise ValueError(
                f"{place} must have a part at least, in each Dict and Tuple; got "
                f"{space}; leave it out, or show something"
            )
        parts = [
            [key, description(part, images=images, place=f"{place[:-1]}[{key!r}]`")]
            for key, part in (space.items() if is_dict else enumerate(space))
        ]
        return ["dict" if is_dict else "tuple", parts]
    if 0 in (space.shape or ()):
        raise ValueError(
            f"{place} must have a number at least in each part; got {space}; leave it "
            "out, or show something"
        )
    if isinstance(space, gym.spaces.Discrete):
        return ["one_hot", [int(space.n)], [int(space.start)]]
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ["one_hot", space.nvec.tolist(), space.start.tolist()]
    if isinstance(space, gym.spaces.Box) and space.dtype == np.uint8:
        if len(space.shape) in (3, 4):
            shape = list(space.shape)
            return _image(shape, place) if images else ["image", shape]
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return ["flat", list(space.shape)]
    raise TypeError(
        f"{place} expected Box, Discrete, MultiDiscrete of one axis, MultiBinary, or a "
        f"Dict or Tuple of those; got {space}; wrap the environment to give one"
    )


def moments_of(space: gym.Space, is_kept: bool) -> Any:
    """Returns moments of the Boxes in a space but images, `()` of others or if none."""
    if not is_kept:
        return ()

    def nest(part: gym.Space) -> Any:
        if isinstance(part, gym.spaces.Dict):
            return {key: nest(inner) for key, inner in part.items()}
        return tuple(map(nest, part)) if isinstance(part, gym.spaces.Tuple) else part

    return tuple(
        moments.RunningMoments.create(leaf.shape)
        if isinstance(leaf, gym.spaces.Box)
        and description(leaf, images=False)[0] == "flat"
        else ()
        for leaf in tf.nest.flatten(nest(space))
    )


def mapped(
    function: Callable[[list[Any], Any, tuple[Any, ...]], Any],
    kind: list[Any],
    nest: Any,
    where: str = "SpaceEncoder",
    name: str = "inputs",
    path: tuple[Any, ...] = (),
) -> Any:
    """Returns a nest like the space, of what a function makes of each part.

    Args:
        function: of the part's description, its leaf, and its keys from outside in.
        kind: description of the space.
        nest: of leaves.
        where: the asking class, for the error message.
        name: of the nest, for the error message.
        path: keys of the parts around.

    Raises:
        ValueError: if a part is missing.
    """
    if kind[0] not in ("dict", "tuple"):
        return function(kind, nest, path)
    parts = {}
    for key, part in kind[1]:
        try:
            inner = nest[key]
        except (IndexError, KeyError, TypeError) as error:
            got = list(nest) if isinstance(nest, dict) else type(nest).__name__
            raise ValueError(
                f"`{where}`: `{_named(name, path)}` must be a {kind[0]} with {key!r}; "
                f"got {got}"
            ) from error
        parts[key] = mapped(function, part, inner, where, name, (*path, key))
    return parts if kind[0] == "dict" else tuple(parts.values())


def cast(kind: list[Any], observations: Any) -> Any:
    """Returns observations as networks of others get them: floats as float32."""

    def leaf(kind: list[Any], value: Any, _: Any) -> Any:
        return keras.ops.cast(value, "float32") if kind[0] == "flat" else value

    return mapped(leaf, kind, observations)


def probes(kind: list[Any], shapes: Any) -> Any:
    """Returns rows to try a network on, one where the batch is unknown.

    Choices are the lowest and the highest in turn, all else is zeros.

    Args:
        kind: description of the space.
        shapes: nest of `[B, *shape]`.
    """

    def leaf(kind: list[Any], shape: Any, _: Any) -> Any:
        shape = [shape[0] or 1, *shape[1:]]
        if kind[0] != "one_hot":
            return tf.zeros(shape, _DTYPES[kind[0]])
        lowest, sizes = np.array(kind[2], np.int64), np.array(kind[1], np.int64)
        return tf.constant(np.resize([lowest, lowest + sizes - 1], shape))

    return mapped(leaf, kind, shapes)


def choices(kind: list[Any], nest: Any) -> Any:
    """Returns a nest of tensors whose numbers for choices are choices of the space."""

    def leaf(kind: list[Any], value: Any, _: Any) -> Any:
        if kind[0] != "one_hot":
            return value
        sizes, starts = (np.reshape(x, value.shape[1:]) for x in kind[1:])
        return starts + tf.cast(tf.abs(100.0 * value), tf.int64) % sizes

    return mapped(leaf, kind, nest)


def inputs(kind: list[Any], shapes: Any) -> Any:
    """Returns Keras inputs for a nest of shapes `[B, ...]`, named after the parts."""

    def leaf(kind: list[Any], shape: Any, path: tuple[Any, ...]) -> Any:
        name = "_".join(map(str, path)) or "observations"
        return keras.Input(shape[1:], dtype=_DTYPES[kind[0]], name=name)

    return mapped(leaf, kind, shapes)


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
    """Returns a nest of arrays `[B, ...]` as they are, or made of lists, checked.

    Args:
        where: the asking function, for the error message.
        kind: description of the space.
        nest: of arrays, tensors, or lists of numbers.

    Raises:
        TypeError: if a part is neither.
        ValueError: as of `checked_rows`; if a list for choices or pixels has others.
    """
    is_array = type(nest) is np.ndarray and nest.ndim > 0
    if is_array and kind[0] in _DTYPES and [*nest.shape[1:]] in _fitting(kind):
        return nest  # At each step of the environments no more than this.
    nest = mapped(functools.partial(_array, where), kind, nest, where, "observations")
    checked_rows(where, kind, nest, lambda leaf: leaf.shape, "observations")
    return nest


def _array(where: str, kind: list[Any], leaf: Any, path: tuple[Any, ...]) -> Any:
    if hasattr(leaf, "shape"):
        return leaf
    name = _named("observations", path)
    try:
        array = np.asarray(leaf)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"`{where}`: `{name}` must be an array of numbers, or equally long lists "
            f"of them; got {leaf!r:.80}"
        )
    with np.errstate(invalid="ignore"):
        found = array.astype(_DTYPES[kind[0]])
    if kind[0] != "flat" and np.any(found != array):
        what = "pixels of 0 to 255" if kind[0] == "image" else "whole numbers"
        raise ValueError(f"`{where}`: `{name}` must be {what}; got {leaf!r:.80}")
    return found


def checked_rows(
    where: str,
    kind: list[Any],
    nest: Any,
    shape_of: Callable[[Any], Any] = lambda shape: shape,
    name: str = "inputs",
) -> int | None:
    """Returns how many rows a nest of observations has; None if that is unknown.

    Args:
        where: the asking class, for the error message.
        kind: description of the space.
        nest: of `[B, ...]`, or of their shapes.
        shape_of: the shape of a leaf of `nest`; leaves are shapes by default.
        name: of the nest, for the error message.

    Raises:
        ValueError: if a part is missing or of another shape, or rows differ.
    """
    rows: dict[str, int] = {}

    def check(kind: list[Any], leaf: Any, path: tuple[Any, ...]) -> None:
        part, fitting = _named(name, path), _fitting(kind)
        try:
            found = shape_of(leaf)
            if type(found) is tuple and found and [*found[1:]] in fitting:
                if found[0] is not None:  # an array, as at each step of environments
                    rows[part] = found[0]
                return
            shape = tf.TensorShape(found)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{where}`: `{part}` must be one array; got {type(leaf).__name__}"
            ) from error
        if not any(shape.is_compatible_with([None, *fit]) for fit in fitting):
            raise ValueError(
                f"`{where}`: `{part}` must have shape {['B', *fitting[0]]}, that of "
                f"the observation space; got {shape}"
            )
        if shape.rank and shape[0] is not None:
            rows[part] = shape[0]

    mapped(check, kind, nest, where, name)
    if len(set(rows.values())) > 1:
        raise ValueError(
            f"`{where}`: all parts of `{name}` must have one number of rows; got {rows}"
        )
    return next(iter(rows.values()), None)


def _named(name: str, path: tuple[Any, ...]) -> str:
    return name + "".join(f"[{key!r}]" for key in path)


def check_finite(where: str, observations: Any, *, clipped: bool = False) -> None:
    """Raises if an eager array or tensor of a nest has no numbers, or not finite ones.

    Of what is not finite a network makes parameters from which actions outside of
    their space are drawn. Infinities pass that are `clipped` before it sees them.
    """
    if tf.inside_function():
        return
    for leaf in _leaves(observations):
        if not isinstance(leaf, np.ndarray | tf.Tensor):
            continue
        dtype = tf.as_dtype(leaf.dtype)
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            got = leaf.dtype.name
            raise TypeError(
                f"`{where}`: `observations` expected real numbers; got {got}"
            )
        if dtype.is_floating:
            numbers = np.asarray(leaf)
            if dtype == tf.float64:
                with np.errstate(over="ignore"):
                    numbers = numbers.astype(np.float32)  # as networks compute
            if not np.isfinite(numbers).all():
                if clipped:
                    numbers = np.where(np.isinf(numbers), 0, numbers)
                checks.check_finite(where, "observations", numbers)


def on_host(observations: Any) -> bool:
    """Whether an eager nest of observations holds no tensors."""
    return not tf.inside_function() and not any(
        type(leaf) is not np.ndarray and tf.is_tensor(leaf)  # which takes long to ask
        for leaf in _leaves(observations)
    )


def _leaves(nest: Any) -> list[Any]:
    return [nest] if type(nest) is np.ndarray else tf.nest.flatten(nest)


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


def _image(shape: list[int], place: str) -> list[Any]:
    height = gym_checks.height_axis(shape)
    if height is None:
        raise ValueError(
            f"{place} must show which axes of its images are height and width: two "
            f"neighbours, each longer than all other axes; got {shape}; stack frames "
            "by `tfrl.environments.StackChannels`, resize or transpose images by a "
            "wrapper, or give them as floats to have them flattened"
        )
    least = gym_checks.LEAST_PIXELS
    if min(shape[height : height + 2]) < least:
        raise ValueError(
            f"{place} must have images of {least}x{least} pixels at "
            f"least; got {shape}; resize them by a wrapper, or give them as floats to "
            "have them flattened"
        )
    last = height == 0 and len(shape) == 3
    return ["image", shape] if last else ["image", shape, height]
