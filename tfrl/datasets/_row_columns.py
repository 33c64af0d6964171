"""Columns of rows: nests of arrays, those of an episode, and places in archives."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

# What parts a place in an archive, or marks a tuple there, as it is written in keys.
_WRITTEN = {"%": "%25", "/": "%2F", "#": "%23"}


def check(where: str, name: str, rows: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns arrays by their places, which are rows of numbers, as many of each.

    Args:
        where: the asking function, for messages.
        name: of the rows there.
        rows: nests of arrays `[rows, ...]` by name.

    Raises:
        ValueError: if they are something else.
    """
    arrays = dict(flat(rows))
    for place, array in arrays.items():
        if array.dtype.hasobject or not array.ndim:
            kind = "Python objects" if array.dtype.hasobject else "a single value"
            raise ValueError(
                f"`{where}`: `{name}` expected arrays `[rows, ...]`; got {kind} as "
                f"{place!r}"
            )
    counts = {place: len(array) for place, array in arrays.items()}
    if len({*counts.values()}) > 1:
        raise ValueError(
            f"`{where}`: `{name}` expected as many rows in each column; got {counts}"
        )
    return arrays


def of_episode(
    observations: Any,
    following: Any,
    actions: Any,
    rewards: Any,
    terminated: np.ndarray,
    truncated: np.ndarray,
) -> dict[str, Any]:
    """Returns the rows of an episode, whose last one is truncated or terminated.

    Args:
        observations: nest of `[T, ...]`.
        following: nest of `[T, ...]`.
        actions: nest of `[T, ...]`.
        rewards: `[T]`.
        terminated: `[T]` bool.
        truncated: `[T]` bool.
    """
    truncated = np.array(truncated)
    truncated[-1:] |= ~terminated[-1:]  # some recordings mark no end
    return {
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "terminated": terminated,
        "truncated": truncated,
        "next_observations": following,
    }


def joined(parts: list[Any]) -> Any:
    """Joins nests of arrays along their rows."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: joined([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(joined(list(part)) for part in zip(*parts, strict=True))
    return np.concatenate(parts)


def flat(nest: Any, place: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Arrays of a nest, with their places: a tuple counts its parts by `#0`, `#1`.

    What has a meaning there is written otherwise in keys, see `_escaped`.
    """
    front = f"{place}/" if place else ""
    if isinstance(nest, Mapping):
        for key, part in nest.items():
            yield from flat(part, f"{front}{_escaped(str(key))}")
    elif isinstance(nest, tuple):
        for i, part in enumerate(nest):
            yield from flat(part, f"{front}#{i}")
    else:
        yield place, np.asarray(nest)


def nested(flat: Mapping[str, Any]) -> Any:
    """The nest that `flat` took apart."""
    if set(flat) == {""}:
        return flat[""]
    parts: dict[str, dict[str, Any]] = {}
    for place, array in flat.items():
        key, _, rest = place.partition("/")
        parts.setdefault(key, {})[rest] = array
    found = {key: nested(part) for key, part in parts.items()}
    if found and all(key[:1] == "#" for key in found):
        return tuple(found[f"#{i}"] for i in range(len(found)))
    return {_unescaped(key): part for key, part in found.items()}


def _escaped(key: str) -> str:
    """A key as part of a place; an empty one is a lone "%"."""
    for character, written in _WRITTEN.items():
        key = key.replace(character, written)
    return key or "%"


def _unescaped(part: str) -> str:
    """The key that `_escaped` wrote."""
    if part == "%":
        return ""
    for character, written in reversed(_WRITTEN.items()):
        part = part.replace(written, character)
    return part
