"""Trajectories go into an episode store; minibatches come out of its replay."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay import episodes
from tfrl.replay.sampling import prioritized


def add(
    store: episodes.EpisodeStore,
    trajectory: records.Trajectory,
    env_ids: np.ndarray | None = None,
) -> None:
    """Adds what is experience of a trajectory; rows that only reset are left out.

    Args:
        store: of the trajectory's environments.
        trajectory: `[T, N]` of NumPy arrays.
        env_ids: `[N]`, their numbers in the store; None for all in order.
    """
    for t, valid in enumerate(trajectory.valid):
        ids = env_ids
        if not valid.all():
            ids = np.flatnonzero(valid) if ids is None else ids[valid]
        if ids is not None and not len(ids):
            continue
        rows = slice(None) if valid.all() else valid
        step = tf.nest.map_structure(lambda x, t=t, rows=rows: x[t][rows], trajectory)
        columns = step._asdict()
        del columns["valid"]
        store.add(**columns, env_ids=ids)


class Minibatches:
    """Minibatches of a replay, several at once, and the priorities that they get.

    Args:
        where: function and argument that the replay is of, for the message.
        replay: what is drawn from.
        batch_size: of a minibatch, B.
    """

    def __init__(self, where: str, replay: Any, batch_size: int) -> None:
        self._where, self._replay, self._size = where, replay, batch_size
        self._indices: Any = None

    def drawn(self, count: int) -> Any:
        """Returns a `Sample` of K minibatches, `[K, B, ...]`."""
        sample = self._replay.sample(count * self._size)
        self._indices = sample.indices
        return tf.nest.map_structure(
            lambda x: x.reshape(count, self._size, *x.shape[1:]), sample
        )

    def learned(self, priorities: Any) -> None:
        """Takes the priorities that an agent gave to what was drawn last."""
        if not isinstance(self._replay, prioritized.PrioritizedReplay):
            return
        if priorities is None:
            raise ValueError(
                f"{self._where} expected an agent whose info has `priorities` [K, B] "
                "beside a PrioritizedReplay; got none; take a UniformReplay ('uniform')"
            )
        self._replay.update_priorities(self._indices, np.ravel(np.asarray(priorities)))
