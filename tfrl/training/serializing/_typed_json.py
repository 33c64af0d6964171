"""JSON text that gives back the Python and numpy values it was made of.

Plain JSON turns tuples into lists, arrays into errors and has no word for NaN, bytes
or an array's dtype. Here such values travel as an object with one key that starts
with `~` and names their kind: `{"~tuple": [1, 2]}`. The table of kinds is closed, so
reading a text runs no code and creates nothing but the types listed in `to_json`.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_TAG = "~"
_LARGEST_NUMBER = 2**63
_BITS = "bits:"
# Between the halves of a pair, which JSON would join to one character.
_PAIRS = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


def to_json(value: Any) -> str:
    """Writes a nest of plain values as one line of JSON text.

    Known are `None`, `bool`, `int` of any size, `float` with NaN and infinities,
    `str`, `bytes`, `list`, `tuple`, `dict` with keys of any known hashable kind, numpy
    arrays and numpy scalars of any dtype but `object` and structured ones. Subclasses
    of these (enums, named tuples) are refused: they could not come back.

    Args:
        value: the nest.

    Returns:
        ASCII text without line breaks; `from_json` gives back an equal nest, the same
        types, dtypes and order of keys. Arrays come back in C order.

    Raises:
        TypeError: if something inside is of another type; the message names its place.
        ValueError: if the nest is too deep to follow, or contains itself.

    Example:
        >>> to_json({"seed": 3, "shape": (2, float("inf"))})
        '{"seed":3,"shape":{"~tuple":[2,{"~float":"inf"}]}}'
    """
    try:
        return json.dumps(
            _encode(value, "value"), separators=(",", ":"), allow_nan=False
        )
    except RecursionError as error:
        raise ValueError(
            "`to_json`: `value` expected a nest of moderate depth; got one that is too "
            "deep to follow or contains itself; flatten it"
        ) from error


def from_json(text: str | bytes) -> Any:
    """Reads what `to_json` wrote.

    Args:
        text: the JSON text.

    Returns:
        The nest; arrays are new and writable.

    Raises:
        ValueError: if the text is not what `to_json` writes.

    Example:
        >>> from_json(to_json((1, np.float32(0.5))))
        (1, np.float32(0.5))
    """
    try:
        return _decode(json.loads(text, parse_constant=_refuse_constant))
    except Exception as error:
        # What numpy makes of a wrong dtype or shape can be any error.
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"`from_json`: `text` expected the output of `to_json`; got {reason}; the "
            "text was damaged or written by something else"
        ) from error


def float_text(value: float) -> str:
    """Returns a text that stands for a float.

    Args:
        value: the float.

    Returns:
        What `float_of` takes; every bit comes back, those of a NaN too.

    Example:
        >>> float_text(0.1), float_text(math.nan), float_text(-math.nan)
        ('0.1', 'nan', 'bits:fff8000000000000')
    """
    bits = struct.pack(">d", value)
    if value == value or bits == struct.pack(">d", math.nan):
        return repr(value)
    return f"{_BITS}{bits.hex()}"


def float_of(text: str) -> float:
    """Returns the float that a text stands for.

    Args:
        text: what `float_text` returned.

    Returns:
        The float.

    Raises:
        ValueError: if it is none.

    Example:
        >>> float_of("-inf")
        -inf
    """
    if text.startswith(_BITS):
        bits = int(text.removeprefix(_BITS), 16) % 2**64
        return float(struct.unpack(">d", bits.to_bytes(8, "big"))[0])
    return float(text)


def split_text(text: str) -> list[str]:
    """Splits a text where JSON would join two halves of a character to one.

    Args:
        text: the text.

    Returns:
        Its parts, nearly always one.

    Example:
        >>> len(split_text("abc")), len(split_text(chr(0xD83D) + chr(0xDE00)))
        (1, 2)
    """
    return [text] if text.isascii() else _PAIRS.split(text)


def dtype_token(dtype: np.dtype) -> str | None:
    """Returns the text that stands for a dtype.

    Args:
        dtype: the dtype.

    Returns:
        What `dtype_of` takes; None for dtypes of objects and structured ones.

    Example:
        >>> dtype_token(np.dtype(np.float32)), dtype_token(np.dtype(object))
        ('<f4', None)
    """
    # Types beyond numpy's own (bfloat16) have a name but no type string.
    for token in (dtype.str, dtype.name):
        try:
            known = dtype_of(token) == dtype
        except TypeError:
            known = False
        if known and not dtype.hasobject:
            return token
    return None


def dtype_of(token: str) -> np.dtype:
    """Returns the dtype that a text stands for.

    Args:
        token: what `dtype_token` returned.

    Returns:
        The dtype.

    Raises:
        TypeError: if there is none of that name.

    Example:
        >>> dtype_of("bfloat16").itemsize
        2
    """
    try:
        return np.dtype(token)
    except TypeError:
        return np.dtype(tf.as_dtype(token).as_numpy_dtype)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"the bare constant {name}")


def _encode(value: Any, place: str) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        parts = split_text(value)
        return value if len(parts) == 1 else {"~text": parts}
    if kind is int:
        return value if abs(value) < _LARGEST_NUMBER else {"~int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"~float": float_text(value)}
    if kind is bytes:
        return {"~bytes": _to_text(value)}
    if kind in (list, tuple):
        items = [_encode(item, f"{place}[{i}]") for i, item in enumerate(value)]
        return items if kind is list else {"~tuple": items}
    if kind is dict:
        return _encode_dict(value, place)
    if kind is np.ndarray or isinstance(value, np.generic):
        return _encode_array(value, place)
    raise TypeError(
        f"`to_json`: `{place}` expected None, bool, int, float, str, bytes, list, "
        f"tuple, dict, a numpy array or scalar; got {kind.__name__}; convert it first"
    )


def _encode_dict(value: dict[Any, Any], place: str) -> Any:
    plain = (type(key) is str and not key.startswith(_TAG) for key in value)
    if all(plain) and all(len(split_text(key)) == 1 for key in value):
        return {key: _encode(item, f"{place}[{key!r}]") for key, item in value.items()}
    pairs = [
        [_encode(key, f"key {key!r} of {place}"), _encode(item, f"{place}[{key!r}]")]
        for key, item in value.items()
    ]
    return {"~dict": pairs}


def _encode_array(value: Any, place: str) -> Any:
    array = np.asarray(value)
    token = dtype_token(array.dtype)
    # An array takes zeros at the end of bytes for filling.
    is_filled = isinstance(value, np.bytes_) and value.endswith(b"\0")
    if token is None or is_filled or not (array.itemsize or array.size <= 1):
        raise TypeError(
            f"`to_json`: `{place}` expected an array of numbers, bools, text or times; "
            f"got dtype {array.dtype}; store its fields or items one by one"
        )
    data = _to_text(array.tobytes())
    if isinstance(value, np.generic):
        return {"~scalar": [token, data]}
    return {"~array": [token, list(array.shape), data]}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith(_TAG) for key in value):
        return {key: _decode(item) for key, item in value.items()}
    ((tag, content),) = value.items()
    return _DECODERS[tag](content)


def _decode_array(content: list[Any]) -> np.ndarray:
    token, shape, data = content
    memory = base64.b64decode(data, validate=True)
    dtype = dtype_of(token)
    count = math.prod(shape)
    # Numpy copies any number of elements without width one by one.
    fits = len(memory) == dtype.itemsize * count and (dtype.itemsize or count <= 1)
    if dtype.hasobject or not fits:
        raise ValueError(f"{len(memory)} bytes for {dtype} {shape}")
    return np.ndarray(shape, dtype, memory).copy()


def _decode_scalar(content: list[Any]) -> Any:
    token, data = content
    return _decode_array([token, [], data])[()]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "~int": lambda content: int(content, 16),
    "~float": float_of,
    "~text": "".join,
    "~bytes": lambda content: base64.b64decode(content, validate=True),
    "~tuple": lambda content: tuple(_decode(item) for item in content),
    "~dict": lambda content: {_decode(key): _decode(item) for key, item in content},
    "~array": _decode_array,
    "~scalar": _decode_scalar,
}
