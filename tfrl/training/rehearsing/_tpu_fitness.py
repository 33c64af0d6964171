"""The operations of a traced function, and what of them a TPU does otherwise or not.

TensorFlow prints a concrete function and all that it calls as one module, of which
shapes are inferred throughout. Every operation is a line there, and a table of
locations holds the Python frames in which it was made. That text is for people, not
for programs: what is read of it is the best that can be had, and nothing if TensorFlow
comes to print it otherwise.

XLA on a CPU compiles more than XLA on a TPU. The list is our own, drawn from what
Google's documentation of Cloud TPUs says of the operations; no TPU has confirmed it.
"""

import collections
import functools
import os
import pathlib
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
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
_MOST_NAMED = 3

# Patterns of whole names, the first that fits: what is the matter, what to do.
_HOST_CALLBACKS = {
    "(Eager)?PyFunc(Stateless)?": "calls Python on the host, which a compiled TPU "
    "program cannot",
    "IteratorGetNext": "reads a dataset on the host; take the batch as an argument",
    "OptionalFromValue": "handles a dataset's element, on the host",
}
_LACKING = {
    "Where": "has a row for each true value, so a size that depends on values; use "
    "tf.where(x, y, z) or weights of 0 where this is boolean_mask",
    "Unique.*|ListDiff": "has a result of a size that depends on values; sort, and "
    "compare neighbours",
    "DynamicPartition": "has results of sizes that depend on values; multiply by masks",
    "TensorListResize|TensorListConcat(V2)?": "makes a TensorArray grow; give it its "
    "size at the start",
    "NonMaxSuppression(V[235])?": "has a result of a size that depends on values; pad "
    "it (tf.image.non_max_suppression_padded)",
    ".*Ragged.*|Sparse(?!Softmax|MatMul|ToDense).*": "works on sparse or ragged rows, "
    "of no static size",
    "StatelessShuffle": "is not compiled by XLA; argsort uniform numbers, and gather",
    "(Stateless)?Random(Gamma|Poisson|Binomial).*": "is not compiled by XLA; draw "
    "before the step, and pass the numbers in",
    "Print(V2)?": "prints from the host; return the value instead",
    ".*Summary.*": "writes summaries from the host; return the value, and write it "
    "after the step",
    ".*String.*|AsString|Decode.*|Encode.*|Regex.*|Substr": "works on strings or "
    "images, on the host; do it before the step",
    "ReadFile|WriteFile|MatchingFiles|Save.*|Restore.*": "works on files, on the host",
    ".*HashTable.*|LookupTable.*": "looks up in a table, on the host",
}
_DROPPED = {
    "Assert": "is left out in silence: what it checks goes unnoticed on a TPU; check "
    "before the step",
    "CheckNumerics(V2)?": "is left out or does not stop the program; look at the "
    "results after the step",
}
_NUMBERS = {
    "f64": "computes in float64, for which TPUs have no units; the compiler emulates "
    "it, slowly and with the range of float32, or refuses",
    "complex<f64>": "computes in complex128, for which TPUs have no units",
    "f16": "computes in float16, for which TPUs have no units; take bfloat16",
}
# These hand on what others computed.
_CARRIERS = frozenset(
    ["Const", "Identity", "IdentityN", "If", "While", "StopGradient"]
    + ["PartitionedCall", "StatefulPartitionedCall", "StatelessIf", "StatelessWhile"]
)


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


class Finding(NamedTuple):
    """What is the matter with operations of one kind at one place.

    Attributes:
        reason: what, and what to do.
        kind: type of the operations.
        place: `file:line`.
    """

    reason: str
    kind: str
    place: str


def dynamic_shapes(found: Iterable[Operation]) -> list[Finding]:
    """Where shapes begin to depend on values; what follows from there is left out."""
    return [
        Finding("has a result of a size not known when it is compiled", *operation[:2])
        for operation in found
        if operation.kind not in _CARRIERS
        and any(map(_is_dynamic, operation.outputs))
        and not any(map(_is_dynamic, operation.inputs))
    ]


def _is_dynamic(tensor: str) -> bool:
    return tensor.startswith("*") or "?" in tensor


def matching(reasons: dict[str, str], found: Iterable[Operation]) -> list[Finding]:
    """Operations whose kind is one of some patterns, the first that fits."""
    findings = []
    for kind, place, *_ in found:
        for pattern, reason in reasons.items():
            if re.fullmatch(pattern, kind):
                findings.append(Finding(reason, kind, place))
                break
    return findings


def unfit_numbers(found: Iterable[Operation]) -> list[Finding]:
    """Operations that compute in dtypes for which TPUs have no units."""
    return [
        Finding(reason, operation.kind, operation.place)
        for operation in found
        if operation.kind not in _CARRIERS
        for dtype, reason in _NUMBERS.items()
        if any(
            re.fullmatch(rf"(\*x|([\d?]+x)*){dtype}", tensor)
            for tensor in (*operation.inputs, *operation.outputs)
        )
    ]


def half_precision(found: Iterable[Operation]) -> str | None:
    """Returns the coarsest dtype of 16 bits in which operations compute.

    Args:
        found: the operations.

    Returns:
        Its name; None if there is none.
    """
    taken = {
        tensor.rpartition("x")[2]
        for operation in found
        if operation.kind != "Cast"
        for tensor in operation.inputs
    }
    names = {"bf16": "bfloat16", "f16": "float16"}
    return next((name for short, name in names.items() if short in taken), None)


def described(findings: Sequence[Finding]) -> tuple[str, ...]:
    """One text per reason: the commonest operations and places, and the reason."""
    texts = []
    for reason in dict.fromkeys(finding.reason for finding in findings):
        alike = [finding for finding in findings if finding.reason == reason]
        pairs = collections.Counter(f"{each.kind} at {each.place}" for each in alike)
        if len(pairs) <= _MOST_NAMED:
            found = _most(pairs, "")
        else:
            kinds = _most(collections.Counter(each.kind for each in alike), "kinds")
            places = _most(collections.Counter(each.place for each in alike), "places")
            found = f"{kinds} at {places}"
        texts.append(f"{found}: {reason}")
    return tuple(texts)


def _most(counts: collections.Counter[str], what: str) -> str:
    names = [
        name if count == 1 else f"{name} ({count})"
        for name, count in counts.most_common(_MOST_NAMED)
    ]
    if len(counts) > _MOST_NAMED:
        names.append(f"{len(counts) - _MOST_NAMED} more {what}")
    return ", ".join(names)


CHECKS: tuple[tuple[str, bool, Callable[..., list[Finding]]], ...] = (
    ("static shapes", True, dynamic_shapes),
    ("no host callbacks", True, functools.partial(matching, _HOST_CALLBACKS)),
    ("operations that TPUs have", True, functools.partial(matching, _LACKING)),
    ("no checks that XLA drops", False, functools.partial(matching, _DROPPED)),
    ("dtypes that TPUs have", False, unfit_numbers),
)
