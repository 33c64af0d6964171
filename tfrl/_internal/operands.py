"""How functions take tensors that belong together: converted, checked, aligned.

One argument leads: it sets dtype and shape for the others. Numbers and lists take its
dtype, and shapes are compared as far as they are known. Every function takes `where`,
the name of the function that checks, and the name of the argument.
"""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks

TensorLike: TypeAlias = tf.types.experimental.TensorLike


def ranked(
    where: str, name: str, value: Any, at_least: int = 0, *, numeric: bool = False
) -> tf.Tensor:
    """The tensor of an argument, checked to have a known rank.

    Example:
        >>> ranked("cov", "data", 1.0, at_least=1)
        Traceback (most recent call last):
        ...
        ValueError: `cov`: `data` expected rank of at least 1; got shape []; reshape it
    """
    tensor = checks.as_tensor(where, name, value, numeric=numeric)
    if tensor.shape.rank is None:
        raise ValueError(
            f"`{where}`: `{name}` expected a known rank; got an unknown one; "
            "name its axes with tf.ensure_shape"
        )
    checks.check_rank(where, name, tensor, at_least=at_least)
    return tensor


def floating(where: str, name: str, value: Any) -> tf.Tensor:
    """The tensor of an argument, checked to be floating; of any rank.

    Example:
        >>> floating("swish", "x", [1, 2])
        Traceback (most recent call last):
        ...
        TypeError: `swish`: `x` expected a floating-point dtype; got int32;
        cast it with tf.cast
    """
    tensor = checks.as_tensor(where, name, value)
    if not tensor.dtype.is_floating:
        checks.check_floating(where, name, tensor)
    return tensor


def leading(where: str, name: str, value: Any, axes: int = 0) -> tf.Tensor:
    """The argument that sets shape and dtype for the others: floating, of known rank.

    Example:
        >>> leading("q_taken", "q_values", [1, 2])
        Traceback (most recent call last):
        ...
        TypeError: `q_taken`: `q_values` expected a floating-point dtype; got int32;
        cast it with tf.cast
    """
    tensor = ranked(where, name, value, axes, numeric=True)
    if not tensor.dtype.is_floating:
        checks.check_floating(where, name, tensor)
    return tensor


def alike(
    where: str, name: str, value: Any, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor of the leader's dtype; its rank need not be known.

    Numbers and lists take that dtype. An array of another is refused, like a tensor.

    Example:
        >>> alike("td_target", "rewards", [1], "values", tf.zeros(1, tf.float64)).dtype
        tf.float64
    """
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    hint = None if is_array else values.dtype
    tensor = checks.as_tensor(where, name, value, None, hint, numeric=False)
    if tensor.dtype != values.dtype:
        raise TypeError(
            f"`{where}`: `{name}` expected dtype {values.dtype.name}, which `{leader}` "
            f"has; got {tensor.dtype.name}; cast it with tf.cast"
        )
    return tensor


def beginning(
    where: str,
    name: str,
    value: Any,
    leader: str,
    values: tf.Tensor,
    at_least: int = 0,
) -> tf.Tensor:
    """A tensor of the leader's dtype, whose shape is where that of the leader begins.

    Example:
        >>> beginning("gae", "rewards", [1, 2, 3], "values", tf.zeros([2, 3]))
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `rewards` expected the shape of `values` [2, 3] or its first
        axes; got [3]; align the two axis by axis
    """
    tensor = alike(where, name, value, leader, values)
    check_beginning(where, name, tensor, leader, values, at_least)
    return tensor


def aligned(
    where: str, name: str, value: Any, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """`beginning`, with axes of one element for those that it lacks.

    Example:
        >>> aligned("td_target", "rewards", [1, 2], "values", tf.zeros([2, 3])).shape
        TensorShape([2, 1])
    """
    tensor = beginning(where, name, value, leader, values)
    for _ in range(values.shape.rank - tensor.shape.rank):
        tensor = tensor[..., tf.newaxis]
    return tensor


def equal(
    where: str, name: str, value: Any, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor of the leader's dtype and shape.

    Example:
        >>> equal("double_q_target", "selector", [[1, 2]], "values", tf.zeros([1, 2]))
        <tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 2.]], dtype=float32)>
    """
    tensor = alike(where, name, value, leader, values)
    checks.check_same_shape(where, **{leader: values, name: tensor})
    return tensor


def along_last(
    where: str, name: str, value: Any, leader: str, values: tf.Tensor
) -> tf.Tensor:
    """A tensor of the leader's dtype, and of its shape or that of its last axis.

    Example:
        >>> along_last("categorical_mean", "support", [1, 2], "probs", tf.zeros([3, 2]))
        <tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>
    """
    tensor = alike(where, name, value, leader, values)
    expected = values.shape[-1:] if tensor.shape.rank == 1 else values.shape
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(
            f"`{where}`: `{name}` expected the shape of `{leader}` "
            f"{values.shape.as_list()} or its last axis; got {tensor.shape.as_list()}"
        )
    return tensor


def check_beginning(
    where: str,
    name: str,
    tensor: tf.Tensor,
    leader: str,
    values: tf.Tensor,
    at_least: int = 0,
) -> None:
    """Raises unless the shape of a tensor is where that of the leader begins."""
    shape, whole = tensor.shape, values.shape
    rank = shape.rank
    fits = rank is not None and at_least <= rank <= whole.rank
    fits = fits and (shape == whole or whole[:rank].is_compatible_with(shape))
    if not fits:
        got = "an unknown rank" if rank is None else tensor.shape.as_list()
        raise ValueError(
            f"`{where}`: `{name}` expected the shape of `{leader}` "
            f"{values.shape.as_list()} or its first axes; got {got}; align the two "
            "axis by axis"
        )


def axes_before(
    where: str, name: str, tensor: tf.Tensor, shape: Any, at_least: int = 0
) -> int:
    """How many axes a tensor has in front of those of a shape, in which its own ends.

    Example:
        >>> axes_before("update", "tensor", tf.zeros([5, 2]), [3])
        Traceback (most recent call last):
        ...
        ValueError: `update`: `tensor` expected shape [..., *[3]]; got [5, 2]; put the
        batch axes in front
    """
    shape = tf.TensorShape(shape)
    rank = tensor.shape.rank
    outer = -1 if rank is None else rank - shape.rank
    if outer < at_least or not tensor.shape[outer:].is_compatible_with(shape):
        got = "an unknown rank" if rank is None else tensor.shape.as_list()
        raise ValueError(
            f"`{where}`: `{name}` expected shape [..., *{shape.as_list()}]; got {got}; "
            "put the batch axes in front"
        )
    return outer


def axis(where: str, name: str, value: int, tensor: tf.Tensor) -> int:
    """An axis of a tensor of known rank, counted from the front.

    Example:
        >>> axis("reverse_cumsum", "dim", -1, tf.zeros([2, 3]))
        1
    """
    rank = tensor.shape.rank
    low, high = -rank, rank - 1
    return arguments.check_whole_number(where, name, value, low, high) % rank


def check_broadcasts(where: str, name: str, value: Any, shape: tf.TensorShape) -> None:
    """Raises unless a value broadcasts to a shape as it is; None does.

    Example:
        >>> check_broadcasts("OUProcess", "stddev", [1.0, 2.0], tf.TensorShape([3]))
        Traceback (most recent call last):
        ...
        ValueError: `OUProcess`: `stddev` expected a number or an array that broadcasts
        to [3]; got shape (2,); reshape it
    """
    own = tf.TensorShape(value.shape if hasattr(value, "shape") else np.shape(value))
    try:
        fits = value is None or tf.broadcast_static_shape(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"`{where}`: `{name}` expected a number or an array that broadcasts to "
            f"{shape.as_list()}; got shape {own}; reshape it"
        )


def dtype_of(where: str, value: Any) -> tf.DType:
    """The dtype that an argument `dtype` names.

    Example:
        >>> dtype_of("to_tensor", "text")
        Traceback (most recent call last):
        ...
        TypeError: `to_tensor`: `dtype` expected a dtype; got 'text'
    """
    try:
        return tf.as_dtype(value)
    except TypeError as error:
        raise checks.wrong_type(where, "dtype", value, "a dtype") from error


def floating_dtype(where: str, value: Any) -> tf.DType:
    """The dtype that an argument `dtype` names, checked to be floating.

    Example:
        >>> floating_dtype("quantiles", "int32")
        Traceback (most recent call last):
        ...
        TypeError: `quantiles`: `dtype` expected a floating-point dtype; got int32;
        pass for example tf.float32
    """
    dtype = dtype_of(where, value)
    if not dtype.is_floating:
        raise TypeError(
            f"`{where}`: `dtype` expected a floating-point dtype; got {dtype.name}; "
            "pass for example tf.float32"
        )
    return dtype


def check_structure(
    where: str, name: str, nest: Any, leader: str, reference: Any
) -> None:
    """Raises unless a nest has the structure of another."""
    try:
        tf.nest.assert_same_structure(reference, nest)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{where}`: `{name}` expected the structure of `{leader}`; got another: "
            f"{' '.join(str(error).split()):.300}"
        ) from error


def check_nest(expected: str, given: Any, like: Any) -> None:
    """Raises a ValueError, beginning with `expected`, unless two nests are alike."""
    try:
        tf.nest.assert_same_structure(given, like)
    except (TypeError, ValueError) as error:
        got = " ".join(str(error).split())
        raise ValueError(f"{expected}; got another one: {got:.300}") from error
