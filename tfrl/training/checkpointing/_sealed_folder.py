"""Folders whose files are known by their digests, written down in a manifest."""

import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl.core import durable, regular_files


class DamageError(Exception):
    """Says what is wrong with a folder."""


def digests(folder: pathlib.Path, inner: Sequence[str] = ()) -> dict[str, str]:
    """Computes the SHA-256 of the files of a folder.

    Args:
        folder: with its files; those of its folders are not counted.
        inner: except these, such as "folder/file".

    Returns:
        Hexadecimal digests by name.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a").write_bytes(b"content")
        >>> digests(folder)["a"][:8]
        'ed7002b4'
    """
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    return {name: _digest(folder / name) for name in (*names, *inner)}


def seal(
    folder: pathlib.Path,
    manifest: str,
    body: Mapping[str, Any],
    inner: Sequence[str] = (),
) -> None:
    """Writes a folder's manifest: `body`, and the `digests` of its files.

    Args:
        folder: with its files, the manifest not yet among them.
        manifest: name of the manifest.
        body: what else it holds, of the types that JSON has.
        inner: as for `digests`.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a").write_bytes(b"content")
        >>> seal(folder, "manifest.json", {"step": 1})
        >>> body = unseal(folder, "manifest.json")
        >>> compare_files(folder, body)
        >>> body["step"], list(body["files"])
        (1, ['a'])
    """
    data = durable.sealed({**body, "files": digests(folder, inner)})
    (folder / manifest).write_bytes(data)


def unseal(
    folder: pathlib.Path, manifest: str, likes: Mapping[int, Any] | None = None
) -> dict[str, Any]:
    """Reads the manifest that `seal` wrote, not the files.

    Args:
        folder: the folder.
        manifest: name of the manifest.
        likes: by the number of a format what a body of it looks like, as for
            `durable.unsealed`; the body has the number then.

    Returns:
        The body, with "files".

    Raises:
        DamageError: if it is not there or not as it was written.

    Example:
        >>> unseal(pathlib.Path("no/such"), "manifest.json")
        Traceback (most recent call last):
        ...
        tfrl...DamageError: manifest.json cannot be read
    """
    try:
        data = regular_files.read_file(folder / manifest)
    except OSError as error:
        raise DamageError(f"{manifest} cannot be read") from error
    try:
        body: dict[str, Any] = durable.unsealed(data, {"files": {str: str}})
        if likes is not None:
            durable.unsealed(data, {"format": int})
            durable.unsealed(data, likes.get(body["format"]))
        return body
    except ValueError as error:
        raise DamageError(f"{manifest} is not as it was written") from error


def compare_files(folder: pathlib.Path, body: Mapping[str, Any]) -> None:
    """Compares every file with the manifest.

    Args:
        folder: the folder.
        body: what `unseal` returned.

    Raises:
        DamageError: if a file is missing or not as it was written.

    Example:
        >>> compare_files(pathlib.Path("no/such"), {"files": {"a": ""}})
        Traceback (most recent call last):
        ...
        tfrl.training.checkpointing._sealed_folder.DamageError: a cannot be read
    """
    for name, digest in body["files"].items():
        if pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts:
            raise DamageError(f"{name} is no file of the folder")
        try:
            intact = _digest(folder / name) == digest
        except (OSError, ValueError) as error:
            raise DamageError(f"{name} cannot be read") from error
        if not intact:
            raise DamageError(f"{name} is not as it was written")


def _digest(path: pathlib.Path) -> str:
    with regular_files.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
