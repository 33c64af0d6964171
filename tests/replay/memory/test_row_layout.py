import collections
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree
from tfrl.replay.memory import _row_layout


class Pair(NamedTuple):
    second: object
    first: object


class Node(pytree.PyTreeNode):
    a: object


INT = tf.TensorSpec([], tf.int32)
TEXT = SimpleNamespace(shape=[2], dtype=np.dtype("U3"))


@pytest.mark.parametrize(
    "spec, text",
    [
        (INT, "int32[]"),
        (TEXT, "U3[2]"),
        (SimpleNamespace(shape=(), dtype=np.dtype(">f4")), "float32[]"),
        (SimpleNamespace(shape=(), dtype="bfloat16"), "bfloat16[]"),
        (SimpleNamespace(shape=(), dtype="datetime64[ms]"), "M8[ms][]"),
        ([INT, (TEXT,)], "[int32[], (U3[2],)]"),
        ({"b": INT, "a": TEXT}, "{'a': U3[2], 'b': int32[]}"),
        (collections.OrderedDict(b=INT, a=TEXT), "{'a': U3[2], 'b': int32[]}"),
        (Pair(INT, {}), "Pair(second=int32[], first={})"),
        (Node(a=INT), "Node(int32[])"),
        ((), "()"),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_contents(spec, text):
    assert _row_layout.RowLayout(spec, np.int64(3)).contents == f"3 rows of {text}"


@pytest.mark.parametrize(
    "idx, rows, outer",
    [
        (-1, 4, ()),
        (slice(4, None, -2), slice(4, None, -2), (3,)),
        ([-5, 4], [0, 4], (2,)),
        (np.array([[1], [-2]], np.int8), [[1], [3]], (2, 1)),
        ([True, False, False, True, True], [0, 3, 4], (3,)),
        ([], [], (0,)),
        (np.array(np.uint64(3)), 3, ()),
    ],
    ids=str,
)
def test_rows(idx, rows, outer):
    got, shape = _row_layout.RowLayout(INT, 5).rows("here", idx)
    assert shape == outer
    assert (got.tolist() if isinstance(got, np.ndarray) else got) == rows
    if isinstance(got, np.ndarray):
        assert got.dtype == np.intp


def test_a_layout_keeps_its_own_containers():
    spec = {"a": INT}
    layout = _row_layout.RowLayout(spec, 2)
    spec["b"] = INT
    assert list(layout.data_spec) == ["a"]
    assert layout.pack([7]) == {"a": 7}


def test_values_and_targets():
    layout = _row_layout.RowLayout([INT, tf.TensorSpec([2], tf.float16)], 5)
    one, two = layout.values([np.array([1, 2]), np.ones(2)], (2,))
    assert (one.dtype, one.shape) == (np.int32, (2,))
    assert (two.dtype, two.shape) == (np.float16, (2,))
    out = [np.zeros(2, np.int32), np.zeros((2, 2), np.float16)]
    assert all(a is b for a, b in zip(layout.targets(out, (2,)), out, strict=True))


@pytest.mark.parametrize(
    "value, message",
    [
        ([np.array(1)], r"expected the structure \[int32\[\], .*; got \[int64\[\]\]"),
        ({"a": 1, "b": 2}, "got {'a': 1, 'b': 2}"),
        ([np.array([1, 2, 3]), np.ones(2)], r"shape \[2\] in leaf 0 of .*got \[3\]"),
        ([np.array(1), np.ones((2, 1))], r"shape \[2, 2\] in leaf 1 of .*got \[2, 1\]"),
        ([tf.keras.Input([2]), np.ones(2)], "expected arrays; got <KerasTensor"),
    ],
    ids=["leaf", "container", "rows", "shape", "symbolic"],
)
def test_bad_values(value, message):
    layout = _row_layout.RowLayout([INT, tf.TensorSpec([2], tf.float16)], 5)
    with pytest.raises((TypeError, ValueError), match=message):
        layout.values(value, (2,))
