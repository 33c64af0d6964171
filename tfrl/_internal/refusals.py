"""Checks of the arguments of functions that save and load."""

import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from tfrl._internal import durable


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
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(
            f"`{where}`: `{name}` expected a path; got {os.fspath(path)!r}, which no "
            "file can have"
        )
    return pathlib.Path(path)


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
        raise TypeError(f"`{where}`: `{name}` expected a list of texts; got {texts!r}")
