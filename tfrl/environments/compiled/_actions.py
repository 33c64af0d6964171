"""Checks of what a compiled environment is given to do, at the door of its `step`."""

from typing import Any

import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks


def as_actions(env: Any, actions: Any, n: int | None) -> tf.Tensor:
    """Returns the actions as a tensor; those of another space are refused.

    Shapes and dtypes are looked at while tracing too, values in eager calls alone:
    inside of a compiled program the check costs nothing.

    Args:
        env: the environment that steps; its action space is a Discrete or a Box.
        actions: what it was given.
        n: number of copies.

    Returns:
        `[n]` integers, or `[n, *shape]` of the dtype of the Box.

    Raises:
        TypeError: if they are whole numbers where the space has fractions, or fractions
            where it has whole numbers.
        ValueError: if there are not as many, or one is none of a Discrete's.
    """
    where, space = f"{type(env).__name__}.step", env.action_space
    is_box = isinstance(space, spaces.Box)
    own = tf.as_dtype(space.dtype)
    # Lists of numbers take the dtype of a Box; arrays have one.
    hint = own if is_box and not hasattr(actions, "dtype") else None
    actions = checks.as_tensor(where, "actions", actions, dtype_hint=hint)
    dtype = actions.dtype
    if not (dtype.is_floating if is_box else dtype.is_integer):
        kind = "floating-point numbers" if is_box else "integers"
        raise TypeError(
            f"`{where}`: `actions` expected {kind}, of {space}; got {dtype.name}"
        )
    expected = tf.TensorShape([n, *space.shape])
    if not actions.shape.is_compatible_with(expected):
        raise ValueError(
            f"`{where}`: `actions` expected shape {expected.as_list()}, those of {n} "
            f"copies; got {actions.shape}"
        )
    if is_box:
        return tf.cast(actions, own)
    low = int(space.start)
    checks.check_within(where, "actions", actions, low, low + int(space.n) - 1)
    return actions
