"""Minibatches that are drawn from a replay, and the priorities that they get back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import prioritized


class Minibatches:
    """Minibatches of a replay, several at once, and the priorities that they get.

    Args:
        where: function and argument that the replay is of, for the message.
        replay: what is drawn from.
        batch_size: of a minibatch as an agent gets it, B.
        n_beside: how many of these rows, the last ones, do not come from the replay.
    """

    def __init__(
        self, where: str, replay: Any, batch_size: Any, n_beside: int = 0
    ) -> None:
        self._where, self._replay, self._size = where, replay, batch_size
        self._n_drawn = batch_size - n_beside
        self._indices: Any = None

    def drawn(self, count: int) -> Any:
        """Returns a `Sample` of K minibatches, `[K, B - n_beside, ...]`.

        What else the store keeps of sequences are their `states`.
        """
        sample = self._replay.sample(count * self._n_drawn)
        self._indices = sample.indices
        if isinstance(sample.data, records.Trajectory):
            data = sample.data._replace(states=sample.extra)
            sample = sample._replace(data=data, extra=())
        return tf.nest.map_structure(
            lambda x: x.reshape(count, self._n_drawn, *x.shape[1:]), sample
        )

    def learned(self, priorities: Any) -> None:
        """Takes the priorities that an agent gave to what was drawn last."""
        if not isinstance(self._replay, prioritized.PrioritizedReplay):
            return
        count = len(self._indices) // self._n_drawn
        check_priorities(self._where, priorities, [count, self._size])
        known = np.asarray(priorities)[:, : self._n_drawn]
        self._replay.update_priorities(self._indices, np.ravel(known))


def check_priorities(where: str, priorities: Any, shape: Sequence[int]) -> None:
    """Raises a ValueError unless an agent gave each row of minibatches a priority.

    Args:
        where: function and argument that the replay is of, for the message.
        priorities: those in the info of its update; None if there are none.
        shape: of the minibatches, `[K, B]`.
    """
    expected = f"{where} expected an agent whose info has `priorities` [K, B]"
    if priorities is None:
        raise ValueError(
            f"{expected} beside a PrioritizedReplay; got none; take a UniformReplay "
            "('uniform')"
        )
    is_tensor = tf.is_tensor(priorities)  # of which a graph may not know all sizes
    found = priorities.shape if is_tensor else tf.TensorShape(np.shape(priorities))
    if not found.is_compatible_with(shape):
        raise ValueError(
            f"{expected}, {[*shape]}; got shape {found.as_list()}; give them the shape "
            "of the `weights` of the sample"
        )
