"""Gin text: split into bindings, and every name in it checked before gin sees it."""

import dataclasses
import difflib
import importlib
import math
import pathlib
import tokenize
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gin
from gin import config_parser

from tfrl.training import _signatures

# What `configs.register` was given, and what it made of it, by full name.
registered: dict[str, tuple[Any, Any]] = {}

_LONGEST = 300

Scope = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Symbol:
    """`@name`, `@name()` or `%name` as a value; prints as gin text."""

    text: str

    @property
    def name(self) -> str:
        return self.text.strip("@%()")

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


def error_at(place: str, expected: str, got: str, todo: str) -> ValueError:
    """Returns the error for something wrong at a place of a configuration."""
    return ValueError(f"`parse`: {place}: expected {expected}; got {got}; {todo}")


def _guess(name: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean `{close[0]}`?" if close else otherwise


def read_file(
    path: pathlib.Path, place: str, chain: tuple[str, ...], safe: bool = False
) -> list[str | Binding]:
    """Reads a file and what it includes.

    Args:
        path: of the file.
        place: which refers to it.
        chain: the files that include it.
        safe: refuse what `configs.parse` says.

    Returns:
        The statements: imports as text, and bindings.

    Raises:
        ValueError: with the place.
    """
    if str(path.resolve()) in chain:
        raise error_at(place, "no file to include itself", str(path), "remove a line")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = f"{str(path)!r} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        raise error_at(place, "a gin file", got, "correct the path") from error
    return read(text, str(path), (*chain, str(path.resolve())), safe)


def read(
    text: str, name: str, chain: tuple[str, ...], safe: bool = False
) -> list[str | Binding]:
    """Splits gin text into statements, reading what it includes.

    Args:
        text: gin text.
        name: of the file, or of a line that is in none.
        chain: the files that include it, and itself.
        safe: refuse what `configs.parse` says.

    Returns:
        The statements: imports as text, and bindings.

    Raises:
        ValueError: with the place.
    """
    statements: list[str | Binding] = []
    line = 1
    try:
        parser = config_parser.ConfigParser(text, _Delegate())
        while (statement := _next_statement(parser)) is not None:
            line = statement.location.line_num
            place = f"{name}:{line}" if chain else name
            if isinstance(statement, config_parser.ImportStatement):
                if safe:
                    todo = "remove it, or parse what you would execute without `safe`"
                    got = f"`{statement.format()}`"
                    raise error_at(place, "no import where `safe`", got, todo)
                _run_import(statement, place)
                statements.append(statement.format())
            elif isinstance(statement, config_parser.IncludeStatement):
                found = _included(statement.filename, place, chain, safe)
                statements += read_file(found, place, chain, safe)
            elif isinstance(statement, config_parser.BindingStatement):
                statements.append(Binding(place, *statement[:4]))
    except _SYNTAX_ERRORS as error:
        line = getattr(error, "lineno", None) or line
        place = f"{name}:{line}" if chain else name
        # The last line of gin's message names the place, the first Python's trouble.
        words = str(error.args[0]).splitlines() if error.args else []
        got = (
            words[-1].strip()[:_LONGEST] if words else "one too deep, or without an end"
        )
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
    except ValueError as error:
        raise _LiteralError(*error.args) from error


def _included(
    filename: str, place: str, chain: tuple[str, ...], safe: bool
) -> pathlib.Path:
    """Returns the path of a file that is included."""
    if "\0" in filename:
        raise error_at(place, "a gin file", repr(filename), "correct the path")
    path = pathlib.Path(filename)
    beside = pathlib.Path(chain[-1]).parent / path if chain else path
    if not safe:
        return beside if beside.exists() else path
    if not chain or not beside.resolve().is_relative_to(pathlib.Path(chain[0]).parent):
        raise error_at(
            place,
            "only files below the folder of the first to be included where `safe`",
            repr(filename),
            "move it there, or pass it among `config_files`",
        )
    return beside


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


def check_binding(binding: Binding, macros: Mapping[str, Any]) -> None:
    """Checks every name in a binding and the type of its value.

    Args:
        binding: the binding.
        macros: values of all macros by name.

    Raises:
        ValueError: with the place.
    """
    value = _resolved(binding.value, binding.place, macros, ())
    if not binding.parameter:
        return
    target = _find(binding.selector, binding.place)
    found = _signatures.parameter_fault(target, binding.parameter, value, (Symbol,))
    if found is not None:
        expected, got, todo = found
        raise error_at(binding.place, f"{expected} `{binding.name}`", got, todo)


def _find(selector: str, place: str) -> Callable[..., Any]:
    try:
        return gin.get_configurable(selector)
    except KeyError as error:
        got = f"`{selector}`, which several have"
        raise error_at(
            place, "one configurable", got, "write its module too"
        ) from error
    except ValueError as error:
        known = {name.split(".", i)[i] for name in registered for i in (0, 1)}
        todo = _guess(selector, known, f"there are {sorted(known)}")
        raise error_at(place, "a configurable's name", f"`{selector}`", todo) from error


def _resolved(
    value: Any, place: str, macros: Mapping[str, Any], chain: tuple[str, ...]
) -> Any:
    """Puts macros' values in their places and checks every name on the way."""
    if isinstance(value, list | tuple):
        return type(value)(_resolved(item, place, macros, chain) for item in value)
    if isinstance(value, dict):
        return {
            _resolved(key, place, macros, chain): _resolved(item, place, macros, chain)
            for key, item in value.items()
        }
    if isinstance(value, float) and not math.isfinite(value):
        raise error_at(place, "a finite number", repr(value), "gin cannot record it")
    if not isinstance(value, Symbol):
        return value
    if value.text.startswith("@"):
        _find(value.name.split("/")[-1], place)
        return value
    if value.name in chain:
        raise error_at(
            place, "macros without a loop", f"`{value}`", "define it otherwise"
        )
    if value.name in macros:
        return _resolved(macros[value.name], place, macros, (*chain, value.name))
    try:
        gin.query_parameter(value.name)
    except (KeyError, ValueError) as error:
        todo = _guess(value.name, macros, f"define it as `{value.name} = ...`")
        raise error_at(place, "a defined macro", f"`{value}`", todo) from error
    return value
