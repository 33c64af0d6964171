"""Saves replays to the disk incrementally, and loads them."""

import contextlib
import errno
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, durable
from tfrl.replay import _indices
from tfrl.replay.disk import _parts, _saved
from tfrl.replay.memory import _homes

_READERS, _WRITERS = 2, 3


def save(
    folder: durable.Path,
    objects: Mapping[str, tf.Module],
    base: durable.Path | None = None,
) -> int:
    """Saves objects to a folder; of rows, only the segments that changed.

    When it returns, everything is on the disk, and `load` finds it. If it raises, or
    the process is killed, `load` finds the previous save. The folder holds only the
    last save.

    Changed segments, ranges of rows of about 8 MiB, are known without reading them,
    except in the first call of a process for rows in files or made by another process,
    and for rows with a view, which `NumpyStorage.get` returns for an int or a slice:
    those are read and compared by digest. Saving takes about 32 MiB of memory, more if
    single rows are larger than 8 MiB.

    Threads and processes can continue to use buffers, stores and samplers meanwhile.
    Most is written while their locks are free; the locks are then held while states,
    variables and the segments that changed meanwhile are written. Nothing may write to
    a standalone `NumpyStorage`.

    Args:
        folder: where to save; made if it does not exist.
        objects: names and objects: storages, buffers, stores and samplers of
            `tfrl.replay`, and modules made of them. A sampler includes its store; what
            several objects share is saved once.
        base: folder of an earlier save, which stays as it is. If `folder` is still
            empty, segments unchanged since then are not written but shared, by hard
            links. Where that is impossible, everything is written. A shared segment
            that the disk damages is damaged in both folders.

    Returns:
        How many bytes of segments were written.

    Raises:
        OSError: if `base` is missing (`FileNotFoundError`), or the disk is full or
            refuses; the previous save is still there.
        TypeError: if `objects` are something else.
        ValueError: if a name does not fit, the call is inside `tf.function`, or what is
            in the folder is damaged or of another format.

    Example:
        >>> import tempfile
        >>> buffer = tfrl.replay.DataBuffer(tf.TensorSpec([2]), capacity=100, seed=0)
        >>> buffer.add_batch(np.ones([10, 2], np.float32))
        >>> folder = tempfile.mkdtemp()
        >>> save(folder, {"buffer": buffer}) > 0
        True
        >>> save(folder, {"buffer": buffer})
        0
        >>> other = tfrl.replay.DataBuffer(tf.TensorSpec([2]), capacity=100)
        >>> load(folder, {"buffer": other})
        >>> int(other.current_size)
        10
    """
    _indices.check_eager("save", "call it from plain Python")
    parts, locks = _parts.found("save", objects)
    path = arguments.as_path("save", "folder", folder)
    earlier = None if base is None else arguments.as_path("save", "base", base)
    if earlier is not None and not earlier.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            "`save`: `base` expected the folder of an earlier save; got none there",
            str(earlier),
        )
    with durable.explain_refusals("save", "folder", path):
        path.mkdir(parents=True, exist_ok=True)
        with durable.shared_folder(path):
            old = _saved.read_manifest("save", path)
            _saved.remove_others(path, old)
            if old is None and earlier is not None:
                old = _saved.link(earlier, path)
            with _saved.Writer(path, old) as writer:
                new = writer.finish(_write(parts, locks, old, writer))
            for part in parts:
                if part.changes is not None:
                    part.changes.remember(new.key, part.versions)
            _saved.remove_others(path, new)
    return writer.written


def load(folder: durable.Path, objects: Mapping[str, tf.Module]) -> None:
    """Loads objects from a folder that `save` wrote.

    They may use another kind of memory than the saved ones: in memory, in files or
    shared. Rows are replaced in place, so that views show them. The next draws are
    those that the saved objects would have made.

    All digests are compared before anything changes, and checksums once more as the
    bytes are read into place: should the disk fail just then, an error says that the
    objects have to be loaded again. The same holds if the process is killed meanwhile
    and rows outlive it. Loading takes a few MiB of memory, and for a moment a few times
    that of the priorities of a `PrioritizedReplay`.

    Args:
        folder: where it was saved.
        objects: names and objects as they were saved, made with the same arguments.
            Some names may be left out.

    Raises:
        OSError: if there is nothing in the folder (`FileNotFoundError`) or the disk
            refuses.
        TypeError: if `objects` are something else.
        RuntimeError: if the disk failed after all had been compared; the objects have
            to be loaded again.
        ValueError: if a name was not saved, an object was made differently from the
            saved one, a bit on the disk has changed, the format is that of another
            version, or the call is inside `tf.function`; the objects are unchanged.

    Example:
        >>> import tempfile
        >>> rows = tfrl.replay.NumpyStorage(tf.TensorSpec([]), capacity=3)
        >>> rows.set([0, 1, 2], np.array([1.0, 2.0, 3.0]))
        >>> folder = tempfile.mkdtemp()
        >>> written = save(folder, {"rows": rows})
        >>> rows.set([0], np.array([9.0]))
        >>> load(folder, {"rows": rows})
        >>> rows.get([0, 1, 2])
        array([1., 2., 3.], dtype=float32)
    """
    _indices.check_eager("load", "call it from plain Python")
    parts, locks = _parts.found("load", objects)
    path = arguments.as_path("load", "folder", folder)
    with durable.shared_folder(path, reading=True):
        manifest = _manifest_of("load", path)
        pairs = _matched(parts, manifest, list(objects))
        checksums = _compare(path, [saved for _, saved in pairs])
        with _held(locks):
            _read(path, pairs, checksums, manifest.key)


def check_saved(folder: durable.Path) -> None:
    """Reads everything that `save` wrote to a folder, without loading it.

    Args:
        folder: where it was saved.

    Raises:
        OSError: if there is nothing in the folder (`FileNotFoundError`) or the disk
            refuses.
        ValueError: if a bit has changed, or the format is that of another version.

    Example:
        >>> import tempfile
        >>> rows = tfrl.replay.NumpyStorage(tf.TensorSpec([]), capacity=3)
        >>> folder = tempfile.mkdtemp()
        >>> written = save(folder, {"rows": rows})
        >>> check_saved(folder)
    """
    path = arguments.as_path("check_saved", "folder", folder)
    with durable.shared_folder(path, reading=True):
        _compare(path, _manifest_of("check_saved", path).parts)


def _manifest_of(where: str, path: pathlib.Path) -> _saved.Manifest:
    manifest = _saved.read_manifest(where, path)
    if manifest is None:
        raise FileNotFoundError(
            errno.ENOENT,
            f"`{where}`: `folder` expected what `save` wrote; got nothing of it; save "
            "something first",
            str(path),
        )
    return manifest


def _write(
    parts: list[_parts.Part],
    locks: list[Any],
    old: _saved.Manifest | None,
    writer: _saved.Writer,
) -> list[_saved.Saved]:
    """Writes what changed; returns what is saved then."""
    known = {} if old is None else old.by_path()
    with ThreadPoolExecutor(_WRITERS, "tfrl-save") as pool:
        for part in parts:
            key, before = "", known.get(part.paths[0])
            like = before and (before.contents, before.step)
            if old and before and like == (part.contents, part.step):
                part.segments, key = list(before.segments), old.key
            if part.changes is not None:
                part.versions = part.changes.saved(key)
                _write_changed(part, writer, pool)
        with _held(locks):
            for part in parts:
                _write_changed(part, writer, pool)
    return [part.saved() for part in parts]


def _write_changed(
    part: _parts.Part, writer: _saved.Writer, pool: ThreadPoolExecutor
) -> None:
    """Writes those segments that are not of the versions they were saved with."""
    with part.lock:
        now = part.freeze()
    kept = np.zeros(part.count, bool)
    if now is not None:
        kept = _homes.unchanged(now, part.versions)
    found = [*part.segments, *[None] * part.count][: part.count]
    at_work: dict[int, Future] = {}
    for k in np.flatnonzero(~kept).tolist():
        if len(at_work) > _WRITERS:  # the first of them, lest all be in memory
            first = next(iter(at_work))
            found[first] = at_work.pop(first).result()
        with part.lock:
            data = part.read(k)
        at_work[k] = pool.submit(writer.write, data, found[k])
    for k, future in at_work.items():
        found[k] = future.result()
    part.segments, part.versions = found, now


def _matched(
    parts: list[_parts.Part], manifest: _saved.Manifest, names: list[str]
) -> list[tuple[_parts.Part, _saved.Saved]]:
    """Returns each part with what is saved of it; raises unless they fit."""
    where, known = "`load`: `objects` expected", manifest.by_path()
    pairs, left = [], {path for path in known if path.split("/")[0] in names}
    for part in parts:
        for path in part.paths:
            if path not in known:
                raise ValueError(
                    f"{where} what was saved, {', '.join(sorted(known))}; got "
                    f"{path!r} of {part.contents}; make the objects as they were saved"
                )
            if known[path] is not known[part.paths[0]]:
                raise ValueError(
                    f"{where} {path!r} and {part.paths[0]!r} apart, as they were "
                    "saved; got the same object twice; make two"
                )
            left.discard(path)
        saved = known[part.paths[0]]
        if part.contents != saved.contents:
            raise ValueError(
                f"{where} {part.paths[0]!r} of {saved.contents}; got it of "
                f"{part.contents}; make the objects as they were saved"
            )
        zeros = saved.segments.count(None)
        if not (saved.is_whole() and part.takes(saved.size, saved.step, zeros)):
            raise ValueError(
                f"{where} {part.paths[0]!r} of the size that {saved.contents} has; got "
                f"{saved.size} bytes on the disk; take another copy"
            )
        pairs.append((part, saved))
    for path in sorted(left):
        raise ValueError(
            f"{where} {path!r} of {known[path].contents}, as was saved; got objects "
            "without; make them as they were saved"
        )
    return pairs


def _compare(folder: pathlib.Path, parts: list[_saved.Saved]) -> dict[str, int]:
    """Returns the checksums of all files; raises unless they are as they were."""
    segments = [x for part in parts for x in part.segments if x is not None]

    def compare(some: list[_saved.Segment]) -> dict[str, int]:
        scratch = bytearray()
        return {x.file: _saved.checksum("load", folder, x, scratch) for x in some}

    checksums: dict[str, int] = {}
    with ThreadPoolExecutor(_READERS, "tfrl-load") as pool:
        for some in pool.map(compare, [segments[k::_READERS] for k in range(_READERS)]):
            checksums |= some
    return checksums


def _read(
    folder: pathlib.Path,
    pairs: list[tuple[_parts.Part, _saved.Saved]],
    checksums: Mapping[str, int],
    key: str,
) -> None:
    """Replaces parts by what is saved of them."""

    def replace(part: _parts.Part, k: int, segment: _saved.Segment | None) -> None:
        filling = None
        if segment is not None:
            known = segment, checksums[segment.file]
            filling = functools.partial(_saved.fill, "load", folder, *known)
        part.write(k, filling)

    with ThreadPoolExecutor(_READERS, "tfrl-load") as pool:
        # What says which rows count comes last: within a store, before its rows.
        for part, saved in reversed(pairs):
            part.thaw(saved.size, saved.step)
            side_by_side = map if part.changes is None else pool.map
            write = functools.partial(replace, part)
            try:
                list(side_by_side(write, itertools.count(), saved.segments))
            except (OSError, ValueError) as error:
                raise RuntimeError(
                    f"`load`: `folder` expected to stay as it was; got {error}; load "
                    "the objects again, as only a part of them is loaded"
                ) from error
    for part, _ in pairs:
        try:
            part.finish()
        except Exception as error:
            # What a state makes of what is none can be any error.
            raise RuntimeError(
                f"`load`: `folder` expected a state of {part.contents}; got another "
                f"({type(error).__name__}: {error}); load the objects from another "
                "copy, as only a part of them is loaded"
            ) from error
    for part, _ in pairs:
        if part.changes is not None:
            part.changes.remember(key, part.freeze())


@contextlib.contextmanager
def _held(locks: list[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        yield
