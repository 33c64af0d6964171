"""Which element: the position of an extreme, a random order."""

from typing import Any, TypeAlias

import tensorflow as tf

from tfrl._internal import operands
from tfrl.core import compile, random

TensorLike: TypeAlias = operands.TensorLike


def argmax(arr: TensorLike, axis: int | None = -1, seed: Any = None) -> tf.Tensor:
    """The position of the greatest element, drawn at random among equals.

    A greedy policy that always takes the first of equal values never sees the others.
    NaN counts as greater than any number.

    Args:
        arr: of rank 1 or more, of any real dtype or bool.
        axis: the axis along which to look; None for the whole array, whose elements
            are then counted in row-major order.
        seed: an int, an int32 `[2]` tensor, or None for another draw at each call.

    Returns:
        int32, in the shape of `arr` without `axis`. Each position draws on its own.

    Raises:
        ValueError: if there is no such axis or it is empty.

    Example:
        >>> argmax([[1.0, 3.0, 2.0], [4.0, 0.0, 0.0]]).numpy()
        array([1, 0], dtype=int32)
        >>> {int(argmax([5, 0, 5], seed=seed)) for seed in range(20)}
        {0, 2}
    """
    tensor, axis = _searched("argmax", "arr", arr, axis)
    seed = random.checked_seed("argmax", seed)
    return _random_extreme(tensor, seed, axis, largest=True)


def argmin(arr: TensorLike, axis: int | None = -1, seed: Any = None) -> tf.Tensor:
    """The position of the least element, drawn at random among equals.

    NaN counts as less than any number. `first_argmin` draws nothing.

    Args:
        arr: of rank 1 or more, of any real dtype or bool.
        axis: the axis along which to look; None for the whole array, whose elements
            are then counted in row-major order.
        seed: an int, an int32 `[2]` tensor, or None for another draw at each call.

    Returns:
        int32, in the shape of `arr` without `axis`. Each position draws on its own.

    Raises:
        ValueError: if there is no such axis or it is empty.

    Example:
        >>> argmin([[1.0, 3.0, 2.0], [4.0, 0.0, 5.0]]).numpy()
        array([0, 1], dtype=int32)
    """
    tensor, axis = _searched("argmin", "arr", arr, axis)
    seed = random.checked_seed("argmin", seed)
    return _random_extreme(tensor, seed, axis, largest=False)


def first_argmin(x: TensorLike) -> tf.Tensor:
    """The position of the least element of each row, the first among equals.

    `tf.argmin` promises nothing about equals. NaN counts as less than any number.

    Args:
        x: `[..., n]`, of any real dtype or bool.

    Returns:
        `[...]` int64.

    Raises:
        ValueError: if `x` has no axis, or rows of no elements.

    Example:
        >>> first_argmin([[2, 1, 1], [0, 3, 0]]).numpy()
        array([1, 0])
    """
    return _first_least(_searched("first_argmin", "x", x, axis=-1)[0])


def shuffle(values: Any, seed: Any = None) -> Any:
    """Brings the first axis of all tensors of a nest into one random order.

    Args:
        values: nest of tensors of the same size along axis 0; None leaves stay.
        seed: an int, an int32 `[2]` tensor, or None for another order at each call.

    Returns:
        The nest of the reordered tensors. Rows that belonged together still do.

    Raises:
        ValueError: if a tensor has no axis or the sizes differ.

    Example:
        >>> batch = {"x": tf.range(4), "y": 10 * tf.range(4)}
        >>> mixed = shuffle(batch, seed=3)
        >>> sorted(mixed["x"].numpy().tolist())
        [0, 1, 2, 3]
        >>> bool(tf.reduce_all(mixed["y"] == 10 * mixed["x"]))
        True
    """
    leaves = tf.nest.flatten(values)
    tensors = [
        leaf if leaf is None else operands.ranked("shuffle", "values", leaf, 1)
        for leaf in leaves
    ]
    shapes = [leaf.shape for leaf in tensors if leaf is not None]
    for shape in shapes:
        if not shape[:1].is_compatible_with(shapes[0][:1]):
            raise ValueError(
                f"`shuffle`: `values` expected tensors of {shapes[0][0]} rows; "
                f"got shape {shape}"
            )
    if shapes:
        tensors = _shuffled(tensors, random.checked_seed("shuffle", seed))
    return tf.nest.pack_sequence_as(values, tensors)


def _searched(
    where: str, name: str, value: TensorLike, axis: int | None
) -> tuple[tf.Tensor, int]:
    """What to look through and along which axis, checked."""
    tensor = operands.ranked(where, name, value, at_least=0 if axis is None else 1)
    if tensor.dtype.is_bool:
        tensor = tf.cast(tensor, tf.uint8)
    if axis is None:
        tensor, axis = tf.reshape(tensor, [-1]), 0
    axis = operands.axis(where, "axis", axis, tensor)
    if tensor.shape[axis] == 0:
        raise ValueError(
            f"`{where}`: `{name}` expected elements along axis {axis}; "
            f"got shape {tensor.shape}"
        )
    return tensor, axis


def _is_extreme(tensor: tf.Tensor, axis: int, largest: bool) -> tf.Tensor:
    """Where an element is the extreme along the axis; NaNs are, if there are any."""
    reduce = tf.reduce_max if largest else tf.reduce_min
    extreme = tensor == reduce(tensor, axis, keepdims=True)
    if not tensor.dtype.is_floating:
        return extreme
    missing = tf.math.is_nan(tensor)
    any_missing = tf.reduce_any(missing, axis, keepdims=True)
    return tf.where(any_missing, missing, extreme)


def _scores(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Random integers, the same eagerly, in graphs and under XLA, unlike floats."""
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )


@compile.compiled(static=("axis", "largest"))
def _random_extreme(
    tensor: tf.Tensor, seed: tf.Tensor, axis: int, largest: bool
) -> tf.Tensor:
    lowest = tf.int32.min
    scores = tf.maximum(_scores(tf.shape(tensor), seed), lowest + 1)
    scores = tf.where(_is_extreme(tensor, axis, largest), scores, lowest)
    return tf.argmax(scores, axis, output_type=tf.int32)


@compile.compiled
def _first_least(tensor: tf.Tensor) -> tf.Tensor:
    count = tf.shape(tensor, tf.int64)[-1]
    is_least = _is_extreme(tensor, tensor.shape.rank - 1, largest=False)
    return tf.reduce_min(tf.where(is_least, tf.range(count), count), axis=-1)


@compile.compiled
def _shuffled(tensors: list[Any], seed: tf.Tensor) -> list[Any]:
    rows = next(tf.shape(leaf)[0] for leaf in tensors if leaf is not None)
    order = tf.argsort(_scores(rows[tf.newaxis], seed))
    return [leaf if leaf is None else tf.gather(leaf, order) for leaf in tensors]
