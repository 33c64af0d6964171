"""The names that Keras gives, without numbers that depend on what was made before."""

import collections
import re
from collections.abc import Sequence
from typing import Any

import keras

_NUMBERED = re.compile(r"(.+?)_([0-9]+)")


def renumbered(names: Sequence[str]) -> list[str]:
    """Counts anew where Keras counted, so that a second model has the same names.

    `dense_7` and `dense_10` become `dense` and `dense_1`, beside each other only.

    Args:
        names: words joined by dots.

    Returns:
        The names, in the same order.

    Example:
        >>> renumbered(["net.dense_7.kernel", "net.dense_10.kernel"])
        ['net.dense.kernel', 'net.dense_1.kernel']
    """
    automatic = _automatic_names()
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


def _counted(part: str, automatic: set[str]) -> tuple[str, int]:
    """Splits `dense_7` into `dense` and 7; returns "" for other names."""
    if part in automatic:
        return part, 0
    match = _NUMBERED.fullmatch(part)
    if match and match[1] in automatic:
        return match[1], int(match[2])
    return "", 0


def _automatic_names() -> set[str]:
    """Returns what Keras calls things that were given no name."""
    found: set[str] = set()
    classes: list[Any] = [keras.layers.Layer, keras.random.SeedGenerator]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        name = re.sub(r"\W+", "", cls.__name__)
        name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
        found.add(re.sub("([a-z])([A-Z])", r"\1_\2", name).lower())
    return found
