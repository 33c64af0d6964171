"""Checks of numbers and choices that need no TensorFlow. They only raise."""

import numbers
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np


def check_whole_number(
    where: str, name: str, value: Any, low: int | None = None, high: int | None = None
) -> int:
    """Raises unless `value` is a Python or numpy integer within bounds.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value.
        low: the least number admitted, None for any.
        high: the greatest one admitted, None for any.

    Returns:
        The number as an int.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is outside the bounds.

    Example:
        >>> check_whole_number("quantiles", "n", np.int64(3), low=1)
        3
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    above = low is None or (whole and value >= low)
    if whole and above and (high is None or value <= high):
        return int(value)
    bounds = f" of at least {low}" if high is None else f" in [{low}, {high}]"
    raise (ValueError if whole else TypeError)(
        f"`{where}`: `{name}` expected an int{'' if low is None else bounds}; "
        f"got {value!r}; correct it"
    )


def check_whole_numbers(
    where: str, name: str, values: Any, low: int | None = None
) -> tuple[int, ...]:
    """Raises unless `values` is a sequence of integers, as `check_whole_number`.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        values: its value.
        low: the least number admitted, None for any.

    Returns:
        The numbers as ints.

    Raises:
        TypeError: if it is no sequence of integers.
        ValueError: if one is less than `low`.

    Example:
        >>> check_whole_numbers("MLP", "hidden_units", [64, 64], low=1)
        (64, 64)
    """
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        raise TypeError(
            f"`{where}`: `{name}` expected a sequence of ints; got {values!r}; put "
            "it into a tuple"
        )
    return tuple(check_whole_number(where, name, value, low) for value in values)


def check_type(where: str, name: str, value: Any, kinds: Any, expected: str) -> None:
    """Raises a TypeError unless `value` is an instance of `kinds`.

    Example:
        >>> check_type("make_vec", "env_id", 3, str, "the id of an environment")
        Traceback (most recent call last):
        ...
        TypeError: `make_vec`: `env_id` expected the id of an environment; got 3
    """
    if not isinstance(value, kinds):
        raise TypeError(f"`{where}`: `{name}` expected {expected}; got {value!r:.200}")


def check_one_of(where: str, name: str, value: Any, choices: Collection[Any]) -> None:
    """Raises unless `value` is one of the choices.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value.
        choices: the values admitted.

    Raises:
        ValueError: if it is none of them.

    Example:
        >>> check_one_of("resize", "mode", "cubic", ("area", "nearest"))
        Traceback (most recent call last):
        ...
        ValueError: `resize`: `mode` expected one of ['area', 'nearest']; got 'cubic';
        check the spelling
    """
    if value not in choices:
        raise ValueError(
            f"`{where}`: `{name}` expected one of {list(choices)}; "
            f"got {value!r}; check the spelling"
        )


def check_number(
    where: str,
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Raises unless `value` is a number, and no bool, within bounds.

    Example:
        >>> check_number("get_transition_batch", "gamma", 1.5, low=0, high=1)
        Traceback (most recent call last):
        ...
        ValueError: `get_transition_batch`: `gamma` expected a number in [0, 1]; got
        1.5; correct it
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    above = low is None or (real and value >= low)
    if real and above and (high is None or value <= high):
        return
    bounds = f" of at least {low}" if high is None else f" in [{low}, {high}]"
    raise (ValueError if real else TypeError)(
        f"`{where}`: `{name}` expected a number{'' if low is None else bounds}; "
        f"got {value!r}; correct it"
    )
