"""Checks of recorded rows: that they are finite, and of the spaces of environments."""

import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from tfrl._internal import allowed_actions, gym_checks


def check_names(
    expected: str, columns: Collection[str], needed: Collection[str]
) -> None:
    """Raises a ValueError unless there are the columns that are needed.

    Args:
        expected: how messages begin, such as "`FromDataset`: `data` expected".
        columns: names of those that there are.
        needed: names.
    """
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(
            f"{expected} {list(needed)}; got none of {missing} in {sorted(columns)}"
        )


def check_played(
    expected: str,
    columns: Mapping[str, Any],
    of_spaces: tuple[spaces.Space, spaces.Space],
) -> None:
    """Raises a ValueError unless what was seen and done is finite and of the spaces.

    Observations may exceed the bounds of a Box.

    Args:
        expected: as in `check_names`.
        columns: arrays `[rows, ...]` by name, of which `observations`, `actions` and
            `next_observations` are looked at if they are there.
        of_spaces: of the observations and the actions of one environment.
    """
    names = "observations", "actions", "next_observations"
    for name, space in zip(names, (*of_spaces, of_spaces[0]), strict=True):
        if name in columns:
            _check_space(expected, name, columns[name], space)
            finite = functools.partial(as_float32, expected, name)
            gym_checks.mapped(finite, columns[name])
    if {"observations", "actions"} <= set(columns):
        _check_masks(expected, columns, of_spaces)


def as_float32(expected: str, name: str, rows: np.ndarray) -> np.ndarray:
    """Returns floats as float32, others as they are.

    Args:
        expected: as in `check_names`.
        name: of the rows.
        rows: an array.

    Raises:
        ValueError: unless all are finite in float32.
    """
    if rows.dtype.kind != "f":
        return rows
    with np.errstate(over="ignore"):  # it is told below
        plain = rows.astype(np.float32, copy=False)
    bad = np.argwhere(~np.isfinite(plain))
    if len(bad):
        got = f"{rows[tuple(bad[0])]} in row {bad[0][0]}"
        if np.isfinite(rows[tuple(bad[0])]):
            got += ", too large for float32"
        raise ValueError(f"{expected} finite {name}; got {got}")
    return plain


def _check_space(expected: str, name: str, nest: Any, space: spaces.Space) -> None:
    """Raises unless rows are of a space: their form, choices and bounds of actions."""
    first = gym_checks.mapped(lambda x: x[0], nest)
    fault = gym_checks.misfit(space, first, form_only=True)
    if fault is not None:
        raise ValueError(
            f"{expected} {name}{fault.place} of the environments' space, {space}: "
            f"{fault.expected}; got {fault.got}"
        )
    leaves = gym_checks.leaves_of(nest)
    for (place, part), rows in zip(gym_checks.parts_of(space), leaves, strict=True):
        outside, cure = gym_checks.outside(part, rows), ""
        if isinstance(part, spaces.Box) and name == "actions":
            slack = 1e-5 * (part.high - part.low)  # of a recording in another dtype
            slack = np.where(np.isfinite(slack), slack, 0.0)
            outside = (rows < part.low - slack) | (rows > part.high + slack)
            cure = (
                "; where environments clip to their bounds, do so too, by "
                "`np.clip(actions, space.low, space.high)`"
            )
        if outside is not None and np.any(outside):
            raise ValueError(
                f"{expected} {name}{place} inside of {part}; got {rows[outside][0]} in "
                f"row {np.argwhere(outside)[0][0]}{cure}"
            )


def _check_masks(
    expected: str,
    columns: Mapping[str, Any],
    of_spaces: tuple[spaces.Space, spaces.Space],
) -> None:
    """Raises where the mask in an observation forbids the action of its row."""
    if not gym_checks.masked_choices(*of_spaces):
        return
    actions, masks = columns["actions"], columns["observations"][gym_checks.MASK]
    wrong = np.argwhere(allowed_actions.forbidden(of_spaces[1], actions, masks))
    if len(wrong):
        row = wrong[0][0]
        got = gym_checks.mapped(lambda x: x[row].tolist(), actions)
        raise ValueError(
            f"{expected} actions that observations[{gym_checks.MASK!r}] of their row "
            f"allows; got {got} in row {row}; leave such rows out, or let their masks "
            "allow what was done"
        )
