"""Queues of rows and versions of weights in memory that processes share, without locks.

Nothing here waits for a process that may have been killed, and nothing is left behind:
the memory has no name, it is gone with the last process that holds it.
"""

import math
import mmap
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence

import numpy as np

from tfrl._internal import process_events

_ALIGNMENT = 64  # a cache line
# Between looks at whether a queue is closed, for one who waits for an event.
_PATIENCE_SECONDS = 0.05
_order = threading.Lock()


def _fence() -> None:
    """A memory barrier: what was written before is seen before what is written next."""
    # Taking a lock and letting it go orders memory in one direction each.
    for _ in range(2):
        with _order:
            pass


def new_memory() -> int:
    """Makes memory that processes share and that has no name.

    Returns:
        A file descriptor of nothing yet, to be passed to a process that makes a
        `RowRing` on it. Close it when everyone has it; the memory lives on.

    Example:
        >>> fd = new_memory()
        >>> ring = RowRing([((), np.dtype("int64"))], slots=2, fd=fd)
        >>> os.close(fd)
        >>> ring.arrays[0].tolist()
        [0, 0]
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tfrl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _mapped(
    owner: object, layout: Sequence[tuple[tuple[int, ...], np.dtype]], fd: int | None
) -> tuple[int, list[np.ndarray]]:
    """A file descriptor, closed with its owner, and the arrays in its memory."""
    own = new_memory() if fd is None else os.dup(fd)
    weakref.finalize(owner, os.close, own)
    ends = [0]
    for shape, dtype in layout:
        size = math.prod(shape) * dtype.itemsize
        ends.append(ends[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
    if os.fstat(own).st_size < ends[-1]:
        os.ftruncate(own, ends[-1])
    memory = mmap.mmap(own, ends[-1])
    pairs = zip(layout, ends, strict=False)
    return own, [np.ndarray(shape, kind, memory, at) for (shape, kind), at in pairs]


class RowRing:
    """A queue of rows from one process to another, of a fixed number of slots.

        slot of row i = i mod slots        waiting rows = written - read

    One process writes, one reads. A row counts as written when it is complete, so that
    a process killed in the midst of one leaves none of it. Who finds no free slot
    waits. The memory is what `fd` stands for: pass that to the other process, which
    makes a ring of the same columns on it.

    Args:
        columns: shape and dtype of each array of a row.
        slots: how many rows fit, at least 1.
        fd: file descriptor of the memory; None makes new memory.
        released: set where the reader gives slots back, so that who waits for one has
            it at once; the same event on both sides. None to look again and again.

    Attributes:
        arrays: all slots `[slots, *shape]` of each column.
        fd: file descriptor of the memory, closed with the ring.

    Raises:
        ValueError: if `slots` is less than 1.

    Example:
        >>> writer = RowRing([((2,), np.dtype("float32"))], slots=4)
        >>> reader = RowRing([((2,), np.dtype("float32"))], slots=4, fd=writer.fd)
        >>> slot = writer.begin()
        >>> writer.arrays[0][slot] = [1.0, 2.0]
        >>> reader.waiting()
        (0, 0)
        >>> writer.commit()
        >>> first, count = reader.waiting()
        >>> reader.arrays[0][first : first + count].tolist()
        [[1.0, 2.0]]
        >>> reader.release(count)
    """

    def __init__(
        self,
        columns: Sequence[tuple[tuple[int, ...], np.dtype]],
        slots: int,
        fd: int | None = None,
        released: process_events.ProcessEvent | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(
                f"`RowRing`: `slots` expected an int >= 1; got {slots}; raise it"
            )
        # Each number on a cache line of its own.
        words = ((3, _ALIGNMENT // 8), np.dtype(np.int64))
        layout = [words, *(((slots, *shape), dtype) for shape, dtype in columns)]
        self.fd, (counts, *self.arrays) = _mapped(self, layout, fd)
        self._written, self._read, self._closed = counts
        self.slots, self._released = slots, released

    @property
    def closed(self) -> bool:
        """Whether the reader wants no more."""
        return bool(self._closed[0])

    def begin(self) -> int | None:
        """Waits for a free slot.

        Returns:
            Its index, to be filled by the only writer; None if the ring is closed.
        """
        written, pause = int(self._written[0]), 1e-4
        while not self.closed:
            if written - int(self._read[0]) < self.slots:
                _fence()
                return written % self.slots
            if self._released is not None:
                self._released.wait(_PATIENCE_SECONDS)
                continue
            time.sleep(pause)
            pause = min(2 * pause, 2e-3)
        return None

    def commit(self) -> None:
        """Hands the slot over to the reader."""
        _fence()
        self._written[0] += 1

    def waiting(self) -> tuple[int, int]:
        """Returns the first slot that waits to be read, and how many after another.

        Rows beyond the last slot are told by the next call.
        """
        read = int(self._read[0])
        first, count = read % self.slots, int(self._written[0]) - read
        _fence()
        return first, min(count, self.slots - first)

    def release(self, count: int) -> None:
        """Gives the oldest slots back to the writer.

        Args:
            count: how many were read.
        """
        _fence()
        self._read[0] += count
        self._wake()

    def close(self) -> None:
        """Lets the writer wait no more and write no more; what waits can be read."""
        self._closed[0] = 1
        self._wake()

    def _wake(self) -> None:
        """Lets the writer look again."""
        if self._released is not None:
            self._released.set()


class SharedArrays:
    """The newest version of a list of arrays, from one writer to many readers.

        version v lies in slot v mod 2

    Readers wait for nobody, and get a version as it was written or none: what they
    copied while the writer came round to the same slot is copied again.

    Args:
        arrays: what they look like; their values are version 0.
        fd: file descriptor of the memory; None makes new memory, and writes version 0.

    Attributes:
        fd: file descriptor of the memory, closed with this object.

    Example:
        >>> learner = SharedArrays([np.zeros(2), np.ones(1, np.int32)])
        >>> mine = [np.empty(2), np.empty(1, np.int32)]
        >>> actor = SharedArrays(mine, fd=learner.fd)
        >>> learner.write([np.array([3.0, 4.0]), np.array([5], np.int32)])
        1
        >>> actor.read(mine, known=0), mine
        (1, [array([3., 4.]), array([5], dtype=int32)])
    """

    def __init__(self, arrays: Sequence[np.ndarray], fd: int | None = None) -> None:
        one = [(array.shape, array.dtype) for array in arrays]
        words = ((2, _ALIGNMENT // 8), np.dtype(np.int64))
        self.fd, (counts, *both) = _mapped(self, [words, *one, *one], fd)
        self._begun, self._done = counts
        self._slots = both[: len(one)], both[len(one) :]
        if fd is None:
            self._fill(0, arrays)

    @property
    def version(self) -> int:
        """Number of the newest version."""
        return int(self._done[0])

    def write(self, arrays: Sequence[np.ndarray]) -> int:
        """Makes a new version; for one thread of one process.

        Args:
            arrays: of the same shapes and dtypes as ever.

        Returns:
            The number of the version.

        Raises:
            ValueError: if they are others.
        """
        given = [(array.shape, array.dtype) for array in arrays]
        known = [(array.shape, array.dtype) for array in self._slots[0]]
        if given != known:
            raise ValueError(
                f"`SharedArrays.write`: `arrays` expected {known}; got {given}; "
                "make new shared arrays for others"
            )
        version = self.version + 1
        self._begun[0] = version
        _fence()
        self._fill(version, arrays)
        _fence()
        self._done[0] = version
        return version

    def read(self, arrays: Sequence[np.ndarray], known: int) -> int:
        """Copies the newest version, unless it is known.

        Args:
            arrays: where to, overwritten in place.
            known: number of the version they hold; -1 for none.

        Returns:
            The number of the version they hold now.
        """
        while self.version != known:
            version = self.version
            _fence()
            for array, shared in zip(arrays, self._slots[version % 2], strict=True):
                np.copyto(array, shared)
            _fence()
            # The slot was written to no sooner than the version after next began.
            if int(self._begun[0]) <= version + 1:
                return version
        return known

    def _fill(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        for shared, array in zip(self._slots[version % 2], arrays, strict=True):
            np.copyto(shared, array)
