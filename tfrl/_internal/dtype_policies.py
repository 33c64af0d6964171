"""The dtype policy of Keras, by which layers are made, set for a while."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras

from tfrl._internal import checks

# Of Keras.
DEFAULT = "float32"
_asked: contextvars.ContextVar[bool] = contextvars.ContextVar("asked", default=False)
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


@contextlib.contextmanager
def asked(policy: str | None) -> Iterator[None]:
    """Does what `used` does, and tells that somebody asked for the policy.

    Args:
        policy: its name; None asks for nothing.

    Example:
        >>> with asked("float32"):
        ...     is_asked()
        True
    """
    token = _asked.set(policy is not None)
    try:
        with used(policy):
            yield
    finally:
        _asked.reset(token)


def is_asked() -> bool:
    """Whether the policy in force is one that somebody asked for.

    Keras' own, float32, may also be there because nobody did.

    Example:
        >>> is_asked()
        False
    """
    return _asked.get() or keras.config.dtype_policy().name != DEFAULT
