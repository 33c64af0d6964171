"""What is saved of objects: parts of them in memory, and segments in a folder.

    manifest.json             what is saved, and the digest of every segment
    00000003-000017.segment   bytes that never change, written by the third save

A segment of zeros has no file. As segments never change, folders can share them. The
manifest is replaced in one step when everything that it names is on the disk; only then
files that it does not name are removed.

Parts are rows, variables and small states. They are found as `tf.train.Checkpoint`
finds them, and known by the same names: those of attributes, on the way from an object.
What is reached in several ways is one part with several paths.
"""

import contextlib
import dataclasses
import errno
import hashlib
import io
import itertools
import math
import os
import pathlib
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import durable, sealed_folder
from tfrl.replay.memory import _homes, numpy_storage

_FORMAT = 1
_MANIFEST = "manifest.json"
_SEGMENT_LIKE = (None, [str, int, str])
_LIKE = {
    "key": str,
    "generation": int,
    "parts": [[[str], str, int, int, [_SEGMENT_LIKE]]],
}
_NAME = re.compile(r"\d{8,}-\d{6,}\.segment")
_PIECE_BYTES = 1 << 22
# Zeros of a state, which are on no disk; more than the priorities of any replay.
_MOST_ZEROS = 1 << 33

# Fills arrays of bytes, one after the other.
Filling: TypeAlias = Callable[[list[np.ndarray]], None]


class Segment(NamedTuple):
    """A file: its name, its number of bytes and their digest."""

    file: str
    size: int
    digest: str


class Saved(NamedTuple):
    """What is saved of a `Part`; segments that are zeros are None."""

    paths: list[str]
    contents: str
    size: int
    step: int
    segments: list[Segment | None]

    def is_whole(self) -> bool:
        """Whether the segments are those of the bytes."""
        if not self.paths or self.step <= 0 or self.size < 0:
            return False
        sizes = [min(self.step, self.size - k) for k in range(0, self.size, self.step)]
        return len(sizes) == len(self.segments) and all(
            segment is None or segment.size == size
            for segment, size in zip(self.segments, sizes, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is saved in a folder.

    Attributes:
        key: identifies it among all that was ever saved.
        generation: how many times the folder was saved to.
        parts: all there is.
    """

    key: str
    generation: int
    parts: list[Saved]

    def files(self) -> dict[str, Segment]:
        """Returns the segments that have a file, by its name."""
        segments = [segment for part in self.parts for segment in part.segments]
        return {segment.file: segment for segment in segments if segment is not None}

    def by_path(self) -> dict[str, Saved]:
        """Returns the parts by each of their paths."""
        return {path: part for part in self.parts for path in part.paths}


def read_manifest(where: str, folder: pathlib.Path) -> Manifest | None:
    """Returns what is saved in a folder, None if nothing is."""
    path = folder / _MANIFEST
    try:
        data = durable.read_file(path)
    except FileNotFoundError:
        return None
    try:
        body = sealed_folder.unsealed(data, {"format": int})
        sealed_folder.unsealed(data, _LIKE if body["format"] == _FORMAT else None)
    except ValueError as error:
        raise _damage(where, path, "is not as it was written") from error
    if body["format"] != _FORMAT:
        raise ValueError(
            f"`{where}`: `folder` expected files of format {_FORMAT}; got format "
            f"{body['format']} in {folder}; use the tfrl that wrote it"
        )
    parts = [
        Saved(paths, contents, size, step, [each and Segment(*each) for each in files])
        for paths, contents, size, step, files in body["parts"]
    ]
    manifest = Manifest(body["key"], body["generation"], parts)
    if not all(map(_NAME.fullmatch, manifest.files())):
        raise _damage(where, path, "names other files")
    return manifest


def link(base: pathlib.Path, folder: pathlib.Path) -> Manifest | None:
    """Makes the segments of one folder those of another, too, which has none.

    Returns the manifest of the first; None, and no segments, if that is not possible:
    for lack of one, of a segment, of links, or of a common disk.
    """
    try:
        manifest = read_manifest("save", base)
        segments = {} if manifest is None else manifest.files()
        for name, segment in segments.items():
            os.link(base / name, folder / name)
            if (folder / name).stat().st_size != segment.size:
                raise _damage("save", base / name, "has another size")
    except (OSError, ValueError):
        remove_others(folder, None)
        return None
    return manifest


def remove_others(folder: pathlib.Path, manifest: Manifest | None) -> None:
    """Removes the segments that a manifest does not name."""
    named = {} if manifest is None else manifest.files()
    for entry in folder.iterdir():
        if _NAME.fullmatch(entry.name) and entry.name not in named:
            entry.unlink()


def checksum(
    where: str, folder: pathlib.Path, segment: Segment, scratch: bytearray
) -> int:
    """Returns a checksum of a segment, after comparing its digest.

    Raises unless its bytes are as they were written. They are read into the scratch,
    which grows as it has to.
    """
    with _opened(where, folder, segment) as file:
        scratch.extend(bytes(max(segment.size - len(scratch), 0)))
        data = memoryview(scratch)[: segment.size]
        _read(file, data)
    if hashlib.sha256(data).hexdigest() != segment.digest:
        raise _damage(where, folder / segment.file, "is not as it was written")
    return zlib.crc32(data)


def fill(
    where: str,
    folder: pathlib.Path,
    segment: Segment,
    known: int,
    places: Sequence[np.ndarray],
) -> None:
    """Reads a segment into arrays of bytes that take as many together.

    Raises unless its checksum is the one known; the arrays may hold other bytes then.
    It takes a fraction of the time of the digest.
    """
    found = 0
    with _opened(where, folder, segment) as file:
        for place in places:
            _read(file, place)
            found = zlib.crc32(place, found)
    if found != known:
        raise _damage(where, folder / segment.file, "is not as it was read before")


def _read(file: io.FileIO, place: Any) -> None:
    """Reads into an array of bytes until it is full or the file ends."""
    while len(place) and (count := file.readinto(place)):
        place = place[count:]


@contextlib.contextmanager
def _opened(where: str, folder: pathlib.Path, segment: Segment) -> Iterator[io.FileIO]:
    """Opens the file of a segment; raises unless it is one, of its size."""
    path = folder / segment.file
    try:
        with durable.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != segment.size:
                trouble = f"has {size} bytes instead of {segment.size}"
                raise _damage(where, path, trouble)
            yield file
    except FileNotFoundError:
        raise _damage(where, path, "is missing") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise _damage(where, path, "is no file") from error


def _damage(where: str, path: pathlib.Path, trouble: str) -> sealed_folder.DamageError:
    return sealed_folder.DamageError(
        f"`{where}`: `folder` expected files as they were written; got {path}, which "
        f"{trouble}; restore it from a copy, or use another folder"
    )


class Writer:
    """Adds segments to a folder, which nobody else writes to meanwhile.

    As a context, it removes what it wrote if the block raises.

    Attributes:
        key: that of the manifest to come.

    Args:
        folder: the folder.
        old: what is saved there.
    """

    def __init__(self, folder: pathlib.Path, old: Manifest | None) -> None:
        self._folder = folder
        self._generation = 1 if old is None else old.generation + 1
        self.key = secrets.token_hex(16)
        self._numbers, self._sizes = itertools.count(), dict[str, int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        # The last thing that can fail is to wait for the disk after the manifest has
        # been replaced: then nothing is removed, as either one may survive.
        manifest = read_manifest("save", self._folder)
        if manifest is None or manifest.key != self.key:
            for name in self._sizes:
                (self._folder / name).unlink(missing_ok=True)

    @property
    def written(self) -> int:
        """Number of bytes of the segments written so far."""
        return sum(self._sizes.values())

    def write(self, data: bytes, known: Segment | None) -> Segment | None:
        """Writes a segment, unless it is zeros or `known` has the same bytes."""
        if not np.frombuffer(data, np.uint8).any():
            return None
        digest = hashlib.sha256(data).hexdigest()
        if known is not None and (known.size, known.digest) == (len(data), digest):
            return known
        name = f"{self._generation:08d}-{next(self._numbers):06d}.segment"
        path = self._folder / name
        with open(path, "xb") as file:
            self._sizes[name] = len(data)
            file.write(data)
        durable.flush_to_disk(path)
        return Segment(name, len(data), digest)

    def finish(self, parts: list[Saved]) -> Manifest:
        """Makes everything written durable, and then what the folder holds."""
        durable.flush_to_disk(self._folder)
        manifest = Manifest(self.key, self._generation, parts)
        body = {"format": _FORMAT, **dataclasses.asdict(manifest)}
        durable.replace_file(self._folder / _MANIFEST, sealed_folder.sealed(body))
        return manifest


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

    def saved(self) -> Saved:
        """Returns what is saved of it so far."""
        return Saved(self.paths, self.contents, self.size, self.step, self.segments)

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
