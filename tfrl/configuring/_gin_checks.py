"""Whether the bindings of a configuration fit what they configure, and each other."""

import graphlib
import inspect
import itertools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl.configuring import _gin_hooks, _gin_text

_NUMBERS_AND_TEXT = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    bytes: (bytes,),
}


def check(bindings: Sequence[_gin_hooks.Binding]) -> None:
    """Checks every name in bindings, the types of values, and how they hang together.

    Args:
        bindings: all of a configuration; of one name the last counts.

    Raises:
        ValueError: with the place.
    """
    macros = {each.name: each.value for each in bindings if not each.parameter}
    for each in bindings:
        _check_names(each, macros)
    last = {_gin_hooks.key(each): each for each in bindings}
    _check_loops(last)
    for each in bindings:
        _check_value(each, macros)
    for each in last.values():
        if any(map(_gin_hooks.is_required, _gin_hooks.references(each.value))):
            todo = "bind it after this line"
            raise _gin_text.error_at(each.place, "a value", f"`{each}`", todo)


def _check_names(binding: _gin_hooks.Binding, macros: Mapping[str, Any]) -> None:
    """Checks what is bound, and that macros exist and gin can record the value."""
    place = binding.place
    for name in map(_gin_hooks.macro_name, _gin_hooks.references(binding.value)):
        if name is not None and name not in macros:
            todo = _gin_text.guess(name, macros, f"define it as `{name} = ...`")
            raise _gin_text.error_at(place, "a defined macro", f"`%{name}`", todo)
    if not _gin_hooks.is_writable(binding.value):
        expected, todo = "a value that gin can write", "write it otherwise"
        raise _gin_text.error_at(place, expected, f"another for `{binding.name}`", todo)
    if not binding.parameter:
        return
    parameters = _parameters(binding)
    try:
        _gin_hooks.key(binding)
    except ValueError as error:
        expected, got = "a parameter for configurations", f"`{binding.name}` ({error})"
        todo = "remove the line"
        if binding.parameter not in parameters:
            expected, got = f"a parameter for `{binding.name}`", "no such parameter"
            names = f"there are {[*parameters]}"
            todo = _gin_text.guess(binding.parameter, parameters, names)
        raise _gin_text.error_at(place, expected, got, todo) from error


def _parameters(binding: _gin_hooks.Binding) -> dict[str, inspect.Parameter]:
    """Parameters of what is configured; none if they cannot be read."""
    target: Any = _gin_text.find(binding.selector, binding.place)
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


def _check_loops(bindings: Mapping[tuple[str, str, str], _gin_hooks.Binding]) -> None:
    """Raises the error for references and macros that never come to an end."""
    bound: dict[_gin_hooks.Called, dict[str, _gin_hooks.Binding]] = {}
    for (scope, selector, parameter), binding in bindings.items():
        bound.setdefault((scope, selector), {})[parameter] = binding
    calls: dict[_gin_hooks.Called, dict[_gin_hooks.Called, _gin_hooks.Binding]] = {}
    waiting = [*bound]
    for now in waiting:
        scope, selector = now
        if now in calls:
            continue
        taken: dict[str, _gin_hooks.Binding] = {}
        for outer in _gin_hooks.scopes(scope):
            taken.update(bound.get((outer, selector), {}))
        calls[now] = {
            called: binding
            for binding in taken.values()
            for reference in _gin_hooks.references(binding.value)
            if (called := _gin_hooks.called(reference, scope)) is not None
        }
        waiting.extend(calls[now])
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        _, loop = error.args
        by = [calls[outer][inner] for inner, outer in itertools.pairwise(loop)]
        first = min(by, key=[*bindings.values()].index)
        expected, todo = "references and macros without a loop", "refer to another"
        raise _gin_text.error_at(first.place, expected, f"`{first}`", todo) from error


def _check_value(binding: _gin_hooks.Binding, macros: Mapping[str, Any]) -> None:
    """Checks that a literal has the type that its parameter is annotated with."""
    if not binding.parameter:
        return
    parameter = _parameters(binding).get(binding.parameter)
    try:
        value = _meant(binding.value, macros)
    except (TypeError, RecursionError) as error:
        raise _gin_text.error_at(
            binding.place, "a value that can be made", str(error), "write it otherwise"
        ) from error
    if parameter is None or value is parameter.default:
        return
    if not _fits(value, parameter.annotation):
        raise _gin_text.error_at(
            binding.place,
            f"{inspect.formatannotation(parameter.annotation)} for `{binding.name}`",
            f"{value!r} ({type(value).__name__})",
            "write a value of that type",
        )


def _meant(value: Any, macros: Mapping[str, Any]) -> Any:
    """Puts the values of macros in their places."""
    if isinstance(value, list | tuple):
        return type(value)(_meant(each, macros) for each in value)
    if isinstance(value, dict):
        return {_meant(k, macros): _meant(v, macros) for k, v in value.items()}
    if isinstance(value, _gin_hooks.Reference):
        name = _gin_hooks.macro_name(value)
        return value if name is None else _meant(macros[name], macros)
    return value


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a literal can be what an annotation says; in doubt it can.

    An int does for a float, but not a bool for an int; a list does for a tuple.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    says_nothing = annotation is inspect.Parameter.empty
    if says_nothing or isinstance(value, _gin_hooks.Reference):
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
