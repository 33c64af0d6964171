"""The kinds of objects that data may hold: how each is taken apart and made again.

The table is closed. A kind is a word; an object of it is a static part, which JSON can
hold, a list of other objects, and at most one stretch of bytes. Nothing is made but
what stands here, and classes come from `_admitted_classes` alone. Two formats are made
of the kinds: `serialization` (with shared references) and `typed_json` (to be read).
"""

import collections
import itertools
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from tfrl.core import specs
from tfrl.saving import _admitted_classes

_LONG_TEXT = 64
_LARGEST_NUMBER = 2**63
_MOST_CHARACTER = 0x10FFFF
_MOST_WITHOUT_WIDTH = 2**20
_BITS = "bits:"
_BYTE = np.dtype(np.uint8)
# Between the halves of a pair of surrogates, which JSON would join to one character.
_PAIRS = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

# Returns as many bytes as it is asked for, in new memory.
Read = Callable[[int], np.ndarray]


class Parts(NamedTuple):
    """What an object consists of.

    Attributes:
        kind: the word for it.
        static: what JSON can hold.
        children: objects it refers to.
        data: bytes, or None.
    """

    kind: str
    static: Any = None
    children: Sequence[Any] = ()
    data: Any = None


class _Kind(NamedTuple):
    """How objects of a kind are taken apart and made.

    Attributes:
        apart: from an object to the `Parts` behind the kind.
        make: from the static part, the children and `Read` to an object.
        cls: the class of such objects, if that alone tells the kind.
    """

    apart: Callable[[Any], tuple[Any, ...]]
    make: Callable[[Any, list[Any], Read], Any]
    cls: type | None = None


def is_leaf(value: Any) -> bool:
    """Whether JSON holds a value as it is.

    Args:
        value: anything.

    Returns:
        True for None, bools, short text, and numbers that JSON brings back.

    Example:
        >>> is_leaf(1.5), is_leaf(math.inf), is_leaf(2**64)
        (True, False, False)
    """
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return abs(value) < _LARGEST_NUMBER
    if kind is str:
        return len(value) <= _LONG_TEXT and _text(value) is value
    return value is None or kind is bool


def plain_kind(value: Any) -> str | None:
    """Returns the kind of an object that no class of others is needed for.

    Args:
        value: anything that is no leaf.

    Returns:
        The kind; None for functions, classes and objects of admitted classes, and for
        what is of no known kind.

    Example:
        >>> plain_kind((1, 2)), plain_kind(np.float32(1)), plain_kind(print)
        ('tuple', 'scalar', None)
    """
    if type(value) in _EXACT:
        return _EXACT[type(value)]
    if isinstance(value, type):
        return "scalar_type" if issubclass(value, np.generic) else None
    if isinstance(value, tf.Tensor) and value.dtype == tf.string:
        return "text_tensor"
    return next((kind for base, kind in _DERIVED if isinstance(value, base)), None)


def parts_of(kind: str, value: Any) -> Parts:
    """Takes an object apart whose kind is known; raises as `taken_apart`."""
    return Parts(kind, *_KINDS[kind].apart(value))


def taken_apart(value: Any) -> Parts | None:
    """Takes an object apart.

    Args:
        value: anything that is no leaf.

    Returns:
        Its parts; None if it is of no known kind.

    Raises:
        TypeError: if it is of a kind that does not go with what it holds.

    Example:
        >>> taken_apart({"a": [1]})
        Parts(kind='dict', static=None, children=['a', [1]], data=None)
    """
    kind = plain_kind(value)
    if kind is not None:
        return parts_of(kind, value)
    found = _admitted_classes.parts_of(value)
    return None if found is None else Parts(*found)


def made(kind: str, static: Any, items: list[Any], read: Read) -> Any:
    """Makes an object of its parts.

    Args:
        kind: the word for it.
        static: what JSON held.
        items: the objects that it refers to.
        read: returns its bytes.

    Returns:
        The object.

    Raises:
        Exception: of many kinds, if the parts do not go together.

    Example:
        >>> made("tuple", None, [1, 2], np.zeros)
        (1, 2)
    """
    if kind in _KINDS:
        return _KINDS[kind].make(static, items, read)
    if kind in _admitted_classes.MAKERS:
        return _admitted_classes.MAKERS[kind](static, items)
    raise ValueError(f"its text holds the unknown kind {kind!r:.40}")


def refuse(found: Any) -> NoReturn:
    """Raises the error for what text of JSON holds and none of ours does."""
    raise ValueError(f"its text holds {found!r:.40}")


def _float_text(value: float) -> str:
    """Text of which `_float_of` makes the same bits, those of a NaN too."""
    return repr(value) if value == value else _BITS + struct.pack(">d", value).hex()


def _float_of(text: str) -> float:
    if text.startswith(_BITS):
        return float(struct.unpack(">d", bytes.fromhex(text[len(_BITS) :]))[0])
    return float(text)


def _text(text: str) -> str | list[str]:
    """The text, or its parts if JSON would join some of its characters."""
    return text if text.isascii() or not _PAIRS.search(text) else _PAIRS.split(text)


def _token(dtype: np.dtype) -> Any:
    """What JSON can hold of a dtype, for `_dtype_of`."""
    # Types beyond numpy's own (bfloat16) have a name but no type string.
    tokens = [dtype.str, dtype.name]
    if dtype.names is not None:
        descr = np.lib.format.dtype_to_descr(dtype)
        tokens = [json.loads(json.dumps(descr))]
    for token in tokens:
        try:
            again = _dtype_of(token)
        except (TypeError, ValueError):
            continue
        if again == dtype and again.type is dtype.type:
            return token
    raise TypeError(f"dtype {dtype} is none of numbers, bools, text or times")


def _dtype_of(token: Any) -> np.dtype:
    if isinstance(token, str):
        try:
            dtype = np.dtype(token)
        except TypeError:
            dtype = np.dtype(tf.as_dtype(token).as_numpy_dtype)
    else:
        dtype = np.lib.format.descr_to_dtype(_fields(token))
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} holds objects")
    return dtype


def _fields(token: Any) -> Any:
    return [
        (name, _fields(form) if isinstance(form, list) else form, *map(tuple, shape))
        for name, form, *shape in token
    ]


def _array_apart(array: Any) -> tuple[Any, ...]:
    array = np.asarray(array)
    static = [_token(array.dtype), list(array.shape)]
    data = np.ascontiguousarray(array).reshape(-1)
    # What has no bytes cannot be looked at as bytes.
    return static, [], data.view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)


def _scalar_apart(scalar: np.generic) -> tuple[Any, ...]:
    (token, _), *rest = _array_apart(scalar)
    return [token], *rest


def _make_array(dtype: np.dtype, shape: Any, read: Read) -> np.ndarray:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape} is no shape")
    count = math.prod(shape)
    if not dtype.itemsize and count > _MOST_WITHOUT_WIDTH:
        raise ValueError(f"{count} elements have no width")
    memory = read(count * dtype.itemsize)
    if memory.size != count * dtype.itemsize:
        raise ValueError(f"{memory.size} bytes are for {dtype} {shape}")
    array = np.ndarray(shape, dtype, memory)
    _check_content(array)
    return array


def _check_content(array: np.ndarray) -> None:
    """Refuses bools and text that numpy itself never makes, and trips over."""
    dtype = array.dtype
    for name in dtype.names or ():
        _check_content(array[name])
    if dtype.kind == "b" and np.any(array.view(np.uint8) > 1):
        raise ValueError("a bool is neither 0 nor 1")
    if dtype.kind == "U" and array.nbytes:
        flat = np.ascontiguousarray(array).reshape(-1)
        if np.any(flat.view(f"{dtype.str[0]}u4") > _MOST_CHARACTER):
            raise ValueError("text holds what is no character")


def _tensor_apart(tensor: tf.Tensor) -> tuple[Any, ...]:
    if tf.is_symbolic_tensor(tensor) or not hasattr(tensor, "numpy"):
        raise TypeError("a tensor of a graph has no value; pass an eager one")
    shape = tensor.shape.as_list()
    if tensor.dtype == tf.string:
        return shape, np.ravel(tensor.numpy()).tolist()
    _, *rest = _array_apart(tensor.numpy())
    return [tensor.dtype.name, shape], *rest


def _make_tensor(static: Any, _: list[Any], read: Read) -> tf.Tensor:
    name, shape = static
    dtype = tf.as_dtype(name)
    return tf.constant(_make_array(np.dtype(dtype.as_numpy_dtype), shape, read), dtype)


def _make_text_tensor(static: Any, items: list[Any], _: Read) -> tf.Tensor:
    if math.prod(static) != len(items) or not all(type(x) is bytes for x in items):
        raise ValueError(f"{len(items)} pieces of text do not fill {static}")
    return tf.constant(items, tf.string, shape=static)


def _dims(shape: tf.TensorShape) -> list[int | None] | None:
    return None if shape.rank is None else shape.as_list()


def _spec_static(spec: tf.TensorSpec) -> list[Any]:
    return [_dims(spec.shape), spec.dtype.name, spec.name]


def _make_bounded_spec(static: Any, items: list[Any], _: Read) -> tf.TensorSpec:
    shape, dtype, name = static
    sizes = tuple(1 if size is None else size for size in shape or ())
    # Others would be widened to the shape, be it however large.
    if not all(type(x) is np.ndarray and x.shape == sizes for x in items):
        raise ValueError("bounds of a spec are no arrays of its shape")
    minimum, maximum = items
    return specs.BoundedTensorSpec(shape, tf.as_dtype(dtype), minimum, maximum, name)


def _static(apart: Callable[[Any], Any], make: Any, cls: type | None = None) -> _Kind:
    """Objects that JSON can hold, in a way."""
    return _Kind(lambda x: (apart(x),), lambda static, *_: make(static), cls)


def _of_bytes(cls: type) -> _Kind:
    return _Kind(
        lambda x: (len(x), [], np.frombuffer(x, np.uint8)),
        lambda static, _, read: cls(_make_array(_BYTE, [static], read).tobytes()),
        cls,
    )


def _of_items(cls: type) -> _Kind:
    return _Kind(lambda x: (None, list(x)), lambda _, items, __: cls(items), cls)


def _of_pairs(cls: type) -> _Kind:
    return _Kind(
        lambda x: (None, list(itertools.chain.from_iterable(x.items()))),
        lambda _, items, __: cls(zip(items[::2], items[1::2], strict=True)),
        cls,
    )


def _of_numbers(cls: type) -> _Kind:
    return _Kind(
        lambda x: (None, [x.start, x.stop, x.step]),
        lambda _, items, __: cls(*items),
        cls,
    )


_KINDS: dict[str, _Kind] = {
    "int": _static(hex, lambda text: int(text, 16), int),
    "float": _static(_float_text, _float_of, float),
    "complex": _static(
        lambda x: [_float_text(x.real), _float_text(x.imag)],
        lambda parts: complex(*map(_float_of, parts)),
        complex,
    ),
    "str": _static(_text, "".join, str),
    "bytes": _of_bytes(bytes),
    "byte_scalar": _of_bytes(np.bytes_),
    "bytearray": _of_bytes(bytearray),
    "list": _of_items(list),
    "tuple": _of_items(tuple),
    "set": _of_items(set),
    "frozenset": _of_items(frozenset),
    "deque": _Kind(
        lambda x: (x.maxlen, list(x)),
        lambda static, items, _: collections.deque(items, static),
        collections.deque,
    ),
    "dict": _of_pairs(dict),
    "ordered_dict": _of_pairs(collections.OrderedDict),
    "slice": _of_numbers(slice),
    "range": _of_numbers(range),
    "array": _Kind(
        _array_apart,
        lambda static, _, read: _make_array(_dtype_of(static[0]), static[1], read),
        np.ndarray,
    ),
    "scalar": _Kind(
        _scalar_apart,
        lambda static, _, read: _make_array(_dtype_of(static[0]), [], read)[()],
    ),
    "scalar_type": _static(
        lambda x: _token(np.dtype(x)), lambda token: _dtype_of(token).type
    ),
    "dtype": _static(_token, _dtype_of),
    "tf_dtype": _static(lambda x: x.name, tf.as_dtype),
    "tensor": _Kind(_tensor_apart, _make_tensor),
    "text_tensor": _Kind(_tensor_apart, _make_text_tensor),
    "shape": _static(_dims, tf.TensorShape, tf.TensorShape),
    "spec": _static(_spec_static, lambda x: tf.TensorSpec(*x), tf.TensorSpec),
    "bounded_spec": _Kind(
        lambda x: (_spec_static(x), [x.minimum, x.maximum]),
        _make_bounded_spec,
        specs.BoundedTensorSpec,
    ),
}
# Classes, whose derived ones are of other kinds; and those whose are of the same.
_EXACT = {kind.cls: name for name, kind in _KINDS.items() if kind.cls is not None}
_DERIVED = (
    (np.generic, "scalar"),
    (np.dtype, "dtype"),
    (tf.DType, "tf_dtype"),
    (tf.Tensor, "tensor"),
)
