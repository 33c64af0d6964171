"""What policies remember between the steps of an episode."""

from typing import Any

import numpy as np
import tensorflow as tf


def remembered(state: Any, initial: Any, ended: np.ndarray) -> Any:
    """Returns what a policy remembers after a step: nothing of episodes that ended.

    Args:
        state: nest of `[N, ...]`, that the policy returned.
        initial: at the beginning of episodes, likewise.
        ended: `[N]` bool.

    Returns:
        Nest of `[N, ...]`.

    Example:
        >>> remembered(np.array([1, 2]), np.zeros(2, int), np.array([True, False]))
        array([0, 2])
    """
    if type(state) is tuple and not state:
        return state

    def leaf(first: Any, last: Any) -> np.ndarray:
        shape = (len(ended), *[1] * (np.ndim(last) - 1))
        return np.where(ended.reshape(shape), np.asarray(first), np.asarray(last))

    return tf.nest.map_structure(leaf, initial, state)
