"""Counts and indices as callers give them, in NumPy or in TensorFlow."""

from typing import Any

import numpy as np
import tensorflow as tf


def int64_array(where: str, name: str, value: Any) -> np.ndarray:
    """Returns integers of any shape as a numpy array, not copied if int64 already."""
    if tf.is_symbolic_tensor(value):
        raise ValueError(
            f"`{where}`: `{name}` expected values, as the buffer is on the host; got a "
            "tensor of tf.function; make the buffer with a device like '/CPU:0'"
        )
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise _not_integers(where, name, array.dtype)
    return array.astype(np.int64, copy=False)


def int64_tensor(where: str, name: str, value: Any) -> tf.Tensor:
    """Returns integers of any shape as a tensor."""
    if not tf.is_symbolic_tensor(value):
        return tf.constant(int64_array(where, name, value))
    if not value.dtype.is_integer:
        raise _not_integers(where, name, value.dtype.name)
    return tf.cast(value, tf.int64)


def ensured(holds: Any, value: Any, expected: str, remedy: str) -> Any:
    """Returns `value`; raises unless `holds` is true of it.

    In a graph the check is an assertion that goes before whatever uses the result;
    XLA drops it.
    """
    if tf.is_symbolic_tensor(holds):
        asserted = tf.debugging.Assert(holds, [f"{expected}; got", value, remedy])
        with tf.control_dependencies([asserted]):
            return tf.identity(value)
    if not holds:
        got = np.asarray(value).tolist()
        raise ValueError(f"{expected}; got {got}; {remedy}")
    return value


def every(flags: Any) -> Any:
    """Returns whether all flags of an array or tensor are true."""
    return tf.reduce_all(flags) if isinstance(flags, tf.Tensor) else flags.all()


def minimum(one: Any, other: Any) -> Any:
    """Returns the lesser, elementwise."""
    return (tf if isinstance(one, tf.Tensor) else np).minimum(one, other)


def _not_integers(where: str, name: str, dtype: Any) -> TypeError:
    return TypeError(
        f"`{where}`: `{name}` expected integers; got {dtype}; convert them to int64"
    )
