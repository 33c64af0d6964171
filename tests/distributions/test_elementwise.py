"""Tests of `tfrl.distributions._elementwise`."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.distributions import _elementwise


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("values", [(), (3,), (2, 3), (5, 2, 3), (4, 5, 1, 1)], ids=str)
def test_rows_compute_what_broadcasting_does(values, known):
    rng = np.random.default_rng(0)
    shapes = [values, (2, 1), (3,), ()]
    arrays = [tf.constant(rng.normal(size=shape)) for shape in shapes]

    def compute(x, *parameters):
        shape, x, a, b, c = _elementwise.rows(x, *parameters)
        assert x.shape.rank == a.shape.rank == 2
        assert a.shape[0] == 1
        return tf.reshape(a * x + b * c, shape)

    if not known:
        specs = [tf.TensorSpec([None] * len(shape), tf.float64) for shape in shapes]
        compute = tf.function(compute, input_signature=specs)
    x, a, b, c = (array.numpy() for array in arrays)
    np.testing.assert_allclose(compute(*arrays), a * x + b * c)


def test_rows_of_nothing():
    shape, x, a = _elementwise.rows(tf.zeros([4, 0]), tf.zeros([0]))
    assert (x.shape, a.shape) == ([0, 0], [1, 0])
    assert tf.reshape(x + a, shape).shape == [4, 0]
