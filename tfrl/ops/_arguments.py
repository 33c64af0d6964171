"""How ops of this room take tensors: of known rank, axes counted from the front."""

from typing import Any, TypeAlias

import tensorflow as tf

from tfrl.core import checks

TensorLike: TypeAlias = tf.types.experimental.TensorLike


def ranked(
    where: str,
    name: str,
    value: TensorLike,
    at_least: int = 0,
    *,
    numeric: bool = False,
) -> tf.Tensor:
    """The tensor of an argument, checked to have a known rank.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        at_least: the least rank.
        numeric: whether strings are refused.

    Returns:
        The tensor.

    Raises:
        TypeError: if it is nothing like a tensor.
        ValueError: if its rank is unknown or less.

    Example:
        >>> ranked("cov", "data", 1.0, at_least=1)
        Traceback (most recent call last):
        ...
        ValueError: `cov`: `data` expected rank of at least 1; got shape ();
        give it the missing axes
    """
    tensor = checks.as_tensor(where, name, value, numeric=numeric)
    rank = tensor.shape.rank
    if rank is None or rank < at_least:
        remedy = (
            "set it with tf.ensure_shape"
            if rank is None
            else "give it the missing axes"
        )
        raise ValueError(
            f"`{where}`: `{name}` expected rank of at least {at_least}; "
            f"got shape {tensor.shape}; {remedy}"
        )
    return tensor


def axis(where: str, name: str, value: int, tensor: tf.Tensor) -> int:
    """An axis of a tensor of known rank, counted from the front.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: the axis, negative where counted from the end.
        tensor: the tensor it belongs to.

    Returns:
        The axis, at least 0.

    Raises:
        TypeError: if it is not an int.
        ValueError: if the tensor has no such axis.

    Example:
        >>> axis("reverse_cumsum", "dim", -1, tf.zeros([2, 3]))
        1
    """
    rank = tensor.shape.rank
    return (
        checks.check_whole_number(where, name, value, low=-rank, high=rank - 1) % rank
    )


def floating_dtype(where: str, value: Any) -> tf.DType:
    """The dtype that an argument `dtype` names, checked to be floating.

    Args:
        where: name of the function that checks.
        value: a dtype of TensorFlow or numpy, or the name of one.

    Returns:
        The dtype.

    Raises:
        TypeError: if it is another, or no dtype.

    Example:
        >>> floating_dtype("quantiles", "int32")
        Traceback (most recent call last):
        ...
        TypeError: `quantiles`: `dtype` expected a floating-point dtype; got int32;
        pass for example tf.float32
    """
    dtype = tf.as_dtype(value)
    if not dtype.is_floating:
        raise TypeError(
            f"`{where}`: `dtype` expected a floating-point dtype; got {dtype.name}; "
            "pass for example tf.float32"
        )
    return dtype
