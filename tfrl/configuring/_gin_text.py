"""Gin text: files and lines split into statements with their places, and checked."""

import difflib
import graphlib
import importlib
import inspect
import itertools
import os
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gin

from tfrl._internal import zoo_files
from tfrl.configuring import gin_calls

# What `configs.register` was given, and what it made of it, by full name.
registered: dict[str, tuple[Any, Any]] = {}

_LONGEST = 300


def error_at(place: str, expected: str, got: str, *todo: str) -> ValueError:
    """Returns the error for something wrong at a place of a configuration."""
    texts = (f"`parse`: {place}: expected {expected}", f"got {got}", *todo)
    longest = _LONGEST + len(place)
    return ValueError(
        "; ".join(x if len(x) <= longest else f"{x[:longest]}..." for x in texts)
    )


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
            f"`parse`: `{name}` expected a list of texts; got {value!r:.80}"
        )


def guess(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the advice to a misspelled name."""
    close = _close(name, known, 0.5)
    return f"did you mean `{close[0]}`?" if close else otherwise


def _close(name: str, known: Iterable[str], least: float) -> list[str]:
    return difflib.get_close_matches(name, sorted(known), 1, least)


def _read_file(file: str, place: str, chain: tuple[str, ...]) -> list[Any]:
    """Reads a file that the last one of a chain includes at a place."""
    try:
        path = zoo_files.included(file, chain[-1]) if chain else pathlib.Path(file)
        real = str(path.resolve())
        text = path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        # Where it is included, the end of a long name tells more than its start.
        name = repr(file if len(file) <= _LONGEST else f"...{file[-_LONGEST // 2 :]}")
        got = f"{name} ({getattr(error, 'strerror', 'no UTF-8 text')})"
        todo = _looked_in(chain) if chain else _in_zoo(file, error)
        raise error_at(place, "a gin file", got, *todo) from error
    if real in chain:
        raise error_at(place, "no file to include itself", real)
    return read(text, str(path), (*chain, real))


def _in_zoo(file: str, error: Exception) -> list[str]:
    """What to do where a file is missing that may have been meant to be of the zoo."""
    zoo = zoo_files.folder()
    if zoo is None or not isinstance(error, FileNotFoundError):
        return []
    close = _close(pathlib.Path(file).stem, [x.stem for x in zoo.glob("*.gin")], 0.6)
    return [f"did you mean {x!r}?" for x in close] or ["`tfrl zoo` lists what there is"]


def _looked_in(chain: tuple[str, ...]) -> list[str]:
    """Where a file was looked for that the last one of a chain includes."""
    beside, zoo = os.path.dirname(chain[-1]), zoo_files.folder()
    places = [beside, os.getcwd(), *([] if zoo is None else [str(zoo)])]
    return [f"looked for in {', '.join(dict.fromkeys(places))}"]


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
        for line, found in gin_calls.statements(text):
            place = place_of(line)
            if isinstance(found, gin_calls.Include):
                statements += _read_file(found.filename, place, chain)
            elif isinstance(found, gin_calls.Import):
                _run(found, place)
                statements.append(found)
            elif isinstance(found, gin_calls.Binding):
                statements.append(found._replace(place=place))
    except gin_calls.GinSyntaxError as error:
        reason, line, selector = error.args
        if selector is not None:
            find(selector, place_of(line))
        raise error_at(place_of(line), "gin syntax", reason) from error
    return statements


def _run(statement: gin_calls.Import, place: str) -> None:
    try:
        if statement.module.startswith("__gin__"):
            raise ImportError("dynamic registration is not supported")
        with gin.unlock_config():
            importlib.import_module(statement.module)
    except ImportError as error:
        got = f"`{statement.format()}` ({' '.join(str(error).split())})"
        raise error_at(place, "an import that works", got) from error


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
        meant = " or ".join(f"`{name}`" for name in gin_calls.full_names(selector))
        got = f"`{selector}`, which several have"
        raise error_at(place, "one configurable", got, f"write {meant}") from error
    except ValueError as error:
        known = {name.split(".", i)[i] for name in registered for i in (0, 1)}
        todo = f"there are {sorted(known)}"
        if not any(name.startswith("tfrl.") for name in registered):
            todo = "`import tfrl.rl_trainer` before, which registers those of tfrl"
        todo = guess(selector, known, todo)
        raise error_at(place, "a configurable's name", f"`{selector}`", todo) from error


_NUMBERS_AND_TEXT = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    bytes: (bytes,),
}


def check(bindings: Sequence[gin_calls.Binding]) -> None:
    """Checks every name in bindings, the types of values, and how they hang together.

    Args:
        bindings: all of a configuration; of one name the last counts.

    Raises:
        ValueError: with the place.
    """
    macros = {each.name: each.value for each in bindings if not each.parameter}
    for each in bindings:
        _check_names(each, macros, bindings)
    last = {gin_calls.key(each): each for each in bindings}
    _check_loops(last)
    for each in bindings:
        _check_value(each, macros)
    for each in last.values():
        if any(map(gin_calls.is_required, gin_calls.references(each.value))):
            raise error_at(each.place, "a value", f"`{each}`")


def _check_names(
    binding: gin_calls.Binding,
    macros: Mapping[str, Any],
    beside: Sequence[gin_calls.Binding],
) -> None:
    """Checks what is bound, and that macros exist and gin can record the value."""
    place = binding.place
    for name in map(gin_calls.macro_name, gin_calls.references(binding.value)):
        if name is not None and name not in macros:
            todo = guess(name, macros, f"define it as `{name} = ...`")
            raise error_at(place, "a defined macro", f"`%{name}`", todo)
    if not gin_calls.is_writable(binding.value):
        got = f"another for `{binding.name}`"
        raise error_at(place, "a value that gin can write", got)
    if not binding.parameter:
        return
    parameters = _parameters(binding)
    try:
        gin_calls.key(binding)
    except ValueError as error:
        expected, got = "a parameter for configurations", f"`{binding.name}` ({error})"
        if binding.parameter in parameters:
            raise error_at(place, expected, got) from error
        expected, got = f"a parameter for `{binding.name}`", "no such parameter"
        named = [x for x in beside if x.parameter]
        others = {x.selector for x in named if binding.parameter in _parameters(x)}
        meant = [f"`{other}.{binding.parameter}`" for other in sorted(others)]
        todo = guess(binding.parameter, parameters, f"there are {[*parameters]}")
        if meant:
            todo = f"did you mean {' or '.join(meant)}?"
        elif "env_kwargs" in parameters and not _close(
            binding.parameter, parameters, 0.75
        ):
            own = f"`{binding.selector}.env_kwargs = {{'{binding.parameter}': ...}}`"
            todo = f"arguments of the environment go into {own}"
        raise error_at(place, expected, got, todo) from error


def _parameters(binding: gin_calls.Binding) -> dict[str, inspect.Parameter]:
    """Parameters of what is configured; none if they cannot be read."""
    target: Any = find(binding.selector, binding.place)
    is_class = inspect.isclass(target)
    if is_class:
        plain = target.__init__ is object.__init__
        target = target.__new__ if plain else target.__init__
    try:
        found = inspect.signature(target, eval_str=True).parameters
    except NameError:
        found = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
    return dict([*found.items()][1 if is_class else 0 :])


def _check_loops(bindings: Mapping[tuple[str, str, str], gin_calls.Binding]) -> None:
    """Raises the error for references and macros that never come to an end."""
    bound: dict[gin_calls.Called, dict[str, gin_calls.Binding]] = {}
    for (scope, selector, parameter), binding in bindings.items():
        bound.setdefault((scope, selector), {})[parameter] = binding
    calls: dict[gin_calls.Called, dict[gin_calls.Called, gin_calls.Binding]] = {}
    waiting = [*bound]
    for now in waiting:
        scope, selector = now
        if now in calls:
            continue
        taken: dict[str, gin_calls.Binding] = {}
        for outer in gin_calls.scopes(scope):
            taken.update(bound.get((outer, selector), {}))
        calls[now] = {
            called: binding
            for binding in taken.values()
            for reference in gin_calls.references(binding.value)
            if (called := gin_calls.called(reference, scope)) is not None
        }
        waiting.extend(calls[now])
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        _, loop = error.args
        by = [calls[outer][inner] for inner, outer in itertools.pairwise(loop)]
        first = min(by, key=[*bindings.values()].index)
        expected = "references and macros without a loop"
        raise error_at(first.place, expected, f"`{first}`") from error


def _check_value(binding: gin_calls.Binding, macros: Mapping[str, Any]) -> None:
    """Checks that a literal has the type that its parameter is annotated with."""
    if not binding.parameter:
        return
    parameter = _parameters(binding).get(binding.parameter)
    try:
        value = _meant(binding.value, macros)
    except (TypeError, RecursionError) as error:
        expected = "a value that can be made"
        raise error_at(binding.place, expected, str(error)) from error
    if parameter is None or value is parameter.default:
        return
    if not _fits(value, parameter.annotation):
        raise error_at(
            binding.place,
            f"{inspect.formatannotation(parameter.annotation)} for `{binding.name}`",
            f"{value!r} ({type(value).__name__})",
        )


def _meant(value: Any, macros: Mapping[str, Any]) -> Any:
    """Puts the values of macros in their places."""
    if isinstance(value, list | tuple):
        return type(value)(_meant(each, macros) for each in value)
    if isinstance(value, dict):
        return {_meant(k, macros): _meant(v, macros) for k, v in value.items()}
    if isinstance(value, gin_calls.Reference):
        name = gin_calls.macro_name(value)
        return value if name is None else _meant(macros[name], macros)
    return value


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a literal can be what an annotation says; in doubt it can.

    An int does for a float, but not a bool for an int; a list does for a tuple.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    says_nothing = annotation is inspect.Parameter.empty
    if says_nothing or isinstance(value, gin_calls.Reference):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin is typing.Annotated:
        return _fits(value, args[0])
    if isinstance(annotation, type) and annotation in _NUMBERS_AND_TEXT:
        return type(value) in _NUMBERS_AND_TEXT[annotation]
    return _fits_class(value, origin or annotation, args)


def _fits_class(value: Any, cls: Any, args: tuple[Any, ...]) -> bool:
    if isinstance(value, list) and cls is tuple:
        value = tuple(value)
    try:
        is_one = isinstance(value, cls)
    except TypeError:
        return True
    if not is_one or not args:
        return is_one
    if isinstance(value, list | tuple) and cls is tuple and args[-1] is not Ellipsis:
        return len(args) == len(value) and all(map(_fits, value, args))
    if isinstance(value, list | tuple):
        return all(_fits(item, args[0]) for item in value)
    # Text is a sequence of texts, but nobody means that.
    return not isinstance(value, str | bytes)
