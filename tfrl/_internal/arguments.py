"""Checks of arguments, libraries and the system, that need no TensorFlow."""

import difflib
import errno
import importlib
import numbers
import os
import pathlib
import signal
import sys
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
    _check_bounds(where, name, value, numbers.Integral, "an int", low, high)
    return int(value)


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
        raise wrong_type(where, name, values, "a sequence of ints")
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
        raise wrong_type(where, name, value, expected)


def wrong_type(where: str, name: str, value: Any, expected: str) -> TypeError:
    """Returns the error of an argument that is not what is expected.

    Example:
        >>> raise wrong_type("detach", "nests", 3, "tensors")
        Traceback (most recent call last):
        ...
        TypeError: `detach`: `nests` expected tensors; got 3
    """
    return TypeError(f"`{where}`: `{name}` expected {expected}; got {shown(value)}")


def shown(value: Any) -> str:
    """Returns what messages show of a value, in one line.

    Example:
        >>> shown(np.eye(2))
        'array([[1., 0.], [0., 1.]])'
    """
    return f"{' '.join(repr(value).split()):.200}"


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
    try:
        is_known = value in choices
    except (TypeError, ValueError):  # of arrays, and of what has no hash
        is_known = False
    if not is_known:
        raise ValueError(
            f"`{where}`: `{name}` expected one of {list(choices)}; "
            f"got {shown(value)}; check the spelling"
        )


def check_listed(
    where: str, name: str, value: str, known: Collection[str], listed: str
) -> None:
    """Raises unless a name is among many, and proposes those that are like it.

    Args:
        where: name of the function that checks.
        name: name of the argument.
        value: its value.
        known: the names admitted.
        listed: where a user finds all of them.

    Raises:
        ValueError: if it is none of them.

    Example:
        >>> check_listed("make", "env", "Pong-v6", ["Pong-v5", "Tennis-v5"], "`envs()`")
        Traceback (most recent call last):
        ...
        ValueError: `make`: `env` expected one of `envs()`; got 'Pong-v6'; did you mean
        Pong-v5?
    """
    if value not in known:
        near = difflib.get_close_matches(value, known)
        raise ValueError(
            f"`{where}`: `{name}` expected one of {listed}; got {value!r}"
            + (f"; did you mean {' or '.join(near)}?" if near else "")
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
        1.5
    """
    _check_bounds(where, name, value, numbers.Real, "a number", low, high)


def _check_bounds(
    where: str, name: str, value: Any, kind: Any, noun: str, low: Any, high: Any
) -> None:
    is_one = isinstance(value, kind) and not isinstance(value, bool)
    above = low is None or (is_one and value >= low)
    if is_one and above and (high is None or value <= high):
        return
    bounds = f" of at least {low}" if high is None else f" in [{low}, {high}]"
    raise (ValueError if is_one else TypeError)(
        f"`{where}`: `{name}` expected {noun}{'' if low is None else bounds}; "
        f"got {shown(value)}"
    )


def as_path(where: str, name: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns what an argument names.

    Args:
        where: name of the function that asks.
        name: of the argument.
        path: its value.

    Returns:
        The path.

    Raises:
        TypeError: if it is something else.
        ValueError: if no file can have that name.

    Example:
        >>> as_path("save", "folder", "run").name
        'run'
    """
    check_type(where, name, path, str | os.PathLike, "a path")
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ValueError(
            f"`{where}`: `{name}` expected a path; got {os.fspath(path)!r}, which no "
            "file can have"
        )
    return pathlib.Path(path)


def check_texts(where: str, name: str, texts: Sequence[str]) -> None:
    """Raises unless an argument is a list of texts.

    Args:
        where: name of the function that asks.
        name: of the argument.
        texts: its value.

    Raises:
        TypeError: if it is something else.

    Example:
        >>> check_texts("load", "prefixes", ["net"])
    """
    is_list = isinstance(texts, list | tuple | set | frozenset)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise wrong_type(where, name, texts, "a list of texts")


def generator(where: str, name: str, seed: Any) -> np.random.Generator:
    """Returns NumPy's generator of a seed, or the one that was given.

    Args:
        where: name of the function that draws.
        name: name of the argument.
        seed: an int of at least 0, a generator, or None for a seed of the system's.

    Raises:
        TypeError: if it is something else.
        ValueError: if it is less than 0.

    Example:
        >>> generator("sample", "seed", "today")
        Traceback (most recent call last):
        ...
        TypeError: `sample`: `seed` expected an int of at least 0; got 'today'
    """
    kinds = np.random.Generator, np.random.BitGenerator, np.random.SeedSequence
    if not (seed is None or isinstance(seed, (*kinds, list, tuple, np.ndarray))):
        seed = check_whole_number(where, name, seed, low=0)
    return np.random.default_rng(seed)


def imported(where: str, module: str, library: str, extra: str, hint: str = "") -> Any:
    """Returns a module of an optional library.

    Args:
        where: name of the function that needs it, for the error message.
        module: such as "PIL.Image".
        library: its name for `pip install`.
        extra: of tfrl, which brings it.
        hint: what helps as well, at the end of the error message.

    Raises:
        ImportError: if it is missing.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{where}`: expected the library {library}; found none; run: pip install "
            f"{library} (the extra `tfrl[{extra}]`){hint}"
        ) from error


def check_posix(
    where: str,
    what: str = "a process can end with the one that started it",
    instead: str = "use `multiprocessing` there",
) -> None:
    """Raises an OSError on systems without process groups and signals that can wait.

    Args:
        where: name of the class or function that needs them.
        what: what works on POSIX systems.
        instead: what to do elsewhere.
    """
    if not (hasattr(os, "killpg") and hasattr(signal, "pthread_sigmask")):
        raise OSError(
            errno.ENOSYS,
            f"`{where}`: expected a POSIX system, where {what}; got {sys.platform}; "
            f"{instead}",
        )
