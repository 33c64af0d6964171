"""Tests of `tfrl.distributions._parameters`."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _parameters


def test_known_values():
    known = _parameters.known_value
    assert known(1.5) == 1.5
    assert known([1, 2]) == [1, 2]
    np.testing.assert_array_equal(known(np.ones(2)), np.ones(2))
    np.testing.assert_array_equal(known(tf.ones(2)), np.ones(2))
    assert known(tf.Variable(1.0)) is None
    assert known([tf.constant(1.0), 2.0]) is None
    assert known(None) is None


def test_known_values_in_graphs():
    seen = []

    @tf.function
    def look(argument):
        seen.append(_parameters.known_value(argument))
        seen.append(_parameters.known_value(tf.constant(2.0)))

    look(tf.constant(1.0))
    assert seen == [None, 2.0]


def test_check_positive():
    _parameters.check_positive("f", a=1.0, b=tf.Variable(-1.0), c=np.float32(2))
    with pytest.raises(ValueError, match="`f`: `b` expected numbers > 0"):
        _parameters.check_positive("f", a=1.0, b=[1.0, 0.0])


def test_check_broadcastable():
    _parameters.check_broadcastable("f", a=tf.zeros([2, 1]), b=[1.0, 2.0], c=3.0)
    with pytest.raises(ValueError, match=r"`f`: `b` expected a shape .*`a` \(2,\)"):
        _parameters.check_broadcastable("f", a=tf.zeros(2), b=[1.0, 2.0, 3.0])


def test_keep():
    class Plain(tfp.distributions.Normal):
        def __init__(self, mean):
            parameters = dict(locals())
            super().__init__(mean, 1.0)
            _parameters.keep(self, parameters)

        @classmethod
        def _parameter_properties(cls, dtype, num_classes=None):
            return {"mean": tfp.util.ParameterProperties()}

    dist = Plain([1.0, 2.0])
    assert dict(dist.parameters) == {"mean": [1.0, 2.0]}
    np.testing.assert_array_equal(dist.copy(mean=3.0).mean(), 3.0)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_properties(dtype):
    properties = _parameters.location_scale_properties(dtype, event_ndims=1)
    assert properties["loc"].event_ndims == properties["scale"].event_ndims == 1
    bijector = properties["scale"].default_constraining_bijector_fn()
    eps = np.finfo(dtype.as_numpy_dtype).eps
    lowest = bijector.forward(tf.constant(-1000.0, dtype))
    np.testing.assert_allclose(lowest, eps, rtol=1e-6)
