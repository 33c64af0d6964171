"""Checks of arrays and tensors. They only raise; `as_tensor` converts too.

What is known while tracing is checked: unknown dimensions and values of symbolic
tensors pass.
"""

import numbers
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments

# Those of numbers need no TensorFlow.
check_whole_number = arguments.check_whole_number
check_whole_numbers = arguments.check_whole_numbers
check_type = arguments.check_type
wrong_type = arguments.wrong_type
check_one_of = arguments.check_one_of
check_texts = arguments.check_texts
as_path = arguments.as_path
shown = arguments.shown

# Numbers of Python below it need no NumPy, which takes longer than many a caller does.
_PLAIN = 2**63

_NOT_NUMERIC = frozenset({tf.string, tf.resource, tf.variant})


def as_tensor(
    where: str,
    name: str,
    value: Any,
    dtype: Any = None,
    dtype_hint: Any = None,
    numeric: bool = True,
) -> tf.Tensor:
    """Converts an argument to a tensor; the error of one that is none names it.

    Args:
        where: name of the function that converts.
        name: name of the argument.
        value: a tensor, a variable, an array, a number or nested lists of those.
        dtype: the dtype it must have; None for its own.
        dtype_hint: the dtype that numbers, lists and arrays take where they can.
        numeric: whether strings and the like are refused.

    Returns:
        The tensor.

    Raises:
        TypeError: if it is nothing like a tensor, or of another dtype than `dtype`.
        ValueError: if it is a list that has no tensor, such as one of unequal rows.

    Example:
        >>> as_tensor("gae", "rewards", None)
        Traceback (most recent call last):
        ...
        TypeError: `gae`: `rewards` expected a tensor, an array or numbers; got None
    """
    error: Exception | None = None
    try:
        # By a shorter way for most of what eager calls get.
        plain = dtype is None and tf.executing_eagerly()
        hint = dtype_hint
        if plain and isinstance(value, tf.Tensor):
            tensor = value
        elif plain and hint is None and type(value) is np.ndarray:
            tensor = tf.constant(value)
        elif plain and hint and hint.is_floating and type(value) in (int, float):
            tensor = tf.constant(value, hint)
        else:
            tensor = tf.convert_to_tensor(value, dtype, hint)
        if not (numeric and tensor.dtype in _NOT_NUMERIC):
            return tensor
    except (TypeError, ValueError, OverflowError, NotImplementedError) as failure:
        error = failure
    kind = ValueError if error and isinstance(value, list | tuple) else TypeError
    wanted = "" if dtype is None else f" of {tf.as_dtype(dtype).name}"
    raise kind(
        f"`{where}`: `{name}` expected a tensor, an array or numbers{wanted}; "
        f"got {_described(value)}"
    ) from error


def check_eager(where: str) -> None:
    """Raises inside of `tf.function`.

    Args:
        where: name of the function that asks.

    Raises:
        ValueError: there.

    Example:
        >>> check_eager("save")
    """
    if not tf.executing_eagerly():
        raise ValueError(
            f"`{where}`: expected to be called outside of tf.function, where it would "
            "run once, while tracing; got a call inside; call it from plain Python"
        )


def check_same_shape(where: str, **named_arrays: Any) -> None:
    """Raises unless all arrays have the shape of the first.

    Args:
        where: name of the function that checks.
        **named_arrays: two or more arrays by the name of their argument.

    Raises:
        ValueError: if two known shapes contradict each other.

    Example:
        >>> check_same_shape("gae", rewards=np.zeros([5, 2]), values=np.zeros([5, 1]))
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `values` expected the shape of `rewards` [5, 2];
        got [5, 1]; give both the same shape
    """
    (first, reference), *others = (
        (name, _static_shape(array)) for name, array in named_arrays.items()
    )
    for name, shape in others:
        if shape != reference and not shape.is_compatible_with(reference):
            raise ValueError(
                f"`{where}`: `{name}` expected the shape of `{first}` "
                f"{_text(reference)}; got {_text(shape)}; give both the same shape"
            )


def check_rank(
    where: str,
    name: str,
    value: Any,
    *,
    exact: int | None = None,
    at_least: int | None = None,
) -> None:
    """Raises unless an array has the given rank.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value, an array of any dtype.
        exact: the rank it must have.
        at_least: the least rank it may have.

    Raises:
        ValueError: if the rank is known and another.

    Example:
        >>> check_rank("gae", "rewards", np.zeros([5]), at_least=2)
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `rewards` expected rank of at least 2; got shape [5];
        reshape it
    """
    shape = _static_shape(value)
    if shape.rank is None:
        return
    if exact is not None and shape.rank != exact:
        wanted = f"rank {exact}"
    elif at_least is not None and shape.rank < at_least:
        wanted = f"rank of at least {at_least}"
    else:
        return
    raise ValueError(
        f"`{where}`: `{name}` expected {wanted}; got shape {_text(shape)}; reshape it"
    )


def check_one_shape(where: str, name: str, shape: Any) -> None:
    """Raises unless what Keras hands to `build` is the shape of one tensor.

    Args:
        where: name of the layer that checks.
        name: name of the argument whose shape it is.
        shape: what `build` was given; of a dict or a list of inputs, one of shapes.

    Raises:
        TypeError: if it is none.

    Example:
        >>> check_one_shape("MLP", "inputs", {"a": (None, 3)})
        Traceback (most recent call last):
        ...
        TypeError: `MLP`: `inputs` expected one tensor; got {'a': (None, 3)} for its
        shape; give it one part, or several in one by tf.concat
    """
    is_one = isinstance(shape, tf.TensorShape) or (
        isinstance(shape, list | tuple)
        and all(size is None or isinstance(size, numbers.Integral) for size in shape)
    )
    if not is_one:
        raise TypeError(
            f"`{where}`: `{name}` expected one tensor; got {reprlib.repr(shape)} for "
            "its shape; give it one part, or several in one by tf.concat"
        )


def check_known_shape(where: str, name: str, value: Any) -> None:
    """Raises unless every dimension of an array or spec is known.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value, an array or anything with a `shape`.

    Raises:
        ValueError: if the rank or a dimension is unknown.

    Example:
        >>> check_known_shape("zeros", "spec", tf.TensorSpec([None, 2]))
        Traceback (most recent call last):
        ...
        ValueError: `zeros`: `spec` expected known dimensions; got shape [None, 2];
        fill them in
    """
    shape = _static_shape(value)
    if not shape.is_fully_defined():
        raise ValueError(
            f"`{where}`: `{name}` expected known dimensions; "
            f"got shape {_text(shape)}; fill them in"
        )


def check_floating(where: str, name: str, value: Any) -> None:
    """Raises unless an array is of floating-point numbers.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value, an array, a tensor or Python numbers.

    Raises:
        TypeError: if its dtype is another.

    Example:
        >>> check_floating("gae", "rewards", tf.constant([1, 2]))
        Traceback (most recent call last):
        ...
        TypeError: `gae`: `rewards` expected a floating-point dtype; got int32;
        cast it with tf.cast
    """
    dtype = getattr(value, "dtype", None)
    found = tf.as_dtype(np.asarray(value).dtype if dtype is None else dtype)
    if not found.is_floating:
        raise TypeError(
            f"`{where}`: `{name}` expected a floating-point dtype; "
            f"got {found.name}; cast it with tf.cast"
        )


def check_finite(where: str, name: str, value: Any) -> None:
    """Raises unless every number in `value` is finite.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: a number or array; symbolic tensors pass.

    Raises:
        TypeError: if it is not numeric.
        ValueError: if a number is infinite or NaN.

    Example:
        >>> check_finite("scale", "high", np.inf)
        Traceback (most recent call last):
        ...
        ValueError: `scale`: `high` expected finite numbers; got inf
    """
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all(np.isfinite(numeric)):
        got = shown(value)
        raise ValueError(f"`{where}`: `{name}` expected finite numbers; got {got}")


def check_positive(where: str, name: str, value: Any) -> None:
    """Raises unless every number in `value` is greater than 0.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: a number or array; symbolic tensors pass.

    Raises:
        TypeError: if it is not numeric.
        ValueError: if a number is 0, negative or NaN.

    Example:
        >>> check_positive("huber", "delta", 0.0)
        Traceback (most recent call last):
        ...
        ValueError: `huber`: `delta` expected numbers > 0; got 0.0
    """
    if type(value) in (int, float) and 0 < value < _PLAIN:
        return
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all(numeric > 0):
        got = shown(value)
        raise ValueError(f"`{where}`: `{name}` expected numbers > 0; got {got}")


def check_within(where: str, name: str, value: Any, low: float, high: float) -> None:
    """Raises unless every number in `value` is in `[low, high]`.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: a number or array; symbolic tensors pass.
        low: the least number admitted.
        high: the greatest number admitted.

    Raises:
        TypeError: if it is not numeric.
        ValueError: if a number is outside the interval or NaN.

    Example:
        >>> check_within("gae", "td_lambda", 1.5, 0, 1)
        Traceback (most recent call last):
        ...
        ValueError: `gae`: `td_lambda` expected numbers in [0, 1]; got 1.5
    """
    if type(value) in (int, float) and low <= value <= high and abs(value) < _PLAIN:
        return
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all((numeric >= low) & (numeric <= high)):
        raise ValueError(
            f"`{where}`: `{name}` expected numbers in [{low}, {high}]; got "
            f"{shown(value)}"
        )


def _static_shape(value: Any) -> tf.TensorShape:
    shape = value.shape if hasattr(value, "shape") else np.shape(value)
    return shape if isinstance(shape, tf.TensorShape) else tf.TensorShape(shape)


def _described(value: Any) -> str:
    if value is None or isinstance(value, str | list | tuple | Mapping):
        return reprlib.repr(value)
    dtype = getattr(value, "dtype", None)
    name = getattr(dtype, "name", dtype)
    return type(value).__name__ + ("" if dtype is None else f" of {name}")


def _text(shape: tf.TensorShape) -> str:
    return "of unknown rank" if shape.rank is None else str(shape.as_list())


def _known_numbers(where: str, name: str, value: Any) -> np.ndarray | None:
    if tf.is_symbolic_tensor(value):
        return None
    array = np.asarray(value.numpy() if isinstance(value, tf.Tensor) else value)
    if array.dtype.kind not in "biuf" and not tf.as_dtype(array.dtype).is_floating:
        raise TypeError(
            f"`{where}`: `{name}` expected numbers; "
            f"got {shown(value)}; pass an int, a float or an array of them"
        )
    return array
