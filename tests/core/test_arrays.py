"""Tests of tfrl.core.arrays."""

import decimal

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import arrays


def as_recorded(case):
    """The recorded tensors are tensors; `except_np` cases speak of numpy."""
    arguments = case["inputs"]["args"]
    if case["id"] == "check_array_np_except":
        return arguments
    return [tf.constant(a) if isinstance(a, np.ndarray) else a for a in arguments]


ARRAY_CASES = golden_io.load("coax/array", symbol="check_array")


@pytest.mark.parametrize("case", ARRAY_CASES, ids=golden_io.ids(ARRAY_CASES))
def test_check_array_golden(case):
    arguments, expected = as_recorded(case), case["outputs"]["result"]
    if isinstance(expected, golden_io.Raised):
        with pytest.raises(TypeError, match="`check_array`: "):
            arrays.check_array(*arguments, **case["kwargs"])
    else:
        assert arrays.check_array(*arguments, **case["kwargs"]) is None


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"ndim": 1}, r"rank 1; got shape \[2, 3\]"),
        ({"ndim": (0, 1)}, r"rank \(0, 1\)"),
        ({"ndim_min": 3}, "rank of at least 3"),
        ({"ndim_max": 1}, "rank of at most 1"),
        ({"dtype": tf.float64}, "got float32"),
        ({"dtype": (np.int32, "int64")}, "got float32"),
        ({"shape": (3, 2)}, r"shape \[3, 2\]; got shape \[2, 3\]"),
        ({"shape": [2, 3]}, "`shape` expected a tuple"),
        ({"axis": 1, "axis_size": 4}, "size 4 along axis 1"),
        ({"axis": -1, "axis_size": (1, 2)}, r"size \(1, 2\) along axis -1"),
        ({"axis": 2, "axis_size": 3}, "size 3 along axis 2"),
    ],
)
def test_check_array_raises(kwargs, match):
    with pytest.raises(TypeError, match=match):
        arrays.check_array(tf.zeros([2, 3]), **kwargs)


def test_check_array_passes():
    for array in (tf.zeros([2, 3]), tf.Variable(tf.zeros([2, 3]))):
        arrays.check_array(
            array,
            ndim=[1, 2],
            ndim_min=2,
            ndim_max=2,
            dtype=(tf.float32, tf.int32),
            shape=tf.TensorShape([2, 3]),
            axis=-1,
            axis_size=(3, 4),
        )


@pytest.mark.parametrize("value", [np.zeros(2), [1.0], 1.0, None])
def test_check_array_wants_tensors(value):
    with pytest.raises(TypeError, match="expected a tensor; got"):
        arrays.check_array(value)


SCALAR_CASES = [
    case
    for case in golden_io.load("coax/array", symbol="isscalar")
    if not isinstance(case["inputs"]["args"][0], golden_io.Marked)
]


@pytest.mark.parametrize("case", SCALAR_CASES, ids=golden_io.ids(SCALAR_CASES))
def test_isscalar_golden(case):
    (value,) = case["inputs"]["args"]
    assert arrays.isscalar(value) is case["outputs"]["result"]
    if isinstance(value, np.ndarray):
        assert arrays.isscalar(tf.constant(value)) is case["outputs"]["result"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (1j, True),
        (decimal.Decimal(1), True),
        (np.bool_(False), True),
        (np.ones([1, 1, 1]), True),
        (tf.Variable(1.0), True),
        (keras.Variable([1.0]), True),
        ("a", False),
        (b"a", False),
        (np.array("a"), False),
        (np.str_("a"), False),
        (np.datetime64("2020-01-01"), False),
        (tf.constant("a"), False),
        (np.zeros(0), False),
        (None, False),
        (tf.TensorSpec([1]), False),
        (np.ones(1, tf.bfloat16.as_numpy_dtype), True),
        ([1], False),
        ({}, False),
    ],
)
def test_isscalar(value, expected):
    assert arrays.isscalar(value) is expected


def test_isscalar_in_graph():
    seen = []
    spec = [tf.TensorSpec([1]), tf.TensorSpec([None]), tf.TensorSpec(None)]

    @tf.function(input_signature=spec)
    def trace(one, some, unknown):
        seen.extend(arrays.isscalar(x) for x in (one, some, unknown))

    trace(tf.ones(1), tf.ones(1), tf.ones(1))
    assert seen == [True, False, False]
