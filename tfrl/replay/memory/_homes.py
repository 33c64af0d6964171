"""Where the arrays of a storage live, and which of their rows were written.

They live in memory, in files or in shared memory. A home makes one array for each leaf,
and at last one of bytes for `Changes`, when they are asked for. What is reserved for
them is there, so that writing to them cannot fail.

Writers set a flag per row, which is all they have time for. Whoever saves gathers the
flags into a version per segment, a range of rows: one that has the version it was saved
with has not changed. Both live where the rows live, so that processes that share the
rows share them too.
"""

import contextlib
import errno
import json
import math
import mmap
import os
import pathlib
import secrets
import shutil
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from tfrl._internal import durable
from tfrl.replay.memory import _row_layout

_HEADER = "storage.json"
_CHANGES = "changes.bin"
_FORMAT = 1
_SHARED = pathlib.Path("/dev/shm")
_SEGMENT_BYTES = 1 << 23
_WORD = 8
# The version of segments of which somebody has views, and so writes without telling.
_EXPOSED = -1
# From here on memory is asked for in huge pages.
_LARGE_BYTES = 1 << 22
# How many folders a storage is saved to in turns without reading all of it.
_REMEMBERED = 8


class Segments:
    """How rows are divided into segments of a few MiB, or of a single larger row.

    Attributes:
        row_bytes: how many bytes a row has.
        rows: how many rows a segment has; the last one may have fewer.
        count: how many segments there are.
        memory_bytes: how many bytes `Changes` needs.
    """

    def __init__(self, layout: _row_layout.RowLayout) -> None:
        sizes = [math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in layout.leaves]
        self.row_bytes = sum(sizes)
        rows = max(_SEGMENT_BYTES // max(self.row_bytes, 1), 1)
        self.rows = min(rows, layout.capacity)
        self.count = -(-layout.capacity // self.rows)
        self.memory_bytes = _WORD * self.count + layout.capacity


class Memory:
    """Arrays in the memory of this process, gone with it.

    Attributes:
        layout: which rows there are.
        segments: how they are divided.
        specs: shape and dtype of each array.
        sizes: how many bytes each takes.
        lasting: whether an array that is made again holds what the last one held.
        fresh: whether all rows are zeros now.
    """

    lasting, fresh = False, True

    def __init__(self, layout: _row_layout.RowLayout) -> None:
        self.layout, self.segments = layout, Segments(layout)
        self.specs: list[tuple[tuple[int, ...], np.dtype]] = [
            ((layout.capacity, *leaf.shape), leaf.dtype) for leaf in layout.leaves
        ]
        self.specs.append(((self.segments.memory_bytes,), np.dtype(np.uint8)))
        self.sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in self.specs]

    def exists(self, k: int) -> bool:  # noqa: ARG002
        """Whether there is an array already, made earlier or elsewhere."""
        return False

    def array(self, k: int) -> np.ndarray:
        """Returns an array, zeros if it is made by this call."""
        if self.sizes[k] < _LARGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
            return np.zeros(*self.specs[k])
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        array = np.ndarray(*self.specs[k], mmap.mmap(-1, self.sizes[k], flags))
        prefer_huge_pages([array], True)
        return array

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""

    def __reduce__(self) -> tuple:
        raise TypeError(
            "`NumpyStorage`: expected shared=True or path= to be pickled; got rows in "
            "the memory of this process; make it so, or use tf.train.Checkpoint"
        )

    def release(self) -> None:
        """Gives up what this process alone would give up."""


class Folder(Memory):
    """Arrays in a folder of files, and a header that names them."""

    lasting, fresh = True, False

    def __init__(self, layout: _row_layout.RowLayout, path: durable.Path) -> None:
        super().__init__(layout)
        self._path = pathlib.Path(path).absolute()
        self._path.mkdir(parents=True, exist_ok=True)
        _check_header(self._path, layout.contents)
        names = [*(f"leaf-{k}.bin" for k in range(len(layout.leaves))), _CHANGES]
        self._files = [self._path / name for name in names]
        self._mappings: list[mmap.mmap] = []

    def exists(self, k: int) -> bool:
        """Whether there is an array already, made earlier or elsewhere."""
        # An empty file is what an attempt left for which there was no room.
        path = self._files[k]
        return path.exists() and path.stat().st_size > 0

    def array(self, k: int) -> np.ndarray:
        """Returns an array, zeros if it is made by this call."""
        path, size = self._files[k], self.sizes[k]
        if not size:
            return super().array(k)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        file = os.open(path, flags, 0o644)
        try:
            _complete(file, path, size)
            mapping = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._mappings.append(mapping)
        return np.ndarray(*self.specs[k], mapping)

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""
        for mapping in self._mappings:
            mapping.flush()

    def __reduce__(self) -> tuple:
        return Folder, (self.layout, self._path)


class Segment(Memory):
    """Arrays in one segment of shared memory.

    Args:
        layout: layout of the storage.
        name: name of an existing segment; None makes one.
    """

    lasting = True

    def __init__(self, layout: _row_layout.RowLayout, name: str | None = None) -> None:
        super().__init__(layout)
        page, end = mmap.ALLOCATIONGRANULARITY, 0
        self._offsets = []
        for size in self.sizes:
            self._offsets.append(end)
            end += -(-size // page) * page
        if not _SHARED.is_dir():
            raise ValueError(
                f"`NumpyStorage`: `shared` expected shared memory in {_SHARED}; got a "
                "system without; pass path= to share a file"
            )
        self._owned, self._owner = None, os.getpid()
        self.fresh = name is None
        if name is None:
            # The standard library's object is made for its name alone: its resource
            # tracker removes the segment should this process be killed.
            name = f"tfrl-{os.getpid()}-{secrets.token_hex(4)}"
            _check_space(_SHARED, end)
            self._owned = shared_memory.SharedMemory(name, create=True, size=end)
            self._owned.close()
        self._name = name
        try:
            self._mapping = _mapped_segment(_SHARED / name, end, reserve=self.fresh)
        except BaseException:
            self.release()
            raise

    def exists(self, k: int) -> bool:  # noqa: ARG002
        """Whether there is an array already, made earlier or elsewhere."""
        return True

    def array(self, k: int) -> np.ndarray:
        """Returns an array, zeros if it is made by this call."""
        if not self.sizes[k]:
            return super().array(k)
        return np.ndarray(*self.specs[k], self._mapping, self._offsets[k])

    def __reduce__(self) -> tuple:
        return Segment, (self.layout, self._name)

    def release(self) -> None:
        """Removes the segment's name, once, in the process that made it."""
        owned, self._owned = self._owned, None
        if owned is not None and os.getpid() == self._owner:
            with contextlib.suppress(FileNotFoundError):
                owned.unlink()


class Changes:
    """What was written to the rows of a storage.

    Attributes:
        segments: how the rows are divided.

    Args:
        home: where the rows live, and this too, see `_homes`.
    """

    def __init__(self, home: Any) -> None:
        self.segments, self._home = home.segments, home
        self._flags: np.ndarray | None = None
        self._versions = np.zeros(0, np.int64)
        # The key of nothing saved, which is as good as zeros.
        self._saved: dict[str, Any] = {"": 0} if home.fresh else {}

    def touch(self, rows: Any) -> None:
        """Notes that rows, an int, a slice or an array of ints, are written."""
        flags = self._flags
        (self.all_flags() if flags is None else flags)[rows] = True

    def expose(self, rows: int | slice) -> None:
        """Notes that somebody has views of rows, and may write at any time."""
        part = rows if isinstance(rows, slice) else slice(rows, rows + 1)
        touched = range(len(self.all_flags()))[part]
        if touched:
            low, high = sorted((touched[0], touched[-1]))
            length = self.segments.rows
            self._versions[low // length : high // length + 1] = _EXPOSED

    def gather(self) -> np.ndarray:
        """Returns the versions of all segments now, a copy."""
        if self._flags is None and not self._home.exists(-1):
            return np.zeros(self.segments.count, np.int64)
        flags, length = self.all_flags(), self.segments.rows
        for k in range(self.segments.count):
            part = flags[k * length : (k + 1) * length]
            if part.any():
                part[:] = False
                self._versions[k] += self._versions[k] != _EXPOSED
        return self._versions.copy()

    def saved(self, key: str) -> Any:
        """Returns the versions that were saved under a key, None if that is unknown."""
        return self._saved.get(key)

    def remember(self, key: str, versions: np.ndarray) -> None:
        """Notes under which key segments of some versions are saved."""
        self._saved.pop(key, None)
        self._saved[key] = versions
        for oldest in list(self._saved)[:-_REMEMBERED]:
            del self._saved[oldest]

    def all_flags(self) -> np.ndarray:
        """Returns the flag of each row, for callers that set them themselves."""
        if self._flags is None:
            memory, size = self._home.array(-1), _WORD * self.segments.count
            self._versions = memory[:size].view(np.int64)
            self._flags = memory[size:].view(bool)
        return self._flags


def unchanged(versions: np.ndarray, saved: Any) -> np.ndarray:
    """Returns which segments have the version they were saved with, and no views.

    Others may be unchanged too, but that is not known.
    """
    if saved is None:
        return np.zeros(versions.shape, bool)
    return (versions == saved) & (versions != _EXPOSED)


def prefer_huge_pages(arrays: list[np.ndarray], huge: bool) -> None:
    """Asks for memory in huge pages, or not, where arrays are touched from now on.

    Rows are drawn faster from huge ones. But where a virtual machine gets its memory
    from a host, touching them first takes several times as long, longer than reading
    the rows from a disk. Who reads asks for small ones before, and for huge ones after:
    then the system makes them in the background.
    """
    for array in arrays:
        if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_HUGEPAGE"):
            advice = mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE
            with contextlib.suppress(OSError):  # of systems without huge pages
                array.base.madvise(advice)


def opened(kind: Any, *parts: Any) -> Any:
    """Returns an object of parts that were pickled, by its method `_furnish`."""
    made = kind.__new__(kind)
    made._furnish(*parts)
    return made


def _mapped_segment(path: pathlib.Path, size: int, reserve: bool) -> mmap.mmap:
    # Opened as the file that it is: the standard library would have every process
    # that opens the segment remove it on exit (until Python 3.13).
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


def _complete(file: int, path: pathlib.Path, size: int) -> None:
    """Makes an open file as large as it has to be, if it is new; else checks that."""
    durable.lock_file(file)  # against a process in the midst of this
    try:
        found = os.fstat(file).st_size
        if not path.is_file():
            raise ValueError(
                f"`NumpyStorage`: `path` expected files of rows; got {path}, which is "
                "none; remove it"
            )
        if found == 0:
            _reserve(file, size, path)
            durable.flush_to_disk(path, path.parent)
        elif found != size:
            raise ValueError(
                f"`NumpyStorage`: `path` expected {size} bytes in {path}; got {found}; "
                "restore the file from a copy"
            )
    finally:
        # Closing would not do: a mapping keeps a copy of the descriptor.
        durable.unlock_file(file)


def _reserve(file: int, size: int, path: pathlib.Path) -> None:
    """Makes sure that writing to the memory of a file cannot fail: it would kill."""
    _check_space(path, size)
    if not hasattr(os, "posix_fallocate"):
        os.ftruncate(file, size)
        return
    before = os.fstat(file).st_size
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        os.ftruncate(file, before)
        raise


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
        header = json.loads(durable.read_file(file))
    except (OSError, RecursionError, ValueError):
        header = None
    if header != expected:
        got = header.get("contents") if isinstance(header, dict) else None
        same = " in another format" if got == contents else ""
        raise ValueError(
            f"`NumpyStorage`: `path` expected to hold {contents}; got {folder} of "
            f"{got or 'damaged files'}{same}; open it as what it is or choose another"
        )
