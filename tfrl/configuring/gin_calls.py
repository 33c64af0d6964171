"""All that is used of gin beyond what `import gin` shows: parser, references, calls.

Another version of gin may change these. `test_gin_calls.py` says in words which did.
"""

import functools
import inspect
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gin
from gin import config_parser

_MACRO, _CONSTANT = "gin.macro", "gin.constant"
_SYNTAX_ERRORS = (
    *(SyntaxError, StopIteration, tokenize.TokenError, RecursionError, MemoryError),
    # Of literals that Python cannot read.
    *(ValueError, TypeError),
)

# What stands for something to be called; all else that `run.json` marks is no name.
_MARKS = ("=call", "=partial", "=name")

Reference = gin.config.ConfigurableReference
Import = config_parser.ImportStatement
Include = config_parser.IncludeStatement
# The scopes, joined by "/", and the full name of what is called.
Called = tuple[str, str]


class GinSyntaxError(Exception):
    """What is wrong with a text, the number of its line, and a name, if that is it."""


class _UnknownName(SyntaxError):
    """A reference to what nobody registered."""


class Binding(NamedTuple):
    """`scope/selector.parameter = value`, or a macro; prints as gin text."""

    scope: str
    selector: str
    parameter: str
    value: Any
    place: str = ""

    @property
    def name(self) -> str:
        """What stands before the equals sign."""
        scoped = f"{self.scope}/{self.selector}" if self.scope else self.selector
        return f"{scoped}.{self.parameter}" if self.parameter else scoped

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}"


class _Delegate(gin.config.ParserDelegate):
    def configurable_reference(self, name: str, evaluate: bool) -> Any:
        try:
            return super().configurable_reference(name, evaluate)
        except (KeyError, ValueError):
            # Of all errors, gin's parser lets those of syntax through as they are.
            raise _UnknownName(name.rpartition("/")[2]) from None


def statements(text: str) -> Iterator[tuple[int, Any]]:
    """Splits gin text.

    Args:
        text: gin text.

    Yields:
        Numbers of lines, and what begins there: `Import`, `Include`, `Binding`, or what
        can be passed over.

    Raises:
        GinSyntaxError: if it is not of gin, or names what nobody registered.
    """
    parser = None
    try:
        parser = config_parser.ConfigParser(text, _Delegate())
        while (found := parser.parse_statement()) is not None:
            is_binding = isinstance(found, config_parser.BindingStatement)
            yield found.location.line_num, Binding(*found[:4]) if is_binding else found
    except _SYNTAX_ERRORS as error:
        line = getattr(error, "lineno", None) or (
            1 if parser is None else parser.current_token.start[0]
        )
        # The last line of gin's message names the place, the first Python's trouble.
        words = str(error.args[0]).splitlines() if error.args else []
        reason = words[-1].strip() if words else "one too deep, or without an end"
        name = reason if isinstance(error, _UnknownName) else None
        raise GinSyntaxError(reason, line, name) from error


def is_name(text: str) -> bool:
    """Whether something can be registered under a name."""
    return config_parser.MODULE_RE.match(text) is not None


def full_names(selector: str) -> list[str]:
    """Returns the names, with their modules, of all that a shorter one may mean."""
    return sorted(gin.config._REGISTRY.matching_selectors(selector))


def is_writable(value: Any) -> bool:
    """Whether gin reads a value as it prints it."""
    try:
        return bool(gin.config.parse_value(repr(value)) == value)
    except _SYNTAX_ERRORS:
        return False


def references(value: Any) -> list[Any]:
    """Returns the references in a value, macros among them."""
    return [*gin.config.iterate_references(value)]


def macro_name(reference: Any) -> str | None:
    """Returns what follows the "%" of a macro; None for other references."""
    scope, selector = reference.config_key
    return scope or None if selector == _MACRO else None


def is_required(reference: Any) -> bool:
    """Whether a reference stands for a value that another binding has to give."""
    return reference.config_key == ("gin.REQUIRED", _CONSTANT)


def called(reference: Any, scope: str) -> Called | None:
    """Returns what gin calls for a reference, met in a scope; None for none."""
    inner, selector = reference.config_key
    return (inner or scope, selector) if reference.evaluate else None


def meant(scope: str, selector: str) -> Called:
    """Returns what is called in any scope; of a macro, whose scope is its name, it."""
    return (scope if selector == _MACRO else "", selector)


def scopes(scope: str) -> list[str]:
    """Returns a scope and those around it, the outermost first."""
    parts = scope.split("/") if scope else []
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def key(binding: Binding) -> tuple[str, str, str]:
    """Returns the scope, full name and parameter that gin binds a value to.

    Raises:
        ValueError: in gin's words, if configurations may not bind it.
    """
    if not binding.parameter:
        return binding.name, _MACRO, "value"
    found = gin.config.ParsedBindingKey.parse(binding[:3])
    return found.scope, found.complete_selector, found.arg_name


def bound_call(target: Any) -> tuple[Any, dict[str, Any]] | None:
    """Returns the function or class behind what gin configures, and what is bound.

    Args:
        target: anything.

    Returns:
        None of anything else, the function itself among it.

    Example:
        >>> bound_call(len) is None
        True
    """
    known = target
    if isinstance(target, type):  # gin makes a subclass, and knows that by its base
        known = (*target.__mro__, None)[1]
    try:
        configured = gin.get_configurable(known)
    except (KeyError, TypeError, ValueError):
        # It is not known to gin, or cannot be looked up at all.
        return None
    if configured is not target:
        return None
    return inspect.unwrap(known), gin.get_bindings(known)


def without_gin(value: Any) -> Any:
    """Returns what other processes can be sent, where gin knows nothing.

    Args:
        value: nest of plain values, functions, partials and objects.

    Returns:
        The same with the functions and classes themselves in place of those that gin
        configures, with what is bound to them now.

    Example:
        >>> without_gin([len, 3])
        [<built-in function len>, 3]
    """
    if type(value) in (list, tuple):
        return type(value)(map(without_gin, value))
    if type(value) is dict:
        return {key: without_gin(item) for key, item in value.items()}
    if isinstance(value, functools.partial):
        function, *given = map(without_gin, (value.func, value.args, value.keywords))
        return functools.partial(function, *given[0], **given[1])
    found = bound_call(value)
    if found is not None:
        function, bindings = found
        return functools.partial(function, **without_gin(bindings))
    of_class = bound_call(type(value))
    if of_class is None or not hasattr(value, "__dict__"):
        return value
    made = object.__new__(of_class[0])
    made.__dict__.update(without_gin(value.__dict__))
    return made


def imported_modules() -> list[str]:
    """Returns the modules that the configuration imports.

    Returns:
        Their names, in the order of the configuration.

    Example:
        >>> gin.clear_config()
        >>> imported_modules()
        []
    """
    found = (each for _, each in statements(gin.config_str()))
    return [each.module for each in found if isinstance(each, Import)]


def written_call(
    name: str, arguments: Mapping[str, Any], names: Mapping[str, str]
) -> list[str] | None:
    """Writes a call as gin bindings.

    Args:
        name: of what is called.
        arguments: of the call by name, nested calls among them as `run.json` has them.
        names: how configurations call functions, by "module:name".

    Returns:
        The lines; None if gin has no words for it.

    Example:
        >>> written_call("Trainer", {"seed": 3}, {})
        ['Trainer.seed = 3']
    """
    calls: dict[str, Mapping[str, Any]] = {name: arguments}
    lines, waiting = [], [name]
    while waiting:
        name = waiting.pop(0)
        for parameter, value in calls[name].items():
            text = repr(value)
            marks = (
                {key for key in value if key in _MARKS} if type(value) is dict else ()
            )
            if marks:
                (kind,) = marks
                inner = names.get(value[kind])
                given = {key: item for key, item in value.items() if key != kind}
                # One name has one set of bindings.
                if inner is None or calls.setdefault(inner, given) is not given:
                    return None
                waiting.append(inner)
                text = f"@{inner}()" if kind == "=call" else f"@{inner}"
            elif "'=" in text or not is_writable(value):
                # Marks that are further inside would be read as text.
                return None
            lines.append(f"{name}.{parameter} = {text}")
    return lines
