"""Python objects as bytes and files, safe to read unless one says otherwise.

The bytes are an LZ4 frame, each block and the whole under a checksum. It holds either
the objects as plain data (`_object_graph.py` says how), whose reading runs nothing, or
a pickle, which is written and read for those who say `trusted=True` only.
"""

import io
import os
import pathlib
import pickle
from typing import Any, BinaryIO

import cloudpickle

from tfrl._internal import checks, durable
from tfrl.saving import _lz4_frame, _object_graph

_PICKLE = b"\x80"
_LEAST_LIMIT = 2**30
_LIMIT_PER_BYTE = 64


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
    if not isinstance(s, bytes | bytearray | memoryview):
        raise TypeError(
            f"`loads`: `s` expected bytes; got {type(s).__name__}; for a file take "
            "`load`"
        )
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
            f"`load`: `filepath` expected a file; got {str(path)!r}, which is none; "
            "give what `dump` wrote"
        )
    what = f"`filepath` expected what `dump` wrote; got {str(path)!r}"
    with path.open("rb") as file:
        size = path.stat().st_size
        return _loaded("load", what, file, size, trusted, max_bytes)


def _path(where: str, filepath: durable.Path) -> pathlib.Path:
    if not isinstance(filepath, str | os.PathLike):
        raise TypeError(
            f"`{where}`: `filepath` expected a path; got {filepath!r}; give the name "
            "of a file"
        )
    path, text = pathlib.Path(filepath), os.fspath(filepath)
    if not path.name or "\0" in text or "://" in text:
        raise ValueError(
            f"`{where}`: `filepath` expected a file of this machine; got {text!r}, "
            "which is none; give the name of a file"
        )
    return path


def _check_trusted(where: str, trusted: bool) -> None:
    # A text such as "no" would be taken for trust.
    if not isinstance(trusted, bool):
        raise TypeError(
            f"`{where}`: `trusted` expected True or False; got {trusted!r}; choose one"
        )


def _dumped(where: str, obj: Any, trusted: bool) -> bytes:
    _check_trusted(where, trusted)
    try:
        return _lz4_frame.packed(_object_graph.encode(obj))
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
        return _lz4_frame.packed([cloudpickle.dumps(obj)])
    except Exception as error:
        raise TypeError(
            f"`{where}`: `obj` expected something that can be pickled; got {error}; "
            "leave that out"
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
        source = _lz4_frame.Unpacked(file, max_bytes)
        start = source.read(len(_PICKLE)).tobytes()
        if start != _PICKLE:
            start += source.read(len(_object_graph.MAGIC) - len(start)).tobytes()
            if start != _object_graph.MAGIC:
                raise ValueError(f"its content begins with {start!r}")
            return _object_graph.decode(source)
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
