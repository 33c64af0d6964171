"""The names under which checkpoints of format 1 know arrays.

Every word that might be a name that Keras gave was counted anew, also one that the user
gave. So those names do not always tell which of several layers was meant.
"""

import collections
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from tfrl.training.checkpointing import _layer_paths

_COUNT = re.compile(r"_[0-9]+(?=\.|$)")
_NUMBERED = re.compile(r"(.+?)_([0-9]+)")


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
    automatic = _automatic_names(own)
    numbers: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    split = [name.split(".") for name in names]
    for parts in split:
        for k, part in enumerate(parts):
            base, number = _counted(part, automatic)
            if base:
                numbers[".".join(parts[:k]), base].add(number)
    renamed = []
    for parts in split:
        new = list(parts)
        for k, part in enumerate(parts):
            base, number = _counted(part, automatic)
            if base:
                rank = sorted(numbers[".".join(parts[:k]), base]).index(number)
                new[k] = f"{base}_{rank}" if rank else base
        renamed.append(".".join(new))
    return renamed


def lost(old: str, new: str, given: Collection[str]) -> list[str]:
    """Lists the names given by the user of which `renumbered` changed the number.

    Args:
        old: words joined by dots.
        new: what `renumbered` made of it.
        given: names of layers that the user gave.

    Returns:
        Those among them.

    Example:
        >>> lost("net.critic_2.dense_7", "net.critic.dense", {"critic_2"})
        ['critic_2']
    """
    pairs = zip(old.split("."), new.split("."), strict=True)
    return [one for one, other in pairs if one != other and one in given]


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


def _counted(part: str, automatic: set[str]) -> tuple[str, int]:
    """Splits `dense_7` into `dense` and 7; returns "" for other names."""
    if part in automatic:
        return part, 0
    match = _NUMBERED.fullmatch(part)
    if match and match[1] in automatic:
        return match[1], int(match[2])
    return "", 0


def _automatic_names(own: bool = True) -> set[str]:
    """Returns what Keras calls things that were given no name."""
    found: set[str] = set()
    classes: list[Any] = [keras.layers.Layer, keras.random.SeedGenerator]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if own or cls.__module__.partition(".")[0] == "keras":
            found.add(_layer_paths.snake_case(cls.__name__))
    return found
