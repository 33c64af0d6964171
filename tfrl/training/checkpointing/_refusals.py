"""What those who save and load refuse, in the words of the house."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfrl.core import durable


def as_path(where: str, name: str, path: durable.Path) -> pathlib.Path:
    """Returns what an argument names.

    Args:
        where: name of the function that asks.
        name: of the argument.
        path: its value.

    Returns:
        The path.

    Raises:
        TypeError: if it is something else.
        ValueError: if no file can have that name.

    Example:
        >>> as_path("save", "folder", "run").name
        'run'
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"`{where}`: `{name}` expected a path; got {path!r}; pass a text or a "
            "pathlib.Path"
        )
    found = pathlib.Path(path)
    try:
        is_name = b"\0" not in os.fsencode(found)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(
            f"`{where}`: `{name}` expected a path; got {os.fspath(found)!r}, which no "
            "file can have; choose another"
        )
    return found


@contextlib.contextmanager
def explained(where: str, name: str, folder: pathlib.Path) -> Iterator[None]:
    """Says in the words of the house what the disk refuses in a block.

    Args:
        where: name of the function that asks.
        name: of the argument that names the folder.
        folder: the folder.

    Yields:
        Nothing.

    Raises:
        OSError: of the same number.

    Example:
        >>> with explained("save", "folder", pathlib.Path("no")):
        ...     open("no/such")
        Traceback (most recent call last):
        ...
        FileNotFoundError: [Errno 2] `save`: `folder` expected a folder that can be
        written; got No such file or directory; make room or choose another; what was
        saved before is as it was: 'no'
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or str(error.strerror).startswith("`"):
            raise
        raise OSError(
            error.errno,
            f"`{where}`: `{name}` expected a folder that can be written; got "
            f"{error.strerror}; make room or choose another; what was saved "
            "before is as it was",
            str(folder),
        ) from error


def check_eager(where: str) -> None:
    """Raises inside of `tf.function`.

    Args:
        where: name of the function that asks.

    Raises:
        ValueError: there.

    Example:
        >>> check_eager("save")
    """
    if not tf.executing_eagerly():
        raise ValueError(
            f"`{where}`: expected to be called outside of tf.function, where it would "
            "run once, while tracing; got a call inside; call it from plain Python"
        )


def check_texts(where: str, name: str, texts: Sequence[str]) -> None:
    """Raises unless an argument is a list of texts.

    Args:
        where: name of the function that asks.
        name: of the argument.
        texts: its value.

    Raises:
        TypeError: if it is something else.

    Example:
        >>> check_texts("load", "prefixes", ["net"])
    """
    is_list = isinstance(texts, list | tuple | set | frozenset)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"`{where}`: `{name}` expected a list of texts; got {texts!r}; put texts "
            "into a list"
        )
