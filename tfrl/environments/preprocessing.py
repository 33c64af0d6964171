"""Preprocessing of elements of spaces: clipped or one-hot batches for a network."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks

_WHERE = "default_preprocessor"


def default_preprocessor(
    space: spaces.Space, *, from_start: bool = True
) -> Callable[[Any], Any]:
    """Returns the function that turns elements of a space into a batch for a network.

    A single element becomes a batch of one; a batch stays a batch:

        Box            clipped to its bounds               [B, *shape]
        Discrete       one-hot                             [B, n] float32
        MultiDiscrete  list of one-hots, one for each      [B, n_i] float32
                       entry in row-major order
        MultiBinary    as numbers                          [B, *shape] float32
        Dict, Tuple    a dict or tuple of the parts'

    Numbers of a Box keep their dtype. Integers count from the `start` of their space,
    as its samples do; one outside start, ..., start + n - 1 gives a one-hot of zeros.
    coax counts from 0 whatever the `start`, so its one-hots of a `Discrete(3, start=5)`
    are all zeros: `from_start=False` does the same.

    Args:
        space: the Gymnasium space.
        from_start: whether integers of a Discrete or MultiDiscrete count from its
            `start`; if not, they count from 0. Both are the same if `start` is 0.

    Returns:
        A function of one element or of a batch of them, with numpy or tensor leaves;
        it works in `tf.function` and under XLA.

    Raises:
        TypeError: if the space or a part of it has no class above; by the function, if
            an element does not hold numbers, or the integers of a one-hot are not
            integers.
        ValueError: by the function, if an element does not have the space's shape.

    Example:
        >>> preprocess = default_preprocessor(gym.spaces.Discrete(3))
        >>> preprocess(1).numpy().tolist(), preprocess([0, 2]).numpy().tolist()
        ([[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        >>> default_preprocessor(gym.spaces.Discrete(3, start=5))(6).numpy().tolist()
        [[0.0, 1.0, 0.0]]
    """
    match space:
        case spaces.Dict():
            parts = {
                key: default_preprocessor(part, from_start=from_start)
                for key, part in space.items()
            }
            return lambda x: {
                key: part(_part(x, key, list(parts))) for key, part in parts.items()
            }
        case spaces.Tuple():
            row = [default_preprocessor(part, from_start=from_start) for part in space]
            keys = list(range(len(row)))
            return lambda x: tuple(row[i](_part(x, i, keys)) for i in keys)
        case spaces.Box():
            return lambda x: _clipped(space, x)
        case spaces.Discrete():
            start = space.start if from_start else 0
            return lambda x: _one_hots(x, (), [space.n], [start])[0]
        case spaces.MultiDiscrete():
            counts = np.ravel(space.nvec).tolist()
            starts = np.ravel(space.start).tolist() if from_start else [0] * len(counts)
            return lambda x: _one_hots(x, space.shape, counts, starts)
        case spaces.MultiBinary():
            return lambda x: tf.cast(_rows(_tensor(x), space.shape), tf.float32)
    kinds = "a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them"
    raise checks.wrong_type(_WHERE, "space", space, kinds)


def check_preprocessors(
    space: spaces.Space,
    *preprocessors: Callable[[Any], Any],
    num_samples: int = 20,
    random_seed: int | None = None,
) -> bool:
    """Whether preprocessors give the same for elements of a space.

    The same means nests of one structure whose leaves have the same type, shape, dtype
    and, to a relative 1e-6, the same numbers.

    Args:
        space: the space of the elements, drawn by a copy of it: its generator stays as
            it is.
        *preprocessors: two or more functions of an element of the space.
        num_samples: how many elements to try.
        random_seed: of the elements; None for fresh ones.

    Returns:
        True if all preprocessors agree on all samples.

    Raises:
        TypeError: if `space` is no Gymnasium space, a preprocessor no function or
            `num_samples` no int.
        ValueError: if there are fewer than two preprocessors, or `num_samples` is not
            positive.

    Example:
        >>> space = gym.spaces.Discrete(3)
        >>> mine = lambda x: tf.one_hot([x], 3)
        >>> check_preprocessors(space, default_preprocessor(space), mine)
        True
    """
    where = "check_preprocessors"
    checks.check_type(where, "space", space, spaces.Space, "a gymnasium.Space")
    if len(preprocessors) < 2:
        raise ValueError(
            f"`{where}`: `preprocessors` expected at least two; got "
            f"{len(preprocessors)}"
        )
    for preprocess in preprocessors:
        checks.check_type(where, "preprocessors", preprocess, Callable, "functions")
    checks.check_whole_number(where, "num_samples", num_samples, low=1)
    space = copy.deepcopy(space)
    space.seed(random_seed)
    for _ in range(num_samples):
        element = space.sample()
        first, *others = (preprocess(element) for preprocess in preprocessors)
        if not all(_agree(first, other) for other in others):
            return False
    return True


def _part(x: Any, key: Any, keys: list[Any]) -> Any:
    try:
        return x[key]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"`{_WHERE}`: `x` expected the parts {keys} of its space; got "
            f"{checks.shown(x)}"
        ) from error


def _tensor(x: Any) -> tf.Tensor:
    return checks.as_tensor(_WHERE, "x", x)


def _rows(x: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """`x` with one leading axis; what `[-1, *shape]` would silently cut is an error."""
    fits = any(x.shape.is_compatible_with(s) for s in (shape, (None, *shape)))
    if not fits:
        raise ValueError(
            f"`{_WHERE}`: `x` expected an element of shape {list(shape)} or a batch of "
            f"them; got {x.shape.as_list()}"
        )
    return tf.reshape(x, [-1, *shape])


def _clipped(space: spaces.Box, x: Any) -> tf.Tensor:
    x = _tensor(x)
    if x.dtype.is_integer and np.issubdtype(space.dtype, np.floating):
        x = tf.cast(x, space.dtype)
    rows = _rows(x, space.shape)
    if not (rows.dtype.is_floating or rows.dtype.is_integer):
        return rows
    low, high = (_bound(bound, rows.dtype) for bound in (space.low, space.high))
    return tf.clip_by_value(rows, low, high)


def _bound(bound: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    """The nearest numbers of a dtype; casts of integers would wrap around."""
    if not dtype.is_integer:
        return tf.cast(bound, dtype)
    own = bound.astype(dtype.as_numpy_dtype)
    own[bound > dtype.max] = dtype.max
    own[bound < dtype.min] = dtype.min
    return tf.constant(own)


def _one_hots(
    x: Any, shape: tuple[int, ...], counts: list[int], starts: list[int]
) -> list[tf.Tensor]:
    x = _tensor(x)
    if not x.dtype.is_integer:
        raise TypeError(f"`{_WHERE}`: `x` expected integers; got {x.dtype.name}")
    rows = _rows(x, shape)
    flat = tf.reshape(tf.cast(rows, tf.int64), [-1, len(counts)])
    columns = zip(tf.unstack(flat, axis=1), counts, starts, strict=True)
    return [tf.one_hot(column - start, int(n)) for column, n, start in columns]


def _agree(one: Any, other: Any) -> bool:
    try:
        tf.nest.assert_same_structure(one, other)
    except (TypeError, ValueError):
        return False
    return all(map(_same_leaf, tf.nest.flatten(one), tf.nest.flatten(other)))


def _same_leaf(mine: Any, yours: Any) -> bool:
    a, b = np.asarray(mine), np.asarray(yours)
    if type(mine) is not type(yours) or (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind not in "biufc":
        return bool(np.all(a == b))
    return bool(np.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True))
