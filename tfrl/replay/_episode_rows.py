"""The rows of an episode store, and what is marked beside each of them.

A step is known by its index, which is never used again:

    index = position * num_environments + env_id          position 0, 1, 2, ...
    row   = index mod capacity                            row + n is the next step's

with n = num_environments and positions counted in each environment. Behind the last
step of an episode follows one closing row with the final observation alone; behind the
last step of a running episode follows its head, which holds the observation that the
next step begins with, and becomes that step.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.replay import _row_layout, numpy_storage

# The end of an episode that still goes on.
_OPEN = 1 << 62
# In how many places an observation is compared with the one that is there.
_PLACES = 64


class Columns(NamedTuple):
    """The arrays of the rows, each `[capacity, ...]`, nests as lists of leaves.

    `indices` says which step a row holds, `first` is the index of the first step of its
    episode, `end` the index after the last one (`EpisodeRows.ends` knows that of
    episodes which go on). Heads and closing rows end where they are.
    """

    observations: list[np.ndarray]
    actions: list[np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extra: list[np.ndarray]
    indices: np.ndarray
    first: np.ndarray
    end: np.ndarray


class Contents(tf.train.experimental.PythonState):
    """Refuses checkpoints of other contents, and counts the others.

    Attributes:
        restores: how many checkpoints were restored.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.restores = 0

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        return self._text

    def deserialize(self, string_value: Any) -> None:
        """Raises unless a checkpoint has the same contents."""
        kept = tf.compat.as_text(string_value)
        if kept != self._text:
            raise ValueError(
                f"`EpisodeStore`: the checkpoint expected a store of {kept}; got one "
                f"of {self._text}; make the store like the one saved"
            )
        self.restores += 1


class EpisodeRows:
    """The rows of steps, and where every environment stands.

    Nothing here checks arguments or holds a lock.

    Attributes:
        num_environments: how many environments there are, and how far two steps of one
            that follow each other lie apart.
        length: how many rows each environment has.
        capacity: how many rows there are in all.
        rows: the storage of the steps.
        marks: the storage of `indices`, `first` and `end`.
        environments: the index of the next step of each environment.
        contents: what checkpoints are compared with.
    """

    def __init__(
        self,
        num_environments: int,
        length: int,
        rows: numpy_storage.NumpyStorage,
        marks: numpy_storage.NumpyStorage,
        environments: numpy_storage.NumpyStorage,
    ) -> None:
        self.num_environments, self.length = num_environments, length
        self.capacity = num_environments * length
        self.rows, self.marks, self.environments = rows, marks, environments
        step = rows.data_spec
        text = _row_layout.RowLayout(step, self.capacity).contents
        self.contents = Contents(f"{num_environments} environments, {text}")
        self.everyone = np.arange(num_environments)
        self.specs = [tf.nest.flatten(part) for part in step]
        # Large ones are not looked at whole: adding would take twice as long.
        sizes = [int(np.prod(spec.shape)) for spec in self.specs[0]]
        self._places = [
            np.linspace(0, size - 1, min(size, _PLACES)).astype(np.intp)
            for size in sizes
        ]
        self._actions = len(self.specs[0])
        self._numbers = self._actions + len(self.specs[1])

    def __reduce__(self) -> tuple:
        storages = self.rows, self.marks, self.environments
        return EpisodeRows, (self.num_environments, self.length, *storages)

    def begin(self) -> None:
        """Makes a store without steps of memory that is new, and so zeros."""
        # The first step of an environment has its number for an index.
        np.maximum(self.upcoming, self.everyone, out=self.upcoming)
        if self.upcoming[0] == 0:
            self.columns().indices[0] = -1

    def columns(self) -> Columns:
        """Returns the arrays of the rows as they are now."""
        rows, actions, numbers = self.rows.arrays, self._actions, self._numbers
        return Columns(
            rows[:actions],
            rows[actions:numbers],
            rows[numbers],
            rows[numbers + 1],
            rows[numbers + 2],
            rows[numbers + 3 :],
            *self.marks.arrays,
        )

    @property
    def upcoming(self) -> np.ndarray:
        """Index of the next step of each environment, a view."""
        return self.environments.arrays[0]

    def running(self) -> np.ndarray:
        """Returns for each environment whether an episode goes on, in a head."""
        upcoming = self.upcoming
        return self.marks.arrays[0].take(upcoming % self.capacity) == upcoming

    def top(self) -> np.ndarray:
        """Returns the index after the last row written of each environment."""
        return self.upcoming + self.running() * self.num_environments

    def oldest(self) -> np.ndarray:
        """Returns the index of the oldest row there is of each environment."""
        return np.maximum(self.top() - self.capacity, self.everyone)

    def ends(self, rows: np.ndarray) -> np.ndarray:
        """Returns the index after the last step there is of the episodes of rows."""
        environments = rows % self.num_environments
        return np.minimum(
            self.marks.arrays[2].take(rows, mode="clip"),
            self.upcoming.take(environments, mode="clip"),
        )

    def strangers(self, ids: np.ndarray, observations: list[np.ndarray]) -> np.ndarray:
        """Returns which of `ids` go on, but from another observation than given."""
        index = self.upcoming[ids]
        rows = index % self.capacity
        found = np.zeros(len(ids), bool)
        for array, leaf, places in zip(
            self.columns().observations, observations, self._places, strict=True
        ):
            if not places.size or not len(ids):
                continue
            there = array.reshape(self.capacity, -1)[rows[:, np.newaxis], places]
            given = leaf.reshape(len(ids), -1)[:, places]
            numbers = (there == there) | (given == given)  # noqa: PLR0124, not NaN
            found |= ((there != given) & numbers).any(axis=1)
        return ids[found & (self.columns().indices.take(rows) == index)]

    def append(self, ids: np.ndarray, step: Columns, after: list[np.ndarray]) -> None:
        """Writes one step of each environment of `ids`, and what is seen after it."""
        stride, columns = self.num_environments, self.columns()
        index = self.upcoming[ids]
        head = index + stride
        rows, heads = index % self.capacity, head % self.capacity
        begins, first = columns.indices[rows] != index, columns.first[rows]
        # The marks of what is overwritten go first, and the next index comes last: who
        # is killed in between leaves nothing that is torn and counts.
        columns.indices[heads] = head
        if begins.any():
            first = np.where(begins, index, first)
            new = rows[begins]
            columns.indices[new] = -1
            for array, leaf in zip(
                columns.observations, step.observations, strict=True
            ):
                array[new] = leaf[begins]
        for array, leaf in zip(columns.observations, after, strict=True):
            array[heads] = leaf
        for array, leaf in zip(columns.actions, step.actions, strict=True):
            array[rows] = leaf
        for array, leaf in zip(columns.extra, step.extra, strict=True):
            array[rows] = leaf
        columns.rewards[rows] = step.rewards
        columns.terminated[rows] = step.terminated
        columns.truncated[rows] = step.truncated
        columns.first[rows] = columns.first[heads] = first
        columns.end[rows], columns.end[heads] = _OPEN, head
        columns.indices[rows] = index
        ended = step.terminated | step.truncated
        if ended.any():
            self._mark_ends(first[ended], head[ended])
            head = head + stride * ended
        self.upcoming[ids] = head

    def cut(self, ids: np.ndarray) -> None:
        """Ends what goes on in environments after its last step, as truncated."""
        columns = self.columns()
        ids = ids[self.running()[ids]]
        ends = self.upcoming[ids]
        last = (ends - self.num_environments) % self.capacity
        columns.truncated[last] = True
        self._mark_ends(columns.first[ends % self.capacity], ends)
        # Whoever was killed while adding may have begun to make a step of the head.
        columns.end[ends % self.capacity] = ends
        after = ends + self.num_environments
        begun = after[columns.indices[after % self.capacity] == after]
        columns.indices[begun % self.capacity] = -1
        self.upcoming[ids] = after

    def _mark_ends(self, firsts: np.ndarray, ends: np.ndarray) -> None:
        stride = self.num_environments
        firsts = np.maximum(firsts, ends + stride - self.capacity)
        steps, counts = spans(firsts, ends, stride)
        self.marks.arrays[2][steps % self.capacity] = np.repeat(ends, counts)


def spans(
    starts: np.ndarray, stops: np.ndarray, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns all `range(start, stop, step)` one after the other, and their lengths."""
    counts = np.maximum(stops - starts, 0) // step
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    return np.repeat(starts - step * before, counts) + step * np.arange(total), counts


def check_eager(where: str) -> None:
    """Raises inside of tf.function."""
    if not tf.executing_eagerly():
        raise ValueError(
            f"`{where}`: expected to be called outside of tf.function, where it would "
            "run once, while tracing; got a call inside; use `as_dataset`"
        )
