"""Checks of one array of any library, and of the numbers in a nest of them."""

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, named_arrays

_SHAPES = (tuple, tf.TensorShape, type(None))


def check_array(
    arr: Any,
    ndim: int | Collection[int] | None = None,
    ndim_min: int | None = None,
    ndim_max: int | None = None,
    dtype: Any = None,
    shape: Any = None,
    axis_size: int | Collection[int] | None = None,
    axis: int | None = None,
    except_np: bool = False,
) -> None:
    """Raises unless `arr` is a tensor with the properties asked for.

    Args:
        arr: tensor or variable.
        ndim: the rank, or a collection of admitted ranks.
        ndim_min: the least rank.
        ndim_max: the greatest rank.
        dtype: the dtype, or a collection of admitted dtypes.
        shape: the static shape, a tuple or `tf.TensorShape`.
        axis_size: the size of dimension `axis`, or a collection of admitted sizes;
            looked at only where `axis` is given too.
        axis: the dimension `axis_size` speaks of.
        except_np: whether numpy arrays are admitted too.

    Raises:
        TypeError: if one of the checks fails.

    Example:
        >>> check_array(tf.zeros([2, 3]), ndim=2, dtype=("float32", "float64"))
        >>> check_array(tf.zeros([2, 3]), ndim_max=1)
        Traceback (most recent call last):
        ...
        TypeError: `check_array`: `arr` expected rank of at most 1; got shape (2, 3),
        float32
    """
    if not (tf.is_tensor(arr) or (except_np and isinstance(arr, np.ndarray))):
        raise checks.wrong_type("check_array", "arr", arr, "a tensor")
    checks.check_type("check_array", "shape", shape, _SHAPES, "a tuple")
    dims, found = tuple(arr.shape), tf.as_dtype(arr.dtype)
    rank = len(dims)
    size = dims[axis] if axis is not None and -rank <= axis < rank else None
    wanted = (
        (ndim is None or rank in _admitted(ndim), f"rank {ndim}"),
        (ndim_min is None or rank >= ndim_min, f"rank of at least {ndim_min}"),
        (ndim_max is None or rank <= ndim_max, f"rank of at most {ndim_max}"),
        (
            dtype is None or found in map(tf.as_dtype, _admitted(dtype)),
            f"dtype {dtype}",
        ),
        (shape is None or dims == tuple(shape), f"shape {shape}"),
        (
            axis is None or axis_size is None or size in _admitted(axis_size),
            f"size {axis_size} along axis {axis}",
        ),
    )
    for holds, expected in wanted:
        if not holds:
            raise TypeError(
                f"`check_array`: `arr` expected {expected}; got shape {dims}, "
                f"{found.name}"
            )


def isscalar(num: Any) -> bool:
    """Whether something is one number: a number, or an array of a single one.

    Args:
        num: anything. Sequences and strings are no scalars, whatever they hold.

    Returns:
        True for numbers, bools, and arrays, tensors and variables of a single one.

    Example:
        >>> isscalar(1.5), isscalar(tf.zeros([1, 1])), isscalar([1]), isscalar("a")
        (True, True, False, False)
    """
    if isinstance(num, numbers.Number):
        return True
    if isinstance(num, np.ndarray | np.generic):
        return num.size == 1 and num.dtype.kind in "biufcV"
    if not tf.is_tensor(num):
        return False
    dtype = tf.as_dtype(num.dtype)
    numeric = dtype.is_bool or dtype.is_integer or dtype.is_floating or dtype.is_complex
    return numeric and tf.TensorShape(num.shape).num_elements() == 1


def check_numerics(nested: Any) -> None:
    """Raises if a tensor in a nest has a NaN or an infinity.

    Eagerly this looks at the values. In a graph it adds an assertion, which XLA
    drops.

    Args:
        nested: nest of arrays or tensors of any shape and dtype; None leaves pass.

    Raises:
        ValueError: if an eager value is not finite.

    Example:
        >>> check_numerics({"loss": tf.constant([0.5])})
        >>> check_numerics([np.array([1.0, np.inf])])
        Traceback (most recent call last):
        ...
        ValueError: `check_numerics`: `nested` expected finite values; got 1 of 2 not
        finite in nested[0] (shape [2], float64)
    """
    for place, part in named_arrays.spelled("nested", nested):
        for leaf in tf.nest.flatten(part, expand_composites=True):
            if leaf is not None:
                _check_numerics(place, tf.convert_to_tensor(leaf))


def _check_numerics(place: str, tensor: tf.Tensor) -> None:
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return
    if tf.is_symbolic_tensor(tensor):
        real = tf.abs(tensor) if tensor.dtype.is_complex else tensor
        tf.debugging.assert_all_finite(real, f"`check_numerics`: {place}")
        return
    bad = int(np.sum(~np.isfinite(tensor.numpy())))
    if bad:
        raise ValueError(
            f"`check_numerics`: `nested` expected finite values; got {bad} of "
            f"{tf.size(tensor)} not finite in {place} (shape "
            f"{tensor.shape.as_list()}, {tensor.dtype.name})"
        )


def _admitted(choice: Any) -> Collection[Any]:
    several = isinstance(choice, list | tuple | set | frozenset | range)
    return choice if several else (choice,)
