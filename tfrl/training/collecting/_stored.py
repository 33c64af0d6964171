"""Trajectories become steps of an episode store."""

import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay import episodes


def add(store: episodes.EpisodeStore, trajectory: records.Trajectory) -> None:
    """Adds what is experience of a trajectory; rows that only reset are left out.

    Args:
        store: of the trajectory's environments.
        trajectory: `[T, N]` of NumPy arrays.
    """
    for t, valid in enumerate(trajectory.valid):
        ids = None if valid.all() else np.flatnonzero(valid)
        if ids is not None and not len(ids):
            continue
        rows = slice(None) if ids is None else ids
        step = tf.nest.map_structure(lambda x, t=t, rows=rows: x[t][rows], trajectory)
        store.add(
            step.observations,
            step.actions,
            step.rewards,
            step.terminated,
            step.truncated,
            step.next_observations,
            env_ids=ids,
        )
