"""The kinds of objects that data may hold: how each is taken apart and made again.

The table is closed. A kind is a word; an object of it is a static part, which JSON can
hold, a list of other objects, and at most one stretch of bytes. Nothing is made but
what stands here, and classes come from `_admitted_classes` alone.
"""

import collections
import contextlib
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.core import specs
from tfrl.training.serializing import _admitted_classes, _lz4_frame, _typed_json

_LONG_TEXT = 64
_LARGEST_NUMBER = 2**63
_MOST_CHARACTER = 0x10FFFF


class Parts(NamedTuple):
    """What an object consists of.

    Attributes:
        kind: the word for it.
        static: what JSON can hold.
        children: objects it refers to.
        data: one-dimensional array of bytes, or None.
    """

    kind: str
    static: Any
    children: list[Any]
    data: np.ndarray | None = None


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
        return len(value) <= _LONG_TEXT and len(_typed_json.split_text(value)) == 1
    return value is None or kind is bool


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
    kind = type(value)
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if kind is np.bytes_:
        # An array would take zeros at its end for filling.
        return _of_bytes("byte_scalar")(value)
    if isinstance(value, np.generic):
        return _of_array("scalar", np.asarray(value))
    if isinstance(value, np.dtype):
        return Parts("dtype", _token(value), [])
    if isinstance(value, tf.DType):
        return Parts("tf_dtype", value.name, [])
    if isinstance(value, tf.Tensor):
        return _of_tensor(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        token = _typed_json.dtype_token(np.dtype(value))
        return None if token is None else Parts("scalar_type", token, [])
    if isinstance(value, type | types.FunctionType):
        name = _admitted_classes.name_of(value)
        return None if name is None else Parts("named", name, [])
    found = _admitted_classes.parts_of(value)
    return None if found is None else Parts(*found)


def _of_array(kind: str, array: np.ndarray) -> Parts:
    static: list[Any] = [_token(array.dtype)]
    if kind == "array":
        static.append(list(array.shape))
    return Parts(kind, static, [], _bytes_of(array))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    if not array.nbytes:
        return np.zeros(0, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _of_tensor(tensor: tf.Tensor) -> Parts:
    if tf.is_symbolic_tensor(tensor) or not hasattr(tensor, "numpy"):
        raise TypeError("a tensor of a graph has no value; pass an eager one")
    shape = tensor.shape.as_list()
    if tensor.dtype == tf.string:
        return Parts("text_tensor", shape, np.ravel(tensor.numpy()).tolist())
    array = np.asarray(tensor.numpy())
    if array.dtype.hasobject or _typed_json.dtype_token(array.dtype) is None:
        raise TypeError(f"a tensor of dtype {tensor.dtype.name} has no bytes")
    return Parts("tensor", [tensor.dtype.name, shape], [], _bytes_of(array))


def _token(dtype: np.dtype) -> Any:
    token: Any = _typed_json.dtype_token(dtype)
    known = token
    with contextlib.suppress(TypeError, ValueError):
        if token is None and dtype.names is not None and not dtype.hasobject:
            token = _as_lists(np.lib.format.dtype_to_descr(dtype))
            copy = _dtype(token)
            known = copy == dtype and copy.type is dtype.type
    if not known:
        raise TypeError(f"dtype {dtype} is none of numbers, bools, text or times")
    return token


def _as_lists(descr: Any) -> Any:
    if isinstance(descr, list | tuple):
        return [_as_lists(part) for part in descr]
    return descr


def _dtype(token: Any) -> np.dtype:
    if isinstance(token, str):
        dtype = _typed_json.dtype_of(token)
    else:
        dtype = np.lib.format.descr_to_dtype(_as_fields(token))
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} holds objects")
    return dtype


def _as_fields(token: Any) -> Any:
    return [
        (name, _as_fields(form) if isinstance(form, list) else form, *map(tuple, shape))
        for name, form, *shape in token
    ]


def _of_bounded_spec(spec: specs.BoundedTensorSpec) -> Parts:
    return Parts("bounded_spec", _spec_static(spec), [spec.minimum, spec.maximum])


def _spec_static(spec: tf.TensorSpec) -> list[Any]:
    return [_dims(spec.shape), spec.dtype.name, spec.name]


def _dims(shape: tf.TensorShape) -> list[int | None] | None:
    return None if shape.rank is None else shape.as_list()


def _of_bytes(kind: str) -> Callable[[Any], Parts]:
    return lambda x: Parts(kind, len(x), [], np.frombuffer(x, np.uint8))


def _of_text(text: str) -> Parts:
    parts = _typed_json.split_text(text)
    return Parts("str", parts if len(parts) > 1 else text, [])


def _of_items(kind: str) -> Callable[[Any], Parts]:
    return lambda x: Parts(kind, None, list(x))


def _of_mapping(kind: str) -> Callable[[Any], Parts]:
    return lambda x: Parts(kind, None, [part for pair in x.items() for part in pair])


_PLAIN: dict[type, Callable[[Any], Parts | None]] = {
    int: lambda x: Parts("int", hex(x), []),
    float: lambda x: Parts("float", _typed_json.float_text(x), []),
    complex: lambda x: Parts(
        "complex", [_typed_json.float_text(part) for part in (x.real, x.imag)], []
    ),
    str: _of_text,
    bytes: _of_bytes("bytes"),
    bytearray: _of_bytes("bytearray"),
    list: _of_items("list"),
    tuple: _of_items("tuple"),
    set: _of_items("set"),
    frozenset: _of_items("frozenset"),
    collections.deque: lambda x: Parts("deque", x.maxlen, list(x)),
    dict: _of_mapping("dict"),
    collections.OrderedDict: _of_mapping("ordered_dict"),
    slice: lambda x: Parts("slice", None, [x.start, x.stop, x.step]),
    range: lambda x: Parts("range", None, [x.start, x.stop, x.step]),
    np.ndarray: lambda x: _of_array("array", x),
    tf.TensorShape: lambda x: Parts("shape", _dims(x), []),
    tf.TensorSpec: lambda x: Parts("spec", _spec_static(x), []),
    specs.BoundedTensorSpec: _of_bounded_spec,
}


def _read(source: _lz4_frame.Unpacked, dtype: np.dtype, shape: Any) -> np.ndarray:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape} is no shape")
    count = math.prod(shape)
    source.reserve(count * max(dtype.itemsize, 1))
    memory = np.empty(count * dtype.itemsize, np.uint8)
    source.fill(memory.data)
    if not memory.size:
        # `np.empty` widens text of no width.
        return np.ndarray(shape, dtype, memory)
    array = memory.view(dtype).reshape(shape)
    _check_content(array)
    return array


def _check_content(array: np.ndarray) -> None:
    """Refuses bools and text that numpy itself never makes, and trips over."""
    dtype = array.dtype
    for name in dtype.names or ():
        _check_content(array[name])
    if dtype.kind == "b" and np.any(array.view(np.uint8) > 1):
        raise ValueError("a bool is neither 0 nor 1")
    if dtype.kind == "U" and dtype.itemsize:
        flat = np.ascontiguousarray(array).reshape(-1)
        if np.any(flat.view(f"{dtype.str[0]}u4") > _MOST_CHARACTER):
            raise ValueError("text holds what is no character")


def _make_bytes(static: Any, source: _lz4_frame.Unpacked) -> np.ndarray:
    return _read(source, np.dtype(np.uint8), [static])


def _make_tensor(static: Any, source: _lz4_frame.Unpacked) -> tf.Tensor:
    name, shape = static
    dtype = tf.as_dtype(name)
    array = _read(source, np.dtype(dtype.as_numpy_dtype), shape)
    source.reserve(array.nbytes)
    return tf.constant(array, dtype)


def _make_text_tensor(static: Any, items: list[Any]) -> tf.Tensor:
    if math.prod(static) != len(items) or not all(type(x) is bytes for x in items):
        raise ValueError(f"{len(items)} pieces of text do not fill {static}")
    return tf.constant(items, tf.string, shape=static)


def _make_bounded_spec(
    static: Any, items: list[Any], source: _lz4_frame.Unpacked
) -> specs.BoundedTensorSpec:
    shape, dtype, name = static
    sizes = [1 if size is None else size for size in shape or ()]
    size = math.prod(sizes)
    source.reserve(8 * size)
    minimum, maximum = items
    if not all(type(bound) is np.ndarray and bound.size <= size for bound in items):
        raise ValueError("bounds of a spec are no arrays of its shape")
    return specs.BoundedTensorSpec(shape, tf.as_dtype(dtype), minimum, maximum, name)


_Maker = Callable[[Any, list[Any], _lz4_frame.Unpacked], Any]
# Objects that are complete once made: what they refer to exists before.
MAKERS: dict[str, _Maker] = {
    "int": lambda static, _, __: int(static, 16),
    "float": lambda static, _, __: _typed_json.float_of(static),
    "complex": lambda static, _, __: complex(*map(_typed_json.float_of, static)),
    "str": lambda static, _, __: "".join(static),
    "bytes": lambda static, _, source: _make_bytes(static, source).tobytes(),
    "byte_scalar": lambda static, _, source: np.bytes_(
        _make_bytes(static, source).tobytes()
    ),
    "bytearray": lambda static, _, source: bytearray(_make_bytes(static, source)),
    "tuple": lambda _, items, __: tuple(items),
    "frozenset": lambda _, items, __: frozenset(items),
    "slice": lambda _, items, __: slice(*items),
    "range": lambda _, items, __: range(*items),
    "array": lambda static, _, source: _read(source, _dtype(static[0]), static[1]),
    "scalar": lambda static, _, source: _read(source, _dtype(static[0]), [])[()],
    "scalar_type": lambda static, _, __: _dtype(static).type,
    "dtype": lambda static, _, __: _dtype(static),
    "tf_dtype": lambda static, _, __: tf.as_dtype(static),
    "tensor": lambda static, _, source: _make_tensor(static, source),
    "text_tensor": lambda static, items, __: _make_text_tensor(static, items),
    "shape": lambda static, _, __: tf.TensorShape(static),
    "spec": lambda static, _, __: tf.TensorSpec(static[0], *static[1:]),
    "bounded_spec": _make_bounded_spec,
    "named": lambda static, _, __: _admitted_classes.named(static),
    "enum": lambda static, _, __: _admitted_classes.make_enum(*static),
    "config": lambda static, items, __: _admitted_classes.make_configured(
        static, *items
    ),
    "named_tuple": lambda static, items, __: _admitted_classes.make_named_tuple(
        static[0], static[1], items
    ),
}


def _new_deque(static: Any, source: _lz4_frame.Unpacked) -> collections.deque[Any]:
    source.reserve(1024)
    return collections.deque(maxlen=static)


def _new_set(_: Any, source: _lz4_frame.Unpacked) -> set[Any]:
    source.reserve(512)
    return set()


def _fill_dict(mapping: dict[Any, Any], _: Any, items: list[Any]) -> None:
    mapping.update(zip(items[::2], items[1::2], strict=True))


_New = Callable[[Any, _lz4_frame.Unpacked], Any]
# Objects that can exist before what they refer to: how they begin, how they are filled.
SHELLS: dict[str, tuple[_New, Callable[[Any, Any, list[Any]], None]]] = {
    "list": (lambda _, __: [], lambda shell, _, items: shell.extend(items)),
    "set": (_new_set, lambda shell, _, items: shell.update(items)),
    "deque": (_new_deque, lambda shell, _, items: shell.extend(items)),
    "dict": (lambda _, __: {}, _fill_dict),
    "ordered_dict": (lambda _, __: collections.OrderedDict(), _fill_dict),
    "record": (
        lambda static, _: _admitted_classes.new_record(*static),
        lambda shell, static, items: _admitted_classes.fill_record(
            shell, static[1], items
        ),
    ),
}
