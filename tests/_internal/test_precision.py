"""Arithmetic that keeps its digits and its range."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import precision


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_quotient_and_its_gradient(jit):
    x = tf.constant([[6.0, 3.0, 0.0], [2.0, 1e-30, 1e30]])
    y = tf.constant([[2.0], [1.0]]), tf.constant([1.0, 1e-30, 1e30])

    @tf.function(jit_compile=jit)
    def run(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            ratios = [precision.quotient(x, y[0]), precision.quotient(x[1], y[1])]
            total = tf.reduce_sum(ratios[0]) + tf.reduce_sum(ratios[1])
        return *ratios, *tf.nest.flatten(tape.gradient(total, [x, y]))

    first, second, by_x, by_column, by_row = run(x, y)
    np.testing.assert_allclose(first, [[3.0, 1.5, 0.0], [2.0, 1e-30, 1e30]])
    np.testing.assert_allclose(second, [2.0, 1.0, 1.0])
    np.testing.assert_allclose(by_x, [[0.5] * 3, [2.0, 1e30, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(by_column[:, 0], [-2.25, -1e30], rtol=1e-6)
    np.testing.assert_allclose(by_row, [-2.0, -1e30, -1e-30], rtol=1e-6)


def test_gradient_of_an_unused_infinite_quotient_is_zero():
    x, y = tf.constant(1e30), tf.constant(1e-30)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        used = tf.where(x > 0.0, 1.0, precision.quotient(x, y))
    np.testing.assert_array_equal(tape.gradient(used, [x, y]), [0.0, 0.0])


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int32", "int32"),
    ],
)
def test_widened(dtype, wide):
    found = precision.widened(tf.constant([3], dtype))
    assert found.dtype == wide
    assert found.numpy() == [3]
