"""Whether a value is an element of a space, and what is wrong with it if not."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

ARRAYS = spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary


class Misfit(NamedTuple):
    """What is wrong with a value that should be an element of a space.

    Attributes:
        kind: "structure", "type", "shape", "dtype", "numbers" (NaN, infinite) or
            "bounds".
        place: of the wrong part, such as `['camera'][0]`.
        expected: what should be there.
        got: what is there.
    """

    kind: str
    place: str
    expected: str
    got: str


def misfit(
    space: spaces.Space, value: Any, place: str = "", *, form_only: bool = False
) -> Misfit | None:
    """Returns the first thing wrong with a value, None if it is an element.

    Args:
        space: the space.
        value: what should be an element of it.
        place: written in front of the place of the wrong part.
        form_only: do not look at numbers, and take dtypes that numpy casts within
            their kind, as Gymnasium's vectors do.
    """
    match space:
        case spaces.Dict():
            keys = list(space.spaces)
            if not isinstance(value, Mapping):
                return Misfit("structure", place, f"a dict of {keys}", described(value))
            if set(value) != set(keys):
                got = f"a dict of {list(value)}"
                return Misfit("structure", place, f"a dict of {keys}", got)
            parts = [(space[key], value[key], f"{place}[{key!r}]") for key in keys]
        case spaces.Tuple():
            n_parts = len(space.spaces)
            if not isinstance(value, tuple) or len(value) != n_parts:
                expected = f"a tuple of {n_parts} parts"
                return Misfit("structure", place, expected, described(value))
            found = enumerate(zip(space.spaces, value, strict=True))
            parts = [(*pair, f"{place}[{i}]") for i, pair in found]
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return _misfit_of_array(space, value, place, form_only)
        case spaces.Discrete():
            return _misfit_of_integer(space, value, place, form_only)
        case _:
            if space.contains(value):
                return None
            return Misfit("type", place, f"an element of {space}", described(value))
    faults = (misfit(*part, form_only=form_only) for part in parts)
    return next((fault for fault in faults if fault is not None), None)


def described(value: Any) -> str:
    """Returns what a value is, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    text = repr(value)
    name = type(value).__name__
    return f"{text} ({name})" if len(text) < 40 else f"an object of type {name}"


def outside(space: spaces.Space, values: Any) -> np.ndarray | None:
    """Returns where integers `[..., *shape]` lie outside of what a space can hold.

    None for spaces of other kinds, whose numbers are no choices.
    """
    match space:
        case spaces.Discrete():
            low, high = space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            low, high = space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            low, high = np.int64(0), np.int64(1)
        case _:
            return None
    return (values < low) | (values > high)


def _misfit_of_integer(
    space: spaces.Discrete, value: Any, place: str, form_only: bool
) -> Misfit | None:
    expected = f"an int in [{space.start}, {space.start + space.n - 1}]"
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in "iu":
        return Misfit("type", place, expected, described(value))
    wrong = None if form_only else outside(space, array)
    if wrong is not None and wrong.any():
        return Misfit("bounds", place, expected, described(value))
    return None


def _misfit_of_array(
    space: Any, value: Any, place: str, form_only: bool
) -> Misfit | None:
    expected = f"an array of shape {space.shape}, {np.dtype(space.dtype)}"
    if not isinstance(value, np.ndarray | np.generic):
        return Misfit("type", place, expected, described(value))
    array = np.asarray(value)
    if array.shape != space.shape:
        return Misfit("shape", place, expected, described(array))
    dtype = np.dtype(space.dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind" if form_only else "no"):
        return Misfit("dtype", place, expected, described(array))
    return None if form_only else _misfit_of_numbers(space, array, place)


def _misfit_of_numbers(space: Any, array: np.ndarray, place: str) -> Misfit | None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        wrong = ~np.isfinite(array)
        got = f"{array[wrong].flat[0]}"
        return Misfit("numbers", f"{place}{_first(wrong)}", "a finite number", got)
    if isinstance(space, spaces.Box):
        wrong = (array < space.low) | (array > space.high)
    else:
        wrong = outside(space, array)
    if not wrong.any():
        return None
    where = _first(wrong)
    index = tuple(np.argwhere(wrong)[0])
    if isinstance(space, spaces.Box):
        bounds = f"a number in [{space.low[index]}, {space.high[index]}]"
    else:
        bounds = f"an element of {space}"
    return Misfit("bounds", f"{place}{where}", bounds, f"{array[index]}")


def _first(wrong: np.ndarray) -> str:
    index = np.argwhere(wrong)[0]
    return f"[{', '.join(map(str, index))}]" if len(index) else ""
