"""How the value ops take their sequences: checked, aligned, time first, compiled."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl.core import checks, compile

TensorLike: TypeAlias = tf.types.experimental.TensorLike


def leading(
    where: str, name: str, value: TensorLike, time_major: bool, shortest: int = 1
) -> tf.Tensor:
    """The sequence that sets shape and dtype for the others, as a checked tensor.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: `[T, ...]`, or `[B, T, ...]` if not `time_major`; floating.
        time_major: whether time is the first axis.
        shortest: the least number of steps.

    Returns:
        The tensor.

    Raises:
        ValueError: if it lacks the axes or is shorter.
        TypeError: if it is not floating.

    Example:
        >>> leading("gae", "values", [1.0], time_major=True, shortest=2)
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `values` expected at least 2 steps along axis 0;
        got shape [1]; collect longer sequences
    """
    tensor = checks.as_tensor(where, name, value)
    checks.check_floating(where, name, tensor)
    axis = 0 if time_major else 1
    rank = tensor.shape.rank
    if rank is None or rank <= axis:
        raise ValueError(
            f"`{where}`: `{name}` expected rank of at least {axis + 1}; got shape "
            f"{tensor.shape}; give it {'a time axis' if time_major else 'axes [B, T]'}"
        )
    steps = tensor.shape[axis]
    if steps is not None and steps < shortest:
        raise ValueError(
            f"`{where}`: `{name}` expected at least {shortest} steps along axis "
            f"{axis}; got shape {tensor.shape.as_list()}; collect longer sequences"
        )
    return tensor


def following(
    where: str,
    leader: str,
    values: tf.Tensor,
    sequences: Mapping[str, TensorLike],
    time_major: bool,
) -> list[tf.Tensor]:
    """The other sequences as tensors that fit the leading one, checked.

    Args:
        where: name of the function that checks.
        leader: name of the leading argument.
        values: the leading tensor.
        sequences: the others by the name of their argument.
        time_major: whether time is the first axis.

    Returns:
        One tensor for each of `sequences`, of the dtype of `values`.

    Raises:
        ValueError: if a shape is not where that of `values` begins.
        TypeError: if a dtype differs from that of `values`.

    Example:
        >>> rewards = {"rewards": tf.ones([5, 1])}
        >>> following("gae", "values", tf.zeros([5, 2, 3]), rewards, time_major=True)
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `rewards` expected the shape of `values` (5, 2, 3) or its
        first axes; got (5, 1); align the two axis by axis
    """
    tensors = []
    for name, value in sequences.items():
        tensor = alike(where, name, value, values)
        check_beginning(where, name, tensor, leader, values, time_major)
        tensors.append(tensor)
    return tensors


def alike(where: str, name: str, value: TensorLike, values: tf.Tensor) -> tf.Tensor:
    """A tensor, checked to have the dtype of `values`; numbers and lists take it.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        values: the leading tensor.

    Returns:
        The tensor.

    Raises:
        TypeError: if its dtype is another.

    Example:
        >>> alike("gae", "td_lambda", 1, tf.zeros([2], tf.float64)).dtype.name
        'float64'
    """
    is_array = isinstance(value, np.ndarray) and value.ndim
    hint = None if is_array else values.dtype
    tensor = checks.as_tensor(where, name, value, None, hint, numeric=False)
    if tensor.dtype != values.dtype:
        raise TypeError(
            f"`{where}`: `{name}` expected dtype {values.dtype.name}, which the values "
            f"have; got {tensor.dtype.name}; cast it with tf.cast"
        )
    return tensor


def scalar(where: str, name: str, value: TensorLike, values: tf.Tensor) -> tf.Tensor:
    """A number as a scalar tensor of the dtype of `values`, checked.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        values: the leading tensor.

    Returns:
        The tensor, `[]`.

    Raises:
        ValueError: if it is not a scalar.
        TypeError: if its dtype is another.

    Example:
        >>> scalar("gae", "td_lambda", [1.0], tf.zeros([2]))
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `td_lambda` expected rank 0; got shape [1]; reshape it
    """
    tensor = alike(where, name, value, values)
    checks.check_rank(where, name, tensor, exact=0)
    return tensor


def weights(
    where: str, name: str, value: TensorLike, values: tf.Tensor, time_major: bool
) -> tf.Tensor:
    """A scalar or a sequence of weights as a tensor that fits `values`, checked.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: what to convert.
        values: the leading tensor.
        time_major: whether time is the first axis.

    Returns:
        The tensor.

    Raises:
        ValueError: if it is no scalar and its shape is not where that of `values`
            begins.
        TypeError: if its dtype is another.

    Example:
        >>> weights("gae", "lambda_", 0.5, tf.zeros([2]), time_major=True).numpy()
        np.float32(0.5)
    """
    tensor = alike(where, name, value, values)
    if tensor.shape.rank != 0:
        check_beginning(where, name, tensor, "values", values, time_major)
    return tensor


def check_beginning(
    where: str,
    name: str,
    tensor: tf.Tensor,
    leader: str,
    values: tf.Tensor,
    time_major: bool,
) -> None:
    """Raises unless the shape of `tensor` is where the shape of `values` begins.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        tensor: its value.
        leader: name of the leading argument.
        values: the leading tensor.
        time_major: whether time is the first axis.

    Raises:
        ValueError: if it is not, or the time axis is missing.

    Example:
        >>> check_beginning("gae", "rewards", tf.ones([5, 2]), "values",
        ...                 tf.ones([5, 2, 3]), time_major=True)
    """
    rank = tensor.shape.rank
    lowest = 1 if time_major else 2
    if (
        rank is None
        or not lowest <= rank <= values.shape.rank
        or not values.shape[:rank].is_compatible_with(tensor.shape)
    ):
        raise ValueError(
            f"`{where}`: `{name}` expected the shape of `{leader}` {values.shape} or "
            f"its first axes; got {tensor.shape}; align the two axis by axis"
        )


def over_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a compiled op of a function of aligned sequences with time first.

    The op takes the tensors in the order of the function's parameters, the leading one
    first, and `time_major`. Axes that a sequence lacks at the end become axes of one
    element; scalars stay; float16 and bfloat16 are computed in float32. Results get
    the leading tensor's dtype and order of axes.

    Args:
        function: of tensors to a tensor or a nest of tensors.

    Returns:
        The op, of `(*tensors, time_major)`.

    Example:
        >>> @over_time
        ... def sums(values, rewards):
        ...     return tf.cumsum(values + rewards)
        >>> sums(tf.zeros([1, 3, 1]), tf.ones([1, 3]), time_major=False).numpy()
        array([[[1.],
                [2.],
                [3.]]], dtype=float32)
    """

    def op(*tensors: tf.Tensor, time_major: bool) -> Any:
        dtype, rank = tensors[0].dtype, tensors[0].shape.rank
        arranged = []
        for tensor in tensors:
            if tensor.shape.rank > 0:
                tensor = tensor if time_major else _swapped(tensor)
                for _ in range(rank - tensor.shape.rank):
                    tensor = tensor[..., tf.newaxis]
            narrow = tensor.dtype in (tf.float16, tf.bfloat16)
            arranged.append(tf.cast(tensor, tf.float32) if narrow else tensor)

        def restored(result: tf.Tensor) -> tf.Tensor:
            return tf.cast(result if time_major else _swapped(result), dtype)

        return tf.nest.map_structure(restored, function(*arranged))

    return compile.compiled(static=("time_major",), jit_compile=True)(op)


def _swapped(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])
