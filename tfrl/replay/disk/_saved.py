"""What is saved in a folder: segments, and a manifest that names them.

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
import io
import itertools
import os
import pathlib
import re
import secrets
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tfrl._internal import durable, sealed_folder

_FORMAT = 1
_MANIFEST = "manifest.json"
_SEGMENT_LIKE = (None, [str, int, str])
_LIKE = {
    "key": str,
    "generation": int,
    "parts": [[[str], str, int, int, [_SEGMENT_LIKE]]],
}
_NAME = re.compile(r"\d{8,}-\d{6,}\.segment")


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
    places: Sequence[Any],
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
