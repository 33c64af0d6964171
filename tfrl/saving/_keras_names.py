"""The names under which checkpoints of format 1 know arrays.

Every word that might be a name that Keras gave was counted anew, also one that the user
gave. So those names do not always tell which of several layers was meant.
"""

import collections
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras

from tfrl.saving import _checkpointed, _layer_paths

_COUNT = re.compile(r"_[0-9]+(?=\.|$)")


def renumbered(names: Sequence[str], *, own: bool = True) -> list[str]:
    """Counts anew where Keras may have counted.

    `dense_7` and `dense_10` become `dense` and `dense_1`, beside each other only.

    Args:
        names: words joined by dots.
        own: whether classes of others than Keras count too, those that this process
            happens to know.

    Returns:
        The names, in the same order.

    Example:
        >>> renumbered(["net.dense_7.kernel", "net.dense_10.kernel"])
        ['net.dense.kernel', 'net.dense_1.kernel']
    """
    bases = "|".join(sorted(_automatic_names(own), reverse=True))
    pattern = re.compile(f"({bases})(?:_([0-9]+))?")
    split = [name.split(".") for name in names]
    numbers: dict[tuple[str, ...], set[int]] = collections.defaultdict(set)
    for parts in split:
        for k, match in enumerate(map(pattern.fullmatch, parts)):
            if match:
                numbers[*parts[:k], match[1]].add(int(match[2] or 0))

    def renamed(parts: Sequence[str]) -> Iterator[str]:
        for k, match in enumerate(map(pattern.fullmatch, parts)):
            if match:
                known = sorted(numbers[*parts[:k], match[1]])
                rank = known.index(int(match[2] or 0))
                yield f"{match[1]}_{rank}" if rank else match[1]
            else:
                yield parts[k]

    return [".".join(renamed(parts)) for parts in split]


def of_parts(parts: _checkpointed.Parts) -> tuple[dict[str, str], dict[str, str]]:
    """Tells what parts are called in format 1.

    Args:
        parts: of objects.

    Returns:
        The old names by the names; and the layers that the user named, by the names of
        parts whose old names do not tell which of these was meant.

    Example:
        >>> layer = keras.layers.Dense(1, name="critic_2")
        >>> layer.build((None, 1))
        >>> of_parts(_checkpointed.Parts("load", {"net": [layer]}))[0]
        {'net.critic_2.kernel': 'net.0.kernel', 'net.critic_2.bias': 'net.0.bias'}
    """
    old: dict[str, str] = {}
    lost: dict[str, str] = {}
    for path, names, places in parts.keras_names:
        given = {step.layer for place in places for step in place if step.given}
        start = [_place(step) for step in path]
        found = renumbered(names)
        pairs = zip(names, found, strict=True)
        for place, (one, other), new in zip(
            places, pairs, _layer_paths.told_apart(found), strict=True
        ):
            name = _layer_paths.joined(place)
            if name not in old:
                old[name] = ".".join([*start, new])
                words = zip(one.split("."), other.split("."), strict=True)
                lost.update((name, x) for x, y in words if x != y and x in given)
    others = {n: ".".join(map(_place, path)) for n, path in parts.paths.items()}
    return {**others, **old}, lost


def _place(step: _layer_paths.Step) -> str:
    return step.token if step.index is None else str(step.index)


def matched(here: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Finds the names in a checkpoint of format 1.

    Where numbers were counted, and there are more or fewer layers than were saved,
    nobody knows which is which: of these nothing is found.

    Args:
        here: names, and what they are in that format.
        there: names on the disk.

    Returns:
        Names, and those on the disk.

    Example:
        >>> matched({"a.0.w": "a.dense.w"}, ["a.dense.w", "a.dense_1.w"])
        {}
    """
    counted = [
        collections.Counter(_COUNT.sub("", name) for name in names)
        for names in (here.values(), there)
    ]
    return {
        name: old
        for name, old in here.items()
        if old in there
        and counted[0][_COUNT.sub("", old)] == counted[1][_COUNT.sub("", old)]
    }


def _automatic_names(own: bool = True) -> set[str]:
    """Returns what Keras calls things that were given no name."""
    classes: list[Any] = [keras.layers.Layer, keras.random.SeedGenerator]
    for cls in classes:
        classes += cls.__subclasses__()
    return {
        _layer_paths.snake_case(cls.__name__)
        for cls in classes
        if own or cls.__module__.partition(".")[0] == "keras"
    }
