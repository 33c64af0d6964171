"""The dtype policy of Keras, by which layers are made, set for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras


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
