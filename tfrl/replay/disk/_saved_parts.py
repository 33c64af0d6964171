"""What objects consist of that is saved: rows, variables and small states.

They are found as `tf.train.Checkpoint` finds them, and known by the same names: those
of attributes, on the way from an object. What is reached in several ways is one part
with several paths.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.replay import _row_layout, numpy_storage

_PIECE_BYTES = 1 << 22
# Zeros of a state, which are on no disk; more than the priorities of any replay.
_MOST_ZEROS = 1 << 33


class Part:
    """Bytes that belong together, in segments of `step` bytes.

    Attributes:
        paths: the ways in which it was reached.
        lock: what keeps others from changing it.
        contents: what it is, as a line of text; equal texts fit each other.
        size: how many bytes there are; of a state, only after `freeze`.
        step: how many bytes a segment has; the last one may have fewer.
        unit: how many bytes there are of each row.
    """

    unit = 1

    def __init__(self, contents: str, size: int, step: int) -> None:
        self.paths: list[str] = []
        self.lock: Any = contextlib.nullcontext()
        self.contents, self.size, self.step = contents, size, max(step, 1)

    @property
    def count(self) -> int:
        """Number of segments."""
        return -(-self.size // self.step)

    def freeze(self) -> Any:
        """Gets ready to be read; returns the versions of all segments, if known."""

    def pieces(self, k: int) -> list[np.ndarray]:
        """Returns a segment as arrays of bytes, one behind the other."""
        raise NotImplementedError

    def takes(self, size: int, step: int, zeros: int) -> bool:  # noqa: ARG002
        """Whether so many bytes fit, in such segments, of which some are zeros."""
        return size == self.size and step % self.unit == 0

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        self.size, self.step = size, step

    def place(self, k: int) -> list[np.ndarray]:
        """Returns arrays for the bytes of a segment."""
        raise NotImplementedError

    def placed(self, k: int, pieces: list[np.ndarray]) -> None:
        """Takes note of what was written to `place`."""

    def clear(self, k: int) -> None:
        """Writes zeros."""
        pieces = self.place(k)
        for piece in pieces:
            piece[:] = 0
        self.placed(k, pieces)

    def finish(self) -> None:
        """Takes over what was written, when all is."""


class Rows(Part):
    """The rows of a `NumpyStorage`, whose changes are counted."""

    def __init__(self, storage: numpy_storage.NumpyStorage) -> None:
        self._storage, self._changes = storage, storage.changes
        layout = _row_layout.RowLayout(storage.data_spec, storage.capacity)
        self._row = self._changes.segments.row_bytes
        self.unit = max(self._row, 1)
        step = self._changes.segments.rows * self._row
        super().__init__(layout.contents, layout.capacity * self._row, step)

    def freeze(self) -> np.ndarray:
        """Gets ready to be read; returns the versions of all segments."""
        if not self._storage.exists:
            return np.zeros(self.count, np.int64)
        return self._changes.gather()[: self.count]

    def saved(self, key: str) -> Any:
        """Returns the versions that were saved under a key, None if unknown."""
        return self._changes.saved(key)

    def remember(self, key: str, versions: np.ndarray) -> None:
        """Notes under which key the segments of these versions are saved."""
        self._changes.remember(key, versions)

    def pieces(self, k: int) -> list[np.ndarray]:
        """Returns a segment as arrays of bytes, or none if there are no rows yet."""
        return self._pieces(k) if self._storage.exists else []

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        super().thaw(size, step)
        self._changes.touch_all()

    def place(self, k: int) -> list[np.ndarray]:
        """Returns where the bytes of a segment go."""
        return self._pieces(k)

    def clear(self, k: int) -> None:
        """Writes zeros."""
        for piece in self.pieces(k):
            if piece.any():  # what was never written to takes no memory
                piece[:] = 0

    def _pieces(self, k: int) -> list[np.ndarray]:
        rows = self.step // self._row
        part = slice(k * rows, (k + 1) * rows)
        return [_bytes_of(array[part]) for array in self._storage.arrays]


class Values(Part):
    """A variable."""

    def __init__(self, variable: tf.Variable) -> None:
        self._variable = variable
        self._scalar = variable.shape.rank == 0
        self._dtype = np.dtype(variable.dtype.as_numpy_dtype)
        shape = [1] if self._scalar else variable.shape.as_list()
        self._shape = shape[1:]
        self._row = math.prod(self._shape) * self._dtype.itemsize
        self.unit = max(self._row, 1)
        super().__init__(
            f"a variable {variable.dtype.name}{variable.shape.as_list()}",
            shape[0] * self._row,
            max(_PIECE_BYTES // max(self._row, 1), 1) * self._row,
        )

    def pieces(self, k: int) -> list[np.ndarray]:
        """Returns a segment as arrays of bytes."""
        variable, part = self._variable, self._part(k)
        value = variable.numpy() if self._scalar else variable[part].numpy()
        return [_bytes_of(np.ascontiguousarray(value))]

    def place(self, k: int) -> list[np.ndarray]:
        """Returns where the bytes of a segment go."""
        part = self._part(k)
        rows = min(part.stop, self.size // self._row) - part.start
        return [np.empty(rows * self._row, np.uint8)]

    def placed(self, k: int, pieces: list[np.ndarray]) -> None:
        """Takes note of what was written to `place`."""
        value = pieces[0].view(self._dtype).reshape([-1, *self._shape])
        if self._scalar:
            self._variable.assign(value[0])
        else:
            self._variable[self._part(k)].assign(value)

    def _part(self, k: int) -> slice:
        rows = self.step // self._row
        return slice(k * rows, (k + 1) * rows)


class State(Part):
    """What a `PythonState` says of itself; of a large one by its method `pieces`."""

    def __init__(self, state: tf.train.experimental.PythonState) -> None:
        self._state: Any = state
        self._data: list[np.ndarray] = []
        name = type(state).__name__.strip("_")
        super().__init__(getattr(state, "contents", name), 0, _PIECE_BYTES)

    def freeze(self) -> None:
        """Gets ready to be read."""
        if hasattr(self._state, "pieces"):
            data = self._state.pieces()
        else:
            text = tf.compat.as_bytes(self._state.serialize())
            data = [np.frombuffer(text, np.uint8)]
        self._data = [_bytes_of(piece) for piece in data]
        self.size = sum(piece.size for piece in self._data)

    def pieces(self, k: int) -> list[np.ndarray]:
        """Returns a segment as arrays of bytes, one behind the other."""
        found, start, stop = [], k * self.step, (k + 1) * self.step
        for piece in self._data:
            found.append(piece[max(start, 0) : max(stop, 0)])
            start, stop = start - piece.size, stop - piece.size
        return found

    def takes(self, size: int, step: int, zeros: int) -> bool:  # noqa: ARG002
        """Whether so many bytes fit, in such segments, of which some are zeros."""
        return zeros * step <= _MOST_ZEROS

    def thaw(self, size: int, step: int) -> None:
        """Gets ready to be written, in segments of `step` bytes."""
        super().thaw(size, step)
        self._data = [np.zeros(size, np.uint8)]

    def place(self, k: int) -> list[np.ndarray]:
        """Returns where the bytes of a segment go."""
        return self.pieces(k)

    def finish(self) -> None:
        """Takes over what was written."""
        data, self._data = self._data, []
        self._state.deserialize(data[0].tobytes())


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
    search = _Search()
    for name, value in objects.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(
                f"`{where}`: `objects` expected names without a slash; got {name!r}; "
                "rename it"
            )
        known = sum(len(part.paths) for part in search.parts.values())
        if isinstance(value, tf.Module):
            search.visit(name, value, contextlib.nullcontext())
        if known == sum(len(part.paths) for part in search.parts.values()):
            raise TypeError(
                f"`{where}`: `objects` expected what keeps rows or states of "
                f"tfrl.replay; got {type(value).__name__} for {name!r}; leave it out"
            )
    return list(search.parts.values()), list(search.locks.values())


class _Search:
    """Walks through objects and what they are made of."""

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}
        self.locks: dict[int, Any] = {}
        self._above: set[int] = set()

    def visit(self, path: str, value: Any, lock: Any) -> None:
        """Notes what an object consists of, which is changed under a lock."""
        if isinstance(value, tf.Module):
            lock = getattr(value, "_lock", None) or lock
        self.locks[id(lock)] = lock
        for kind, part_of in _KINDS:
            if isinstance(value, kind):
                if id(value) not in self.parts:
                    self.parts[id(value)] = part_of(value)
                    self.parts[id(value)].lock = lock
                self.parts[id(value)].paths.append(path)
                return
        if id(value) in self._above:
            return
        self._above.add(id(value))
        for name, child in tf.train.TrackableView.children(value).items():
            self.visit(f"{path}/{name}", child, lock)
        self._above.remove(id(value))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


_KINDS: tuple[tuple[type, Callable[[Any], Part]], ...] = (
    (numpy_storage.NumpyStorage, Rows),
    (tf.train.experimental.PythonState, State),
    (tf.Variable, Values),
)
