"""The operations of a traced function, with the lines of source that made them.

TensorFlow prints a concrete function and all that it calls as one module, of which
shapes are inferred throughout. Every operation is a line there, and a table of
locations holds the Python frames in which it was made. That text is for people, not
for programs: what is read of it is the best that can be had, and nothing if TensorFlow
comes to print it otherwise.
"""

import functools
import os
import pathlib
import re
import sys
import sysconfig
from typing import Any, NamedTuple

import tensorflow as tf

_OPERATION = re.compile(r'"tf\.(\w+)"\(.* : \((.*)\) -> (.*) loc\((?:#loc(\d*))?')
_LOCATION = re.compile(r"^#loc(\d*) = loc\((.*)\)$", re.MULTILINE)
_FRAME = re.compile(r'^"([^"]*)":(\d+):\d+$')
_REFERENCE = re.compile(r"#loc(\d*)")
# What a list holds is no shape of an operation.
_HANDLE = re.compile(
    r"tensor<[^<>]*!tf_type\.(?:variant|resource)<(?:tensor<[^<>]*>(?:, )?)*>>"
)
_TENSOR = re.compile(r"tensor<([^<>]*(?:<[^<>]*>)?)>")
# Frames of these say how TensorFlow works, not what was asked of it.
_PYTHON = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = pathlib.Path(tf.__file__).parents[1]
_LIBRARIES = tuple(
    str(_INSTALLED / name) + os.sep
    for name in (
        *("tensorflow", "keras", "tf_keras", "tensorflow_probability"),
        *("tensorboard", "numpy", "gymnasium"),
    )
)
UNKNOWN_PLACE = "an unknown place"


class Operation(NamedTuple):
    """One operation of a graph.

    Attributes:
        kind: its type, such as `MatMul`.
        place: `file:line` of the innermost frame that is no library's.
        inputs: what it takes, such as `4x?xf32`; lists left out.
        outputs: what it returns, likewise.
    """

    kind: str
    place: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def operations(concrete: Any) -> list[Operation]:
    """Returns the operations of a concrete function and of all that it calls.

    Constants, and operations that contribute nothing, are among them only in part.

    Args:
        concrete: what `tf.function(...).get_concrete_function` returned.

    Returns:
        The operations; none if the text of TensorFlow is not understood.
    """
    text = tf.mlir.experimental.convert_function(
        concrete, pass_pipeline="tf-standard-pipeline", show_debug_info=True
    )
    locations = dict(_LOCATION.findall(text))
    place_of = functools.cache(functools.partial(_place, locations))
    return [
        Operation(kind, place_of(location), _tensors(inputs), _tensors(outputs))
        for kind, inputs, outputs, location in _OPERATION.findall(text)
    ]


def _tensors(types: str) -> tuple[str, ...]:
    return tuple(_TENSOR.findall(_HANDLE.sub("", types)))


def _place(locations: dict[str, str], reference: str) -> str:
    """The innermost frame of a location that is no library's."""
    place, rest = UNKNOWN_PLACE, [reference]
    while rest:
        text = locations.get(rest.pop(), "")
        frame = _FRAME.match(text)
        if frame is not None and not _is_library(frame[1]):
            place = f"{_short(frame[1])}:{frame[2]}"
        rest += reversed(_REFERENCE.findall(text))
    return place


def _is_library(file: str) -> bool:
    if file.startswith(_PYTHON) and not file.startswith(str(_INSTALLED)):
        return True
    return file.startswith(_LIBRARIES) or "__autograph_generated" in file


def _short(file: str) -> str:
    """Returns a path as one would name it: from here, or from where it is imported."""
    path = pathlib.Path(file)
    roots = [pathlib.Path.cwd(), *(pathlib.Path(entry) for entry in sys.path if entry)]
    for root in roots:
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return file
