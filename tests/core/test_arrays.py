"""Tests of tfrl.core.arrays."""

import decimal

import golden_io
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl.core import arrays


@refusals.table(
    (
        lambda **kwargs: arrays.check_array(tf.zeros([2, 3]), **kwargs),
        bad(TypeError, "arr", ndim=1),
        bad(TypeError, "arr", ndim=(0, 1)),
        bad(TypeError, "arr", ndim_min=3),
        bad(TypeError, "arr", ndim_max=1),
        bad(TypeError, "arr", dtype=tf.float64),
        bad(TypeError, "arr", dtype=(np.int32, "int64")),
        bad(TypeError, "arr", shape=(3, 2)),
        bad(TypeError, "shape", shape=[2, 3]),
        bad(TypeError, "arr", axis=1, axis_size=4),
        bad(TypeError, "arr", axis=-1, axis_size=(1, 2)),
        bad(TypeError, "arr", axis=2, axis_size=3),
    ),
    (
        arrays.check_array,
        *(bad(TypeError, "arr", value) for value in (np.zeros(2), [1.0], 1.0, None)),
    ),
)
def test_check_array_raises(row):
    row()


def test_check_array_says_what_it_wants_and_what_it_got():
    with pytest.raises(TypeError, match=r"rank 1; got shape \(2, 3\), float32"):
        arrays.check_array(tf.zeros([2, 3]), ndim=1)


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
