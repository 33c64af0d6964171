"""The rows of an episode store, and what is marked beside each of them.

A step is known by its index, which is never used again:

    index = position * num_environments + env_id          position 0, 1, 2, ...
    row   = index mod capacity                            row + n is the next step's

with n = num_environments and positions counted in each environment. Behind the last
step of an episode follows one closing row with the final observation alone; behind the
last step of a running episode follows its head, which holds the observation that the
next step begins with, and becomes that step.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.core import shapes
from tfrl.replay import _row_layout, numpy_storage

# The end of an episode that still goes on.
_OPEN = 1 << 62
_NONE = np.array(0)
# How many bytes of large observations are compared with those that are there, in pieces
# of how many at most. To look at all of them would make adding take twice as long.
_LOOK_BYTES, _PLACE_BYTES = 512, 64


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
        if kept != self.contents:
            raise ValueError(
                f"`EpisodeStore`: the checkpoint expected a store of {kept}; got one "
                f"of {self.contents}; make the store like the one saved"
            )
        self.restores += 1


class _Places(NamedTuple):
    """Where large leaves are compared: places of some bytes, so many in a row."""

    kind: np.dtype
    in_row: np.ndarray
    chosen: np.ndarray

    @classmethod
    def of(cls, leaf: shapes.ShapeDtype) -> "_Places | None":
        """Returns those of a leaf, None if it is looked at whole."""
        itemsize = leaf.dtype.itemsize
        size = math.prod(leaf.shape) * itemsize
        width = math.gcd(size, _PLACE_BYTES)
        width = itemsize if width % itemsize else width
        places = max(_LOOK_BYTES // width, 1)
        if places * width >= size:
            return None
        chosen = np.linspace(0, size // width - 1, min(places, 64)).astype(np.intp)
        return cls(np.dtype(f"V{width}"), np.array(size // width), chosen)

    def look(self, array: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Returns what is in the places of rows, None for all, `[n, places]`."""
        if rows is None:
            return array.reshape(len(array), -1).view(self.kind).take(self.chosen, 1)
        flat = array.reshape(-1).view(self.kind)
        return flat.take(rows[:, np.newaxis] * self.in_row + self.chosen)


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
        text = _row_layout.RowLayout(step, self.capacity).contents
        self.contents = Contents(f"{num_environments} environments, {text}")
        self.everyone = np.arange(num_environments)
        self.specs = [tf.nest.flatten(part) for part in step]
        self._actions = len(self.specs[0])
        seen = rows.layout.leaves[: self._actions]
        self._places = [_Places.of(leaf) for leaf in seen]
        self._numbers = self._actions + len(self.specs[1])
        self._after = sum(map(len, self.specs))
        self.stride, self.modulus = (
            np.array(num_environments),
            np.array(self.capacity),
        )
        # Where the environments stood when changes were noted, and the first step of
        # what went on then.
        self._noted = self._noted_first = self.everyone - num_environments
        for storage in (rows, marks, environments):
            storage.changes.ask(self._note_changes)

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

    def append(self, ids: np.ndarray, leaves: list[np.ndarray]) -> np.ndarray:
        """Writes one step of each environment, and what is seen after it.

        Args:
            ids: `[N]` environments.
            leaves: arrays `[N, *shape]` of the rows' dtypes, of each leaf of a step
                and then of the observations after it.

        Returns:
            Which of `ids` go on, but from another observation than given. If there are
            any, nothing is written.
        """
        arrays, (indices, firsts, ends) = self.rows.arrays, self.marks.arrays
        upcoming, count, stride = self.upcoming, self._actions, self.stride
        index = upcoming[ids]
        head = index + stride
        rows, heads = index % self.modulus, head % self.modulus
        first, there = firsts[rows], indices[rows]
        # Bytes are compared in no time, and mostly this is all.
        goes_on = None if there.tobytes() == index.tobytes() else there == index
        strangers = self._strangers(ids, rows, goes_on, leaves)
        if strangers.size:
            return strangers
        # The marks of what is overwritten go first, and the next index comes last: who
        # is killed in between leaves nothing that is torn and counts.
        indices[heads] = head
        if goes_on is not None:
            begins = ~goes_on
            new, first[begins] = rows[begins], index[begins]
            indices[new], firsts[new] = -1, index[begins]
            for array, leaf in zip(arrays[:count], leaves, strict=False):
                array[new] = leaf[begins]
        for array, leaf in zip(arrays, leaves[self._after :], strict=False):
            array[heads] = leaf
        for array, leaf in zip(arrays[count:], leaves[count:], strict=False):
            array[rows] = leaf
        firsts[heads] = first
        ends[rows], ends[heads] = _OPEN, head
        if goes_on is not None:
            indices[rows] = index
        terminated, truncated = leaves[self._numbers + 1], leaves[self._numbers + 2]
        if np.count_nonzero(terminated) or np.count_nonzero(truncated):
            ended = terminated | truncated
            self._mark_ends(first[ended], head[ended])
            head += stride * ended
        upcoming[ids] = head
        return strangers

    def _strangers(
        self,
        ids: np.ndarray,
        rows: np.ndarray,
        goes_on: np.ndarray | None,
        leaves: list[np.ndarray],
    ) -> np.ndarray:
        """Returns which of `ids` go on, in `rows`, from something else.

        `goes_on` says which ones go on; None for all.
        """
        if goes_on is not None:
            ids, rows = ids[goes_on], rows[goes_on]
        found: Any = None
        if not len(ids):
            return ids
        for array, leaf, places in zip(
            self.rows.arrays, leaves, self._places, strict=False
        ):
            if places is None:
                there, given = array.take(rows, 0, None, "clip"), leaf
            else:
                there, given = places.look(array, rows), places.look(leaf)
            if goes_on is not None:
                given = given[goes_on]
            if there.tobytes() == given.tobytes():
                continue
            if places is not None:
                there, given = there.view(array.dtype), given.view(array.dtype)
            numbers = (there == there) | (given == given)  # noqa: PLR0124, not NaN
            differs = (there != given) & numbers
            differs = differs.reshape(len(rows), -1).any(1)
            found = differs if found is None else found | differs
        return ids[:0] if found is None else ids[found]

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

    def _note_changes(self) -> None:
        """Tells the storages what was written since this was called last.

        That follows from where the environments stand, so that `append` and `cut`
        need not tell: rows are written in their order, from the last step on that was
        there before, which `cut` may have marked, to the row after the newest, and an
        end is marked on all steps of its episode.
        """
        stride, upcoming = self.num_environments, self.upcoming.copy()
        if (upcoming == self._noted).all():
            return
        stops = (self.top() + stride) // stride
        for storage, starts in (
            (self.rows, self._noted - stride),
            (self.marks, np.minimum(self._noted - stride, self._noted_first)),
        ):
            starts = np.maximum(starts // stride, stops - self.length)
            for k, start in enumerate(np.maximum(starts, 0).tolist()):
                self._touch(storage, k, start, int(stops[k]))
        self.environments.touch(slice(None))
        first = self.marks.arrays[1].take(upcoming % self.capacity)
        self._noted_first = np.where(self.running(), first, upcoming)
        self._noted = upcoming

    def _touch(
        self,
        storage: numpy_storage.NumpyStorage,
        environment: int,
        start: int,
        stop: int,
    ) -> None:
        """Touches the rows of positions `range(start, stop)` of an environment."""
        stride, begin = self.num_environments, start % self.length
        end = begin + stop - start
        for low, high in ((begin, min(end, self.length)), (0, end - self.length)):
            if low < high:
                rows = slice(environment + stride * low, stride * high, stride)
                storage.touch(rows)

    def _mark_ends(self, firsts: np.ndarray, ends: np.ndarray) -> None:
        marks, stride, capacity = (
            self.marks.arrays[2],
            self.num_environments,
            self.capacity,
        )
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
            length = min(end - first, capacity - stride)
            start = (end - length) % capacity
            marks[start : start + length : stride] = end
            if start + length > capacity:
                marks[start % stride : start + length - capacity : stride] = end


def spans(
    starts: np.ndarray, stops: np.ndarray, step: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns all `range(start, stop, step)` one after the other, and their lengths."""
    counts = np.maximum(stops - starts, _NONE) // step
    after = counts.cumsum()
    total = int(after[-1]) if after.size else 0
    firsts = starts - step * (after - counts)
    return firsts.repeat(counts) + step * np.arange(total), counts


def traced(where: str) -> ValueError:
    """Returns the error of a call inside of tf.function."""
    return ValueError(
        f"`{where}`: expected to be called outside of tf.function, where it would run "
        "once, while tracing; got a call inside; use `as_dataset`"
    )
