"""Objects that refer to each other as bytes, and back, without running any of them.

The bytes are

    the line "tfrl objects 1", the length of the text in 8 bytes (little endian), the
    text, then the bytes of all arrays, one after the other, in the order of the text.

The text is JSON, a list of the root and a table of nodes. A node is
`[kind, static, items]` with the kinds of `_object_kinds`; the place of a node in the
table is its number. The root and every item are either a number, text, bool or null
that stands for itself, or `[n]`, node n. So an object that several others refer to is
one node, and depth costs nothing. A node refers to those before it alone: objects that
contain themselves are refused.
"""

import itertools
import json
import reprlib
import struct
from collections.abc import Iterator
from typing import Any

from tfrl.saving import _lz4_frame, _object_kinds

MAGIC = b"tfrl objects 1\n"
_LENGTH = struct.Struct("<Q")
# What Python takes for text such as `[],[],[]`, per byte.
_MEMORY_OF_TEXT = 32
# What these take beyond that.
_MEMORY = {"set": 512, "frozenset": 512, "deque": 1024}
_MOST_LABELS = 12
# Python's own hashes and removal of deeper objects end the process.
_MOST_DEPTH = 1000
_CHANGEABLE = frozenset({"list", "set", "deque", "dict", "ordered_dict"})
# Of what is hashed, so many objects in each other take about a second.
_MOST_HASHED = 2**26
_HASHED = {"set": 1, "frozenset": 1, "dict": 2, "ordered_dict": 2}


def encode(value: Any) -> Iterator[Any]:
    """Writes an object, and all that it refers to, as bytes.

    Args:
        value: the object.

    Returns:
        Bytes-like pieces; `decode` reads them one after the other.

    Raises:
        TypeError: if something inside is of no known kind or contains itself; the
            message names its place.
        ValueError: if tuples are too deep in each other, or keys too large to hash.

    Example:
        >>> b"".join(encode([1, (2,)]))[len(MAGIC) + 8 :]
        b'[[1],[["tuple",null,[2]],["list",null,[1,[0]]]]]'
    """
    nodes: list[Any] = []
    stretches: list[Any] = []
    limits = _Limits()
    # Objects are kept, since the number of one that is gone is given away again.
    known: dict[int, tuple[list[int], Any]] = {}
    # What is being looked at: each is in the one before.
    path: dict[int, tuple[Any, _object_kinds.Parts]] = {}

    def item(child: Any) -> Any:
        return child if _object_kinds.is_leaf(child) else known[id(child)][0]

    waiting = [value]
    while waiting:
        now = waiting[-1]
        if id(now) in path:
            _, (kind, static, children, data) = path.pop(id(now))
            items = [item(child) for child in children]
            limits.add(kind, items)
            known[id(now)] = [len(nodes)], now
            nodes.append([kind, static, items])
            if data is not None:
                stretches.append(data)
        elif not (_object_kinds.is_leaf(now) or id(now) in known):
            parts = _taken_apart(now, path)
            path[id(now)] = now, parts
            waiting.extend(reversed(parts.children))
            continue
        waiting.pop()
    text = json.dumps([item(value), nodes], separators=(",", ":"), allow_nan=False)
    return iter([MAGIC, _LENGTH.pack(len(text)), text.encode(), *stretches])


def _taken_apart(
    value: Any, path: dict[int, tuple[Any, _object_kinds.Parts]]
) -> _object_kinds.Parts:
    """Raises the error for an object that cannot be, with its place."""
    try:
        parts = _object_kinds.taken_apart(value)
    except Exception as error:
        # A configuration or field that cannot be had raises whatever it likes.
        reason = str(error) or type(error).__name__
        raise TypeError(f"`{_place(path, value)}`: {reason}") from error
    fault = f"({type(value).__module__})"
    if parts is not None:
        if not any(id(x) in path or x is value for x in parts.children):
            return parts
        fault = "and is inside of itself"
    raise TypeError(f"`{_place(path, value)}` is of {type(value).__name__} {fault}")


def _place(path: dict[int, tuple[Any, _object_kinds.Parts]], value: Any) -> str:
    steps = [*path.values(), (value, None)]
    labels = [
        _label(parts, inner) for (_, parts), (inner, _) in itertools.pairwise(steps)
    ]
    if len(labels) > _MOST_LABELS:
        labels[:-_MOST_LABELS] = ["..."]
    return "obj" + "".join(labels)


def _label(parts: Any, inner: Any) -> str:
    """Where an object stands in the one that has these parts."""
    kind, static, children, _ = parts
    place = next(i for i, child in enumerate(children) if child is inner)
    if kind in ("list", "tuple", "deque"):
        return f"[{place}]"
    if kind in ("dict", "ordered_dict"):
        return f"[{reprlib.repr(children[place - place % 2]):.40}]"
    if kind in ("record", "named_tuple"):
        return f".{static[1][place]}"
    return f".{kind}"


def decode(source: _lz4_frame.Unpacked) -> Any:
    """Reads what `encode` wrote, after `MAGIC`.

    Args:
        source: the bytes; it limits the memory.

    Returns:
        The object. Whatever the bytes say, nothing is run but `from_config` of classes
        registered with Keras and hashes of records.

    Raises:
        Exception: of many kinds, if the bytes are something else.

    Example:
        >>> import io
        >>> frame = _lz4_frame.packed(encode([1, (2,)]))
        >>> source = _lz4_frame.Unpacked(io.BytesIO(frame), limit=10_000)
        >>> source.read(len(MAGIC)).tobytes() == MAGIC, decode(source)
        (True, [1, (2,)])
    """
    (length,) = _LENGTH.unpack(source.read(_LENGTH.size).tobytes())
    source.reserve(_MEMORY_OF_TEXT * length)
    text = source.read(length).tobytes()
    refuse = _object_kinds.refuse
    root, nodes = json.loads(text, parse_constant=refuse, object_pairs_hook=refuse)
    values: list[Any] = []
    limits = _Limits()
    for kind, static, items in [*nodes, ["tuple", None, [root]]]:
        if type(items) is not list:
            _object_kinds.refuse(items)
        inner = [_meant(item, values) for item in items]
        limits.add(kind, items)
        source.reserve(_MEMORY.get(kind, 0))
        values.append(_object_kinds.made(kind, static, inner, source.read))
    source.finish()
    return values[-1][0]


def _meant(item: Any, values: list[Any]) -> Any:
    if type(item) is not list:
        return item
    (number,) = item
    if type(number) is not int or not 0 <= number < len(values):
        raise ValueError(
            f"its text refers to {number!r:.40}, which is no object before; one that "
            "contains itself cannot be read"
        )
    return values[number]


class _Limits:
    """How deep nodes are in each other, and how much there is to hash in keys.

    Python follows tuples and records as deep, and as often, as they refer to each
    other: the hash of a few hundred bytes can take years, or end the process. So both
    are counted before anything is hashed, alike when objects are written and read.
    """

    def __init__(self) -> None:
        self._depths: list[int] = []
        self._sizes: list[int] = []
        self._hashed = 0

    def add(self, kind: str, items: list[Any]) -> None:
        """Notes the next node.

        Raises:
            ValueError: if it is too deep, or takes too long to make.
        """
        inner = [item[0] for item in items if type(item) is list]
        if kind in _HASHED:
            keys = [item[0] for item in items[:: _HASHED[kind]] if type(item) is list]
            self._hashed += sum(self._sizes[key] for key in keys)
        if self._hashed > _MOST_HASHED:
            raise ValueError(
                "keys and items of sets expected that are quick to hash; got larger "
                "ones; take a list"
            )
        depth = 1 + max((self._depths[number] for number in inner), default=0)
        if depth > _MOST_DEPTH and kind not in _CHANGEABLE:
            raise ValueError(
                f"at most {_MOST_DEPTH} tuples expected in each other; got more; put a "
                "list in between"
            )
        self._depths.append(0 if kind in _CHANGEABLE else depth)
        size = len(items) + sum(self._sizes[number] for number in inner)
        self._sizes.append(min(size, _MOST_HASHED + 1))
