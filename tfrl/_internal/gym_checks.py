"""Checks of Gymnasium environments and of elements of their spaces, in NumPy.

Nests are dicts and tuples, as Gymnasium makes them, in the order of `tf.nest`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

ARRAYS = spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary

# The part of a Dict observation that says which options are allowed.
MASK = "action_mask"

# The least height and width of images: three convolutions leave one pixel of it.
LEAST_PIXELS = 36


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


def leaves_of(nest: Any) -> list[Any]:
    """Returns what a nest holds, dicts in the order of their keys."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves_of(nest[key])]
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in leaves_of(part)]
    return [nest]


def named_leaves(name: str, nest: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a nest holds, as `leaves_of`, with names such as `rows['image'][0]`.

    Args:
        name: of the nest.
        nest: of anything.
    """
    if isinstance(nest, dict | tuple):
        keys = sorted(nest) if isinstance(nest, dict) else range(len(nest))
        for key in keys:
            yield from named_leaves(f"{name}[{key!r}]", nest[key])
    else:
        yield name, nest


def mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    """Returns a nest of what a function makes of the leaves."""
    if isinstance(nest, dict):
        return type(nest)((key, mapped(function, nest[key])) for key in nest)
    if isinstance(nest, tuple):
        return tuple(mapped(function, part) for part in nest)
    return function(nest)


def check_vector(where: str, name: str, envs: Any, n_envs: int | None = None) -> None:
    """Raises unless `envs` is a vector environment, of `n_envs` unless that is None.

    Raises:
        TypeError: if it is none.
        ValueError: if there are more or fewer.
    """
    if not hasattr(envs, "single_observation_space") or not hasattr(envs, "num_envs"):
        raise TypeError(
            f"`{where}`: `{name}` expected a vector environment; got {envs!r}; make "
            "one by `tfrl.environments.make_vec`, which knows EnvPool and PettingZoo "
            "too, or by `gymnasium.vector.SyncVectorEnv`"
        )
    if n_envs is not None and envs.num_envs != n_envs:
        raise ValueError(
            f"`{where}`: `{name}` expected to make {n_envs} environments when called "
            f"with n_envs={n_envs}; got {envs.num_envs}; make as many as it is told"
        )


def check_renders(where: str, env: Any) -> None:
    """Raises a ValueError unless an environment renders arrays."""
    mode = getattr(env, "render_mode", None)
    if mode != "rgb_array":
        raise ValueError(
            f"`{where}`: `env` expected render_mode 'rgb_array'; got {mode!r}; make it "
            "so"
        )


def check_numbers(
    where: str, name: str, nest: Any, dtype: Any = None, before: int = 0
) -> None:
    """Raises unless all numbers are finite.

    Args:
        where: name of the function that asks.
        name: name of what is checked.
        nest: arrays `[T, N, ...]`; those that hold no floats pass.
        dtype: in which they are to be finite; None for their own.
        before: how many steps were played before those of the arrays.

    Raises:
        ValueError: with the first that is not, its part, step and environment. Steps
            count from 1, and from the beginning of the arrays without others `before`;
            step 0 are the "observations" before.
    """
    for part, leaf in named_leaves(name, nest):
        if leaf.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            kept = leaf if dtype is None else leaf.astype(dtype, copy=False)
            # One pass without a temporary array; only what it finds is looked for.
            suspicious = not np.isfinite(kept.sum())
        for place in np.argwhere(~np.isfinite(kept)) if suspicious else ():
            got = leaf[tuple(place)]
            fault = f", too large for {kept.dtype}," if np.isfinite(got) else ""
            is_nan = name == "rewards" and np.isnan(got)
            hint = ", where a reward of None becomes nan, too" if is_nan else ""
            raise ValueError(
                f"`{where}`: `{part}` expected finite numbers; got {got}{fault} "
                f"{_step_and_environment(name, place, before)}{hint}"
            )


def check_choices(where: str, name: str, space: spaces.Space, nest: Any) -> None:
    """Raises unless the integers of Discrete, MultiDiscrete and MultiBinary are inside.

    Others would become one-hots of zeros. Numbers of a Box are not looked at.

    Args:
        where: name of the function that asks.
        name: name of what is checked.
        space: that of a single element.
        nest: arrays `[T, N, *shape]`.

    Raises:
        ValueError: with the first that is outside, its step and environment; see
            `check_numbers` for how steps count.
    """
    for part, leaf in zip(parts_of(space), leaves_of(nest), strict=True):
        wrong = outside(part[1], leaf)
        if wrong is not None and wrong.any():
            place = np.argwhere(wrong)[0][:2]
            raise no_choice(where, name, part, leaf[tuple(place)], place)


def no_choice(
    where: str, name: str, part: tuple[str, spaces.Space], got: Any, place: np.ndarray
) -> ValueError:
    """Returns the error of an integer that is none of its space.

    Args:
        where: name of the function that asks.
        name: name of what was checked.
        part: which of that it is, such as `['camera'][0]`, and its space.
        got: what it is.
        place: its step and environment.
    """
    return ValueError(
        f"`{where}`: `{name}{part[0]}` expected elements of {part[1]}; got {got} "
        f"{_step_and_environment(name, place)}"
    )


def no_option(where: str, place: np.ndarray) -> ValueError:
    """Returns the error of a mask that forbids every option of a choice.

    Args:
        where: name of the function that asks.
        place: its step and environment.
    """
    return ValueError(
        f"`{where}`: `observations[{MASK!r}]` expected to allow an option of each "
        f"choice; got none {_step_and_environment('observations', place)}"
    )


def parts_of(space: spaces.Space, place: str = "") -> list[tuple[str, spaces.Space]]:
    """The spaces of the leaves of elements, with their places, as in `leaves_of`.

    Args:
        space: of the elements.
        place: of itself.

    Example:
        >>> [x for x, _ in parts_of(spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple(
        ...     [spaces.Discrete(3)])))]
        ["['a'][0]", "['b']"]
    """
    if isinstance(space, spaces.Dict):
        inner = [(f"{place}[{k!r}]", space[k]) for k in sorted(space.spaces)]
    elif isinstance(space, spaces.Tuple):
        inner = [(f"{place}[{i}]", part) for i, part in enumerate(space.spaces)]
    else:
        return [(place, space)]
    return [leaf for each, part in inner for leaf in parts_of(part, each)]


def option_counts(space: spaces.Space) -> list[int]:
    """Returns how many options each choice of an action has, in the order of masks."""
    match space:
        case spaces.Discrete():
            return [int(space.n)]
        case spaces.MultiDiscrete():
            return np.ravel(space.nvec).tolist()
        case spaces.MultiBinary():
            return [2] * int(np.prod(space.shape))
        case spaces.Box() if space.dtype.kind in "iu":
            return np.ravel(space.high.astype(int) - space.low + 1).tolist()
        case spaces.Dict() | spaces.Tuple():
            return [n for _, part in parts_of(space) for n in option_counts(part)]
    return []


def height_axis(shape: Sequence[int]) -> int | None:
    """Returns the axis of an image's height, None if it cannot be told.

    Height and width are two neighbours, each longer than all other axes.

    Args:
        shape: of an image, or of a stack of them.
    """
    for axis in range(len(shape) - 1):
        others = [*shape[:axis], *shape[axis + 2 :]]
        if min(shape[axis : axis + 2]) > max(others, default=0):
            return axis
    return None


def stacking_axis(space: spaces.Box) -> int:
    """Returns the axis, from the end, along which frames are stacked as channels.

    It is the last one, but the first one of images whose last one is their width.

    Args:
        space: of a frame, of one axis at least.
    """
    shape, axis = space.shape, None
    if space.dtype == np.uint8 and len(shape) in (3, 4):
        axis = height_axis(shape)
    if axis is None or min(shape[axis : axis + 2]) < LEAST_PIXELS:
        return -1
    return -len(shape) if axis == len(shape) - 2 else -1


def masked_choices(observations: spaces.Space, actions: spaces.Space) -> list[int]:
    """Returns the `option_counts` of which observations have a mask; none if none."""
    if not isinstance(observations, spaces.Dict) or MASK not in observations.spaces:
        return []
    counts = option_counts(actions)
    return counts if observations[MASK].shape == (sum(counts),) else []


def all_forbidden(masks: np.ndarray, counts: list[int]) -> tuple[int, int] | None:
    """Returns row and choice of the first of which a mask allows no option, or None.

    Args:
        masks: `[N, n_options]`.
        counts: number of options of each choice.
    """
    starts = np.cumsum([0, *counts[:-1]])
    nothing = ~np.logical_or.reduceat(masks != 0, starts, axis=-1)
    if not nothing.any():
        return None
    row, choice = np.argwhere(nothing)[0].tolist()
    return row, choice


def _step_and_environment(name: str, place: np.ndarray, before: int = 0) -> str:
    step = before + place[0] + (name != "observations")
    where = f"at step {step} of those just played in environment {place[1]}"
    return f"{where}; fix the environment"


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
            low, count = space.start, space.n
        case spaces.MultiDiscrete():
            low, count = space.start, space.nvec
        case spaces.MultiBinary():
            low, count = np.int64(0), np.int64(2)
        case _:
            return None
    return (values < low) | (values > low + count - 1)


def _misfit_of_integer(
    space: spaces.Discrete, value: Any, place: str, form_only: bool
) -> Misfit | None:
    array, kind = np.asarray(value), ""
    if array.shape or array.dtype.kind not in "iu":
        kind = "type"
    elif not form_only and np.any(outside(space, array)):
        kind = "bounds"
    expected = f"an int in [{space.start}, {space.start + space.n - 1}]"
    return Misfit(kind, place, expected, described(value)) if kind else None


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
    if form_only:
        return None
    is_box, kind = isinstance(space, spaces.Box), "bounds"
    wrong = ~np.isfinite(array)
    if wrong.any():
        kind = "numbers"
    elif is_box:
        wrong = (array < space.low) | (array > space.high)
    else:
        wrong = np.asarray(outside(space, array))
    if not wrong.any():
        return None
    index = tuple(np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, index))}]" if index else ""
    wanted = f"an element of {space}"
    if is_box:
        wanted = f"a number in [{space.low[index]}, {space.high[index]}]"
    if kind == "numbers":
        wanted = "a finite number"
    return Misfit(kind, f"{place}{where}", wanted, f"{array[index]}")
