"""Nests of one structure, taken apart and put together without walking them anew.

`tf.nest` does the same, in many times the time that reading a row takes.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class Leaf:
    """What is no nest."""

    def split(self, nest: Any) -> list[Any] | None:
        """Returns the leaves of a nest of just these types, in the order of `tf.nest`.

        None says that this takes a closer look: the types may differ and still fit.
        Leaves may be nests of more, which whoever asks sees by their types.
        """
        return [nest]

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        return next(leaves)


class Other(Leaf):
    """A nest of a type that only `tf.nest` knows."""

    def __init__(self, nest: Any) -> None:
        self._nest, self._count = nest, len(tf.nest.flatten(nest))

    def split(self, nest: Any) -> None:
        """Returns None."""
        del nest

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        flat = list(itertools.islice(leaves, self._count))
        return tf.nest.pack_sequence_as(self._nest, flat)


class Container(Leaf):
    """A dict, list, tuple or NamedTuple, and what is in it."""

    def __init__(self, nest: Any, make: Callable[[Any], Any]) -> None:
        self._type, self._make = type(nest), make
        self._keys = sorted(nest) if self._type is dict else None
        values = nest if self._keys is None else [nest[key] for key in self._keys]
        parts = [structure_of(value) for value in values]
        # None for leaves: to ask each of them would take most of the time.
        self._parts = [None if type(part) is Leaf else part for part in parts]
        self._count, self._is_flat = len(parts), not any(self._parts)
        # Dicts come back in the order of the one that they are made like.
        ordered = self._keys is None or self._keys == list(nest)
        self._order = {} if ordered else dict.fromkeys(nest)

    def split(self, nest: Any) -> list[Any] | None:
        """Returns the leaves of a nest of just these types, else None."""
        if type(nest) is not self._type or len(nest) != self._count:
            return None
        try:
            values = nest if self._keys is None else [nest[key] for key in self._keys]
        except KeyError:
            return None
        if self._is_flat:
            return list(values)
        found: list[Any] = []
        for part, value in zip(self._parts, values):  # noqa: B905, as many
            if part is None:
                found.append(value)
                continue
            leaves = part.split(value)
            if leaves is None:
                return None
            found += leaves
        return found

    def pack(self, leaves: Iterator[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        values: Any = leaves
        if not self._is_flat:
            values = [
                next(leaves) if part is None else part.pack(leaves)
                for part in self._parts
            ]
        if self._keys is None:
            return self._make(itertools.islice(values, self._count))
        found = dict(zip(self._keys, values))  # noqa: B905, of the leaves as many
        return {**self._order, **found} if self._order else found


def structure_of(nest: Any) -> Leaf:
    """Returns what takes nests like this one apart and puts them together."""
    kind = type(nest)
    if not tf.nest.is_nested(nest):
        return Leaf()
    if kind in (dict, list, tuple):
        return Container(nest, kind)
    if isinstance(nest, tuple) and hasattr(kind, "_make"):
        return Container(nest, kind._make)
    return Other(nest)
