"""Indices and conditions in NumPy or in TensorFlow, checks of calls, generators."""

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments


def check_eager(where: str, remedy: str) -> None:
    """Raises inside of tf.function, where Python runs once, while tracing."""
    if not tf.executing_eagerly():
        raise ValueError(
            f"`{where}`: expected to be called outside of tf.function, where it would "
            f"run once, while tracing; got a call inside; {remedy}"
        )


def check_contents(where: str, kept: str, contents: str) -> None:
    """Raises unless what a checkpoint keeps is of the contents that are there."""
    if kept != contents:
        raise ValueError(
            f"`{where}`: the checkpoint expected {kept}; got {contents}; make the "
            "object like the one saved"
        )


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


def checked_ids(where: str, ids: Any, count: int, distinct: bool) -> Any:
    """Returns int64 ids of existing environments of `count`.

    If they are `distinct`, raises unless they are `[B]` and each comes once.
    """
    ids = ensured(
        every((ids >= 0) & (ids < count)),
        ids,
        f"`{where}`: `env_ids` expected integers in [0, {count})",
        "number the environments from 0",
    )
    if not distinct:
        return ids
    expected = f"`{where}`: `env_ids` expected"
    if len(ids.shape) != 1 or ids.shape[0] == 0:
        raise ValueError(
            f"{expected} shape [B], B > 0; got {list(ids.shape)}; pass a list"
        )
    if tf.is_symbolic_tensor(ids):
        return ids
    ordered = np.sort(ids)
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError(
            f"{expected} each id once; got {np.asarray(ids).tolist()}; use one "
            "call per step of an environment"
        )
    return ids


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


class Draws(tf.train.experimental.PythonState):
    """A NumPy generator whose state a checkpoint keeps.

    `seed` is an int, a generator to draw from, or None for a seed of the system's;
    `where` is the name of the class that asks.

    Attributes:
        generator: the generator.
        contents: its kind, which has to be the same where a state is restored.
    """

    def __init__(self, where: str, seed: int | np.random.Generator | None) -> None:
        self.generator = arguments.generator(where, "seed", seed)
        kind = type(self.generator.bit_generator).__name__
        self.contents = f"state of the generator {kind}"

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        return json.dumps(self.generator.bit_generator.state, default=np.ndarray.tolist)

    def deserialize(self, string_value: Any) -> None:
        """Takes back what a checkpoint kept, of the same kind of generator."""
        self.generator.bit_generator.state = json.loads(string_value)
