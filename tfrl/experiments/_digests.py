"""Digests of configurations, by which an edit of one is noticed."""

import contextlib
import hashlib
import os
import pathlib
import re

from tfrl._internal import zoo_files

_INCLUDE = re.compile(
    rb"^[ \t]*include[\s\\]+[rRuU]?(\"\"\"|'''|['\"])(.+?)\1", re.MULTILINE
)
_COMMENT = re.compile(rb"^[ \t]*(#.*)?\r?\n", re.MULTILINE)


def digest(config: str | os.PathLike[str]) -> str | None:
    """Returns what tells whether a file, or one that it includes, was edited.

    Lines of comments alone do not count.

    Args:
        config: path of a gin file.

    Returns:
        Its digest; None of one that cannot be read.
    """
    parts = _with_included(pathlib.Path(config), ())
    return hashlib.sha256(b"".join(parts)).hexdigest() if parts else None


def is_alike(config: str | os.PathLike[str], known: str | None) -> bool:
    """Returns whether a file is the one that a digest is of.

    Args:
        config: path of a gin file.
        known: its digest; those of before are of all lines of the file alone.
    """
    if digest(config) == known:
        return True
    with contextlib.suppress(OSError):
        return hashlib.sha256(pathlib.Path(config).read_bytes()).hexdigest() == known
    return False


def _with_included(path: pathlib.Path, chain: tuple[pathlib.Path, ...]) -> list[bytes]:
    """What is in a file, and in those that it includes, as `configs.parse` finds them.

    Args:
        path: of the file.
        chain: the files that include it.

    Returns:
        Nothing of a file that cannot be read, or includes itself, which is refused
        when it is parsed.
    """
    parts: list[bytes] = []
    with contextlib.suppress(OSError):
        if (real := path.resolve()) not in chain:
            parts.append(_COMMENT.sub(b"", path.read_bytes()))
            for _, name in _INCLUDE.findall(parts[0]):
                inner = zoo_files.included(os.fsdecode(name), path)
                parts += _with_included(inner, (*chain, real))
    return parts
