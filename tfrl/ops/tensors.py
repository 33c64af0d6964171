"""Tensors made, reshaped, repeated and extended.

Every function takes unknown sizes in a graph; only ranks must be known while tracing.
"""

from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands

TensorLike: TypeAlias = operands.TensorLike

# By numpy's kind: what holds Python's own numbers.
_PYTHON_DTYPES = {"i": tf.int64, "f": tf.float32, "c": tf.complex64}


class BatchSquash:
    """Merges the leading axes of tensors into one, and splits it again.

    For networks that want a single batch axis: `flatten` what goes in, `unflatten` what
    comes out. Trailing axes may change in between. With `batch_dims` 1 both return
    their argument, with 0 they add and remove a leading axis of 1.

    `flatten` remembers the leading sizes for `unflatten`; where they are unknown while
    tracing, both must be called in the same graph.

    Args:
        batch_dims: how many leading axes become one.

    Raises:
        ValueError: if `batch_dims` is negative.
        TypeError: if it is not an int.

    Example:
        >>> squash = BatchSquash(2)
        >>> flat = squash.flatten(tf.zeros([5, 2, 3]))
        >>> flat.shape, squash.unflatten(flat[:, :1]).shape
        (TensorShape([10, 3]), TensorShape([5, 2, 1]))
    """

    def __init__(self, batch_dims: int) -> None:
        where, name = "BatchSquash", "batch_dims"
        self._batch_dims = checks.check_whole_number(where, name, batch_dims, low=0)
        self._static: tf.TensorShape | None = None
        self._sizes: Any = None

    def flatten(self, tensor: TensorLike) -> tf.Tensor:
        """Merges the leading axes and remembers their sizes.

        Args:
            tensor: `[B1, ..., Bn, ...]` of any dtype.

        Returns:
            `[B1 * ... * Bn, ...]`.

        Raises:
            ValueError: if it has fewer axes than `batch_dims`.
        """
        count = self._batch_dims
        tensor = operands.ranked("BatchSquash.flatten", "tensor", tensor, count)
        if count == 1:
            return tensor
        self._static = static = tensor.shape[:count]
        shape = tf.shape(tensor)
        self._sizes = static if static.is_fully_defined() else shape[:count]
        merged = tf.reduce_prod(shape[:count], keepdims=True)
        flat = tf.reshape(tensor, tf.concat([merged, shape[count:]], axis=0))
        flat.set_shape([static.num_elements(), *tensor.shape[count:]])
        return flat

    def unflatten(self, tensor: TensorLike) -> tf.Tensor:
        """Splits the first axis into those that `flatten` merged.

        Args:
            tensor: `[B1 * ... * Bn, ...]` of any dtype.

        Returns:
            `[B1, ..., Bn, ...]`.

        Raises:
            ValueError: if `flatten` has not been called before, or the first axis has
                another size.
        """
        tensor = operands.ranked("BatchSquash.unflatten", "tensor", tensor, 1)
        if self._batch_dims == 1:
            return tensor
        if self._static is None:
            raise ValueError(
                "`BatchSquash.unflatten`: `tensor` expected after a call of `flatten`"
            )
        merged, found = self._static.num_elements(), tensor.shape[0]
        if merged is not None and found not in (None, merged):
            raise ValueError(
                f"`BatchSquash.unflatten`: `tensor` expected a first axis of {merged}, "
                f"as `flatten` made it; got shape {tensor.shape}"
            )
        shape = tf.concat([self._sizes, tf.shape(tensor)[1:]], axis=0)
        split = tf.reshape(tensor, shape)
        split.set_shape(self._static.concatenate(tensor.shape[1:]))
        return split


def tensor_extend(x: TensorLike, y: TensorLike) -> tf.Tensor:
    """Appends one slice at the end of the first axis.

    Args:
        x: `[N, ...]` of any dtype.
        y: the slice, `[...]` of the same dtype.

    Returns:
        `[N + 1, ...]`.

    Raises:
        ValueError: if `y` has not the shape of a slice of `x`.
        TypeError: if the dtypes differ.

    Example:
        >>> tensor_extend([1, 2], 3).numpy()
        array([1, 2, 3], dtype=int32)
    """
    tensor, piece = _with_slice("tensor_extend", x, y)
    return tf.concat([tensor, piece], axis=0)


def tensor_prepend(x: TensorLike, y: TensorLike) -> tf.Tensor:
    """Puts one slice in front of the first axis.

    Args:
        x: `[N, ...]` of any dtype.
        y: the slice, `[...]` of the same dtype.

    Returns:
        `[N + 1, ...]`.

    Raises:
        ValueError: if `y` has not the shape of a slice of `x`.
        TypeError: if the dtypes differ.

    Example:
        >>> tensor_prepend([1, 2], 3).numpy()
        array([3, 1, 2], dtype=int32)
    """
    tensor, piece = _with_slice("tensor_prepend", x, y)
    return tf.concat([piece, tensor], axis=0)


def tensor_extend_zero(x: TensorLike, dim: int = 0) -> tf.Tensor:
    """Appends a slice of zeros at the end of an axis.

    Args:
        x: a tensor of any dtype; False and the empty string count as zeros.
        dim: the axis.

    Returns:
        The shape of `x`, longer by one along `dim`.

    Raises:
        ValueError: if there is no such axis.
        TypeError: if `dim` is not an int.

    Example:
        >>> tensor_extend_zero([[1, 2]], dim=1).numpy()
        array([[1, 2, 0]], dtype=int32)
    """
    tensor = operands.ranked("tensor_extend_zero", "x", x)
    axis = operands.axis("tensor_extend_zero", "dim", dim, tensor)
    paddings = [[0, int(each == axis)] for each in range(tensor.shape.rank)]
    return tf.pad(tensor, paddings)


def tensor_prepend_zero(x: TensorLike) -> tf.Tensor:
    """Puts a slice of zeros in front of the first axis.

    Args:
        x: `[N, ...]` of any dtype; False and the empty string count as zeros.

    Returns:
        `[N + 1, ...]`.

    Raises:
        ValueError: if `x` is a scalar.

    Example:
        >>> tensor_prepend_zero([1, 2]).numpy()
        array([0, 1, 2], dtype=int32)
    """
    tensor = operands.ranked("tensor_prepend_zero", "x", x, at_least=1)
    return tf.pad(tensor, [[1, 0]] + [[0, 0]] * (tensor.shape.rank - 1))


def tensor_extend_new_dim(x: TensorLike, dim: int, n: int | tf.Tensor) -> tf.Tensor:
    """Repeats a tensor along a new axis.

    Args:
        x: a tensor of any dtype.
        dim: where the new axis stands in the result, from 0 to the rank of `x`.
        n: how many copies, an int or an integer scalar.

    Returns:
        `[*x.shape[:dim], n, *x.shape[dim:]]`.

    Raises:
        ValueError: if `dim` is negative or beyond the rank, or `n` is negative.
        TypeError: if `dim` is not an int.

    Example:
        >>> tensor_extend_new_dim([1, 2], dim=1, n=3).numpy()
        array([[1, 1, 1],
               [2, 2, 2]], dtype=int32)
    """
    where = "tensor_extend_new_dim"
    tensor = operands.ranked(where, "x", x)
    rank = tensor.shape.rank
    axis = checks.check_whole_number(where, "dim", dim, low=0, high=rank)
    if not tf.is_tensor(n):
        checks.check_whole_number(where, "n", n, low=0)
    multiples = [1] * axis + [n] + [1] * (rank - axis)
    return tf.tile(tf.expand_dims(tensor, axis), multiples)


def expand_dims_as(x: TensorLike, y: TensorLike, end: bool = True) -> tf.Tensor:
    """Adds axes of one element until a tensor broadcasts to another.

    Args:
        x: a tensor of any dtype; its shape is where that of `y` begins, or where it
            ends if not `end`.
        y: the other, of any dtype; only its shape is read.
        end: whether the new axes come last instead of first.

    Returns:
        `x` with the rank of `y`.

    Raises:
        ValueError: if the shape of `x` is not that part of the shape of `y`.

    Example:
        >>> expand_dims_as(tf.zeros([5]), tf.zeros([5, 3, 2])).shape
        TensorShape([5, 1, 1])
    """
    tensor = operands.ranked("expand_dims_as", "x", x)
    like = operands.ranked("expand_dims_as", "y", y)
    rank, missing = tensor.shape.rank, like.shape.rank - tensor.shape.rank
    part = like.shape[:rank] if end else like.shape[max(missing, 0) :]
    if missing < 0 or not tensor.shape.is_compatible_with(part):
        raise ValueError(
            f"`expand_dims_as`: `x` expected the {'first' if end else 'last'} axes of "
            f"`y` {like.shape}; got shape {tensor.shape}"
        )
    new = [tf.newaxis] * missing
    return tensor[(..., *new)] if end else tensor[(*new, ...)]


def to_tensor(data: Any, dtype: Any = None) -> tf.Tensor:
    """Makes a tensor of anything like an array; a tensor stays as it is.

    Without `dtype`, Python's ints become int64 and its floats float32, while numpy's
    dtypes stay: `np.float64` is float64. No gradient flows back into tensors that a
    list in `data` holds.

    Args:
        data: tensor, variable, numpy array, number, or nested lists of those.
        dtype: the dtype wanted; not looked at where `data` is a tensor or variable.

    Returns:
        The tensor.

    Raises:
        ValueError: if nested lists have different lengths.
        TypeError: if `data` is nothing like an array, or `dtype` is no dtype.

    Example:
        >>> to_tensor([1, 2]).dtype.name, to_tensor([1.0]).dtype.name
        ('int64', 'float32')
    """
    if tf.is_tensor(data) or isinstance(data, keras.Variable):
        return tf.convert_to_tensor(data)
    wanted = None if dtype is None else operands.dtype_of("to_tensor", dtype)
    leaves = tf.nest.flatten(data)
    if any(tf.is_tensor(leaf) for leaf in leaves):
        tensor = tf.stop_gradient(tf.convert_to_tensor(data))
        return tensor if wanted is None else tf.cast(tensor, wanted)
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValueError(
            f"`to_tensor`: `data` expected lists of equal lengths; got {data!r:.200}"
        ) from None
    if array.dtype.kind not in "biufcSU" and not hasattr(data, "dtype"):
        kinds = "an array, numbers or nested lists of them"
        raise checks.wrong_type("to_tensor", "data", data, kinds)
    if wanted is None and not any(hasattr(leaf, "dtype") for leaf in leaves):
        wanted = _PYTHON_DTYPES.get(array.dtype.kind)
    if wanted is not None and wanted != tf.string:
        array = array.astype(wanted.as_numpy_dtype)
    return tf.convert_to_tensor(array)


def idx(arr: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """Indices 0, 1, 2, ... of the elements along an axis.

    Args:
        arr: a tensor or variable, not a numpy array; only its shape is read.
        axis: the axis.

    Returns:
        `[arr.shape[axis]]`, int32.

    Raises:
        TypeError: if `arr` is not a tensor or `axis` not an int.
        ValueError: if there is no such axis.

    Example:
        >>> idx(tf.zeros([4, 3]), axis=1).numpy()
        array([0, 1, 2], dtype=int32)
    """
    if not (tf.is_tensor(arr) or isinstance(arr, keras.Variable)):
        raise checks.wrong_type("idx", "arr", arr, "a tensor")
    tensor = operands.ranked("idx", "arr", arr, at_least=1)
    return tf.range(tf.shape(tensor)[operands.axis("idx", "axis", axis, tensor)])


def _with_slice(
    where: str, x: TensorLike, y: TensorLike
) -> tuple[tf.Tensor, tf.Tensor]:
    """`x`, and `y` as a slice to concatenate with it."""
    tensor = operands.ranked(where, "x", x, at_least=1)
    piece = operands.alike(where, "y", y, "x", tensor)
    if not piece.shape.is_compatible_with(tensor.shape[1:]):
        raise ValueError(
            f"`{where}`: `y` expected the shape of a slice of `x` {tensor.shape[1:]}; "
            f"got {piece.shape}"
        )
    return tensor, piece[tf.newaxis]
