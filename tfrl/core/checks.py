"""Checks of arguments. They only raise.

Those with `where` (the asking function's name) check what is known while tracing:
unknown dimensions and values of symbolic tensors pass.
"""

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf


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
        finite in leaf 0 (shape [2], float64); look for a division by zero or an
        overflow before it
    """
    for index, leaf in enumerate(tf.nest.flatten(nested, expand_composites=True)):
        if leaf is None:
            continue
        tensor = tf.convert_to_tensor(leaf)
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            continue
        if tf.is_symbolic_tensor(tensor):
            real = tf.abs(tensor) if tensor.dtype.is_complex else tensor
            tf.debugging.assert_all_finite(real, f"`check_numerics`: leaf {index}")
            continue
        bad = int(np.sum(~np.isfinite(tensor.numpy())))
        if bad:
            raise ValueError(
                f"`check_numerics`: `nested` expected finite values; got {bad} of "
                f"{tf.size(tensor)} not finite in leaf {index} (shape "
                f"{tensor.shape.as_list()}, {tensor.dtype.name}); look for a division "
                "by zero or an overflow before it"
            )


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
        TypeError: `check_array`: `arr` expected rank of at most 1; got shape [2, 3];
        reshape it
    """
    if not (tf.is_tensor(arr) or (except_np and isinstance(arr, np.ndarray))):
        _reject("a tensor", type(arr).__name__, "convert it with tf.constant")
    dims = tuple(arr.shape)
    ranks = (
        (ndim is None or len(dims) in _admitted(ndim), f"{ndim}"),
        (ndim_min is None or len(dims) >= ndim_min, f"of at least {ndim_min}"),
        (ndim_max is None or len(dims) <= ndim_max, f"of at most {ndim_max}"),
    )
    for holds, rank in ranks:
        if not holds:
            _reject(f"rank {rank}", f"shape {list(dims)}", "reshape it")
    found = tf.as_dtype(arr.dtype)
    if dtype is not None and found not in map(tf.as_dtype, _admitted(dtype)):
        _reject(f"dtype {dtype}", found.name, "cast it with tf.cast")
    if shape is not None and dims != _wanted_shape(shape):
        _reject(f"shape {list(shape)}", f"shape {list(dims)}", "reshape it")
    if axis is not None and axis_size is not None:
        inside = -len(dims) <= axis < len(dims)
        if not inside or dims[axis] not in _admitted(axis_size):
            wanted = f"size {axis_size} along axis {axis}"
            _reject(wanted, f"shape {list(dims)}", "reshape it")


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
        if not shape.is_compatible_with(reference):
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
        ValueError: `scale`: `high` expected finite numbers; got inf; correct it
    """
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all(np.isfinite(numeric)):
        raise ValueError(
            f"`{where}`: `{name}` expected finite numbers; got {value!r}; correct it"
        )


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
        ValueError: `huber`: `delta` expected numbers > 0; got 0.0; correct it
    """
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all(numeric > 0):
        raise ValueError(
            f"`{where}`: `{name}` expected numbers > 0; got {value!r}; correct it"
        )


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
        ValueError: `gae`: `td_lambda` expected numbers in [0, 1]; got 1.5; correct it
    """
    numeric = _known_numbers(where, name, value)
    if numeric is not None and not np.all((numeric >= low) & (numeric <= high)):
        raise ValueError(
            f"`{where}`: `{name}` expected numbers in [{low}, {high}]; "
            f"got {value!r}; correct it"
        )


def check_one_of(where: str, name: str, value: Any, choices: Collection[Any]) -> None:
    """Raises unless `value` is one of the choices.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value.
        choices: the values admitted.

    Raises:
        ValueError: if it is none of them.

    Example:
        >>> check_one_of("resize", "mode", "cubic", ("area", "nearest"))
        Traceback (most recent call last):
        ...
        ValueError: `resize`: `mode` expected one of ['area', 'nearest']; got 'cubic';
        check the spelling
    """
    if value not in choices:
        raise ValueError(
            f"`{where}`: `{name}` expected one of {list(choices)}; "
            f"got {value!r}; check the spelling"
        )


def _reject(expected: str, got: str, remedy: str) -> None:
    raise TypeError(f"`check_array`: `arr` expected {expected}; got {got}; {remedy}")


def _admitted(choice: Any) -> Collection[Any]:
    several = isinstance(choice, list | tuple | set | frozenset | range)
    return choice if several else (choice,)


def _wanted_shape(shape: Any) -> tuple[int | None, ...]:
    if not isinstance(shape, tuple | tf.TensorShape):
        raise TypeError(
            "`check_array`: `shape` expected a tuple or tf.TensorShape; "
            f"got {shape!r}; a list reads as alternatives, pass a tuple"
        )
    return tuple(shape)


def _static_shape(value: Any) -> tf.TensorShape:
    return tf.TensorShape(value.shape if hasattr(value, "shape") else np.shape(value))


def _text(shape: tf.TensorShape) -> str:
    return "of unknown rank" if shape.rank is None else str(shape.as_list())


def _known_numbers(where: str, name: str, value: Any) -> np.ndarray | None:
    if tf.is_symbolic_tensor(value):
        return None
    array = np.asarray(value.numpy() if isinstance(value, tf.Tensor) else value)
    if array.dtype.kind not in "biuf" and not tf.as_dtype(array.dtype).is_floating:
        raise TypeError(
            f"`{where}`: `{name}` expected numbers; "
            f"got {value!r}; pass an int, a float or an array of them"
        )
    return array
