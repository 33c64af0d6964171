"""Nests of a step as single columns of arrays, and back."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfrl._internal import gym_checks


def column_of(nest: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Returns shape and dtype of the column of a step: of a nest parts by number."""
    if isinstance(nest, np.ndarray):
        return nest.shape, nest.dtype
    leaves = gym_checks.leaves_of(nest)
    if not leaves:
        return (0,), np.dtype(bool)
    parts = [(str(i), x.dtype, x.shape[1:]) for i, x in enumerate(leaves)]
    return (len(leaves[0]),), np.dtype(parts, align=True)


def put(column: np.ndarray, t: int, nest: Any) -> None:
    """Writes a step into its column."""
    if isinstance(nest, np.ndarray):
        column[t] = nest
        return
    for index, leaf in enumerate(gym_checks.leaves_of(nest)):
        column[str(index)][t] = leaf


def unpacked(column: np.ndarray, like: Any) -> Any:
    """Returns a column, of any axes in front, as a nest of parts of it."""
    if isinstance(like, np.ndarray):
        return column
    parts = iter(column.dtype.names or ())
    return packed_as(like, (column[name] for name in parts))


def packed_as(like: Any, leaves: Iterator[np.ndarray]) -> Any:
    """Returns a nest of leaves, which come in the order of `gym_checks.leaves_of`."""
    if isinstance(like, dict):
        found = {key: packed_as(like[key], leaves) for key in sorted(like)}
        return {key: found[key] for key in like}
    if isinstance(like, tuple):
        parts = [packed_as(part, leaves) for part in like]
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    return next(leaves)
