"""Nests of one structure, taken apart and put together without walking them anew."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

Split = Callable[[Any], list[Any] | None]
Pack = Callable[[Iterator[Any]], Any]


class Structure:
    """The structure of a nest, in the order of `tf.nest`.

    Attributes:
        split: function that returns the leaves of a nest of just these types. None says
            that this takes a closer look: the types may differ and still fit. Leaves
            may be nests of more, which whoever asks sees by their types.

    Args:
        nest: a nest of anything.
    """

    def __init__(self, nest: Any) -> None:
        self.split: Split = _splitter(nest) or _single
        self._pack = _packer(nest)

    def pack(self, leaves: list[Any]) -> Any:
        """Returns as many leaves as there are as a nest."""
        return self._pack(iter(leaves))


def _single(leaf: Any) -> list[Any]:
    return [leaf]


def _splitter(nest: Any) -> Split | None:
    """Returns what finds the leaves of nests like this one; None if it is a leaf."""
    kind = type(nest)
    if not tf.nest.is_nested(nest):
        return None
    if kind is dict:
        keys = sorted(nest)
        return _of_dict(keys, [_splitter(nest[key]) for key in keys])
    if _maker(kind) is not None:
        return _of_sequence(kind, [_splitter(part) for part in nest])
    return _unsure


def _unsure(nest: Any) -> None:
    del nest


def _of_sequence(kind: Any, parts: list[Split | None]) -> Split:
    count, is_flat = len(parts), not any(parts)

    def split(nest: Any) -> list[Any] | None:
        if type(nest) is not kind or len(nest) != count:
            return None
        return list(nest) if is_flat else _leaves(parts, nest)

    return split


def _of_dict(keys: list[Any], parts: list[Split | None]) -> Split:
    count, is_flat = len(parts), not any(parts)

    def split(nest: Any) -> list[Any] | None:
        if type(nest) is not dict or len(nest) != count:
            return None
        try:
            values = [nest[key] for key in keys]
        except KeyError:
            return None
        return values if is_flat else _leaves(parts, values)

    return split


def _leaves(parts: list[Split | None], values: Any) -> list[Any] | None:
    found = []
    for part, value in zip(parts, values, strict=True):
        if part is None:
            found.append(value)
            continue
        leaves = part(value)
        if leaves is None:
            return None
        found += leaves
    return found


def _packer(nest: Any) -> Pack:
    kind = type(nest)
    if not tf.nest.is_nested(nest):
        return next
    if kind is dict:
        keys, inside = list(nest), sorted(nest)
        parts = {key: _packer(nest[key]) for key in inside}

        def pack_dict(leaves: Iterator[Any]) -> Any:
            values = {key: parts[key](leaves) for key in inside}
            return values if keys == inside else {key: values[key] for key in keys}

        return pack_dict
    count = len(tf.nest.flatten(nest))
    make = _maker(kind)
    if make is None:
        return lambda leaves: tf.nest.pack_sequence_as(
            nest, list(itertools.islice(leaves, count))
        )
    if not any(map(tf.nest.is_nested, nest)):
        return lambda leaves: make(itertools.islice(leaves, count))
    each = [_packer(part) for part in nest]
    return lambda leaves: make([part(leaves) for part in each])


def _maker(kind: type) -> Callable[[Any], Any] | None:
    """Returns what makes a sequence of this type; None if it is another."""
    if kind in (list, tuple):
        return kind
    return kind._make if issubclass(kind, tuple) and hasattr(kind, "_make") else None
