"""Tests of tfrl.ops.activations."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from derivatives import curvature, slope
from refusals import bad

from tfrl import ops

CURVES = {
    "swish": (ops.swish, lambda x: x / (1 + np.exp(-x))),
    "softsign": (ops.softsign, lambda x: x / (1 + np.abs(x))),
}
SLOPES = {
    "swish": lambda x: 1 / (1 + np.exp(-x)) * (1 + x / (1 + np.exp(x))),
    "softsign": lambda x: 1 / (1 + np.abs(x)) ** 2,
}


def test_identity_returns_the_object():
    thing = object()
    assert ops.identity(thing) is thing


def test_worked_values():
    np.testing.assert_allclose(ops.softsign([-3.0, 1.0]), [-0.75, 0.5])
    got = ops.swish([0.0, np.log(3.0)])
    np.testing.assert_allclose(got, [0.0, 0.75 * np.log(3)], rtol=1e-6)
    assert ops.double_relu([-2.0, 3.0]).numpy().tolist() == [-2, 0, 0, 3]


@pytest.mark.parametrize("name", CURVES)
def test_curves_and_slopes(name):
    function, oracle = CURVES[name]
    x = np.linspace(-30, 30, 241)
    np.testing.assert_allclose(function(x), oracle(x), rtol=1e-12)
    np.testing.assert_allclose(slope(function, x), SLOPES[name](x), rtol=1e-12)
    x = x[np.abs(x) > 0.1]
    step = 1e-5
    second = (SLOPES[name](x + step) - SLOPES[name](x - step)) / (2 * step)
    np.testing.assert_allclose(curvature(function, x), second, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_far_out(dtype):
    x = tf.cast([-np.inf, -1e30, -6e4, -1e-38, 0.0, 6e4, 1e30, np.inf], dtype)
    ends = {"swish": (0.0, 1.0), "softsign": (0.0, 0.0)}
    for name, (left, right) in ends.items():
        function = CURVES[name][0]
        y = function(x)
        assert y.dtype == x.dtype
        assert not np.isnan(y.numpy().astype(float)).any()
        slopes = slope(function, x).astype(float)
        np.testing.assert_allclose(slopes[[0, -1]], [left, right])
        assert np.isfinite(slopes).all()
        assert np.isfinite(curvature(function, x).astype(float)).all()
    np.testing.assert_array_equal(ops.softsign(x)[::7], tf.cast([-1, 1], dtype))
    np.testing.assert_array_equal(ops.swish(x)[::7], tf.cast([0, np.inf], dtype))
    assert np.isnan(ops.swish([np.nan])) and np.isnan(ops.softsign([np.nan]))


def test_softsign_keeps_the_digits_of_its_slope():
    x = np.float32([1e4, 1e8, 1e15])
    np.testing.assert_allclose(slope(ops.softsign, x), 1 / (1 + x.astype(float)) ** 2)


def test_double_relu_takes_any_real_dtype():
    lowest = np.iinfo(np.int32).min
    assert ops.double_relu([lowest, 1]).numpy().tolist() == [lowest, 0, 0, 1]
    got = ops.double_relu(tf.constant([0, 200], tf.uint8))
    assert got.dtype == tf.uint8
    assert got.numpy().tolist() == [0, 0, 0, 200]
    assert ops.double_relu(tf.ones([2, 0, 3])).shape == (2, 0, 6)


def test_double_relu_has_the_slope_of_a_relu():
    x = tf.constant([-1.0, 0.0, 2.0, np.inf])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.double_relu(x) * tf.constant([1.0, 2, 4, 8, 10, 20, 40, 80])
    assert tape.gradient(y, x).numpy().tolist() == [1.0, 0.0, 40.0, 80.0]


@refusals.table(
    (ops.swish, bad(TypeError, "x", [1, 2])),
    (ops.softsign, bad(TypeError, "x", [1, 2])),
    (ops.double_relu, bad(ValueError, "arr", 1.0)),
)
def test_refusals(row):
    row()
