"""The rows of an episode store, and their marks.

A step is known by its index, which is never used again:

    index = position * num_environments + env_id          position 0, 1, 2, ...
    row   = index mod capacity                            row + n is the next step's

with n = num_environments and positions counted in each environment. Behind the last
step of an episode follows one closing row with the final observation alone; behind the
last step of a running episode follows its head, which holds the observation that the
next step begins with, and becomes that step.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.replay import _indices
from tfrl.replay.memory import numpy_storage

# The end of an episode that still goes on.
_OPEN = 1 << 62
# For how many numbers of environments constants are kept.
_REMEMBERED = 64
# How many numbers of a large observation are compared with those that are there. All
# of them would take as long as the rest of adding a step.
_LOOKED_AT = 128


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
        contents: what has to be the same.
        restores: how many checkpoints were restored.
    """

    def __init__(self, text: str) -> None:
        self.contents = text
        self.restores = 0

    def serialize(self) -> str:
        """Returns what a checkpoint keeps."""
        return self.contents

    def deserialize(self, string_value: Any) -> None:
        """Raises unless a checkpoint has the same contents."""
        kept = tf.compat.as_text(string_value)
        _indices.check_contents("EpisodeStore", kept, self.contents)
        self.restores += 1


class EpisodeRows:
    """The rows of steps, and where every environment stands.

    Nothing here checks arguments or holds a lock.

    Attributes:
        num_environments: how many environments there are, and how far two steps of one
            that follow each other lie apart.
        stride: the same as an array, with which NumPy computes faster.
        modulus: `capacity` as an array.
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
        text = f"{num_environments} environments, {rows.layout.contents}"
        self.contents = Contents(text)
        self.everyone = np.arange(num_environments)
        counts = [len(tf.nest.flatten(part)) for part in step]
        self._actions = counts[0]
        seen = rows.layout.leaves[: self._actions]
        self._steps = [max(math.prod(x.shape) // _LOOKED_AT, 1) for x in seen]
        self._numbers = self._actions + counts[1]
        self._flags = slice(self._numbers + 1, self._numbers + 3)
        self._after = sum(counts)
        self.stride = np.array(num_environments)
        self.modulus = np.array(self.capacity)
        numbered = [*enumerate(map(numpy_storage.kind_of_row, rows.layout.leaves))]
        self._seen, self._others = numbered[: self._actions], numbered[self._actions :]
        # Observations that are compared as they are: whole, and bit by bit.
        self._is_small = max(self._steps, default=1) == 1
        self._written = rows.changes.all_flags()
        # NumPy writes an array to rows in half the time that a number takes.
        yes, is_open = np.ones(num_environments, bool), np.full(num_environments, _OPEN)
        self._alike = functools.lru_cache(_REMEMBERED)(
            lambda count: (yes[:count], is_open[:count], bytes(count))
        )
        # The last heads, as bytes of their indices, and their rows: mostly the next.
        self._last_heads = b"", self.everyone
        # Lists that stay, whatever arrays a checkpoint puts into them.
        self._marks, self._environments = marks.arrays, environments.arrays
        # Of these somebody has views, so that a save compares them; they are small.
        for storage in (marks, environments):
            storage.get(slice(None))

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
        return self.marks.arrays[0].take(upcoming % self.modulus) == upcoming

    def top(self) -> np.ndarray:
        """Returns the index after the last row written of each environment."""
        return self.upcoming + self.running() * self.stride

    def oldest(self, top: np.ndarray | None = None) -> np.ndarray:
        """Returns the index of the oldest row there is of each environment.

        `top` is what the method of this name returns.
        """
        top = self.top() if top is None else top
        return np.maximum(top - self.modulus, self.everyone)

    def following(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of the steps after those in rows."""
        return (rows + self.stride) % self.modulus

    def ends(self, rows: np.ndarray) -> np.ndarray:
        """Returns the index after the last step there is of the episodes of rows."""
        running = self.upcoming.take(rows % self.stride)
        return np.minimum(self.marks.arrays[2].take(rows), running)

    def have_ended(self, rows: np.ndarray) -> np.ndarray:
        """Returns whether the episodes of rows have ended."""
        ends = self.marks.arrays[2].take(rows)
        return ends <= self.upcoming.take(rows % self.stride)

    def append(self, ids: np.ndarray, leaves: list[np.ndarray]) -> np.ndarray | None:
        """Writes one step of each environment, and what is seen after it.

        Args:
            ids: `[N]` environments.
            leaves: arrays `[N, *shape]` of the rows' dtypes, of each leaf of a step
                and then of the observations after it.

        Returns:
            Which of `ids` go on, but from another observation than given, and nothing
            is written; None if there are none.
        """
        stored, (indices, firsts, ends) = self.rows.whole_rows, self._marks
        (upcoming,), modulus, count = self._environments, self.modulus, len(ids)
        index = upcoming[ids]
        # Bytes are compared in no time, and mostly this is all.
        key, new = index.tobytes(), None
        known, rows = self._last_heads
        if known != key:
            rows = index % modulus
        there = indices[rows]
        if there.tobytes() != key:
            (new,) = (there != index).nonzero()
        if not self._go_on(stored, rows, new, leaves):
            strangers = self._strangers(ids, rows, new, leaves)
            if strangers is not None:
                return strangers
        head = index + self.stride
        heads = head % modulus
        self._last_heads = head.tobytes(), heads
        written, first = self._written, firsts[rows]
        yes, is_open, never = self._alike(count)
        written[rows] = written[heads] = yes
        # The marks of what is overwritten go first, and the next index comes last: who
        # is killed in between leaves nothing that is torn and counts.
        indices[heads] = head
        if new is not None:
            begin, begun = rows[new], index[new]
            first[new] = begun
            indices[begin], firsts[begin] = -1, begun
            for k, kind in self._seen:
                stored[k][begin] = _as_rows(leaves[k], kind)[new]
        for k, kind in self._seen:
            stored[k][heads] = _as_rows(leaves[self._after + k], kind)
        for k, kind in self._others:
            stored[k][rows] = leaves[k] if kind is None else _as_rows(leaves[k], kind)
        firsts[heads] = first
        ends[rows], ends[heads] = is_open, head
        indices[rows] = index  # where it is not there already
        terminated, truncated = leaves[self._flags]
        if terminated.tobytes() != never or truncated.tobytes() != never:
            self._end(terminated | truncated, first, head)
        upcoming[ids] = head
        return None

    def _go_on(
        self,
        stored: list[np.ndarray],
        rows: np.ndarray,
        new: np.ndarray | None,
        leaves: list[np.ndarray],
    ) -> bool:
        """Returns whether rows hold the observations given, but `new` ones, bit by bit.

        If not, or if they are large, `_strangers` has to look closer.
        """
        if not self._is_small:
            return False
        for k, kind in self._seen:
            found, given = stored[k][rows], leaves[k]
            if new is not None:
                found[new] = _as_rows(given, kind)[new]
            if found.tobytes() != given.tobytes():
                return False
        return True

    def _strangers(
        self,
        ids: np.ndarray,
        rows: np.ndarray,
        new: np.ndarray | None,
        leaves: list[np.ndarray],
    ) -> np.ndarray | None:
        """Returns which of `ids` go on, in `rows`, from something else; None for none.

        `new` says which of them do not go on; None for none.
        """
        if new is not None:
            goes_on = np.ones(len(ids), bool)
            goes_on[new] = False
            old = goes_on.nonzero()[0]
            if not old.size:
                return None
            ids, rows = ids[old], rows[old]
        found: Any = None
        arrays = self.rows.arrays
        for (k, _), step in zip(self._seen, self._steps):  # noqa: B905, as many
            array, leaf = arrays[k], leaves[k]
            if step == 1:
                there, given = array.take(rows, 0), leaf
            else:
                there = array.reshape(self.capacity, -1)[rows, ::step]
                given = leaf.reshape(len(leaf), -1)[:, ::step]
            if new is not None:
                given = given.take(old, 0)
            if there.tobytes() == given.tobytes():
                continue
            numbers = (there == there) | (given == given)  # noqa: PLR0124, not NaN
            differs = (there != given) & numbers
            differs = differs.reshape(len(rows), -1).any(1)
            found = differs if found is None else found | differs
        return None if found is None or not found.any() else ids[found]

    def _end(self, ended: np.ndarray, first: np.ndarray, head: np.ndarray) -> None:
        """Ends episodes of some environments at their heads, which go on to others."""
        (ended,) = ended.nonzero()
        after = head[ended]
        self._mark_ends(first[ended], after)
        head[ended] = after + self.stride

    def cut(self, ids: np.ndarray) -> None:
        """Ends what goes on in environments after its last step, as truncated."""
        columns = self.columns()
        ids = ids[self.running()[ids]]
        ends = self.upcoming[ids]
        last = (ends - self.num_environments) % self.capacity
        self._written[last] = True
        columns.truncated[last] = True
        self._mark_ends(columns.first[ends % self.capacity], ends)
        # Whoever was killed while adding may have begun to make a step of the head.
        columns.end[ends % self.capacity] = ends
        after = ends + self.num_environments
        begun = after[columns.indices[after % self.capacity] == after]
        columns.indices[begun % self.capacity] = -1
        self.upcoming[ids] = after

    def _mark_ends(self, firsts: np.ndarray, ends: np.ndarray) -> None:
        stride, capacity = self.num_environments, self.capacity
        marks = self.marks.arrays[2]
        for first, end in zip(firsts.tolist(), ends.tolist()):  # noqa: B905, as many
            length = min(end - first, capacity - stride)
            start = (end - length) % capacity
            marks[start : start + length : stride] = end
            if start + length > capacity:
                marks[start % stride : start + length - capacity : stride] = end


def _as_rows(leaf: np.ndarray, kind: np.dtype | None) -> np.ndarray:
    """Returns a leaf `[N, *shape]` as `NumpyStorage.whole_rows` has rows, `[N]`."""
    if kind is None:
        return leaf
    if not leaf.flags.c_contiguous:
        leaf = np.ascontiguousarray(leaf)
    return np.ndarray(len(leaf), kind, leaf)
