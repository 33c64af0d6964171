"""What of a graph a TPU cannot do, or does otherwise than a CPU.

XLA on a CPU compiles more than XLA on a TPU. The list is our own, drawn from what
Google's documentation of Cloud TPUs says of the operations; no TPU has confirmed it.
"""

import collections
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tfrl.training.rehearsing import _operations

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


def dynamic_shapes(found: Iterable[_operations.Operation]) -> list[Finding]:
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


def matching(
    reasons: dict[str, str], found: Iterable[_operations.Operation]
) -> list[Finding]:
    """Operations whose kind is one of some patterns, the first that fits."""
    findings = []
    for kind, place, *_ in found:
        for pattern, reason in reasons.items():
            if re.fullmatch(pattern, kind):
                findings.append(Finding(reason, kind, place))
                break
    return findings


# Leave the device for Python or a dataset; are not there; are compiled to nothing.
host_callbacks = functools.partial(matching, _HOST_CALLBACKS)
lacking = functools.partial(matching, _LACKING)
dropped = functools.partial(matching, _DROPPED)


def unfit_numbers(found: Iterable[_operations.Operation]) -> list[Finding]:
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
    ("no host callbacks", True, host_callbacks),
    ("operations that TPUs have", True, lacking),
    ("no checks that XLA drops", False, dropped),
    ("dtypes that TPUs have", False, unfit_numbers),
)
