"""Python objects as bytes and files, safe to read unless one says otherwise.

The bytes are an LZ4 frame, each block and the whole under a checksum, so that a changed
bit shows before a byte of its block is used. It holds either a pickle, which is written
and read for those who say `trusted=True` only, or the objects as plain data, whose
reading runs nothing:

    the line "tfrl objects 1", the length of the text in 8 bytes (little endian), the
    text, then the bytes of all arrays, one after the other, in the order of the text.

The text is JSON, a list of the root and a table of nodes. A node is
`[kind, static, items]` with the kinds of `_object_kinds`; the place of a node in the
table is its number. The root and every item are either a number, text, bool or null
that stands for itself, or `[n]`, node n. So an object that several others refer to is
one node, and depth costs nothing. A node refers to those before it alone: objects that
contain themselves are refused.
"""

import io
import itertools
import json
import os
import pathlib
import pickle
import reprlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import cloudpickle
import lz4.frame
import numpy as np

from tfrl._internal import checks, durable
from tfrl.saving import _object_kinds

_FRAME = b"\x04\x22\x4d\x18"
_STEP = 1 << 20
_PICKLE = b"\x80"
_LEAST_LIMIT = 2**30
_LIMIT_PER_BYTE = 64
_MAGIC = b"tfrl objects 1\n"
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


def dumps(obj: Any, *, trusted: bool = False) -> bytes:
    """Writes an object as bytes.

    Known are None, bools, numbers, text, bytes, lists, tuples, sets, frozensets, dicts
    with keys of any known kind, deques, slices and ranges; numpy arrays and scalars of
    any dtype without objects, eager tensors, dtypes, shapes and tensor specs; public
    named tuples, dataclasses (`PyTreeNode`) and enums of tfrl; and those of your own,
    objects with `get_config` and `from_config`, classes and functions that Keras knows:

        @keras.saving.register_keras_serializable(package="mine")     # with get_config
        with keras.saving.custom_object_scope({"Pair": Pair}):        # any record

    Classes derived from the known ones are others, and what has variables (layers,
    models, optimizers) belongs into a checkpoint.

    What is referred to several times inside of `obj` is one object again after `loads`.
    So save together what belongs together: references between objects that are written
    by different calls are lost. Arrays that share memory come back apart, in C order.
    What contains itself needs a pickle.

    Args:
        obj: the object.
        trusted: whether to write a pickle (of cloudpickle) if something inside is of
            another kind, or contains itself. Reading a pickle can run anything, so it
            has to be trusted too.

    Returns:
        An LZ4 frame.

    Raises:
        TypeError: if something inside is of another kind or contains itself, or,
            trusted, cannot be pickled; the message names its place.
        ValueError: if there are more than 1000 tuples in each other, or a key, or item
            of a set, takes too long to hash.

    Example:
        >>> a = [13]
        >>> a_new, b_new = loads(dumps((a, {"a": a})))
        >>> b_new["a"].append(7)
        >>> a_new
        [13, 7]
    """
    return _dumped("dumps", obj, trusted)


def loads(s: bytes, *, trusted: bool = False, max_bytes: int | None = None) -> Any:
    """Reads an object that `dumps` wrote.

    Args:
        s: the bytes.
        trusted: whether to read a pickle, which can run anything: only for bytes of
            your own.
        max_bytes: how much memory the object may take, roughly; None for 64 times what
            `s` takes and at least 1 GiB, for any when `trusted`.

    Returns:
        The object. Arrays are new and writable.

    Raises:
        TypeError: if `s` is not bytes.
        ValueError: if it is not, bit for bit, what `dumps` wrote, names a class that is
            not registered here, is too large, or is a pickle that is not trusted.

    Example:
        >>> loads(dumps({"rewards": np.ones(2), 3: (None, {"x"})}))
        {'rewards': array([1., 1.]), 3: (None, {'x'})}
        >>> loads(dumps(lambda x: x + 1, trusted=True))
        Traceback (most recent call last):
        ...
        ValueError: `loads`: `s` expected what `dumps` wrote; got bytes, which is a
        pickle: to read it can run anything; give trusted=True if you trust its author
        as you trust the author of a program
    """
    checks.check_type("loads", "s", s, bytes | bytearray | memoryview, "bytes")
    data = bytes(s)
    what = "`s` expected what `dumps` wrote; got bytes"
    return _loaded("loads", what, io.BytesIO(data), len(data), trusted, max_bytes)


def dump(obj: Any, filepath: durable.Path, *, trusted: bool = False) -> None:
    """Writes an object to a file.

    The file has its old or its new content at any moment, whatever happens.

    Args:
        obj: the object, as of `dumps`.
        filepath: the file, on this machine; folders on the way are made. Of any name,
            such as "run.pkl.lz4".
        trusted: as of `dumps`.

    Raises:
        OSError: if it cannot be written.
        TypeError: as `dumps`, or if `filepath` is no path; nothing is written then.
        ValueError: as `dumps`, or if `filepath` names no file; nothing is written then.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "ab.lz4")
        >>> dump((1, [2]), path)
        >>> load(path)
        (1, [2])
    """
    path = _path("dump", filepath)
    data = _dumped("dump", obj, trusted)
    with durable.explain_refusals("dump", "filepath", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.replace_file(path, data)


def load(
    filepath: durable.Path, *, trusted: bool = False, max_bytes: int | None = None
) -> Any:
    """Reads an object from a file that `dump` wrote.

    Args:
        filepath: the file.
        trusted: as of `loads`.
        max_bytes: as of `loads`.

    Returns:
        The object.

    Raises:
        OSError: if the file cannot be read.
        TypeError: if `filepath` is no path.
        ValueError: as `loads`, or if `filepath` names no file; the message names it.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "ab.lz4")
        >>> dump({"step": np.int64(3)}, path)
        >>> load(path)
        {'step': np.int64(3)}
    """
    path = _path("load", filepath)
    if path.exists() and not path.is_file():
        raise ValueError(
            f"`load`: `filepath` expected a file; got {str(path)!r}, which is none"
        )
    what = f"`filepath` expected what `dump` wrote; got {str(path)!r}"
    with path.open("rb") as file:
        size = path.stat().st_size
        return _loaded("load", what, file, size, trusted, max_bytes)


def _path(where: str, filepath: durable.Path) -> pathlib.Path:
    checks.check_type(where, "filepath", filepath, str | os.PathLike, "a path")
    path, text = pathlib.Path(filepath), os.fspath(filepath)
    if not path.name or "\0" in text or "://" in text:
        raise ValueError(
            f"`{where}`: `filepath` expected a file of this machine; got {text!r}, "
            "which is none"
        )
    return path


def _check_trusted(where: str, trusted: bool) -> None:
    # A text such as "no" would be taken for trust.
    checks.check_type(where, "trusted", trusted, bool, "True or False")


def _dumped(where: str, obj: Any, trusted: bool) -> bytes:
    _check_trusted(where, trusted)
    try:
        return _packed(_encode(obj))
    except ValueError as error:
        raise ValueError(f"`{where}`: in `obj` {error}") from error
    except TypeError as error:
        if not trusted:
            raise TypeError(
                f"`{where}`: `obj` expected data and registered classes; got something "
                f"else: {error}; register its class (see `dumps`), convert it, or give "
                "trusted=True for a pickle"
            ) from error
    try:
        return _packed([cloudpickle.dumps(obj)])
    except Exception as error:
        raise TypeError(
            f"`{where}`: `obj` expected something that can be pickled; got {error}"
        ) from error


def _loaded(
    where: str,
    what: str,
    file: BinaryIO,
    size: int,
    trusted: bool,
    max_bytes: int | None,
) -> Any:
    _check_trusted(where, trusted)
    if max_bytes is not None:
        max_bytes = checks.check_whole_number(where, "max_bytes", max_bytes, low=0)
    elif not trusted:
        max_bytes = max(_LEAST_LIMIT, _LIMIT_PER_BYTE * size)
    try:
        source = _Unpacked(file, max_bytes)
        start = source.read(len(_PICKLE)).tobytes()
        if start != _PICKLE:
            start += source.read(len(_MAGIC) - len(start)).tobytes()
            if start != _MAGIC:
                raise ValueError(f"its content begins with {start!r}")
            return _decode(source)
        if trusted:
            return pickle.loads(start + source.rest())
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"`{where}`: {what}, in which this is wrong: {reason}; take another copy, "
            "or the versions of tfrl and of your code that wrote it"
        ) from error
    raise ValueError(
        f"`{where}`: {what}, which is a pickle: to read it can run anything; give "
        "trusted=True if you trust its author as you trust the author of a program"
    )


def _encode(value: Any) -> Iterator[Any]:
    """Writes an object, and all that it refers to, as bytes.

    Args:
        value: the object.

    Returns:
        Bytes-like pieces; `_decode` reads them one after the other.

    Raises:
        TypeError: if something inside is of no known kind or contains itself; the
            message names its place.
        ValueError: if tuples are too deep in each other, or keys too large to hash.

    Example:
        >>> b"".join(_encode([1, (2,)]))[len(_MAGIC) + 8 :]
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
    return iter([_MAGIC, _LENGTH.pack(len(text)), text.encode(), *stretches])


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


def _decode(source: "_Unpacked") -> Any:
    """Reads what `_encode` wrote, after `_MAGIC`.

    Args:
        source: the bytes; it limits the memory.

    Returns:
        The object. Whatever the bytes say, nothing is run but `from_config` of classes
        registered with Keras and hashes of records.

    Raises:
        Exception: of many kinds, if the bytes are something else.

    Example:
        >>> import io
        >>> frame = _packed(_encode([1, (2,)]))
        >>> source = _Unpacked(io.BytesIO(frame), limit=10_000)
        >>> source.read(len(_MAGIC)).tobytes() == _MAGIC, _decode(source)
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


def _packed(parts: Iterable[Any]) -> bytes:
    """Packs bytes into one frame.

    Args:
        parts: bytes-like objects, contiguous, in order.

    Returns:
        The frame; `_Unpacked` reads it, and any other reader of LZ4 frames.

    Example:
        >>> _packed([b"a" * 1000, b"b"])[:4].hex()
        '04224d18'
    """
    compressor = lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX1MB,
        content_checksum=True,
        block_checksum=True,
    )
    pieces = [compressor.begin()]
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), _STEP):
            pieces.append(compressor.compress(view[start : start + _STEP]))
    pieces.append(compressor.flush())
    return b"".join(pieces)


class _Unpacked:
    """The content of a frame, read once from front to back, within a limit of memory.

    Args:
        file: open for reading bytes, at the start of the frame.
        limit: how many bytes of memory `reserve` grants in all; None for any number.

    Raises:
        ValueError: if the file does not begin with an LZ4 frame. Every method raises
            an error of lz4 for a frame that is cut off or damaged.

    Example:
        >>> content = _Unpacked(io.BytesIO(_packed([b"abc", b"de"])), limit=100)
        >>> content.read(3).tobytes(), content.rest()
        (b'abc', b'de')
        >>> content.finish()
    """

    def __init__(self, file: BinaryIO, limit: int | None) -> None:
        start = file.read(len(_FRAME))
        if start != _FRAME:
            raise ValueError(f"it begins with {start!r}, which no frame does")
        file.seek(-len(start), io.SEEK_CUR)
        self._content = lz4.frame.LZ4FrameFile(file)
        self._limit, self._reserved = limit, 0

    def reserve(self, count: int) -> None:
        """Accounts for memory before it is taken.

        Args:
            count: how many bytes will be taken.

        Raises:
            ValueError: if that makes more than the limit, or is negative.
        """
        if count < 0:
            raise ValueError(f"{count} is no number of bytes")
        self._reserved += count
        if self._limit is not None and self._reserved > self._limit:
            raise ValueError(
                f"it takes about {self._reserved} bytes of memory, more than "
                f"`max_bytes` {self._limit}, which you may raise"
            )

    def read(self, count: int) -> np.ndarray:
        """Returns the next bytes in new memory, for which it accounts.

        Args:
            count: how many.

        Raises:
            ValueError: if the content ends before.
        """
        self.reserve(count)
        memory = np.empty(count, np.uint8)
        for start in range(0, count, _STEP):
            part = memory[start : start + _STEP]
            if self._content.readinto(part.data) != len(part):
                raise ValueError("its content ends early")
        return memory

    def rest(self) -> bytes:
        """Returns all further bytes, and accounts for them."""
        pieces = []
        while piece := self._content.read(_STEP):
            self.reserve(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> None:
        """Compares the checksum of the whole.

        Raises:
            ValueError: if something follows.
        """
        if self._content.read(1):
            raise ValueError("its content goes on after its end")
