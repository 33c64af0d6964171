"""What objects consist of that is saved: rows, variables and small states.

They are found as `tf.train.Checkpoint` finds them, and known by the same names: those
of attributes, on the way from an object. What is reached in several ways is one part
with several paths.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl.replay.disk import _saved
from tfrl.replay.memory import _homes, numpy_storage

_PIECE_BYTES = 1 << 22
# Zeros of a state, which are on no disk; more than the priorities of any replay.
_MOST_ZEROS = 1 << 33

# Fills arrays of bytes, one after the other.
Filling: TypeAlias = Callable[[list[np.ndarray]], None]


class Part:
    """Bytes that belong together, in segments of `step` bytes.

    Attributes:
        paths: the ways in which it was reached.
        lock: what keeps others from changing it, re-entrant.
        contents: what it is, as a line of text; equal texts fit each other.
        size: how many bytes there are; of a state, only after `freeze`.
        step: how many bytes a segment has; the last one may have fewer.
        changes: what counts the changes of its segments, if anything does.
        segments: what is saved of it so far.
        versions: those of the segments when they were saved, if known.
    """

    changes: Any = None

    def __init__(self, contents: str, row: int, rows: int, step: int) -> None:
        self.paths: list[str] = []
        self.lock: Any = None
        self.segments: list[Any] = []
        self.versions: Any = None
        self.contents, self.size = contents, row * rows
        self._row = max(row, 1)  # bytes of what is in one segment as a whole
        self.step = max(step // self._row, 1) * self._row

    @property
    def count(self) -> int:
        """Number of segments."""
        return -(-self.size // self.step)

    def saved(self) -> _saved.Saved:
        """Returns what is saved of it so far."""
        return _saved.Saved(
            self.paths, self.contents, self.size, self.step, self.segments
        )

    def freeze(self) -> Any:
        """Gets ready to be read; returns the versions of all segments, if known."""

    def read(self, k: int) -> bytes:
        """Returns a segment."""
        raise NotImplementedError

    def takes(self, size: int, step: int, zeros: int) -> bool:  # noqa: ARG002
        """Whether so many bytes fit, in such segments, of which some are zeros."""
        return size == self.size and step % self._row == 0

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        self.size, self.step = size, step

    def write(self, k: int, fill: Filling | None) -> None:
        """Replaces a segment by what fills arrays of bytes; None for zeros."""
        raise NotImplementedError

    def finish(self) -> None:
        """Takes over what was written, when all is."""

    def _rows(self, k: int) -> slice:
        """Returns the rows of a segment."""
        rows = self.step // self._row
        return slice(k * rows, min((k + 1) * rows, self.size // self._row))


class Rows(Part):
    """The rows of a `NumpyStorage`, whose changes are counted."""

    def __init__(self, storage: numpy_storage.NumpyStorage) -> None:
        self._storage, self.changes = storage, storage.changes
        layout, segments = storage.layout, storage.changes.segments
        step, self._is_filled = segments.rows * segments.row_bytes, False
        super().__init__(layout.contents, segments.row_bytes, layout.capacity, step)

    def freeze(self) -> np.ndarray:
        """Gets ready to be read; returns the versions of all segments."""
        if not self._storage.exists:
            return np.zeros(self.count, np.int64)
        return self.changes.gather()[: self.count]

    def read(self, k: int) -> bytes:
        """Returns a segment, or nothing if there are no rows yet."""
        if not self._storage.exists:
            return b""
        return b"".join([place.data for place in self._places(k)])

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        super().thaw(size, step)
        self.changes.touch(slice(None))
        self._is_filled = False

    def finish(self) -> None:
        """Takes over what was written, when all is."""
        if self._is_filled:
            _homes.prefer_huge_pages(self._storage.arrays, True)

    def write(self, k: int, fill: Filling | None) -> None:
        """Replaces a segment by what fills arrays of bytes; None for zeros."""
        if fill is not None:
            if not self._is_filled:
                _homes.prefer_huge_pages(self._storage.arrays, False)
                self._is_filled = True
            fill(self._places(k))
        elif self._storage.exists:
            for place in self._places(k):
                if place.any():  # what was never written to takes no memory
                    place[:] = 0

    def _places(self, k: int) -> list[np.ndarray]:
        arrays = [array[self._rows(k)] for array in self._storage.arrays]
        return [array.reshape(-1).view(np.uint8) for array in arrays]


class Values(Part):
    """A variable."""

    def __init__(self, variable: tf.Variable) -> None:
        self._variable = variable
        self._dtype = np.dtype(variable.dtype.as_numpy_dtype)
        shape = variable.shape.as_list() or [1]
        self._shape = shape[1:]
        row = math.prod(self._shape) * self._dtype.itemsize
        name = f"a variable {variable.dtype.name}{variable.shape.as_list()}"
        super().__init__(name, row, shape[0], _PIECE_BYTES)

    def read(self, k: int) -> bytes:
        """Returns a segment."""
        value = self._variable
        return (value[self._rows(k)] if value.shape.rank else value).numpy().tobytes()

    def write(self, k: int, fill: Filling | None) -> None:
        """Replaces a segment by what fills arrays of bytes; None for zeros."""
        rows = self._rows(k)
        value = np.zeros([rows.stop - rows.start, *self._shape], self._dtype)
        if fill is not None:
            fill([value.reshape(-1).view(np.uint8)])
        if self._variable.shape.rank:
            self._variable[rows].assign(value)
        else:
            self._variable.assign(value[0])


class State(Part):
    """What a `PythonState` says of itself."""

    def __init__(self, state: tf.train.experimental.PythonState) -> None:
        self._state, self._data = state, bytearray()
        name = type(state).__name__.strip("_")
        super().__init__(getattr(state, "contents", name), 1, 0, _PIECE_BYTES)

    def freeze(self) -> None:
        """Gets ready to be read."""
        self._data = bytearray(tf.compat.as_bytes(self._state.serialize()))
        self.size = len(self._data)

    def read(self, k: int) -> bytes:
        """Returns a segment."""
        return bytes(self._data[self._rows(k)])

    def takes(self, size: int, step: int, zeros: int) -> bool:  # noqa: ARG002
        """Whether so many bytes fit, in such segments, of which some are zeros."""
        return zeros * step <= _MOST_ZEROS

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        super().thaw(size, step)
        self._data = bytearray(size)

    def write(self, k: int, fill: Filling | None) -> None:
        """Replaces a segment by what fills arrays of bytes; None for zeros."""
        if fill is not None:
            fill([np.frombuffer(self._data, np.uint8)[self._rows(k)]])

    def finish(self) -> None:
        """Takes over what was written."""
        data, self._data = self._data, bytearray()
        self._state.deserialize(bytes(data))


def found(where: str, objects: Any) -> tuple[list[Part], list[Any]]:
    """Returns what objects consist of, in the order of `tf.train.Checkpoint`.

    Args:
        where: name of the function that asks.
        objects: a mapping of names to modules.

    Returns:
        The parts; and all locks, each once.
    """
    if not isinstance(objects, Mapping) or not objects:
        raise TypeError(
            f"`{where}`: `objects` expected a dict of names and objects; got "
            f'{objects!r}; pass for example {{"replay": replay}}'
        )
    parts: dict[int, Part] = {}
    locks: dict[int, Any] = {}
    above: set[int] = set()

    def visit(path: str, value: Any, lock: Any) -> bool:
        """Notes what is changed under a lock; returns whether there is anything."""
        if isinstance(value, tf.Module):
            lock = getattr(value, "_lock", None) or lock
        locks[id(lock)] = lock
        for kind, part_of in _KINDS:
            if isinstance(value, kind):
                part = parts.setdefault(id(value), part_of(value))
                part.lock = part.lock or lock
                part.paths.append(path)
                return True
        if id(value) in above:
            return False
        above.add(id(value))
        children = tf.train.TrackableView.children(value).items()
        is_found = [visit(f"{path}/{name}", child, lock) for name, child in children]
        above.remove(id(value))
        return any(is_found)

    for name, value in objects.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(
                f"`{where}`: `objects` expected names without a slash; got {name!r}; "
                "rename it"
            )
        is_module = isinstance(value, tf.Module)
        if not (is_module and visit(name, value, contextlib.nullcontext())):
            raise TypeError(
                f"`{where}`: `objects` expected what keeps rows or states of "
                f"tfrl.replay; got {type(value).__name__} for {name!r}; leave it out"
            )
    return list(parts.values()), list(locks.values())


_KINDS: tuple[tuple[type, Callable[[Any], Part]], ...] = (
    (numpy_storage.NumpyStorage, Rows),
    (tf.train.experimental.PythonState, State),
    (tf.Variable, Values),
)
