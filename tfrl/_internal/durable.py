"""Files and folders that survive a kill or a power cut.

Every function returns only when the disk, not just its cache, has what was written,
and changes what readers see in one step, by renaming.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from tfrl._internal import file_locks, json_shapes

Path = str | os.PathLike[str]

_WRITING = ".writing-"
_REMOVING = ".removing-"
_UNWRITABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)


# The waits for the disk are taken side by side: one after the other they add up to
# most of the time that a save takes.
_threads = ThreadPoolExecutor(4, "tfrl-disk")


def _renew_threads() -> None:
    # A forked child has the pool but none of its threads.
    global _threads
    _threads = ThreadPoolExecutor(4, "tfrl-disk")


file_locks.call_in_forked_children(_renew_threads)


def check_output_file(
    where: str, name: str, path: Path, endings: Collection[str]
) -> None:
    """Raises unless a file can be written.

    Args:
        where: name of the asking function, for the error message.
        name: of the argument, for the error message.
        path: the file; one that exists would be replaced.
        endings: those that are allowed, in lower case, such as `.png`.

    Raises:
        ValueError: if it has another ending, is a folder, or its folder does not exist
            or cannot be written.

    Example:
        >>> check_output_file("plot", "path", "no/such/folder/a.png", [".png"])
        Traceback (most recent call last):
        ...
        ValueError: `plot`: `path` expected a file in a folder that exists and can be
        written; got no/such/folder/a.png; make the folder, or choose another
    """
    path = pathlib.Path(path)
    if path.suffix.lower() not in endings:
        raise ValueError(
            f"`{where}`: `{name}` expected to end in {' or '.join(endings)}; "
            f"got {path}; rename it"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
        raise ValueError(
            f"`{where}`: `{name}` expected a file in a folder that exists and can be "
            f"written; got {path}; make the folder, or choose another"
        )


@contextlib.contextmanager
def explain_refusals(where: str, name: str, path: Path) -> Iterator[None]:
    """Says what the disk refuses in a block that writes a file or folder.

    Args:
        where: name of the asking function, for the error message.
        name: of the argument that names the file or folder.
        path: the file or folder.

    Yields:
        Nothing.

    Raises:
        OSError: of the same number.

    Example:
        >>> with explain_refusals("plot", "path", "a.png"):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        ...
        OSError: [Errno 28] `plot`: `path` expected a disk that takes the files; got No
        space left on device; make room or choose another; what was there stays: 'a.png'
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or str(error.strerror).startswith("`"):
            raise
        raise OSError(
            error.errno,
            f"`{where}`: `{name}` expected a disk that takes the files; got "
            f"{error.strerror}; make room or choose another; what was there stays",
            os.fspath(path),
        ) from error


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file so that readers see its old or its new content, never a part.

    Who writes the same file at the same time, here or in another process, waits.

    Args:
        path: the file; its folder must exist.
        data: the new content.

    Raises:
        OSError: if the disk refuses; the old content stays.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "notes.txt")
        >>> replace_file(path, b"new")
        >>> path.read_bytes()
        b'new'
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f"{_WRITING}{path.name}")
    with _alone_at(temporary) as free:
        try:
            free.write_bytes(data)
            flush_to_disk(free)
            # Onto a file that exists, Windows only replaces.
            (os.rename if file_locks.has_posix_files() else os.replace)(free, path)
            flush_to_disk(path.parent)
        except BaseException:
            free.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone_at(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a file, and keeps others off it, by a lock that ends with the process."""
    if not file_locks.has_posix_files():
        # An open file cannot be renamed there: nobody waits, the last one stays.
        yield path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
        return
    while True:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Asked once: another writer may take the file away at any moment.
            if not stat.S_ISREG(path.lstat().st_mode):
                # Writing to a link would change another file, to a pipe would not end.
                raise OSError(errno.EEXIST, "a link or pipe is in the way", str(path))
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            file_locks.lock_file(file)
            if _is_at(path, file):
                yield path
                return
            # While this one waited, the file was renamed or removed.
        finally:
            os.close(file)


def _is_at(path: pathlib.Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _remove_unless_at_work(path: pathlib.Path) -> None:
    """Removes what `replace_file` left, if it is not writing it right now."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        file = os.open(path, os.O_RDWR)
        try:
            file_locks.lock_file(file, wait=False)
            is_there = _is_at(path, file)
            if is_there and file_locks.has_posix_files():
                path.unlink()
        finally:
            os.close(file)
        if is_there and not file_locks.has_posix_files():
            path.unlink()


def flush_to_disk(*paths: Path) -> None:
    """Waits until files' contents, or folders' lists of names, are on the disk.

    Args:
        *paths: the files and folders.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> flush_to_disk(".")
    """
    _side_by_side(_flush, paths)


def _side_by_side(function: Callable[[Any], None], paths: Iterable[Path]) -> None:
    """Calls `function` on every path, and returns or raises when all calls ended."""
    calls = [_threads.submit(function, path) for path in paths]
    # A call still at work after this function raised would disturb the clean-up.
    wait(calls)
    for call in calls:
        call.result()


def _flush(path: Path) -> None:
    is_posix = file_locks.has_posix_files()
    if not is_posix and os.path.isdir(path):  # which cannot be opened there
        return
    file = os.open(path, os.O_RDONLY if is_posix else os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[pathlib.Path]:
    """Lets a block fill a folder that appears under its name only when complete.

    Args:
        path: the folder; must not exist; its parent must.

    Yields:
        The folder's temporary path, in which the block writes files, no folders. If
        it raises, the temporary folder is removed.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "results")
        >>> with new_folder(path) as temporary:
        ...     _ = (temporary / "a").write_bytes(b"content")
        >>> [file.name for file in path.iterdir()]
        ['a']
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f"{_WRITING}{path.name}")
    try:
        temporary.mkdir()
        yield temporary
        flush_to_disk(*temporary.iterdir(), temporary)
        os.rename(temporary, path)
        flush_to_disk(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Removes a folder so that no reader ever sees a part of it under its name.

    Args:
        path: the folder.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp()
        >>> remove_folder(path)
        >>> os.path.exists(path)
        False
    """
    path = pathlib.Path(path)
    doomed = path.with_name(f"{_REMOVING}{path.name}")
    os.rename(path, doomed)
    if not doomed.is_symlink():
        files = [entry for entry in doomed.iterdir() if entry.is_file()]
        _side_by_side(os.unlink, files)
    _remove_any(doomed)


def _remove_any(path: pathlib.Path) -> None:
    """Removes a folder or another entry; of a link, not that to which it leads."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def shared_folder(path: Path, reading: bool = False) -> Iterator[None]:
    """Keeps writers of one folder apart, in one process or in several.

    One writer, or any number of readers, is in the block at a time; the others wait.
    What a killed `replace_file`, `new_folder` or `remove_folder` left is removed on
    entry, as soon as no other process can still be at work on it.

    Args:
        path: the folder.
        reading: whether the block only reads; then a folder that is missing or that
            cannot be written is taken as it is.

    Yields:
        Nothing.

    Raises:
        OSError: if the lock file cannot be opened.

    Example:
        >>> import tempfile
        >>> with shared_folder(tempfile.mkdtemp()):
        ...     pass
    """
    path = pathlib.Path(path)
    try:
        file = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if not reading or error.errno not in _UNWRITABLE:
            raise
        yield
        return
    try:
        alone = True
        try:
            file_locks.lock_file(file, wait=not reading)
        except BlockingIOError:
            alone = False
        if alone:
            for entry in path.iterdir():
                if entry.name.startswith((_WRITING, _REMOVING)):
                    if entry.is_file() and not entry.is_symlink():
                        _remove_unless_at_work(entry)
                    else:
                        _remove_any(entry)
        if reading and (file_locks.has_posix_files() or not alone):
            file_locks.lock_file(file, shared=True)
        yield
    finally:
        os.close(file)


def sealed(body: Mapping[str, Any]) -> bytes:
    """Returns the text of a manifest in which a changed bit shows.

        {"sha256": digest of the JSON text of body, "manifest": body}

    Args:
        body: what JSON can hold.

    Returns:
        A line of ASCII; `unsealed` reads it.

    Raises:
        TypeError: if JSON cannot hold `body`.

    Example:
        >>> sealed({"format": 1})[-25:-1]
        b'"manifest":{"format":1}}'
    """
    text = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return f'{{"sha256":"{digest}","manifest":{text}}}\n'.encode("ascii")


def unsealed(data: bytes, like: Any = None) -> Any:
    """Returns what `sealed` was given.

    Args:
        data: what `sealed` returned.
        like: what the body must look like, as nested types: `{"key": int}` for an
            object with that key, `{str: int}` for one of any keys, `[int]` for a list,
            `[int, str]` for one of two, `(int, None)` where one of several fits.

    Returns:
        The body, with the types that JSON has.

    Raises:
        ValueError: if the data is not, bit for bit, what `sealed` returned, or the body
            is not like that.

    Example:
        >>> unsealed(sealed({"format": 1}), {"format": int})
        {'format': 1}
    """
    body = None
    with contextlib.suppress(KeyError, RecursionError, TypeError, ValueError):
        body = json.loads(data)["manifest"]
    is_fit = like is None or json_shapes.fits(body, like)
    if body is None or not is_fit or sealed(body) != data:
        raise ValueError(
            f"`unsealed`: `data` expected as `sealed` wrote it; got {data[:40]!r}; "
            "take another copy"
        )
    return body
