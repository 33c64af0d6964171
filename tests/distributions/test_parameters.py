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
    class Family:
        parameter_properties = _parameters.location_scale(event_ndims=1)

    properties = Family.parameter_properties(dtype)
    assert properties["loc"].event_ndims == properties["scale"].event_ndims == 1
    bijector = properties["scale"].default_constraining_bijector_fn()
    eps = np.finfo(dtype.as_numpy_dtype).eps
    lowest = bijector.forward(tf.constant(-1000.0, dtype))
    np.testing.assert_allclose(lowest, eps, rtol=1e-6)


def between(loc=0.0, scale=1.0, low=-1.0, high=1.0):
    return _parameters.location_scale_between("f", loc, scale, low=low, high=high)


def test_location_scale_between_gives_one_dtype():
    double = tf.constant([0.0, 1.0], tf.float64)
    # A tensor comes before an array, and numbers take what there is.
    tensors = between(np.zeros(2, np.float32), 1, double - 2, [3.0, 4.0])
    assert [tensor.dtype for tensor in tensors] == [tf.float64] * 4
    assert [tensor.dtype for tensor in between()] == [tf.float32] * 4
    assert between(0, 1, np.float64(-1), 1)[0].dtype == tf.float64
    variable = tf.Variable([0.0, 1.0])
    assert between(variable)[0] is variable
    with pytest.raises(TypeError, match="`f`: `scale` expected a floating-point dtype"):
        between(scale=tf.constant(1))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scale": -1.0}, "`scale` expected numbers > 0"),
        (
            {"low": [0.0, 1.0], "high": [1.0, 1.0]},
            r"`high` expected numbers > `low` \[",
        ),
        ({"low": np.nan}, "`high` expected numbers > `low` nan"),
        (
            {"low": -np.ones(3)},
            r"`loc` expected a shape that ends in .*\[3\]; got \[2\]",
        ),
        ({"scale": np.ones([4, 3])}, "`scale` expected a shape that ends in"),
        (
            {"scale": np.ones([2, 4]), "loc": np.ones([3, 4]), "low": -1.0},
            ".*broadcasts",
        ),
    ],
    ids=["scale", "bounds", "no number", "event", "scale's event", "batch"],
)
def test_location_scale_between_refuses(changes, match):
    given = {"loc": np.zeros(2), "low": -np.ones(2)} | changes
    if np.ndim(given["loc"]) == 2:
        given |= {"low": -1.0}
    with pytest.raises(ValueError, match=f"`f`: {match}"):
        between(**given)


def test_bounds_of_unknown_rank_or_value():
    @tf.function(input_signature=[tf.TensorSpec([2]), tf.TensorSpec(None)])
    def make(bound, free):
        between(tf.zeros([5, 2]), 1.0, bound, bound - 1.0)  # only a run can tell
        with pytest.raises(ValueError, match="`f`: `low` and `high` expected a known"):
            between(0.0, 1.0, free, 1.0)
        return bound

    make(tf.zeros(2), tf.zeros(2))


def test_check_same_bounds():
    class Bounded:
        def __init__(self, low, high):
            self.low, self.high = low, high
            self.event_shape = tf.TensorShape(np.shape(low))

    def check(one, other):
        _parameters.check_same_bounds(Bounded(*one), Bounded(*other), "low", "high")

    check(([0.0, 1.0], [2.0, 2.0]), ([0.0, 1.0], 2.0))
    check((0.0, tf.Variable(1.0)), (0.0, 2.0))
    match = "`kl_divergence`: `distribution_b` expected the bounds of `distribution_a`"
    for other in ((0.0, 2.0), (-1.0, tf.Variable(1.0)), ([0.0], [1.0])):
        with pytest.raises(ValueError, match=match):
            check((0.0, 1.0), other)
