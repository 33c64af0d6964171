r"""Paths that TensorFlow does not take for patterns.

Before it reads a checkpoint it looks whether there is one, by a pattern in which `[`
and `\` have a meaning, and there is no way to write them that it also opens.
"""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def plain(folder: str | os.PathLike[str]) -> Iterator[str]:
    r"""Yields a path of a folder without `[` and `\`, good within the block.

    Args:
        folder: exists; one with such characters is reached by a link.

    Example:
        >>> with plain("runs/seven") as path:
        ...     path
        'runs/seven'
    """
    path = os.fspath(folder)
    if os.name == "nt" or not set(path) & set("[\\"):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tfrl-") as beside:
        link = pathlib.Path(beside, "folder")
        link.symlink_to(os.path.abspath(path), target_is_directory=True)
        yield str(link)
