"""Reads the recorded cases under tests/golden.

A room's file `golden/<library>/<module>.json` lists cases, `<module>.npz` beside it
holds their arrays. `load` returns the cases with every value decoded:

    for case in golden_io.load("alf/spec_utils"):
        case["symbol"], case["args"], case["kwargs"], case["out"]

Plain JSON stands for itself. A marked value (an object with a key that starts with
`$`) is decoded as `_MAKE` says; markers that only the reading test can make sense of
(`$spec`, `$obj`, `$fn`, `$distspec`, `$dist`, `$sig`, `$callable`, `$repr`) become
`Marked`, or what the function given for them in `build` returns. `Marked` content of
`$obj` is `{"cls": ..., "args": [...], "kwargs": {...}}`, decoded already.
"""

import collections
import functools
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).parent / "golden"
_VERBATIM = ("id", "symbol", "kind", "note", "notes")


class Raised(NamedTuple):
    """The recorded call raised `type` saying `message`."""

    type: str
    message: str


class Marked(NamedTuple):
    """A value that needs the reader's knowledge: `marker` without `$`, its content."""

    marker: str
    content: Any


def load(stem, build=None, symbol=None):
    """Returns the decoded cases of `golden/<stem>.json`, of one `symbol` if given.

    Args:
        stem: library and module, like "alf/spec_utils".
        build: marker (without `$`) -> function of the decoded content that makes the
            value. It goes before the defaults, so `{"t": tf.constant}` works too.
        symbol: last part of the symbol whose cases are wanted.
    """
    cases, arrays = _read(stem)
    return [
        {
            field: value if field in _VERBATIM else decode(value, arrays, build or {})
            for field, value in case.items()
        }
        for case in cases
        if symbol is None or case["symbol"].rsplit(".", 1)[-1] == symbol
    ]


@functools.cache
def _read(stem):
    """Returns what the files hold: cases as they are written, arrays by name."""
    document = json.loads((ROOT / f"{stem}.json").read_text())
    with np.load(ROOT / f"{stem}.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    return document["cases"] if isinstance(document, dict) else document, arrays


def ids(cases):
    """Returns the names of `cases`, for `pytest.mark.parametrize`."""
    return [case["id"] for case in cases]


def decode(value, arrays, build):
    """Returns the Python value that the JSON `value` describes."""
    if isinstance(value, list):
        return [decode(part, arrays, build) for part in value]
    if not isinstance(value, dict):
        return value
    marker = next((key for key in value if key.startswith("$")), None)
    if marker is None:
        return {key: decode(part, arrays, build) for key, part in value.items()}
    name, content = marker[1:], value[marker]
    if name in ("t", "np", "array"):
        content = arrays[content].copy()
    elif name in ("npscalar", "error", "namedtuple"):
        rest = next(value[key] for key in ("value", "msg", "fields") if key in value)
        content = [content, decode(rest, arrays, build)]
    else:
        content = decode(content, arrays, build)
    if name in build:
        return build[name](content)
    return _MAKE[name](content) if name in _MAKE else Marked(name, content)


def _named_tuple(content):
    name, fields = content[0], dict(content[1])
    return collections.namedtuple(name, fields)(**fields)


_MAKE = {
    "t": lambda array: array,
    "np": lambda array: array,
    "array": lambda array: array,
    "f": float,
    "tuple": tuple,
    "dict": dict,
    "odict": collections.OrderedDict,
    "nt": _named_tuple,
    "namedtuple": _named_tuple,
    "npscalar": lambda content: np.dtype(content[0]).type(content[1]),
    "dtype": np.dtype,
    "ellipsis": lambda _: ...,
    "error": lambda content: Raised(*content),
    "bytes": bytes.fromhex,
    "slice": lambda content: slice(*content),
}
