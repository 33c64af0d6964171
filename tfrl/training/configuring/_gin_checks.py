"""Whether the bindings of a configuration fit what they configure, and end."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfrl.training.configuring import _gin_text, _signatures

# Of values, macros, references and scopes in one another: gin follows by recursion.
_DEEPEST = 50
_MOST_VALUES = 100_000
_REQUIRED = ("%gin.REQUIRED", "%REQUIRED")

_Called = tuple[_gin_text.Scope, int]


def check(bindings: Sequence[_gin_text.Binding]) -> None:
    """Checks every name in bindings, the types of values, and how they hang together.

    Args:
        bindings: all of a configuration; of one name the last counts.

    Raises:
        ValueError: with the place.
    """
    macros = {each.name: each.value for each in bindings if not each.parameter}
    values = _Values(macros)
    for binding in bindings:
        _check_binding(binding, values)
    last = {each.key: each for each in bindings}
    for binding in last.values():
        if any(each.text in _REQUIRED for each in _symbols(binding.value)):
            todo = "bind it after this line"
            raise _gin_text.error_at(binding.place, "a value", f"`{binding}`", todo)
    _References(last).check()


def _check_binding(binding: _gin_text.Binding, values: "_Values") -> None:
    place = binding.place
    _check_scopes(binding.name, place)
    value = values.resolved(binding.value, place)
    if binding.parameter:
        target = _gin_text.find(binding.selector, place)
        found = _signatures.parameter_fault(
            target, binding.parameter, value, (_gin_text.Symbol,)
        )
        if found is not None:
            expected, got, todo = found
            raise _gin_text.error_at(place, f"{expected} `{binding.name}`", got, todo)
    _gin_text.check_written(binding)


def _check_scopes(name: str, place: str) -> None:
    if name.count("/") > _DEEPEST:
        expected = f"{_DEEPEST} scopes at most"
        raise _gin_text.error_at(place, expected, f"`{name}`", "leave some out")


def _symbols(value: Any) -> Iterator[_gin_text.Symbol]:
    if isinstance(value, _gin_text.Symbol):
        yield value
    elif isinstance(value, dict):
        yield from _symbols([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _symbols(item)


class _Values:
    """Puts macros' values in their places and checks every name on the way."""

    def __init__(self, macros: Mapping[str, Any]) -> None:
        self._macros = macros
        self._n_values = 0

    def resolved(
        self, value: Any, place: str, chain: tuple[str, ...] = (), depth: int = 0
    ) -> Any:
        self._n_values += bool(chain)
        if depth > _DEEPEST or self._n_values > _MOST_VALUES:
            expected = f"{_DEEPEST} values or macros in another at most, and macros"
            expected += f" to stand for {_MOST_VALUES} values at most"
            raise _gin_text.error_at(place, expected, "more", "write it shorter")
        if isinstance(value, list | tuple):
            items = (self.resolved(each, place, chain, depth + 1) for each in value)
            return type(value)(items)
        if isinstance(value, dict):
            parts = itertools.chain(*value.items())
            items = (self.resolved(each, place, chain, depth + 1) for each in parts)
            try:
                return dict(zip(items, items, strict=True))
            except TypeError as error:
                todo = "make it a tuple"
                raise _gin_text.error_at(
                    place, "keys to be hashed", str(error), todo
                ) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _gin_text.error_at(
                place, "a finite number", repr(value), "gin cannot record it"
            )
        if isinstance(value, _gin_text.Symbol):
            return self._meant(value, place, chain, depth)
        return value

    def _meant(
        self, value: _gin_text.Symbol, place: str, chain: tuple[str, ...], depth: int
    ) -> Any:
        _check_scopes(value.name, place)
        if value.text.startswith("@"):
            _gin_text.find(value.selector, place)
            return value
        if value.name in chain:
            raise _gin_text.error_at(
                place, "macros without a loop", f"`{value}`", "define it otherwise"
            )
        if value.name in self._macros:
            meant = self._macros[value.name]
            return self.resolved(meant, place, (*chain, value.name), depth + 1)
        if not _gin_text.is_constant(value.name):
            todo = _gin_text.guess(
                value.name, self._macros, f"define it as `{value.name} = ...`"
            )
            raise _gin_text.error_at(place, "a defined macro", f"`{value}`", todo)
        return value


class _References:
    """What calls what while gin makes a value; each is a scope and a configurable."""

    def __init__(self, bindings: Mapping[Any, _gin_text.Binding]) -> None:
        self._bound: dict[_Called, dict[str, _gin_text.Binding]] = {}
        for (scope, target, parameter), binding in bindings.items():
            self._bound.setdefault((scope, target), {})[parameter] = binding
        self._heights: dict[_Called, int] = {}

    def check(self) -> None:
        """Raises the error for the first reference that never comes to an end."""
        for called, binding in self._bound.items():
            self._height(called, next(iter(binding.values())), ())

    def _height(
        self, called: _Called, by: _gin_text.Binding, path: tuple[Any, ...]
    ) -> int:
        """How many calls are in one another, at most."""
        if called in path:
            todo = "refer to another"
            raise _gin_text.error_at(
                by.place, "references without a loop", f"`{by}`", todo
            )
        if len(path) + self._heights.get(called, 0) > _DEEPEST:
            expected = f"{_DEEPEST} references in one another at most"
            raise _gin_text.error_at(
                by.place, expected, f"more by `{by}`", "write it shorter"
            )
        if called not in self._heights:
            inner = [
                self._height(each, binding, (*path, called))
                for each, binding in self._calls(*called)
            ]
            self._heights[called] = 1 + max(inner, default=0)
        return self._heights[called]

    def _calls(
        self, scope: _gin_text.Scope, target: int
    ) -> Iterator[tuple[_Called, _gin_text.Binding]]:
        taken: dict[str, _gin_text.Binding] = {}
        is_macro = target == 0
        for n_scopes in range(len(scope) if is_macro else 0, len(scope) + 1):
            taken.update(self._bound.get((scope[:n_scopes], target), {}))
        for binding in taken.values():
            for symbol in _symbols(binding.value):
                if symbol.text.startswith("%"):
                    yield (tuple(symbol.name.split("/")), 0), binding
                elif symbol.text.endswith("()"):
                    called = id(_gin_text.find(symbol.selector, binding.place))
                    yield (symbol.scope or scope, called), binding
