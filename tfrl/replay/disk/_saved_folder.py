"""The folder that objects are saved to: segments, and a manifest that names them.

    manifest.json             what is saved, and the digest of every segment
    00000003-000017.segment   bytes that never change, written by the third save

A segment of zeros has no file. As segments never change, folders can share them. The
manifest is replaced in one step when everything that it names is on the disk; only then
files that it does not name are removed.
"""

import contextlib
import dataclasses
import errno
import hashlib
import importlib
import io
import itertools
import os
import pathlib
import queue
import re
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np

from tfrl.core import durable, file_locks, regular_files

_FORMAT = 1
_MANIFEST = "manifest.json"
_SEGMENT_LIKE = (None, [str, int, str])
_LIKE = {
    "key": str,
    "generation": int,
    "parts": [[[str], str, int, int, [_SEGMENT_LIKE]]],
}
_NAME = re.compile(r"\d{8,}-\d{6,}\.segment")
# All that a save takes beside what is saved, unless a single row is larger.
_BUFFER_BYTES = 1 << 25
_PAGE_BYTES = 1 << 20
# Who writes past the cache writes blocks, from memory that begins with a block.
_DIRECT = getattr(os, "O_DIRECT", 0)
_BLOCK_BYTES = 1 << 12
_WORKERS = 3


class Segment(NamedTuple):
    """A file: its name, its number of bytes and their digest."""

    file: str
    size: int
    digest: str


class Part(NamedTuple):
    """Bytes that belong together.

    Attributes:
        paths: the ways in which they were reached from the objects that were saved.
        contents: what they are, as a line of text.
        size: how many bytes there are.
        step: how many of them a segment has; the last one may have fewer.
        segments: the segments, None for those that are zeros.
    """

    paths: list[str]
    contents: str
    size: int
    step: int
    segments: list[Segment | None]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is saved.

    Attributes:
        key: identifies it among all that was ever saved.
        generation: how many times the folder was saved to.
        parts: all there is.
    """

    key: str
    generation: int
    parts: list[Part]

    def files(self) -> dict[str, Segment]:
        """Returns the segments that have a file, by its name."""
        segments = [segment for part in self.parts for segment in part.segments]
        return {segment.file: segment for segment in segments if segment is not None}


def read_manifest(where: str, folder: pathlib.Path) -> Manifest | None:
    """Returns what is saved in a folder, None if nothing is."""
    try:
        data = regular_files.read_file(folder / _MANIFEST)
    except FileNotFoundError:
        return None
    path = folder / _MANIFEST
    try:
        body = durable.unsealed(data, {"format": int})
        durable.unsealed(data, _LIKE if body["format"] == _FORMAT else None)
    except ValueError as error:
        raise damage(where, path, "is not as it was written") from error
    if body["format"] != _FORMAT:
        raise ValueError(
            f"`{where}`: `folder` expected files of format {_FORMAT}; got format "
            f"{body['format']} in {folder}; use the tfrl that wrote it"
        )
    parts = []
    for paths, contents, size, step, segments in body["parts"]:
        found = [None if segment is None else Segment(*segment) for segment in segments]
        parts.append(Part(paths, contents, size, step, found))
        names = [segment.file for segment in found if segment is not None]
        if not all(map(_NAME.fullmatch, names)):
            raise damage(where, path, "names other files")
    return Manifest(body["key"], body["generation"], parts)


def is_whole(part: Part) -> bool:
    """Whether the segments are those of the bytes."""
    if not part.step or len(part.segments) != -(-part.size // part.step):
        return False
    for k, segment in enumerate(part.segments):
        size = min(part.step, part.size - k * part.step)
        if segment is not None and segment.size != size:
            return False
    return bool(part.paths)


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
                raise damage("save", base / name, "has another size")
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


def read_segment(
    where: str,
    folder: pathlib.Path,
    segment: Segment,
    targets: list[np.ndarray] | None = None,
) -> None:
    """Raises unless a file is as it was written; reads it into arrays of bytes."""
    path, digest = folder / segment.file, hashlib.sha256()
    try:
        with regular_files.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != segment.size:
                trouble = f"has {size} bytes instead of {segment.size}"
                raise damage(where, path, trouble)
            for target in _pages(size) if targets is None else targets:
                rest = target.data
                while rest:
                    count = file.readinto(rest)
                    if not count:
                        raise damage(where, path, "ends too early")
                    digest.update(rest[:count])
                    rest = rest[count:]
    except FileNotFoundError:
        raise damage(where, path, "is missing") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise damage(where, path, "is no file") from error
    if digest.hexdigest() != segment.digest:
        raise damage(where, path, "is not as it was written")


def _pages(size: int) -> Iterator[np.ndarray]:
    """Returns the same memory again and again, as much as is needed to read a file."""
    page = np.empty(min(size, _PAGE_BYTES), np.uint8)
    for start in range(0, size, _PAGE_BYTES):
        yield page[: size - start]


class DamageError(ValueError):
    """Says that a file is not as it was written."""


def damage(where: str, path: pathlib.Path, trouble: str) -> DamageError:
    """Returns an error that says what is wrong with a file."""
    return DamageError(
        f"`{where}`: `folder` expected files as they were written; got {path}, which "
        f"{trouble}; restore it from a copy, or use another folder"
    )


class Writer:
    """Adds segments to a folder, some of them at the same time.

    As a context, it removes what it wrote if the block raises.

    Attributes:
        key: that of the manifest to come.
        written: number of bytes of the segments written so far.

    Args:
        folder: the folder, which nobody else writes to meanwhile.
        old: what is saved there.
        step: how many bytes a segment has at most.
    """

    def __init__(self, folder: pathlib.Path, old: Manifest | None, step: int) -> None:
        self._folder, self._step = folder, step
        self._generation = 1 if old is None else old.generation + 1
        self.key, self.written = secrets.token_hex(16), 0
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._numbers, self._names = itertools.count(), list[str]()
        self._pool = ThreadPoolExecutor(_WORKERS, "tfrl-save")
        self._buffers: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        for _ in range(min(max(_BUFFER_BYTES // step, 1), _WORKERS + 1)):
            self._buffers.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            return
        # The last thing that can fail is to wait for the disk after the manifest has
        # been replaced: then nothing is removed, as either one may survive.
        manifest = read_manifest("save", self._folder)
        if manifest is None or manifest.key != self.key:
            for name in self._names:
                (self._folder / name).unlink(missing_ok=True)

    def buffer(self) -> np.ndarray:
        """Waits for memory for a segment, to be passed to `write`."""
        buffer = self._buffers.get()
        if self._error is not None:
            self._buffers.put(buffer)
            raise self._error
        if buffer is not None:
            return buffer
        memory = np.empty(self._step + _BLOCK_BYTES, np.uint8)
        return memory[-memory.ctypes.data % _BLOCK_BYTES :][: self._step]

    def write(
        self, buffer: np.ndarray, size: int, known: Segment | None
    ) -> Future[Segment | None]:
        """Begins to write the first bytes of a buffer, unless `known` has the same."""
        return self._pool.submit(self._write, buffer, size, known)

    def finish(self, parts: list[Part]) -> Manifest:
        """Makes everything written durable, and then what the folder holds."""
        durable.flush_to_disk(self._folder)
        manifest = Manifest(self.key, self._generation, parts)
        body = {"format": _FORMAT, **dataclasses.asdict(manifest)}
        durable.replace_file(self._folder / _MANIFEST, durable.sealed(body))
        return manifest

    def _write(
        self, buffer: np.ndarray, size: int, known: Segment | None
    ) -> Segment | None:
        try:
            if not buffer[:size].any():
                return None
            data = buffer[:size].data
            digest = hashlib.sha256(data).hexdigest()
            if known is not None and (known.size, known.digest) == (size, digest):
                return known
            name = f"{self._generation:08d}-{next(self._numbers):06d}.segment"
            path = self._folder / name
            with open(path, "xb", buffering=0) as file:
                self._names.append(name)
                _write_all(file, data)
            durable.flush_to_disk(path)
            with self._lock:
                self.written += size
            return Segment(name, size, digest)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._buffers.put(buffer)


def _write_all(file: io.FileIO, data: memoryview) -> None:
    """Writes bytes, most of them past the cache of the operating system.

    That is several times faster, and leaves the cache to others.
    """
    whole = len(data) - len(data) % _BLOCK_BYTES
    for rest, direct in ((data[:whole], True), (data[whole:], False)):
        while rest:
            _set_direct(file, direct)
            try:
                rest = rest[file.write(rest) :]
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
            direct = (
                False  # what is left now is no whole block, or cannot be written so
            )


def _set_direct(file: io.FileIO, direct: bool) -> None:
    """Sets whether writing goes past the cache, where the disk can do that."""
    if not (_DIRECT and file_locks.has_posix_files()):
        return
    fcntl = importlib.import_module("fcntl")
    with contextlib.suppress(OSError):
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        flags = flags | _DIRECT if direct else flags & ~_DIRECT
        fcntl.fcntl(file, fcntl.F_SETFL, flags)


def results(segments: list[Any]) -> list[Segment | None]:
    """Waits for those segments that are being written."""
    return [
        segment.result() if isinstance(segment, Future) else segment
        for segment in segments
    ]
