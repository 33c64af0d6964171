"""The dtype policy of Keras, by which layers are made, set for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from tfrl._internal import checks

_EXPECTED = "a name of a dtype policy of Keras, such as 'mixed_bfloat16', or None"


def check(where: str, policy: Any) -> None:
    """Raises unless `dtype_policy` is the name of one that Keras knows, or None.

    Args:
        where: the asking function, for the message.
        policy: what it was given.

    Example:
        >>> check("train_rl", "mixed_bfloat16")
    """
    checks.check_type(where, "dtype_policy", policy, str | None, _EXPECTED)
    try:
        keras.dtype_policies.get(policy)
    except ValueError as error:
        raise ValueError(
            f"`{where}`: `dtype_policy` expected {_EXPECTED}; got {policy!r}"
        ) from error


def check_same(where: str, policy: str, found: str | None) -> None:
    """Raises a ValueError unless a run was made by the policy that is asked for.

    Args:
        where: the asking function, for the message.
        policy: what it was given.
        found: that of the run; None if it is not known.

    Example:
        >>> check_same("train_rl", "float32", "float32")
    """
    if found != policy:
        raise ValueError(
            f"`{where}`: `dtype_policy` expected that of the run that is resumed, "
            f"{found!r}; got {policy!r}; train anew in another `output_dir`"
        )


@contextlib.contextmanager
def used(policy: Any) -> Iterator[None]:
    """Has Keras make layers by a dtype policy for the while.

    Args:
        policy: its name, or the policy; None leaves the one in force.

    Raises:
        ValueError: if Keras knows no such policy.

    Example:
        >>> with used("mixed_bfloat16"):
        ...     made = keras.layers.Dense(1)
        >>> made.compute_dtype, keras.config.dtype_policy().name
        ('bfloat16', 'float32')
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if policy is None else policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
