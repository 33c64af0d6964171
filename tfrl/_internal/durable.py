"""Files and folders that survive a kill or a power cut, and the locks on them.

Every function that writes returns only when the disk, not just its cache, has what was
written, and changes what readers see in one step, by renaming. Locks end with their
process: POSIX systems have `fcntl`, Windows has `msvcrt`, whose locks only one can
hold; where there is neither, locking is an error.
"""

import contextlib
import errno
import importlib
import io
import os
import pathlib
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from tfrl._internal import arguments

Path = str | os.PathLike[str]

_WRITING = ".writing-"
_REMOVING = ".removing-"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
# What is locked on Windows can be neither read nor written: a byte that no file has.
_LOCKED_BYTE = 1 << 40
_LOOK_AGAIN_SECONDS = 0.02


def lock_file(file: int, shared: bool = False, wait: bool = True) -> None:
    """Locks an open file for this descriptor, until it is closed or unlocked.

    Args:
        file: descriptor.
        shared: whether others may hold a shared lock at the same time; on Windows
            they wait.
        wait: whether to wait for others.

    Raises:
        BlockingIOError: if another has the lock and `wait` is False.
        OSError: if the system has no locks.

    Example:
        >>> with open(os.devnull) as file:
        ...     lock_file(file.fileno())
    """
    if _fcntl is not None:
        kind = _fcntl.LOCK_SH if shared else _fcntl.LOCK_EX
        _fcntl.flock(file, kind | (0 if wait else _fcntl.LOCK_NB))
        return
    while True:
        try:
            _call(file, "LK_NBLCK")
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "another has the lock") from error
        time.sleep(_LOOK_AGAIN_SECONDS)


def unlock_file(file: int) -> None:
    """Gives a lock back, also if copies of the descriptor stay open.

    Args:
        file: descriptor.

    Example:
        >>> with open(os.devnull) as file:
        ...     lock_file(file.fileno())
        ...     unlock_file(file.fileno())
    """
    if _fcntl is not None:
        _fcntl.flock(file, _fcntl.LOCK_UN)
    else:
        _call(file, "LK_UNLCK")


def has_posix_files() -> bool:
    """Whether files have the locks, and folders the ways, of POSIX systems.

    There a file can be renamed while it is open, and a folder flushed to the disk.

    Returns:
        False on Windows.

    Example:
        >>> has_posix_files() == (os.name == "posix")
        True
    """
    return _fcntl is not None


def call_in_forked_children(function: Callable[[], None]) -> None:
    """Has a function called in processes forked from this one, where there are any.

    Args:
        function: without arguments.

    Example:
        >>> call_in_forked_children(lambda: None)
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _call(file: int, action: str) -> None:
    if _msvcrt is None:
        raise OSError(
            errno.ENOSYS,
            "`tfrl`: expected a system with file locks, fcntl or msvcrt; got neither; "
            "saving and reading of folders needs them",
        )
    place = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(file, getattr(_msvcrt, action), 1)
    finally:
        os.lseek(file, place, os.SEEK_SET)


# The waits for the disk are taken side by side: one after the other they add up to
# most of the time that a save takes.
_threads = ThreadPoolExecutor(4, "tfrl-disk")


def _renew_threads() -> None:
    # A forked child has the pool but none of its threads.
    global _threads
    _threads = ThreadPoolExecutor(4, "tfrl-disk")


call_in_forked_children(_renew_threads)


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
    path = arguments.as_path(where, name, path)
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

    That there is no room writers tell in many ways: all are found by their words.

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
    except Exception as error:
        reason = str(getattr(error, "strerror", None) or error)
        number = getattr(error, "errno", None)
        for full in () if number else _FULL:
            if os.strerror(full) in reason:
                number, reason = full, os.strerror(full)
        if number is None or reason.startswith("`"):
            raise
        raise OSError(
            number,
            f"`{where}`: `{name}` expected a disk that takes the files; got {reason}; "
            "make room or choose another; what was there stays",
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
            (os.rename if has_posix_files() else os.replace)(free, path)
            flush_to_disk(path.parent)
        except BaseException:
            free.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone_at(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a file, and keeps others off it, by a lock that ends with the process."""
    if not has_posix_files():
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
            lock_file(file)
            if is_at(path, file):
                yield path
                return
            # While this one waited, the file was renamed or removed.
        finally:
            os.close(file)


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is that of a path, which may have been moved or removed.

    Args:
        path: of a file.
        file: its descriptor, from `os.open` or `fileno()`.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     is_at(file.name, file.fileno()), is_at("elsewhere", file.fileno())
        (True, False)
    """
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_unless_at_work(path: pathlib.Path) -> None:
    """Removes what `replace_file` left, if it is not writing it right now."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        file = os.open(path, os.O_RDWR)
        try:
            lock_file(file, wait=False)
            is_there = is_at(path, file)
            if is_there and has_posix_files():
                path.unlink()
        finally:
            os.close(file)
        if is_there and not has_posix_files():
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
    is_posix = has_posix_files()
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
            lock_file(file, wait=not reading)
        except BlockingIOError:
            alone = False
        if alone:
            for entry in path.iterdir():
                if entry.name.startswith((_WRITING, _REMOVING)):
                    if entry.is_file() and not entry.is_symlink():
                        _remove_unless_at_work(entry)
                    else:
                        _remove_any(entry)
        if reading and (has_posix_files() or not alone):
            lock_file(file, shared=True)
        yield
    finally:
        os.close(file)


def open_file(path: Path) -> io.FileIO:
    """Opens a file for reading, without a buffer; never waits for a pipe.

    Args:
        path: the file, or a link to one.

    Returns:
        The file, open.

    Raises:
        OSError: if there is none, or something else.

    Example:
        >>> open_file(os.devnull)
        Traceback (most recent call last):
        ...
        OSError: [Errno 22] no regular file: '/dev/null'
    """
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
    return open(file, "rb", buffering=0)


def read_file(path: Path) -> bytes:
    """Returns the content of a file; never waits for a pipe.

    Args:
        path: the file, or a link to one.

    Returns:
        Its bytes.

    Raises:
        OSError: if there is none, or something else.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/notes.txt"
        >>> replace_file(path, b"new")
        >>> read_file(path)
        b'new'
    """
    with open_file(path) as file:
        return file.read()
