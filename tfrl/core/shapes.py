"""Shapes and dtypes of arrays without the arrays."""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrl._internal import checks


def signature(obj: Any) -> Any:
    """Returns the `ShapeDtype` of each array in a structure.

    Args:
        obj: anything with `shape` and `dtype` (numpy arrays, tensors, variables,
            Keras tensors, specs), or a tuple, list or mapping of such objects.

    Returns:
        `ShapeDtype`s in tuples, lists and dicts like those of `obj`; a named tuple
        becomes a plain tuple.

    Raises:
        TypeError: if a leaf has no `shape` or no `dtype`.
        ValueError: if the rank of a leaf is unknown.

    Example:
        >>> signature((np.zeros([2, 3]), [tf.zeros([4], tf.int32)]))
        (ShapeDtype{shape:(2, 3), dtype:float64},
         [ShapeDtype{shape:(4,), dtype:int32}])
    """
    if isinstance(obj, tuple):
        return tuple(signature(item) for item in obj)
    if isinstance(obj, list):
        return [signature(item) for item in obj]
    if isinstance(obj, Mapping):
        return {key: signature(item) for key, item in obj.items()}
    return ShapeDtype(*[_of("signature", "obj", obj, x) for x in ("shape", "dtype")])


def splice_signatures(*sigs: Any) -> Any:
    """Returns one signature made of the elements of all signatures given.

    A tuple among `sigs` contributes its elements, anything else itself:
    `a, (b, c), (), d -> (a, b, c, d)`. Only the outermost tuples are opened.

    Args:
        *sigs: signatures, see `signature`.

    Returns:
        A tuple of the elements, or the element itself where there is just one.

    Example:
        >>> one, two = ShapeDtype((1,)), ShapeDtype((2,), np.int32)
        >>> splice_signatures((one, two), (), one) == (one, two, one)
        True
        >>> splice_signatures((), one) == one
        True
    """
    spliced: list[Any] = []
    for sig in sigs:
        spliced.extend(sig if isinstance(sig, tuple) else (sig,))
    return spliced[0] if len(spliced) == 1 else tuple(spliced)


def assert_shape_equals(array: Any, shape: Any) -> None:
    """Raises unless the static shape of an array is the given one.

    Args:
        array: anything with a `shape`.
        shape: the dimensions it must have; None stands for an unknown dimension and
            equals only another unknown one.

    Raises:
        TypeError: if `array` has no shape or `shape` is not a sequence of dimensions.
        ValueError: if the shapes differ; the message has both.

    Example:
        >>> assert_shape_equals(np.zeros([2, 3]), (2, 3))
    """
    where = "assert_shape_equals"
    expected = _canonical_shape(where, shape)
    found = _canonical_shape(where, _of(where, "array", array))
    if found != expected:
        raise ValueError(f"`{where}`: `array` expected shape {expected}; got {found}")


def assert_same_shape(array1: Any, array2: Any) -> None:
    """Raises unless two arrays have the same static shape.

    Args:
        array1: anything with a `shape`.
        array2: anything with a `shape`.

    Raises:
        TypeError: if one of them has no shape.
        ValueError: if the shapes differ; the message has both.

    Example:
        >>> assert_same_shape(np.zeros([2, 3]), tf.zeros([2, 3]))
    """
    where = "assert_same_shape"
    first = _canonical_shape(where, _of(where, "array1", array1))
    second = _canonical_shape(where, _of(where, "array2", array2))
    if first != second:
        raise ValueError(
            f"`{where}`: `array2` expected the shape of `array1` {first}; got {second}"
        )


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ShapeDtype:
    """The shape and dtype of an array that need not exist.

    Immutable, hashable, equal when shape and dtype are. `len` is 1: it counts as one
    element of a signature.

    Args:
        shape: tuple, list or `tf.TensorShape` of dimensions, None where unknown.
        dtype: whatever numpy or TensorFlow take for a dtype.

    Attributes:
        shape: tuple of int or None.
        dtype: a `np.dtype`.

    Raises:
        TypeError: if `shape` is not a sequence of ints and Nones, or `dtype` is no
            dtype.
        ValueError: if a dimension is negative or the rank is unknown.

    Example:
        >>> ShapeDtype([2, None], tf.int32)
        ShapeDtype{shape:(2, None), dtype:int32}
    """

    shape: Any
    dtype: Any = np.float32

    def __post_init__(self) -> None:
        shape = _canonical_shape("ShapeDtype", self.shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", _canonical_dtype(self.dtype))

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"ShapeDtype{{shape:{self.shape}, dtype:{self.dtype}}}"

    def as_tuple(self) -> tuple[tuple[int | None, ...], np.dtype]:
        """Returns `(shape, dtype)`.

        Returns:
            The shape as a tuple and the numpy dtype.
        """
        return self.shape, self.dtype

    def replace(self, **kwargs: Any) -> Self:
        """Returns a copy with another shape or dtype.

        Args:
            **kwargs: `shape`, `dtype` or both.

        Returns:
            A new object; this one stays as it is.

        Raises:
            ValueError: if a name is neither `shape` nor `dtype`.

        Example:
            >>> ShapeDtype((2,)).replace(dtype=np.int64)
            ShapeDtype{shape:(2,), dtype:int64}
        """
        for name in kwargs:
            checks.check_one_of(
                "ShapeDtype.replace", "kwargs", name, ("shape", "dtype")
            )
        return dataclasses.replace(self, **kwargs)


def _of(where: str, name: str, array: Any, attribute: str = "shape") -> Any:
    if not hasattr(array, attribute):
        raise checks.wrong_type(where, name, array, f"an object with `{attribute}`")
    return getattr(array, attribute)


def _canonical_shape(where: str, shape: Any) -> tuple[int | None, ...]:
    start = f"`{where}`: `shape` expected"
    if not isinstance(shape, tuple | list | tf.TensorShape):
        raise TypeError(f"{start} a tuple, list or tf.TensorShape; got {shape!r}")
    if isinstance(shape, tf.TensorShape) and shape.rank is None:
        raise ValueError(f"{start} a known rank; got {shape}; see tf.ensure_shape")
    try:
        dims = tuple(None if dim is None else operator.index(dim) for dim in shape)
    except TypeError:
        raise TypeError(f"{start} dimensions, int or None; got {shape!r}") from None
    if any(dim is not None and dim < 0 for dim in dims):
        raise ValueError(f"{start} dimensions of 0 or more, or None; got {dims}")
    return dims


def _canonical_dtype(dtype: Any) -> np.dtype:
    try:
        if isinstance(dtype, tf.DType):
            return np.dtype(dtype.as_numpy_dtype)
        return np.dtype(np.float32 if dtype is None else dtype)
    except TypeError:
        raise TypeError(
            f"`ShapeDtype`: `dtype` expected one of numpy or TensorFlow; got {dtype!r}"
        ) from None
