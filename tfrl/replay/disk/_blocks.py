"""Where the array of one leaf of a storage lives: memory, a file, shared memory.

Every array begins at a multiple of `ALIGNMENT` bytes, so that TensorFlow can look at
the same memory.
"""

import contextlib
import errno
import hashlib
import json
import math
import mmap
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from tfrl.core import durable, file_locks, regular_files, shapes
from tfrl.replay import _row_layout
from tfrl.replay.disk import _changes

Opener = Callable[[_row_layout.RowLayout, Any], "Memory"]

ALIGNMENT = 64

_HEADER = "storage.json"
_CHANGES = "changes.bin"
_DIGESTS = "digests.json"
_FORMAT = 1
_SHARED = pathlib.Path("/dev/shm")


class MemoryBlock:
    """An array in the memory of this process, gone with it.

    Attributes:
        lasting: whether `array` finds what the last one held.
    """

    lasting = False

    def __init__(self, leaf: shapes.ShapeDtype, capacity: int) -> None:
        self._shape, self._dtype = (capacity, *leaf.shape), leaf.dtype
        self._size = math.prod(self._shape) * leaf.dtype.itemsize

    def exists(self) -> bool:
        """Whether there is an array already, made earlier or elsewhere."""
        return False

    def array(self) -> np.ndarray:
        """Returns the array, zeros if it is made by this call."""
        memory = np.zeros(self._size + ALIGNMENT, np.uint8)
        return self._view(memory, -memory.ctypes.data % ALIGNMENT)

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""

    def _view(self, memory: Any, offset: int) -> np.ndarray:
        return np.ndarray(self._shape, self._dtype, memory, offset)


class FileBlock(MemoryBlock):
    """An array that is a file; processes that open it share it."""

    lasting = True

    def __init__(
        self, leaf: shapes.ShapeDtype, capacity: int, path: pathlib.Path
    ) -> None:
        super().__init__(leaf, capacity)
        self._path = path
        self._mapping: mmap.mmap | None = None

    def exists(self) -> bool:
        """Whether there is an array already, made earlier or elsewhere."""
        # An empty file is what an attempt left for which there was no room.
        return self._path.exists() and self._path.stat().st_size > 0

    def array(self) -> np.ndarray:
        """Returns the array, zeros if it is made by this call."""
        if not self._size:
            return np.zeros(self._shape, self._dtype)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        file = os.open(self._path, flags, 0o644)
        try:
            self._complete(file)
            self._mapping = mmap.mmap(file, self._size)
        finally:
            os.close(file)
        return self._view(self._mapping, 0)

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""
        if self._mapping is not None:
            self._mapping.flush()

    def _complete(self, file: int) -> None:
        file_locks.lock_file(file)  # against a process in the midst of this
        try:
            size = os.fstat(file).st_size
            if not self._path.is_file():
                raise ValueError(
                    f"`NumpyStorage`: `path` expected files of rows; got {self._path}, "
                    "which is none; remove it"
                )
            if size == 0:
                _reserve(file, self._size, self._path)
                durable.flush_to_disk(self._path, self._path.parent)
            elif size != self._size:
                raise ValueError(
                    f"`NumpyStorage`: `path` expected {self._size} bytes in "
                    f"{self._path}; got {size}; restore the file from a copy"
                )
        finally:
            # Closing would not do: a mapping keeps a copy of the descriptor.
            file_locks.unlock_file(file)


class SegmentBlock(MemoryBlock):
    """An array in a piece of shared memory."""

    lasting = True

    def __init__(
        self, leaf: shapes.ShapeDtype, capacity: int, mapping: mmap.mmap, offset: int
    ) -> None:
        super().__init__(leaf, capacity)
        self._mapping, self._offset = mapping, offset

    def exists(self) -> bool:
        """Whether there is an array already, made earlier or elsewhere."""
        return True

    def array(self) -> np.ndarray:
        """Returns the array, zeros if it is made by this call."""
        if not self._size:
            return np.zeros(self._shape, self._dtype)
        return self._view(self._mapping, self._offset)


class Memory:
    """The blocks of a storage in the memory of this process.

    Attributes:
        blocks: one for each leaf.
        changes: what was written to them.
    """

    def __init__(self, layout: _row_layout.RowLayout) -> None:
        self.blocks = [MemoryBlock(leaf, layout.capacity) for leaf in layout.leaves]
        segments = _changes.Segments(layout)
        block = MemoryBlock(*segments.memory)
        self.changes = _changes.Changes(segments, block, fresh=True)

    def others_open(self) -> tuple[Opener, Any]:
        """Returns class and place with which another process opens the same blocks."""
        raise TypeError(
            "`NumpyStorage`: expected shared=True or path= to be pickled; got rows in "
            "the memory of this process; make it so, or use tf.train.Checkpoint"
        )

    def seal(self) -> None:
        """Writes down the digests of the files."""
        raise ValueError(
            "`NumpyStorage.seal`: expected a storage with path=; got rows in memory, "
            "which no digest outlives; use `tfrl.replay.save`"
        )

    def verify(self) -> None:
        """Raises unless the files are those of which the digests are written down."""
        self.seal()

    def release(self) -> None:
        """Gives up what this process alone would give up."""


class Folder(Memory):
    """The blocks of a storage in a folder of files, and the header that names them."""

    def __init__(self, layout: _row_layout.RowLayout, path: durable.Path) -> None:
        self._path = pathlib.Path(path).absolute()
        self._path.mkdir(parents=True, exist_ok=True)
        _check_header(self._path, layout.contents)
        self.blocks = [
            FileBlock(leaf, layout.capacity, self._path / f"leaf-{k}.bin")
            for k, leaf in enumerate(layout.leaves)
        ]
        segments = _changes.Segments(layout)
        block = FileBlock(*segments.memory, self._path / _CHANGES)
        self.changes = _changes.Changes(segments, block, fresh=False)

    def others_open(self) -> tuple[Opener, Any]:
        """Returns class and place with which another process opens the same blocks."""
        return Folder, self._path

    def seal(self) -> None:
        """Writes down the digests of the files."""
        body = {"format": _FORMAT, "files": self._found()}
        durable.replace_file(self._path / _DIGESTS, durable.sealed(body))

    def verify(self) -> None:
        """Raises unless the files are those of which the digests are written down."""
        where = "`NumpyStorage.verify`: `path` expected"
        try:
            data = regular_files.read_file(self._path / _DIGESTS)
            body = durable.unsealed(data, {"format": int, "files": {str: str}})
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{where} what `seal` wrote down; got none in {self._path} "
                f"({error}); seal it while it is known to be right"
            ) from error
        found = self._found()
        for name in sorted({*found, *body["files"]}):
            if found.get(name) != body["files"].get(name):
                raise ValueError(
                    f"{where} files as they were sealed; got {self._path / name}, "
                    "which is damaged or was written to since; restore it from a copy"
                )

    def _found(self) -> dict[str, str]:
        digests = {}
        for path in sorted(self._path.glob("leaf-*.bin")):
            with regular_files.open_file(path) as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests


class Segment(Memory):
    """The blocks of a storage in one segment of shared memory.

    Args:
        layout: layout of the storage.
        name: name of an existing segment; None makes one.
    """

    def __init__(self, layout: _row_layout.RowLayout, name: str | None = None) -> None:
        page, end = mmap.ALLOCATIONGRANULARITY, 0
        segments = _changes.Segments(layout)
        arrays = [(leaf, layout.capacity) for leaf in layout.leaves]
        offsets = []
        for leaf, count in [*arrays, segments.memory]:
            offsets.append(end)
            size = count * math.prod(leaf.shape) * leaf.dtype.itemsize
            end += -(-size // page) * page
        size = max(end, page)
        if not _SHARED.is_dir():
            raise ValueError(
                f"`NumpyStorage`: `shared` expected shared memory in {_SHARED}; got a "
                "system without; pass path= to share a file"
            )
        self._owned, self._owner = None, os.getpid()
        if name is None:
            # The standard library's object is made for its name alone: its resource
            # tracker removes the segment should this process be killed.
            name = f"tfrl-{os.getpid()}-{secrets.token_hex(4)}"
            _check_space(_SHARED, size)
            self._owned = shared_memory.SharedMemory(name, create=True, size=size)
            self._owned.close()
        self._name = name
        try:
            mapping = _mapped_segment(name, size, reserve=self._owned is not None)
        except BaseException:
            self.release()
            raise
        places = zip([*arrays, segments.memory], offsets, strict=True)
        blocks = [SegmentBlock(*array, mapping, offset) for array, offset in places]
        self.blocks = [*blocks[:-1]]
        fresh = self._owned is not None
        self.changes = _changes.Changes(segments, blocks[-1], fresh)

    def others_open(self) -> tuple[Opener, Any]:
        """Returns class and place with which another process opens the same blocks."""
        return Segment, self._name

    def release(self) -> None:
        """Removes the segment's name, once, in the process that made it."""
        owned, self._owned = self._owned, None
        if owned is not None and os.getpid() == self._owner:
            with contextlib.suppress(FileNotFoundError):
                owned.unlink()


def _mapped_segment(name: str, size: int, reserve: bool) -> mmap.mmap:
    # Opened as the file that it is: the standard library would have every process
    # that opens the segment remove it on exit (until Python 3.13).
    path = _SHARED / name
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "`NumpyStorage`: expected the shared rows to exist; got them removed; open "
            "them while the process that made them keeps its storage",
            str(path),
        ) from None
    try:
        if reserve:
            _reserve(file, size, path)
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _reserve(file: int, size: int, path: pathlib.Path) -> None:
    """Makes sure that writing to the memory of a file cannot fail: it would kill."""
    _check_space(path, size)
    if hasattr(os, "posix_fallocate"):
        before = os.fstat(file).st_size
        try:
            os.posix_fallocate(file, 0, size)
        except OSError:
            os.ftruncate(file, before)
            raise
    else:
        os.ftruncate(file, size)


def _check_space(path: pathlib.Path, size: int) -> None:
    free = shutil.disk_usage(path).free
    if size > free:
        raise OSError(
            errno.ENOSPC,
            f"`NumpyStorage`: `capacity` expected to fit into the {free} bytes that "
            f"are free; got {size} bytes; make room or lower the capacity",
            str(path),
        )


def _check_header(folder: pathlib.Path, contents: str) -> None:
    """Raises unless the folder is a storage of `contents`, or empty: it becomes one."""
    expected = {"format": _FORMAT, "contents": contents}
    file = folder / _HEADER
    if not file.exists():
        others = [entry.name for entry in folder.iterdir() if entry.name[0] != "."]
        if others:
            raise ValueError(
                "`NumpyStorage`: `path` expected a storage or an empty folder; got "
                f"{folder} with {sorted(others)[:3]}; choose another"
            )
        durable.replace_file(file, json.dumps(expected).encode())
        durable.flush_to_disk(folder.parent)
        return
    try:
        header = json.loads(regular_files.read_file(file))
    except (OSError, RecursionError, ValueError):
        header = None
    if header != expected:
        got = header.get("contents") if isinstance(header, dict) else None
        same = " in another format" if got == contents else ""
        raise ValueError(
            f"`NumpyStorage`: `path` expected to hold {contents}; got {folder} of "
            f"{got or 'damaged files'}{same}; open it as what it is or choose another"
        )
