"""Files and folders that are made beside their place and appear there when complete."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from tfrl._internal import durable


@contextlib.contextmanager
def made_beside(
    where: str, path: str | os.PathLike[str], *, overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Lets a block make a file or folder that appears at `path` when all is on disk.

    A block that raises, or is killed, leaves `path` as it was. What a killed one left
    beside it is cleared away by the next.

    Args:
        where: name of the function that makes it.
        path: of the file or folder; missing parents are made.
        overwrite: replace what is there: a file, an empty folder, or one in which
            everything lies that lies in the new one; another is not lost by mistake.
            It stays until the new one is complete; a kill between the two renamings
            leaves it beside, from where the next call fetches it back.

    Yields:
        The path to make it at, with the suffix of `path`, in an empty folder.

    Raises:
        ValueError: if `path` exists and may not be replaced.
        OSError: if the disk refuses.

    Example:
        >>> folder = tempfile.mkdtemp()
        >>> with made_beside("write", f"{folder}/notes.txt") as path:
        ...     _ = path.write_text("complete")
        >>> os.listdir(folder)
        ['notes.txt']
    """
    target = pathlib.Path(path)
    with (
        durable.explain_refusals(where, "path", target),
        contextlib.ExitStack() as held,
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            _clear(target)
            if not overwrite:
                check_absent(where, target)
            made = tempfile.mkdtemp(dir=target.parent, prefix=_prefix(target))
            held.callback(shutil.rmtree, made, ignore_errors=True)
            held.enter_context(_locked(made))
        fresh = pathlib.Path(made, f"new{target.suffix}")
        yield fresh
        durable.flush_to_disk(fresh, *fresh.rglob("*"))
        with _locked(target.parent):
            if overwrite:
                _check_alike(where, target, fresh)
            else:
                check_absent(where, target)
            _swap(fresh, target, pathlib.Path(made, "old"))
        durable.flush_to_disk(target.parent)


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name}.export-"


def check_absent(where: str, path: str | os.PathLike[str]) -> None:
    """Raises if there is something at a path.

    Args:
        where: name of the function that checks.
        path: of the file or folder.

    Raises:
        ValueError: if there is.

    Example:
        >>> check_absent("write", "absent")
    """
    if os.path.lexists(path):
        raise ValueError(
            f"`{where}`: `path` expected a place where nothing is yet; got "
            f"{os.fspath(path)!r}; choose another, or pass overwrite=True (--overwrite)"
        )


def _check_alike(where: str, target: pathlib.Path, fresh: pathlib.Path) -> None:
    """Raises if a folder would be lost that another program, or a person, filled."""
    if target.is_symlink() or not target.is_dir():
        return
    there = {path.name for path in target.iterdir()}
    alike = fresh.is_dir() and {path.name for path in fresh.iterdir()} <= there
    if there and not alike:
        raise ValueError(
            f"`{where}`: `path` expected a place where nothing else is; got "
            f"{os.fspath(target)!r} with {min(there)!r} in it; choose another, or "
            "remove it yourself"
        )


@contextlib.contextmanager
def _locked(folder: str | os.PathLike[str], wait: bool = True) -> Iterator[None]:
    """Holds a folder's lock; where there is none, the names alone keep apart."""
    with contextlib.ExitStack() as held:
        try:
            if not durable.has_posix_files():
                raise BlockingIOError  # Folders cannot be opened there.
            file = os.open(folder, os.O_RDONLY)
            held.callback(os.close, file)
            durable.lock_file(file, wait=wait)
        except OSError:
            # Some network disks know no locks.
            if not wait:
                raise
        yield


def _clear(target: pathlib.Path) -> None:
    """Removes what killed processes left, after fetching back what they replaced."""
    left = [x for x in target.parent.iterdir() if x.name.startswith(_prefix(target))]
    for folder in left:
        with contextlib.suppress(OSError), _locked(folder, wait=False):
            if (folder / "old").exists() and not os.path.lexists(target):
                os.rename(folder / "old", target)
            shutil.rmtree(folder)


def _swap(fresh: pathlib.Path, target: pathlib.Path, old: pathlib.Path) -> None:
    if not os.path.lexists(target):
        os.rename(fresh, target)
        return
    os.rename(target, old)
    try:
        os.rename(fresh, target)
    except BaseException:
        os.rename(old, target)
        raise
