"""How losses take their tensors: floating, of one dtype, aligned axis by axis."""

from typing import Any, TypeAlias

import tensorflow as tf

from tfrl.core import checks

TensorLike: TypeAlias = tf.types.experimental.TensorLike


def leading(where: str, name: str, value: TensorLike, axes: int = 0) -> tf.Tensor:
    """The argument that sets shape and dtype for the others, as a checked tensor.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: floating, of known rank.
        axes: the least rank.

    Returns:
        The tensor.

    Raises:
        ValueError: if its rank is unknown or smaller.
        TypeError: if it is not floating.

    Example:
        >>> leading("q_taken", "q_values", 1.0, axes=1)
        Traceback (most recent call last):
        ...
        ValueError: `q_taken`: `q_values` expected rank of at least 1; got shape [];
        reshape it
    """
    tensor = checks.as_tensor(where, name, value)
    checks.check_floating(where, name, tensor)
    check_known_rank(where, name, tensor)
    checks.check_rank(where, name, tensor, at_least=axes)
    return tensor


def alike(
    where: str, name: str, value: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor, checked to have the dtype of the leader; what is no tensor takes it.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        leader: name of the leading argument.
        values: the leading tensor.

    Returns:
        The tensor.

    Raises:
        ValueError: if its rank is unknown.
        TypeError: if its dtype is another.

    Example:
        >>> alike("td_target", "rewards", [1], "values", tf.zeros(1, tf.float64)).dtype
        tf.float64
    """
    tensor = of_dtype(where, name, value, leader, values)
    check_known_rank(where, name, tensor)
    return tensor


def of_dtype(
    where: str, name: str, value: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """`alike`, of the same arguments, for tensors whose rank need not be known.

    Example:
        >>> of_dtype("value_loss", "returns", [1], "values", tf.zeros(1)).dtype
        tf.float32
    """
    tensor = checks.as_tensor(where, name, value, dtype_hint=values.dtype)
    if tensor.dtype != values.dtype:
        raise TypeError(
            f"`{where}`: `{name}` expected dtype {values.dtype.name}, which `{leader}` "
            f"has; got {tensor.dtype.name}; cast it with tf.cast"
        )
    return tensor


def aligned(
    where: str, name: str, value: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor with the first axes of the leader, and ones for those it lacks.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert; a number goes with every leader.
        leader: name of the leading argument.
        values: the leading tensor.

    Returns:
        The tensor, of the dtype and the rank of `values`.

    Raises:
        ValueError: if its shape is not where that of `values` begins.
        TypeError: if its dtype is another.

    Example:
        >>> aligned("td_target", "rewards", [1, 2], "values", tf.zeros([2, 3])).shape
        TensorShape([2, 1])
    """
    tensor = alike(where, name, value, leader, values)
    check_beginning(where, name, tensor, leader, values)
    for _ in range(values.shape.rank - tensor.shape.rank):
        tensor = tensor[..., tf.newaxis]
    return tensor


def equal(
    where: str, name: str, value: TensorLike, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor, checked to have the shape and the dtype of the leader.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        leader: name of the leading argument.
        values: the leading tensor.

    Returns:
        The tensor.

    Raises:
        ValueError: if its shape is another.
        TypeError: if its dtype is another.

    Example:
        >>> equal("double_q_target", "selector", [[1, 2]], "values", tf.zeros([1, 2]))
        <tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 2.]], dtype=float32)>
    """
    tensor = alike(where, name, value, leader, values)
    checks.check_same_shape(where, **{leader: values, name: tensor})
    return tensor


def number(value: TensorLike, dtype: tf.DType) -> tf.Tensor:
    """A number in a dtype, without the detour of `tf.cast` by float32.

    Args:
        value: a number or a tensor of any floating dtype.
        dtype: the dtype to have.

    Returns:
        The tensor.

    Example:
        >>> float(number(0.1, tf.float64))
        0.1
    """
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def check_beginning(
    where: str, name: str, tensor: tf.Tensor, leader: str, values: tf.Tensor
) -> None:
    """Raises unless the shape of `tensor` is where the shape of `values` begins.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        tensor: its value.
        leader: name of the leading argument.
        values: the leading tensor.

    Raises:
        ValueError: if it is not.

    Example:
        >>> check_beginning("td_loss", "targets", tf.ones([5, 1]), "values", tf.ones(5))
        Traceback (most recent call last):
        ...
        ValueError: `td_loss`: `targets` expected the shape of `values` [5] or its
        first axes; got [5, 1]; align the two axis by axis
    """
    first = values.shape[: tensor.shape.rank]
    if not tensor.shape.is_compatible_with(first):
        raise ValueError(
            f"`{where}`: `{name}` expected the shape of `{leader}` "
            f"{values.shape.as_list()} or its first axes; got "
            f"{tensor.shape.as_list()}; align the two axis by axis"
        )


def check_known_rank(where: str, name: str, tensor: Any) -> None:
    """Raises unless the rank of a tensor is known.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        tensor: its value.

    Raises:
        ValueError: if it is not.

    Example:
        >>> check_known_rank("td_loss", "values", tf.zeros([2]))
    """
    if tensor.shape.rank is None:
        raise ValueError(
            f"`{where}`: `{name}` expected a known rank; got an unknown one; "
            "name its axes with tf.ensure_shape"
        )
