"""Tests of tfrl.core.pretty."""

import collections
import pprint
import re
import sys

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pretty

P = collections.namedtuple("P", "a b")
Q = collections.namedtuple("Q", "longer_field_name another_field third")


@pytest.mark.parametrize("name", ["_format", "_width", "_indent_per_level"])
def test_pprint_has_what_the_printer_builds_on(name):
    found = hasattr(pprint.PrettyPrinter(), name)
    assert found, f"pprint.PrettyPrinter has no `{name}` in this Python: find another"


def test_pretty_printer_golden():
    (case,) = golden_io.load("alf/misc", symbol="PrettyPrinter")
    objects = [eval(text) for text in case["in"]["objects"]]  # noqa: S307
    found = [
        pretty.PrettyPrinter(indent=indent, width=width).pformat(item)
        for item in objects
        for indent, width in case["in"]["indent_width"]
    ]
    assert found == case["out"]["pformat"]


def test_pretty_printer_has_the_options_of_pprint():
    assert pretty.PrettyPrinter(depth=1).pformat([[1]]) == "[[...]]"
    text = pretty.PrettyPrinter(sort_dicts=False).pformat({"b": 1, "a": P(1, 2)})
    assert text == "{'b': 1, 'a': P(a=1, b=2)}"
    empty = collections.namedtuple("Empty", "")()
    assert pretty.PrettyPrinter(width=1).pformat(empty) == "Empty()"


def test_pretty_printer_ends_on_recursion():
    items = []
    items.append(P(items, "x" * 100))
    text = pretty.PrettyPrinter().pformat(items)
    assert "Recursion on list" in text


def test_pformat_pycolor(monkeypatch):
    (case,) = golden_io.load("alf/misc", symbol="pformat_pycolor")
    objects = [P(1, "x"), Q(P(1, 2), [1, 2, 3], {"k": P(None, (1, 2))})]
    coloured = [pretty.pformat_pycolor(item) for item in objects]
    plain = [re.sub("\x1b\\[[0-9;]*m", "", text) for text in coloured]
    assert [text.removesuffix("\n") for text in plain] == case["out"]["plain"]
    assert coloured != plain
    monkeypatch.setitem(sys.modules, "pygments", None)
    assert [pretty.pformat_pycolor(item) for item in objects] == case["out"]["plain"]


REPR_CASES = [
    case
    for case in golden_io.load("coax/misc", symbol="pretty_repr")
    if case["id"] != "pretty_repr_transition_batch"
]


@pytest.mark.parametrize("case", REPR_CASES, ids=golden_io.ids(REPR_CASES))
def test_pretty_repr_golden(case):
    arguments = case["inputs"].get("args") or [tf.constant(case["inputs"]["arg"])]
    assert pretty.pretty_repr(*arguments) == case["outputs"]["result"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{\n  }"),
        ([], "[\n  ]"),
        ("x", "'x'"),
        (np.array(True), "array(shape=(), dtype=bool, min=1, median=1, max=1)"),
        (
            tf.constant([1.0, 2.0], tf.bfloat16),
            "array(shape=(2,), dtype=bfloat16, min=1, median=1.5, max=2)",
        ),
        (
            np.array([-np.inf, np.inf]),
            "array(shape=(2,), dtype=float64, min=-inf, median=nan, max=inf)",
        ),
        (tf.constant("a"), "array(shape=(), dtype=string)"),
        (np.zeros(2, "M8[s]"), "array(shape=(2,), dtype=datetime64[s])"),
        (np.array([None]), "array(shape=(1,), dtype=object)"),
        (
            tf.Variable([1, 2, 4]),
            "array(shape=(3,), dtype=int32, min=1, median=2, max=4)",
        ),
        (tf.ragged.constant([[1], [1, 2]]), "array(shape=(2, None), dtype=int32)"),
        (tf.sparse.from_dense([[1.0]]), "array(shape=(1, 1), dtype=float32)"),
        (
            tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])),
            "array(shape=unknown, dtype=float32)",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_pretty_repr(value, text):
    assert pretty.pretty_repr(value) == text


def test_pretty_repr_in_graph():
    seen = []
    show = tf.function(lambda x: seen.append(pretty.pretty_repr(x)))
    show.get_concrete_function(tf.TensorSpec([None, 2]))
    show.get_concrete_function(tf.TensorSpec(None))
    assert seen == [
        "array(shape=(None, 2), dtype=float32)",
        "array(shape=unknown, dtype=float32)",
    ]


def test_pretty_repr_ends_on_recursion():
    items, shared = [], [1]
    items.extend([P(items, {"k": items}), shared, shared])
    assert pretty.pretty_repr(items).split() == (
        "[ P( a=... b={ 'k': ...}), [ 1], [ 1]]".split()
    )


def test_pretty_print(capsys):
    pretty.pretty_print([1])
    assert capsys.readouterr().out == "[\n  1]\n"
