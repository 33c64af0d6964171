"""Episodes of many environments, in which every observation is kept once."""

import threading
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, durable
from tfrl.replay import _episode_rows, _indices, locking
from tfrl.replay.memory import _homes, _row_layout, numpy_storage


class Step(NamedTuple):
    """What an episode store keeps of one step.

    Attributes:
        observations: nest of `[..., *shape]`, what was seen before the action.
        actions: nest of `[..., *shape]`.
        rewards: `[...]` float32, reward of the action.
        terminated: `[...]` bool, the episode truly ended after the action.
        truncated: `[...]` bool, the episode was cut off after the action.
        extra: nest of `[..., *shape]`, anything else to be kept.

    Example:
        >>> Step([0.5], 1, 2.0, False, True, extra=()).truncated
        True
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    extra: Any


class EpisodeStore(tf.Module):
    """The last steps of each of many environments, ordered by episodes.

    Samplers such as `UniformReplay` and `PrioritizedReplay` determine what is drawn
    from it, and how; several may share a store. A step has an index that is never
    reused, however often its row is overwritten:

        index = position * num_environments + env_id      position 0, 1, 2, ...
        row   = index mod capacity

    Observations are kept once: what follows a step is the observation of the next row.
    An episode takes one row more than it has steps, for its final observation; so does
    a running one, for the last observation so far. All other rows hold steps, and each
    can be drawn as soon as it has been added.

    Methods are atomic among threads, together with those of the samplers. With
    `shared`, the store can be passed to other processes, spawned or forked, and each
    makes its own samplers. `tf.train.Checkpoint` saves rows and bookkeeping; nothing
    may be added meanwhile, and a checkpoint of another layout is refused.

    Args:
        observation_spec: nest of specs of one observation, every dimension known.
        action_spec: nest of specs of one action.
        capacity: number of rows, `capacity // num_environments` for each environment,
            at least 2; the remainder is not used.
        num_environments: number of environments.
        extra_spec: nest of specs of anything else to keep with a step, such as
            log_probs or the state of a policy.
        path: folder for the rows, see `NumpyStorage`; opened again, it has the steps it
            had. Then call `cut`, unless the environments continue where they were.
        shared: whether to keep the rows in memory shared by processes. Not with `path`.
        name: name of the module.

    Raises:
        OSError: if the folder cannot be used, or disk or shared memory are full.
        TypeError: if a count is not an integer.
        ValueError: if an environment would have less than 2 rows, a spec has unknown
            dimensions, or `path` holds something else.

    Example:
        >>> store = EpisodeStore(
        ...     tf.TensorSpec([]), tf.TensorSpec([], tf.int32), capacity=100)
        >>> for t in range(3):
        ...     store.add([float(t)], [t], [1.0], [t == 2], [False], [t + 1.0])
        >>> store.get([1, 2])
        Step(observations=array([1., 2.], dtype=float32),
             actions=array([1, 2], dtype=int32),
             rewards=array([1., 1.], dtype=float32),
             terminated=array([False,  True]),
             truncated=array([False, False]), extra=())
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        capacity: int,
        num_environments: int = 1,
        extra_spec: Any = (),
        path: durable.Path | None = None,
        shared: bool = False,
        name: str = "EpisodeStore",
    ) -> None:
        where = "EpisodeStore"
        checks.check_whole_number(where, "num_environments", num_environments, low=1)
        checks.check_whole_number(where, "capacity", capacity, low=1)
        environments = int(num_environments)
        length = int(capacity) // environments
        if length < 2:
            raise ValueError(
                f"`{where}`: `capacity` expected at least {2 * environments} rows, 2 "
                f"for each of {environments} environments; got {capacity}; raise it"
            )
        number, flag = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool)
        reward = tf.TensorSpec([], tf.float32)
        step = Step(observation_spec, action_spec, reward, flag, flag, extra_spec)
        rows = environments * length
        root = None if path is None else checks.as_path(where, "path", path)

        def made(part: str, spec: Any, count: int) -> numpy_storage.NumpyStorage:
            folder = root and root / part
            return numpy_storage.NumpyStorage(spec, count, path=folder, shared=shared)

        steps = _episode_rows.EpisodeRows(
            environments,
            length,
            made("rows", step, rows),
            made("marks", (number, number, number), rows),
            made("environments", (number,), environments),
        )
        steps.begin()
        self._furnish(steps, locking.shared(0) if shared else None, name)

    def _furnish(
        self,
        steps: _episode_rows.EpisodeRows,
        parts: locking.Shared | None,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self._steps, self._parts_of_lock = steps, parts
        self._lock: Any = threading.RLock()
        if parts is not None:
            self._lock = locking.ProcessLock(parts)
        self._arguments = _Arguments(steps)
        # Checkpoints restore in this order; one of another layout changes nothing.
        self._contents = steps.contents
        self._environments, self._marks = steps.environments, steps.marks
        self._rows = steps.rows

    def __reduce__(self) -> tuple:
        if self._parts_of_lock is None:
            raise TypeError(
                "`EpisodeStore`: expected shared=True to be pickled; got a store of "
                "this process; make it so, or use tf.train.Checkpoint"
            )
        return _homes.opened, (type(self), self._steps, self._parts_of_lock, self.name)

    @property
    def num_environments(self) -> int:
        """Number of environments."""
        return self._steps.num_environments

    @property
    def capacity(self) -> int:
        """Number of rows of all environments."""
        return self._steps.capacity

    @property
    def step_spec(self) -> Step:
        """Specs of what is kept of one step."""
        return self._rows.data_spec

    @property
    def lock(self) -> Any:
        """The re-entrant lock of atomic methods: hold it to make several calls one."""
        return self._lock

    @property
    def steps(self) -> _episode_rows.EpisodeRows:
        """The rows and their marks, for samplers, which hold the lock meanwhile."""
        return self._steps

    def add(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        next_observations: Any,
        extra: Any = (),
        env_ids: Any = None,
    ) -> None:
        """Adds one step of each environment given; the oldest steps make room.

        Args:
            observations: nest of `[N, *shape]`, what was seen before the action. Within
                an episode, it must equal the previous `next_observations`, which is
                already stored; they are compared, large ones in some places.
            actions: nest of `[N, *shape]`.
            rewards: `[N]`.
            terminated: `[N]` bool, whether the episode truly ended after the action.
            truncated: `[N]` bool, whether it was cut off. Where both are true, it
                terminated.
            next_observations: nest of `[N, *shape]`, what was seen after the action;
                at an episode's end its last observation, never the reset one.
            extra: nest of `[N, *shape]`, anything else to keep.
            env_ids: `[N]` distinct integers, whose step each row is; None for all
                environments in order. An environment that only resets itself is left
                out.

        Raises:
            TypeError: if a dtype does not fit.
            ValueError: if a nest, a shape or the ids do not fit, or an episode
                continues from another observation; the store is unchanged.
        """
        if not tf.executing_eagerly():
            _indices.check_eager("EpisodeStore.add", "use tf.numpy_function")
        steps = self._steps
        ids = steps.everyone
        if env_ids is not None:
            ids = self._ids("EpisodeStore.add", env_ids)
        step = (observations, actions, rewards, terminated, truncated, extra)
        leaves = self._arguments.leaves((*step, next_observations), len(ids))
        with self._lock:
            strangers = steps.append(ids, leaves)
        if strangers is not None:
            raise ValueError(
                "`EpisodeStore.add`: `observations` expected the `next_observations` "
                "of the step before, in environments whose episode goes on; got "
                f"{strangers.tolist()}; call `cut` where one was reset from outside"
            )

    @locking.atomic
    def cut(self, env_ids: Any = None) -> None:
        """Ends the running episodes, as truncated after their last step.

        Call it when environments are reset from outside, or were restored to another
        state than the store.

        Args:
            env_ids: `[N]` distinct integers; None for all environments. Those without
                an episode are left alone.

        Raises:
            TypeError: if they are not integers.
            ValueError: if the ids do not fit; the store is unchanged.
        """
        self._steps.cut(self._ids("EpisodeStore.cut", env_ids))

    @locking.atomic
    def clear(self) -> None:
        """Forgets all steps; running episodes begin anew with the next step.

        Indices keep counting, so that those of earlier samples belong to no step, and
        samplers of the store have nothing to draw until steps are added.

        Example:
            >>> store = EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([]), capacity=10)
            >>> store.add([0.0], [1.0], [1.0], [False], [False], [2.0])
            >>> store.clear()
            >>> tfrl.replay.UniformReplay(store).size
            0
        """
        # As if every row had been overwritten; what rows hold says that it was not.
        self._steps.upcoming[:] += self._steps.modulus

    @locking.atomic
    def get(self, indices: Any) -> Step:
        """Reads steps by their indices.

        Args:
            indices: integers of any shape `[...]`, such as those of a sample.

        Returns:
            A `Step` of copies `[..., *shape]`.

        Raises:
            TypeError: if they are not integers.
            ValueError: if one is not a step, or is overwritten.
        """
        where = "EpisodeStore.get"
        index = np.atleast_1d(_indices.int64_array(where, "indices", indices))
        rows = index % self.capacity
        there = self._steps.oldest()[index % self.num_environments] <= index
        there &= (index >= 0) & (self._steps.ends(rows) > index)
        there &= self._steps.columns().indices[rows] == index
        _indices.ensured(
            there.all(),
            index[~there],
            f"`{where}`: `indices` expected steps that are stored",
            "they were overwritten, never were, or are final observations",
        )
        found = self._rows.get(rows)  # never a view, as one row alone would be
        if np.ndim(indices):
            return found
        return tf.nest.map_structure(lambda leaf: leaf[0], found)

    def _ids(self, where: str, env_ids: Any) -> np.ndarray:
        if env_ids is None:
            return self._steps.everyone
        ids = _indices.int64_array(where, "env_ids", env_ids)
        return _indices.checked_ids(where, ids, self.num_environments, distinct=True)


class _Arguments:
    """Turns what `add` is given into arrays of the specs' shapes and dtypes."""

    def __init__(self, steps: _episode_rows.EpisodeRows) -> None:
        step, capacity = steps.rows.data_spec, steps.capacity
        specs = (*step, step.observations)
        self._all = _row_layout.RowLayout(specs, capacity)
        self._layouts = [
            (name, _row_layout.RowLayout(spec, capacity), tf.nest.is_nested(spec))
            for name, spec in zip(
                (*step._fields, "next_observations"), specs, strict=True
            )
        ]

    def leaves(self, values: tuple, count: int) -> list[np.ndarray]:
        """Returns the leaves `[count, *shape]` of a step and what is seen after it."""
        found = self._all.fitting(values, (count,))
        if found is not None:
            return found
        where, found = "EpisodeStore.add", []
        for (name, layout, nested), value in zip(self._layouts, values, strict=True):
            # Gymnasium's spaces and lists of numbers are no nests here.
            is_list = isinstance(value, list) and not nested
            given = np.asarray(value) if is_list else value
            found += layout.values(given, (count,), where, name, one_for_all=False)
        return found
