"""Gin configurations of a run: read strictly, recorded completely.

A gin file is code: what it `import`s runs, and what it refers to (`@name()`) is
called. Read only files that you would also execute.

Stricter than gin itself: a binding with an unknown name, a misspelled parameter, a
value of the wrong type or an undefined macro is an error before anything runs, told
with its file and line; a binding that nothing used is an error after everything was
built (`check_all_used`). Scopes, macros, references, imports and includes are gin's.
"""

import dataclasses
import difflib
import importlib
import math
import pathlib
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gin
from gin import config_parser

from tfrl.core import durable
from tfrl.training import _signatures

_registered: dict[str, tuple[Any, Any]] = {}
_parsed: list["_Binding"] = []


def register(
    objects: Mapping[str, Callable[..., Any]], module: str = "tfrl"
) -> dict[str, Callable[..., Any]]:
    """Makes functions and classes configurable, without changing them.

    Registering the same ones again, as a notebook cell does when it is run twice,
    replaces the earlier registration.

    Args:
        objects: what configurations may name, by name.
        module: what may precede the name in a configuration, with a dot.

    Returns:
        The configurable versions by name; only calls of these take parameters from
        the configuration. A configurable class creates instances of the class given.

    Raises:
        ValueError: if another object has the name already.

    Example:
        >>> def make_scaled(factor: float = 1.0) -> float:
        ...     return 2 * factor
        >>> make_configured = register({"make_scaled": make_scaled})["make_scaled"]
        >>> parse(bindings=["make_scaled.factor = 3.0"])
        >>> make_configured()
        6.0
        >>> clear()
    """
    configurable = {}
    for name, target in objects.items():
        full_name = f"{module}.{name}"
        known, wrapper = _registered.get(full_name, (None, None))
        if known is not None and _origin(known) != _origin(target):
            raise ValueError(
                f"`register`: `objects` expected new names; got {full_name!r} for "
                f"{_origin(target)}, which {_origin(known)} has; choose another"
            )
        if known is not target:
            with gin.unlock_config():
                if known is not None:
                    gin.enter_interactive_mode()
                wrapper = gin.external_configurable(target, name=name, module=module)
                if known is not None:
                    gin.exit_interactive_mode()
            _registered[full_name] = target, wrapper
        configurable[name] = wrapper
    return configurable


def parse(
    config_files: Sequence[durable.Path] = (), bindings: Sequence[str] = ()
) -> None:
    """Replaces the configuration by the given files and bindings.

    Later bindings override earlier ones. An `include` is looked for beside the file
    that has it, then in the working directory. Nothing is changed if anything is
    wrong, except that imported modules stay imported.

    Args:
        config_files: paths of gin files.
        bindings: single lines of gin, such as `"PPO.discount = 0.99"`; messages call
            the first one `bindings:1`.

    Raises:
        ValueError: if a file is missing or cannot be parsed; if a configurable, a
            parameter, a reference or a macro is unknown; if a literal has not the
            type that its parameter is annotated with; if a required value is missing.
            The message is one line with the place as `file:line`.

    Example:
        >>> parse(bindings=["speed = %fast"])
        Traceback (most recent call last):
        ...
        ValueError: `parse`: bindings:1: expected a defined macro; got `%fast`; define \
it as `fast = ...`
    """
    for name, value in (("config_files", config_files), ("bindings", bindings)):
        if isinstance(value, str | bytes):
            got = f"got {value!r}; put it into a list"
            raise TypeError(f"`parse`: `{name}` expected a list of texts; {got}")
    statements: list[str | _Binding] = []
    for config_file in config_files:
        statements += _read_file(pathlib.Path(config_file), "`config_files`", ())
    for number, text in enumerate(bindings, 1):
        statements += _read(text, f"bindings:{number}", ())
    parsed = [each for each in statements if isinstance(each, _Binding)]
    macros = {each.name: each.value for each in parsed if not each.parameter}
    for binding in parsed:
        _check_binding(binding, macros)
    for binding in {each.key: each for each in parsed}.values():
        if binding.value == _Symbol("%gin.REQUIRED"):
            todo = "bind it after this line"
            raise _error(binding.place, "a value", f"`{binding}`", todo)
    clear()
    try:
        gin.parse_config([str(each) for each in statements])
        gin.finalize()
    except Exception as error:
        clear()
        got = " ".join(str(error).split())
        raise _error("finally", "what gin accepts", got, "correct it") from error
    _parsed.extend(parsed)


def check_all_used() -> None:
    """Makes sure that every binding reached the object it was meant for.

    To be called when everything has been built. A binding is used when a call of its
    configurable, in its scope or an inner one, took its value: not when the caller
    passed another value, and not when a binding of an inner scope hid it. A macro is
    used when it was read. What was used is read off gin's operative configuration.

    Raises:
        ValueError: if a binding was not used; the message names each with its file
            and line.

    Example:
        >>> clear()
        >>> check_all_used()
    """
    called: dict[Any, list[_Scope]] = {}
    for used in _read(operative(), "operative", ()):
        if isinstance(used, _Binding):
            scope, *what = used.key
            called.setdefault(tuple(what), []).append(scope)
    last = {binding.key: binding for binding in _parsed}
    bound: dict[Any, list[_Scope]] = {}
    for scope, *what in last:
        bound.setdefault(tuple(what), []).append(scope)
    unused = []
    for (scope, *what), binding in last.items():
        # The innermost scope that has a binding gives a call its value.
        givers = (
            max((s for s in bound[tuple(what)] if s == call[: len(s)]), key=len)
            for call in called.get(tuple(what), ())
            if scope == call[: len(scope)]
        )
        if scope not in givers:
            unused.append(f"{binding.place}: `{binding}`")
    if unused:
        raise ValueError(
            "`check_all_used`: expected every binding to be used; got unused "
            f"{'; '.join(unused)}; correct or remove them"
        )


def operative() -> str:
    """Returns the configuration that was in effect, as the text of a gin file.

    Beside the bindings used it holds the defaults of every configurable called, so
    that it describes the run even when defaults change later.

    Returns:
        Gin text; `parse` of it makes the same run.

    Example:
        >>> clear()
        >>> operative()
        ''
    """
    return gin.operative_config_str()


def write(directory: durable.Path, name: str = "config.gin") -> pathlib.Path:
    """Writes `operative()` into a folder, all of it or nothing.

    Args:
        directory: the folder; created if missing.
        name: name of the file.

    Returns:
        Path of the file.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> write(tempfile.mkdtemp()).name
        'config.gin'
    """
    path = pathlib.Path(directory) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace_file(path, operative().encode())
    return path


def clear() -> None:
    """Forgets the configuration, not what `register` made configurable.

    Example:
        >>> clear()
    """
    gin.clear_config()
    _parsed.clear()


_Scope = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Symbol:
    """`@name`, `@name()` or `%name` as a value; prints as gin text."""

    text: str

    @property
    def name(self) -> str:
        return self.text.strip("@%()")

    def __repr__(self) -> str:
        return self.text


class _Binding(NamedTuple):
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
    def key(self) -> tuple[_Scope, int, str]:
        """Is equal for bindings that gin takes for the same."""
        if not self.parameter:
            return tuple(self.name.split("/")), 0, ""
        scope = tuple(self.scope.split("/")) if self.scope else ()
        return scope, id(gin.get_configurable(self.selector)), self.parameter

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}"


class _Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as they are written."""

    def configurable_reference(self, name: str, evaluate: bool) -> _Symbol:
        return _Symbol(f"@{name}()" if evaluate else f"@{name}")

    def macro(self, name: str) -> _Symbol:
        return _Symbol(f"%{name}")


def _origin(target: Callable[..., Any]) -> str:
    return f"{target.__module__}.{target.__qualname__}"


def _error(place: str, expected: str, got: str, todo: str) -> ValueError:
    return ValueError(f"`parse`: {place}: expected {expected}; got {got}; {todo}")


def _guess(name: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean `{close[0]}`?" if close else otherwise


def _read_file(
    path: pathlib.Path, place: str, chain: tuple[str, ...]
) -> list[str | _Binding]:
    """Reads a file and what it includes; `chain` has the files that include it."""
    if str(path.resolve()) in chain:
        raise _error(place, "no file to include itself", str(path), "remove a line")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = f"{str(path)!r} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        raise _error(place, "a gin file", got, "correct the path") from error
    return _read(text, str(path), (*chain, str(path.resolve())))


def _read(text: str, name: str, chain: tuple[str, ...]) -> list[str | _Binding]:
    """Splits gin text into statements, reading what it includes."""
    statements: list[str | _Binding] = []
    line = 1
    try:
        parser = config_parser.ConfigParser(text, _Delegate())
        while (statement := parser.parse_statement()) is not None:
            line = statement.location.line_num
            place = f"{name}:{line}" if chain else name
            if isinstance(statement, config_parser.ImportStatement):
                _run_import(statement, place)
                statements.append(statement.format())
            elif isinstance(statement, config_parser.IncludeStatement):
                path = pathlib.Path(statement.filename)
                beside = pathlib.Path(chain[-1]).parent / path if chain else path
                found = beside if beside.exists() else path
                statements += _read_file(found, place, chain)
            elif isinstance(statement, config_parser.BindingStatement):
                statements.append(_Binding(place, *statement[:4]))
    except (SyntaxError, StopIteration, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None) or line
        place = f"{name}:{line}" if chain else name
        # The last line of gin's message names the place, the first Python's trouble.
        got = str(error.args[0]).splitlines()[-1].strip() if error.args else "the end"
        raise _error(place, "gin syntax", got, "correct the line") from error
    return statements


def _run_import(statement: config_parser.ImportStatement, place: str) -> None:
    try:
        if statement.module.startswith("__gin__"):
            raise ImportError("dynamic registration is not supported")
        with gin.unlock_config():
            importlib.import_module(statement.module)
    except ImportError as error:
        got = f"`{statement.format()}` ({' '.join(str(error).split())})"
        todo = "correct the name or install it"
        raise _error(place, "an import that works", got, todo) from error


def _check_binding(binding: _Binding, macros: Mapping[str, Any]) -> None:
    value = _resolved(binding.value, binding.place, macros, ())
    if not binding.parameter:
        return
    target = _find(binding.selector, binding.place)
    fault = _signatures.parameter_fault(target, binding.parameter, value, (_Symbol,))
    if fault is not None:
        expected, got, todo = fault
        raise _error(binding.place, f"{expected} `{binding.name}`", got, todo)


def _find(selector: str, place: str) -> Callable[..., Any]:
    try:
        return gin.get_configurable(selector)
    except KeyError as error:
        got = f"`{selector}`, which several have"
        raise _error(place, "one configurable", got, "write its module too") from error
    except ValueError as error:
        known = {name.split(".", i)[i] for name in _registered for i in (0, 1)}
        todo = _guess(selector, known, f"there are {sorted(known)}")
        raise _error(place, "a configurable's name", f"`{selector}`", todo) from error


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
        raise _error(place, "a finite number", repr(value), "gin cannot record it")
    if not isinstance(value, _Symbol):
        return value
    if value.text.startswith("@"):
        _find(value.name.split("/")[-1], place)
        return value
    if value.name in chain:
        raise _error(
            place, "macros without a loop", f"`{value}`", "define it otherwise"
        )
    if value.name in macros:
        return _resolved(macros[value.name], place, macros, (*chain, value.name))
    try:
        gin.query_parameter(value.name)
    except (KeyError, ValueError) as error:
        todo = _guess(value.name, macros, f"define it as `{value.name} = ...`")
        raise _error(place, "a defined macro", f"`{value}`", todo) from error
    return value
