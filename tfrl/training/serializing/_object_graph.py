"""Objects that refer to each other as bytes, and back, without running any of them.

The bytes are

    the line "tfrl objects 1", the length of the text in 8 bytes (little endian), the
    text, then the bytes of all arrays, one after the other, in the order of the text.

The text is JSON, a list of the root and a table of nodes. A node is
`[kind, static, items]` with the kinds of `_object_kinds`; the place of a node in the
table is its number. The root and every item are either a number, text, bool or null
that stands for itself, or `[n]`, node n. So an object that several others refer to is
one node, an object may refer to itself, and depth costs nothing. Children come before
what refers to them, where they do not refer to each other.
"""

import json
import reprlib
import struct
from collections.abc import Iterator
from typing import Any

from tfrl.training.serializing import _lz4_frame, _object_costs, _object_kinds

MAGIC = b"tfrl objects 1\n"
_LENGTH = struct.Struct("<Q")
# What Python takes for text such as `[],[],[]`, per byte.
_MEMORY_OF_TEXT = 32
_MOST_LABELS = 12


def encode(value: Any) -> Iterator[Any]:
    """Writes an object, and all that it refers to, as bytes.

    Args:
        value: the object.

    Returns:
        Bytes-like pieces; `decode` reads them one after the other.

    Raises:
        TypeError: if something inside is of no known kind; the message names its place.
        ValueError: if a configuration contains the object it is of, tuples are too
            deep in each other, or keys cannot be hashed when read.

    Example:
        >>> b"".join(encode([1, (2,)]))[len(MAGIC) + 8 :]
        b'[[1],[["tuple",null,[2]],["list",null,[1,[0]]]]]'
    """
    root, nodes, stretches = _Table().fill(value)
    text = json.dumps([root, nodes], separators=(",", ":"), allow_nan=False).encode()
    return iter([MAGIC, _LENGTH.pack(len(text)), text, *stretches])


class _Frame:
    """An object whose children are being looked at."""

    def __init__(self, value: Any, parts: _object_kinds.Parts) -> None:
        self.value = value
        self.parts = parts
        self.items: list[Any] = []

    def label(self) -> str:
        """Where the child that is being looked at stands."""
        kind, static, children, _ = self.parts
        place = len(self.items) - 1
        if kind in ("list", "tuple", "deque"):
            return f"[{place}]"
        if kind in ("dict", "ordered_dict"):
            return f"[{reprlib.repr(children[place - place % 2]):.40}]"
        if kind in ("record", "named_tuple"):
            return f".{static[1][place]}"
        return f".{kind}"


class _Table:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        # An object stands for itself as the list that all who refer to it hold.
        self.costs = _object_costs.Costs()
        self.stretches: list[Any] = []
        # Objects are kept, since the number of one that is gone is given away again.
        self.known: dict[int, tuple[Any, list[int]]] = {}
        self.path: list[_Frame] = []

    def fill(self, value: Any) -> tuple[Any, list[Any], list[Any]]:
        root = self.item(value)
        while self.path:
            frame = self.path[-1]
            if len(frame.items) == len(frame.parts.children):
                self.finish(self.path.pop())
                continue
            child = frame.parts.children[len(frame.items)]
            frame.items.append(None)  # What is being looked at is the last one.
            frame.items[-1] = self.item(child)
        return root, self.nodes, self.stretches

    def item(self, value: Any) -> Any:
        """Returns what stands for `value`; a new object goes onto the path."""
        if _object_kinds.is_leaf(value):
            return value
        if id(value) in self.known:
            reference = self.known[id(value)][1]
            if not reference:
                self.check_cycle(value)
            return reference
        try:
            parts = _object_kinds.taken_apart(value)
        except Exception as error:
            # A configuration or field that cannot be had raises whatever it likes.
            reason = str(error) or type(error).__name__
            raise TypeError(f"`{self.place()}`: {reason}") from error
        if parts is None:
            raise TypeError(
                f"`{self.place()}` is of {type(value).__name__} "
                f"({type(value).__module__})"
            )
        reference = []
        self.known[id(value)] = (value, reference)
        self.costs.begin(id(reference), parts.kind, value)
        self.path.append(_Frame(value, parts))
        return reference

    def check_cycle(self, value: Any) -> None:
        """Refuses configurations that would be read before they are complete."""
        start = next(i for i, frame in enumerate(self.path) if frame.value is value)
        if any(frame.parts.kind == "config" for frame in self.path[start:]):
            raise ValueError(
                f"`{self.place()}` expected what does not contain the object that it "
                f"configures; got {type(value).__name__} that does; break the cycle"
            )

    def finish(self, frame: _Frame) -> None:
        kind, static, children, data = frame.parts
        marks = [id(item) if type(item) is list else None for item in frame.items]
        reference = self.known[id(frame.value)][1]
        if _object_costs.is_hashed(kind):
            self.costs.check_keys(kind, marks, children)
        self.costs.finish(id(reference), kind, frame.value, _objects(marks), len(marks))
        reference.append(len(self.nodes))
        self.nodes.append([kind, static, frame.items])
        if data is not None:
            self.stretches.append(data)

    def place(self) -> str:
        labels = [frame.label() for frame in self.path]
        if len(labels) > _MOST_LABELS:
            labels[:-_MOST_LABELS] = ["..."]
        return "obj" + "".join(labels)


def _objects(marks: list[int | None]) -> list[int]:
    return [mark for mark in marks if mark is not None]


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
        >>> source.take(len(MAGIC)) == MAGIC, decode(source)
        (True, [1, (2,)])
    """
    (length,) = _LENGTH.unpack(source.take(_LENGTH.size))
    source.reserve(_MEMORY_OF_TEXT * length)
    text = source.take(length)
    if len(text) != length:
        raise ValueError("its text ends early")
    root, nodes = json.loads(
        text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_object
    )
    making = _Making([*nodes, ["tuple", None, [root]]])
    making.run(source)
    source.finish()
    return making.values[-1][0]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"its text holds the bare constant {name}")


def _refuse_object(pairs: list[Any]) -> Any:
    raise ValueError(f"its text holds a JSON object of {len(pairs)} pairs")


class _Making:
    """Nodes that become objects.

    Shells exist from the start and are filled in the order of their numbers; all else
    is made in that order. A shell that refers to what does not exist yet, as happens
    where objects contain themselves, waits until it does.
    """

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes
        self.values: list[Any] = [None] * len(nodes)
        self.costs = _object_costs.Costs()
        self.exists = bytearray(len(nodes))
        self.complete = bytearray(len(nodes))
        # By the last number that a shell waits for, when all others exist.
        self.waiting: dict[int, list[int]] = {}
        # Whatever these refer to, however far, is complete.
        self.sound: set[int] = set()

    def run(self, source: _lz4_frame.Unpacked) -> None:
        for number, node in enumerate(self.nodes):
            self.check(node)
            if node[0] in _object_kinds.SHELLS:
                new, _ = _object_kinds.SHELLS[node[0]]
                self.values[number] = new(node[1], source)
                self.exists[number] = True
                self.costs.begin(number, node[0], self.values[number])
        for number, (kind, static, items) in enumerate(self.nodes):
            if kind in _object_kinds.SHELLS:
                self.fill(number)
                continue
            content = self.objects(items)
            marks = self.check_keys(kind, items, content)
            if kind == "config":
                self.check_sound(number)
            make = _object_kinds.MAKERS[kind]
            value = self.values[number] = make(static, content, source)
            self.costs.finish(number, kind, value, _objects(marks), len(marks))
            self.exists[number] = self.complete[number] = True
            for shell in self.waiting.pop(number, ()):
                self.fill(shell)

    def check(self, node: Any) -> None:
        kind, _, items = node
        if type(items) is not list:
            raise TypeError(f"its text holds {items!r:.40} as items")
        if kind not in _object_kinds.SHELLS and kind not in _object_kinds.MAKERS:
            raise ValueError(f"its text holds the unknown kind {kind!r:.40}")
        for item in items:
            if type(item) is list:
                self.check_number(*item)

    def check_number(self, number: Any) -> None:
        if type(number) is not int or not 0 <= number < len(self.values):
            raise ValueError(f"its text refers to {number!r:.40}, which is no object")

    def fill(self, number: int) -> None:
        kind, static, items = self.nodes[number]
        late = [item[0] for item in items if type(item) is list]
        late = [other for other in late if not self.exists[other]]
        if late:
            self.waiting.setdefault(max(late), []).append(number)
            return
        _, fill = _object_kinds.SHELLS[kind]
        value, content = self.values[number], self.objects(items)
        marks = self.check_keys(kind, items, content)
        fill(value, static, content)
        self.costs.finish(number, kind, value, _objects(marks), len(marks))
        self.complete[number] = True

    def check_keys(
        self, kind: str, items: list[Any], content: list[Any]
    ) -> list[int | None]:
        """Returns what stands for the items, all of which may be hashed now."""
        marks = [item[0] if type(item) is list else None for item in items]
        if _object_costs.is_hashed(kind):
            self.costs.check_keys(kind, marks, content)
        return marks

    def check_sound(self, number: int) -> None:
        """Refuses what `from_config` would read before it is complete."""
        ahead = [number]
        while ahead:
            for item in self.nodes[ahead.pop()][2]:
                if type(item) is not list or item[0] in self.sound:
                    continue
                if not self.complete[item[0]]:
                    raise ValueError(f"its text uses object {item[0]} incomplete")
                self.sound.add(item[0])
                ahead.append(item[0])

    def objects(self, items: list[Any]) -> list[Any]:
        """Returns what stands for each item."""
        return [self.of(item[0]) if type(item) is list else item for item in items]

    def of(self, number: int) -> Any:
        if not self.exists[number]:
            raise ValueError(f"its text refers to object {number} before it can exist")
        return self.values[number]
