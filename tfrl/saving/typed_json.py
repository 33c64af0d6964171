"""JSON text that gives back the Python and numpy values it was made of.

Plain JSON turns tuples into lists, arrays into errors and has no word for NaN, bytes
or an array's dtype. Here such values travel as an object with one key that starts
with `~` and names their kind: `{"~tuple": [1, 2]}`. The table of kinds is closed, so
reading a text runs no code and creates nothing but the types listed in `to_json`.
"""

import base64
import json
from typing import Any

import numpy as np

from tfrl.saving import _object_kinds

_TAG = "~"
_KNOWN = ("int", "float", "str", "bytes", "list", "tuple", "dict", "array", "scalar")


def to_json(value: Any) -> str:
    """Writes a nest of plain values as one line of JSON text.

    Known are `None`, `bool`, `int` of any size, `float` with NaN and infinities,
    `str`, `bytes`, `list`, `tuple`, `dict` with keys of any known hashable kind, numpy
    arrays and numpy scalars of any dtype but `object`. Subclasses of these (enums,
    named tuples) are refused: they could not come back.

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
        return _decode(json.loads(text, parse_constant=_object_kinds.refuse))
    except Exception as error:
        # What numpy makes of a wrong dtype or shape can be any error.
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"`from_json`: `text` expected the output of `to_json`; got {reason}; the "
            "text was damaged or written by something else"
        ) from error


def _encode(value: Any, place: str) -> Any:
    if _object_kinds.is_leaf(value):
        return value
    kind = _object_kinds.plain_kind(value)
    if kind is None or kind not in _KNOWN:
        raise TypeError(
            f"`to_json`: `{place}` expected None, bool, int, float, str, bytes, list, "
            f"tuple, dict, a numpy array or scalar; got {type(value).__name__}; "
            "convert it first"
        )
    try:
        _, static, children, data = _object_kinds.parts_of(kind, value)
    except TypeError as error:
        raise TypeError(f"`to_json`: `{place}`: {error}; convert it first") from error
    if kind == "dict":
        return _encode_dict(value, place)
    if kind in ("list", "tuple"):
        items = [_encode(item, f"{place}[{i}]") for i, item in enumerate(children)]
        return items if kind == "list" else {"~tuple": items}
    if data is None:
        return static if static is value else {_TAG + kind: static}
    text = base64.b64encode(data).decode("ascii")
    return {_TAG + kind: text if kind == "bytes" else [*static, text]}


def _encode_dict(value: dict[Any, Any], place: str) -> Any:
    pairs = [
        [_encode(key, f"key {key!r} of {place}"), _encode(item, f"{place}[{key!r}]")]
        for key, item in value.items()
    ]
    is_plain = all(type(key) is str and not key.startswith(_TAG) for key, _ in pairs)
    return dict(pairs) if is_plain else {"~dict": pairs}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith(_TAG) for key in value):
        return {key: _decode(item) for key, item in value.items()}
    ((tag, content),) = value.items()
    if tag == "~tuple":
        return tuple(_decode(item) for item in content)
    if tag == "~dict":
        return {_decode(key): _decode(item) for key, item in content}
    if tag == "~bytes":
        return base64.b64decode(content, validate=True)
    if tag in ("~array", "~scalar"):
        *content, text = content
        data = np.frombuffer(bytearray(base64.b64decode(text, validate=True)), np.uint8)
        return _object_kinds.made(tag[1:], content, [], lambda _: data)
    # "~text" is what "~str" was before.
    kind = {"~int": "int", "~float": "float", "~str": "str", "~text": "str"}[tag]
    return _object_kinds.made(kind, content, [], np.empty)
