"""How deep objects are in each other, and how much work it is to hash keys.

Python follows tuples and records as deep, and as often, as they refer to each other:
the hash of a few hundred bytes can take years, or end the process. So both are counted
before anything is hashed, alike when objects are written and when they are read.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import specs

# Python's own hashes and removal of deeper objects end the process.
_MOST_DEPTH = 1000
# Hashes of single numbers, about a second.
_MOST_WORK = 2**26
_FEW = 1000
_UNHASHABLE = frozenset({"list", "set", "deque", "dict", "ordered_dict"})
_HASHED = {"set": 1, "frozenset": 1, "dict": 2, "ordered_dict": 2}
_SMALL = (0, 1)
_UNKNOWN = (2**62, 2**62)


def is_hashed(kind: str) -> bool:
    """Whether an object of a kind hashes what it holds.

    Args:
        kind: as of `_object_kinds`.

    Returns:
        True for those of sets and dicts.

    Example:
        >>> is_hashed("frozenset"), is_hashed("list")
        (True, False)
    """
    return kind in _HASHED


class Costs:
    """What is known of the objects of one nest, by any marks that stand for them.

    Example:
        >>> costs = Costs()
        >>> costs.begin(0, "tuple", ())
        >>> costs.finish(0, "tuple", (), [], 1)
        >>> costs.check_keys("set", [0], [(1,)])
    """

    def __init__(self) -> None:
        self._depths: dict[Hashable, int] = {}
        self._keys: dict[Hashable, tuple[int, int]] = {}
        self._work = 0

    def begin(self, mark: Hashable, kind: str, value: Any) -> None:
        """Notes an object that may not have what it refers to yet.

        Args:
            mark: what stands for it.
            kind: as of `_object_kinds`.
            value: the object, or one of its class.
        """
        by_identity = type(value).__hash__ in (None, object.__hash__)
        if kind in _UNHASHABLE or (kind == "record" and by_identity):
            self._keys[mark] = _SMALL

    def finish(
        self,
        mark: Hashable,
        kind: str,
        value: Any,
        inner: Sequence[Hashable],
        count: int,
    ) -> None:
        """Notes an object that is complete, but for what is changeable in it.

        Args:
            mark: what stands for it.
            kind: as of `_object_kinds`.
            value: the object.
            inner: marks of the objects that it refers to.
            count: how many objects and leaves it refers to.

        Raises:
            ValueError: if there are too many unchangeable objects in each other.
        """
        if kind not in _UNHASHABLE and kind != "record":
            deepest = max([self._depths.get(x, 0) for x in inner], default=0)
            if deepest >= _MOST_DEPTH:
                raise ValueError(
                    f"at most {_MOST_DEPTH} tuples expected in each other; got more; "
                    "put a list in between"
                )
            self._depths[mark] = deepest + 1
        if mark not in self._keys:
            depth, work = 0, 1 + _own_work(value) + count
            for key in inner:
                inner_depth, inner_work = self._keys.get(key, _UNKNOWN)
                depth, work = max(depth, inner_depth), work + inner_work
            # Limited, or numbers of many digits would be work too.
            self._keys[mark] = depth + 1, min(work, _UNKNOWN[1])

    def check_keys(
        self, kind: str, marks: Sequence[Hashable], values: Sequence[Any]
    ) -> None:
        """Raises if the hashes of what a set or dict holds take too long.

        Args:
            kind: as of `_object_kinds`.
            marks: what stands for the items, None for leaves.
            values: the items; of a dict the keys and values in turn.

        Raises:
            ValueError: if a key contains itself, is too deep, or the work is too much.
        """
        step = _HASHED[kind]
        known = [
            self._keys.get(mark, _UNKNOWN) for mark in marks[::step] if mark is not None
        ]
        if any(depth > _MOST_DEPTH for depth, _ in known):
            raise ValueError(
                "keys and items of sets expected without themselves inside, and with "
                f"at most {_MOST_DEPTH} objects in each other; got another; take a list"
            )
        self._add(sum(work for _, work in known))
        pairs = _equal_hashes(values[::step])
        self._add(pairs * max((work for _, work in known), default=1))

    def _add(self, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise ValueError(
                "keys and items of sets expected that are quick to hash and to tell "
                "apart; got larger ones, or too many of the same hash; take a list"
            )


def _own_work(value: Any) -> int:
    """What is hashed of an object beside the objects that it refers to."""
    if type(value) is int:
        return value.bit_length() >> 6
    if isinstance(value, specs.BoundedTensorSpec):
        return value.minimum.size
    if isinstance(value, tf.TensorSpec):
        return value.shape.rank or 0
    return (value.rank or 0) if isinstance(value, tf.TensorShape) else 0


def _equal_hashes(keys: Sequence[Any]) -> int:
    """How many pairs have the same hash, which Python has to compare."""
    if len(keys) <= _FEW and len(set(map(hash, keys))) == len(keys):
        return 0
    hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
    counts = np.unique(hashes, return_counts=True)[1]
    return int(np.sum(counts * (counts - 1) // 2))
