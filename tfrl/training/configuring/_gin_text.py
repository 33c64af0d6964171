"""Gin text: split into bindings, and every name in it checked before gin sees it."""

import dataclasses
import difflib
import importlib
import io
import os
import pathlib
import tokenize
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gin
from gin import config_parser

# What `configs.register` was given, and what it made of it, by full name.
registered: dict[str, tuple[Any, Any]] = {}

_LONGEST = 300
_MOST_CHARACTERS, _MOST_FILES = 50_000, 250

Scope = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Symbol:
    """`@name`, `@name()` or `%name` as a value; prints as gin text."""

    text: str

    @property
    def name(self) -> str:
        return self.text.strip("@%()")

    @property
    def scope(self) -> Scope:
        return tuple(self.name.split("/")[:-1])

    @property
    def selector(self) -> str:
        return self.name.split("/")[-1]

    def __repr__(self) -> str:
        return self.text


class Binding(NamedTuple):
    """`scope/selector.parameter = value`, or a macro; prints as gin text."""

    place: str
    scope: str
    selector: str
    parameter: str
    value: Any

    @property
    def name(self) -> str:
        scoped = f"{self.scope}/{self.selector}" if self.scope else self.selector
        return f"{scoped}.{self.parameter}" if self.parameter else scoped

    @property
    def key(self) -> tuple[Scope, int, str]:
        """Is equal for bindings that gin takes for the same."""
        if not self.parameter:
            return tuple(self.name.split("/")), 0, ""
        scope = tuple(self.scope.split("/")) if self.scope else ()
        return scope, id(gin.get_configurable(self.selector)), self.parameter

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}"


class _Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as they are written."""

    def configurable_reference(self, name: str, evaluate: bool) -> Symbol:
        return Symbol(f"@{name}()" if evaluate else f"@{name}")

    def macro(self, name: str) -> Symbol:
        return Symbol(f"%{name}")


class Safety:
    """What may still be read of a text that nobody vouches for."""

    def __init__(self) -> None:
        self._n_characters = _MOST_CHARACTERS

    def take(self, n_characters: int, name: str, place: str) -> None:
        """Raises the error for `place` if so many of `name` are too many."""
        # Many small files cost time as well.
        self._n_characters -= max(n_characters, _MOST_CHARACTERS // _MOST_FILES)
        if self._n_characters < 0:
            most = f"{_MOST_CHARACTERS} characters in {_MOST_FILES} files or lines"
            todo = "shorten it, or parse what you would execute without `safe`"
            got = f"more with {name}"
            raise error_at(place, f"at most {most} where `safe`", got, todo)


def error_at(place: str, expected: str, got: str, todo: str) -> ValueError:
    """Returns the error for something wrong at a place of a configuration."""
    expected, got, todo = (
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        for text in (expected, got, todo)
    )
    return ValueError(f"`parse`: {place}: expected {expected}; got {got}; {todo}")


def read_all(
    config_files: Iterable[str | os.PathLike[str]], bindings: Iterable[str], safe: bool
) -> list[str | Binding]:
    """Reads files and lines, and what they include.

    Args:
        config_files: as of `configs.parse`.
        bindings: as of `configs.parse`.
        safe: as of `configs.parse`.

    Returns:
        The statements: imports as text, and bindings.

    Raises:
        TypeError: if an argument is no list, or holds something else.
        ValueError: with the place.
    """
    files, lines = (
        _listed(name, value, kinds)
        for name, value, kinds in (
            ("config_files", config_files, (str, os.PathLike)),
            ("bindings", bindings, (str,)),
        )
    )
    safety = Safety() if safe else None
    statements = []
    for file in files:
        path = _path(os.fspath(file), "`config_files`")
        statements += read_file(path, "`config_files`", (), safety)
    for number, text in enumerate(lines, 1):
        statements += read(text, f"bindings:{number}", (), safety)
    return statements


def _listed(name: str, value: Any, kinds: tuple[type, ...]) -> list[Any]:
    is_one = isinstance(value, str | bytes | os.PathLike | Mapping)
    listed = [] if is_one or not isinstance(value, Iterable) else list(value)
    if is_one or not isinstance(value, Iterable):
        todo = "put it into a list"
    elif not all(isinstance(each, kinds) for each in listed):
        todo = "give texts alone"
    else:
        return listed
    raise TypeError(
        f"`parse`: `{name}` expected a list of texts; got {value!r:.80}; {todo}"
    )


def guess(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the advice to a misspelled name."""
    close = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean `{close[0]}`?" if close else otherwise


def read_file(
    path: pathlib.Path,
    place: str,
    chain: tuple[str, ...],
    safety: Safety | None = None,
) -> list[str | Binding]:
    """Reads a file and what it includes.

    Args:
        path: of the file.
        place: which refers to it.
        chain: the files that include it.
        safety: if given, refuse what `configs.parse` refuses where `safe`.

    Returns:
        The statements: imports as text, and bindings.

    Raises:
        ValueError: with the place.
    """
    try:
        real = str(path.resolve())
        if real not in chain and safety is not None and path.exists():
            if not path.is_file():
                raise OSError(0, "no plain file")
            safety.take(path.stat().st_size, _clipped(path), place)
        text = "" if real in chain else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = f"{_clipped(path)} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        raise error_at(place, "a gin file", got, "correct the path") from error
    if real in chain:
        raise error_at(place, "no file to include itself", str(path), "remove a line")
    return read(text, str(path), (*chain, real), safety)


def read(
    text: str,
    name: str,
    chain: tuple[str, ...],
    safety: Safety | None = None,
) -> list[str | Binding]:
    """Splits gin text into statements, reading what it includes.

    Args:
        text: gin text.
        name: of the file, or of a line that is in none.
        chain: the files that include it, and itself.
        safety: if given, refuse what `configs.parse` refuses where `safe`.

    Returns:
        The statements: imports as text, and bindings.

    Raises:
        ValueError: with the place.
    """
    statements: list[str | Binding] = []
    line = 1
    try:
        if safety is not None:
            if not chain:
                safety.take(len(text), name, name)
            _check_strings(text)
        parser = config_parser.ConfigParser(text, _Delegate())
        while (statement := _next_statement(parser)) is not None:
            line = statement.location.line_num
            place = f"{name}:{line}" if chain else name
            if isinstance(statement, config_parser.ImportStatement):
                if safety is not None:
                    todo = "remove it, or parse what you would execute without `safe`"
                    got = f"`{statement.format()}`"
                    raise error_at(place, "no import where `safe`", got, todo)
                _run_import(statement, place)
                statements.append(statement.format())
            elif isinstance(statement, config_parser.IncludeStatement):
                found = _included(statement.filename, place, chain, safety)
                statements += read_file(found, place, chain, safety)
            elif isinstance(statement, config_parser.BindingStatement):
                statements.append(Binding(place, *statement[:4]))
    except _SYNTAX_ERRORS as error:
        line = getattr(error, "lineno", None) or line
        place = f"{name}:{line}" if chain else name
        # The last line of gin's message names the place, the first Python's trouble.
        words = str(error.args[0]).splitlines() if error.args else []
        got = words[-1].strip() if words else "one too deep, or without an end"
        raise error_at(place, "gin syntax", got, "correct the line") from error
    return statements


class _LiteralError(Exception):
    """A literal that Python cannot read."""


_SYNTAX_ERRORS = (
    SyntaxError,
    StopIteration,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
    _LiteralError,
)


def _next_statement(parser: config_parser.ConfigParser) -> Any:
    try:
        return parser.parse_statement()
    except (ValueError, TypeError) as error:
        raise _LiteralError(*error.args) from error


def _check_strings(text: str) -> None:
    """Refuses a long row of strings: gin reads it anew with each further one."""
    n_strings = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            n_strings = n_strings + 1 if token.type == tokenize.STRING else 0
        if n_strings > 1_000:
            place = ("", token.start[0], None, "")
            raise SyntaxError("more than 1000 strings in a row", place)


def _included(
    filename: str, place: str, chain: tuple[str, ...], safety: Safety | None
) -> pathlib.Path:
    """Returns the path of a file that is included."""
    path = _path(filename, place)
    beside = pathlib.Path(chain[-1]).parent / path if chain else path
    if safety is None:
        return beside if beside.exists() else path
    if not chain or not beside.resolve().is_relative_to(pathlib.Path(chain[0]).parent):
        raise error_at(
            place,
            "only files below the folder of the first to be included where `safe`",
            repr(filename),
            "move it there, or pass it among `config_files`",
        )
    return beside


def _path(text: str, place: str) -> pathlib.Path:
    try:
        is_path = "\0" not in text and bool(os.fsencode(text))
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise error_at(place, "a gin file", _clipped(text), "correct the path")
    return pathlib.Path(text)


def _clipped(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return repr(text if len(text) <= _LONGEST else f"...{text[-_LONGEST // 2 :]}")


def _run_import(statement: config_parser.ImportStatement, place: str) -> None:
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


def is_constant(name: str) -> bool:
    """Tells whether `%name` is known to gin without any configuration."""
    try:
        gin.query_parameter(name)
    except (KeyError, ValueError):
        return False
    # Gin finds parameters by it too, bound by the configuration before.
    try:
        gin.config.ParsedBindingKey.parse(name)
    except (KeyError, ValueError):
        return True
    return False


def check_written(binding: Binding) -> None:
    """Makes sure that gin can bind the parameter, and reads the binding as printed.

    Args:
        binding: whose names exist.

    Raises:
        ValueError: with the place.
    """
    if binding.parameter:
        try:
            gin.config.ParsedBindingKey.parse(binding[1:4])
        except ValueError as error:
            got = f"`{binding.name}` ({error})"
            raise error_at(
                binding.place, "a parameter for configurations", got, "remove the line"
            ) from error
    try:
        parser = config_parser.ConfigParser(str(binding), _Delegate())
        is_same = parser.parse_statement()[:4] == binding[1:]
    except (*_SYNTAX_ERRORS, ValueError):
        is_same = False
    if not is_same:
        got = f"another for `{binding.name}`"
        todo = "write it otherwise"
        raise error_at(binding.place, "a value that gin can write", got, todo)
