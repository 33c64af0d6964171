"""Whether a value may be bound to a parameter, judged by names and annotations."""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def parameter_fault(
    target: Callable[..., Any],
    name: str,
    value: Any,
    wildcards: tuple[type, ...] = (),
) -> tuple[str, str, str] | None:
    """Finds out why a parameter cannot take a value that was written as a literal.

    Judged are int, float, bool, str, None, literals, classes, unions of these and
    lists and tuples of these. An int does for a float, but not a bool for an int; a
    list does for a tuple. Where an annotation says nothing certain the value passes,
    and so does the parameter's default.

    Args:
        target: function or class.
        name: of a parameter of the function or of the class's constructor.
        value: what to bind.
        wildcards: types that stand for values not known yet.

    Returns:
        `None`, or what was expected, what came, and what to do.

    Example:
        >>> def train(n_steps: int = 5, rate: float | None = None) -> None: ...
        >>> parameter_fault(train, "rate", 3)
        >>> parameter_fault(train, "rate", "3")
        ('float | None for', "'3' (str)", 'write a value of that type')
        >>> parameter_fault(train, "n_step", 3)
        ('a parameter for', 'no such parameter', 'did you mean `n_steps`?')
    """
    try:
        parameters = inspect.signature(_callable(target), eval_str=True).parameters
    except NameError:
        parameters = inspect.signature(_callable(target)).parameters
    except (TypeError, ValueError):
        return None
    names = list(parameters)[1 if inspect.isclass(target) else 0 :]
    if name not in names:
        if any(
            parameters[each].kind is inspect.Parameter.VAR_KEYWORD for each in names
        ):
            return None
        close = difflib.get_close_matches(name, names, 1, 0.5)
        todo = f"did you mean `{close[0]}`?" if close else f"there are {names}"
        return "a parameter for", "no such parameter", todo
    annotation = parameters[name].annotation
    if value is parameters[name].default or _fits(value, annotation, wildcards):
        return None
    return (
        f"{inspect.formatannotation(annotation)} for",
        f"{value!r} ({type(value).__name__})",
        "write a value of that type",
    )


def _callable(target: Any) -> Callable[..., Any]:
    if not inspect.isclass(target):
        return target
    return target.__new__ if target.__init__ is object.__init__ else target.__init__


def _fits(value: Any, annotation: Any, wildcards: tuple[type, ...]) -> bool:
    """Tells whether a literal can be what an annotation says; in doubt it can."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(value, wildcards):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each, wildcards) for each in args)
    if origin is typing.Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if origin is typing.Annotated:
        return _fits(value, args[0], wildcards)
    if annotation is None:
        return value is None
    if isinstance(value, list | tuple) and origin is not None:
        return _fits_sequence(value, origin, args, wildcards)
    return _fits_class(value, annotation if origin is None else origin)


def _fits_class(value: Any, cls: Any) -> bool:
    says_nothing = cls in (Any, object, inspect.Parameter.empty)
    if says_nothing or not inspect.isclass(cls) or getattr(cls, "_is_protocol", False):
        return True
    if cls in (int, float, bool, str, bytes):
        return type(value) in ((int, float) if cls is float else (cls,))
    if isinstance(value, list) and cls is tuple:
        return True
    is_text = isinstance(value, str | bytes) and issubclass(cls, Iterable)
    return isinstance(value, cls) and not is_text


def _fits_sequence(
    value: Sequence[Any], cls: type, args: tuple[Any, ...], wildcards: tuple[type, ...]
) -> bool:
    if not isinstance(value, cls) and cls is not tuple:
        return False
    if cls is tuple and args and args[-1] is not Ellipsis:
        return len(args) == len(value) and all(
            _fits(item, each, wildcards) for item, each in zip(value, args, strict=True)
        )
    return not args or all(_fits(item, args[0], wildcards) for item in value)
