"""How trajectories get into stores: what is experience of them, in the store's rows."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import gym_checks
from tfrl.core import records
from tfrl.replay import data_buffer, episodes, ring_buffer

# Takes a `Trajectory` `[T, N, ...]` of NumPy arrays and the numbers `[N]` of its
# environments in a store.
Deliver = Callable[[records.Trajectory, np.ndarray], None]


def add_trajectory(
    store: episodes.EpisodeStore,
    trajectory: records.Trajectory,
    env_ids: np.ndarray | None = None,
) -> None:
    """Adds what is experience of a trajectory; rows that only reset are left out.

    Args:
        store: of the trajectory's environments. If it keeps anything else of a step,
            that is what the policy remembered before it.
        trajectory: `[T, N]` of NumPy arrays.
        env_ids: `[N]`, their numbers in the store; None for all in order.
    """
    keeps_states = bool(tf.nest.flatten(store.step_spec.extra))
    for t, valid in enumerate(trajectory.valid):
        ids = env_ids
        if not valid.all():
            ids = np.flatnonzero(valid) if ids is None else ids[valid]
        if ids is not None and not len(ids):
            continue
        rows = slice(None) if valid.all() else valid
        step = tf.nest.map_structure(lambda x, t=t, rows=rows: x[t][rows], trajectory)
        columns = step._asdict()
        for name in ("valid", "log_probs", "states"):
            del columns[name]
        if keeps_states:
            columns["extra"] = step.states
        store.add(**columns, env_ids=ids)


def deliver_to(store: Any, n_envs: int, gamma: float) -> Deliver:
    """Returns what puts rows of actors into a store; see `Actors`."""
    is_batch = isinstance(store, data_buffer.DataBuffer)
    if not is_batch and not isinstance(
        store, episodes.EpisodeStore | ring_buffer.RingBuffer
    ):
        return lambda trajectory, env_ids: store(
            tf.nest.map_structure(np.array, trajectory), env_ids
        )
    if not is_batch and store.num_environments != n_envs:
        raise ValueError(
            f"`Actors`: `store` expected {n_envs} environments, those of all actors; "
            f"got {store.num_environments}; make it with num_environments={n_envs}"
        )
    if isinstance(store, episodes.EpisodeStore):
        store.cut()
        return functools.partial(add_trajectory, store)
    packed = _packing(store.storage.data_spec, gamma)

    def add_batch(trajectory: records.Trajectory, _: np.ndarray) -> None:
        valid = trajectory.valid
        if valid.all():
            flat = _each(trajectory, lambda x: x.reshape(-1, *x.shape[2:]))
        else:
            flat = _each(trajectory, lambda x: x[valid])
        store.add_batch(packed(flat))

    def enqueue(trajectory: records.Trajectory, env_ids: np.ndarray) -> None:
        for t, valid in enumerate(trajectory.valid):
            rows = slice(None) if valid.all() else valid
            if valid.any():
                step = _each(trajectory, lambda x, t=t, rows=rows: x[t][rows])
                store.enqueue(packed(step), env_ids[rows])

    return add_batch if is_batch else enqueue


def _each(trajectory: records.Trajectory, function: Callable[..., Any]) -> list[Any]:
    """What a function makes of all arrays of the columns that are not empty."""
    return [gym_checks.mapped(function, x) for x in trajectory if len(x)]


def _packing(spec: Any, gamma: float) -> Callable[[list[np.ndarray]], Any]:
    """Returns what picks the columns that a spec names and packs them as it does."""
    names = tuple(spec) if isinstance(spec, dict) else getattr(spec, "_fields", ())
    known = (*records.Trajectory._fields, "discounts")
    if not names or not {*names} <= {*known}:
        raise ValueError(
            f"`Actors`: `store` expected rows with names among {list(known)}, such "
            f"as a tfrl.core.Transition; got {spec}; pass a function that adds to "
            "the buffer"
        )
    kind: Any = dict if isinstance(spec, dict) else type(spec)

    def packed(columns: list[np.ndarray]) -> Any:
        found = records.Trajectory(*columns)._asdict()
        if "discounts" in names:
            found["discounts"] = (gamma * ~found["terminated"]).astype(np.float32)
        return kind(**{name: found[name] for name in names})

    return packed
