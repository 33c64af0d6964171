"""Gin text: files and lines split into statements, each with its place."""

import difflib
import importlib
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gin

from tfrl.configuring import _gin_hooks

# What `configs.register` was given, and what it made of it, by full name.
registered: dict[str, tuple[Any, Any]] = {}

_LONGEST = 300


def error_at(place: str, expected: str, got: str, todo: str) -> ValueError:
    """Returns the error for something wrong at a place of a configuration."""
    expected, got, todo = (
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        for text in (expected, got, todo)
    )
    return ValueError(f"`parse`: {place}: expected {expected}; got {got}; {todo}")


def read_all(
    config_files: Iterable[str | os.PathLike[str]], bindings: Iterable[str]
) -> list[Any]:
    """Reads files and lines, and what they include; runs what they import.

    Args:
        config_files: as of `configs.parse`.
        bindings: as of `configs.parse`.

    Returns:
        The statements: imports and bindings.

    Raises:
        TypeError: if an argument is no list, or holds something else.
        ValueError: with the place.
    """
    _check_listed("config_files", config_files, (str, os.PathLike))
    _check_listed("bindings", bindings, (str,))
    statements = []
    for file in config_files:
        statements += _read_file(os.fspath(file), "`config_files`", ())
    for number, text in enumerate(bindings, 1):
        statements += read(text, f"bindings:{number}")
    return statements


def _check_listed(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    is_one = isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)
    if is_one or not all(isinstance(each, kinds) for each in value):
        raise TypeError(
            f"`parse`: `{name}` expected a list of texts; got {value!r:.80}; put texts "
            "into a list"
        )


def guess(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the advice to a misspelled name."""
    close = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean `{close[0]}`?" if close else otherwise


def _read_file(file: str, place: str, chain: tuple[str, ...]) -> list[Any]:
    """Reads a file that the last one of a chain includes at a place."""
    try:
        path = pathlib.Path(file)
        if chain and (beside := pathlib.Path(chain[-1]).parent / path).exists():
            path = beside
        real = str(path.resolve())
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        # Where it is included, the end of a long name tells more than its start.
        name = repr(file if len(file) <= _LONGEST else f"...{file[-_LONGEST // 2 :]}")
        got = f"{name} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        raise error_at(place, "a gin file", got, "correct the path") from error
    if real in chain:
        raise error_at(place, "no file to include itself", real, "remove a line")
    return read(text, str(path), (*chain, real))


def read(text: str, name: str, chain: tuple[str, ...] = ()) -> list[Any]:
    """Splits gin text into statements, reading what it includes.

    Args:
        text: gin text.
        name: of the file, or of a line that is in none.
        chain: the files that include it, and itself.

    Returns:
        The statements: imports and bindings.

    Raises:
        ValueError: with the place.
    """

    def place_of(line: int) -> str:
        return f"{name}:{line}" if chain else name

    statements: list[Any] = []
    try:
        for line, found in _gin_hooks.statements(text):
            place = place_of(line)
            if isinstance(found, _gin_hooks.Include):
                statements += _read_file(found.filename, place, chain)
            elif isinstance(found, _gin_hooks.Import):
                _run(found, place)
                statements.append(found)
            elif isinstance(found, _gin_hooks.Binding):
                statements.append(found._replace(place=place))
    except _gin_hooks.GinSyntaxError as error:
        reason, line, selector = error.args
        if selector is not None:
            find(selector, place_of(line))
        raise error_at(
            place_of(line), "gin syntax", reason, "correct the line"
        ) from error
    return statements


def _run(statement: _gin_hooks.Import, place: str) -> None:
    try:
        if statement.module.startswith("__gin__"):
            raise ImportError("dynamic registration is not supported")
        with gin.unlock_config():
            importlib.import_module(statement.module)
    except ImportError as error:
        got = f"`{statement.format()}` ({' '.join(str(error).split())})"
        todo = "correct the name or install it"
        raise error_at(place, "an import that works", got, todo) from error


def find(selector: str, place: str) -> Callable[..., Any]:
    """Returns what is configurable under a name.

    Args:
        selector: the name, perhaps with its module.
        place: which has it.

    Returns:
        The function or class.

    Raises:
        ValueError: with the place, if none or several have the name.
    """
    try:
        return gin.get_configurable(selector)
    except KeyError as error:
        got = f"`{selector}`, which several have"
        raise error_at(
            place, "one configurable", got, "write its module too"
        ) from error
    except ValueError as error:
        known = {name.split(".", i)[i] for name in registered for i in (0, 1)}
        todo = guess(selector, known, f"there are {sorted(known)}")
        raise error_at(place, "a configurable's name", f"`{selector}`", todo) from error
