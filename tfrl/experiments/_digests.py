"""Digests of configurations, by which an edit of one is noticed."""

import contextlib
import hashlib
import os
import pathlib
import re

from tfrl._internal import zoo_files

_INCLUDE = re.compile(rb"^include\s+['\"](.+?)['\"]", re.MULTILINE)


def digest(config: str | os.PathLike[str]) -> str | None:
    """Returns what tells whether a file, or one that it includes, was edited.

    Args:
        config: path of a gin file.

    Returns:
        Its digest; None of one that cannot be read.
    """
    with contextlib.suppress(OSError):
        parts = _with_included(pathlib.Path(config), ())
        return hashlib.sha256(b"".join(parts)).hexdigest()
    return None


def _with_included(path: pathlib.Path, chain: tuple[pathlib.Path, ...]) -> list[bytes]:
    """What is in a file, and in those that it includes, as `configs.parse` finds them.

    Args:
        path: of the file.
        chain: the files that include it.
    """
    if path.resolve() in chain:  # which `configs.parse` refuses
        return []
    parts, chain = [path.read_bytes()], (*chain, path.resolve())
    for name in _INCLUDE.findall(parts[0]):
        parts += _with_included(zoo_files.included(os.fsdecode(name), path), chain)
    return parts
