"""Tests of tfrl.bijectors.standard; laws are in test_laws, figures in
test_recordings."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors

tfb, tfd = tfp.bijectors, tfp.distributions
TINY = np.finfo(np.float32).tiny


def test_affine():
    bijector = bijectors.AffineTransform(1.0, -2.0)
    x = tf.constant([[1.0, 3.0]])
    np.testing.assert_array_equal(bijector.forward(x), [[-1.0, -5.0]])
    np.testing.assert_array_equal(bijector.inverse([[-1.0, -5.0]]), x)
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, np.log([[2.0, 2.0]]), rtol=1e-6)
    got = bijector.inverse_log_det_jacobian(x, event_ndims=1)
    np.testing.assert_allclose(got, [-2 * np.log(2.0)], rtol=1e-6)


@pytest.mark.parametrize("event_dim", [0, 1, 2])
def test_affine_sums_over_the_event_of_the_input(event_dim):
    scale = tf.constant([[2.0], [-3.0]])
    bijector = bijectors.AffineTransform(tf.zeros([4, 1, 1]), scale, event_dim)
    x = tf.zeros([2, 3])
    slopes = np.broadcast_to(np.log([[2.0], [3.0]]), (4, 2, 3))
    expected = slopes.sum(axis=tuple(range(-event_dim, 0))) if event_dim else slopes
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert bijector.forward(x).shape == (4, 2, 3)


def test_affine_distribution():
    base = tfd.Sample(tfd.Normal(np.float64(0.0), 1.0), 2)
    bijector = bijectors.AffineTransform(1.0, [0.5, -2.0], event_dim=1)
    distribution = tfd.TransformedDistribution(base, bijector)
    y = np.array([[0.3, 2.0], [1.0, 1.0]])
    twin = tfd.MultivariateNormalDiag([1.0, 1.0], np.array([0.5, 2.0]))
    np.testing.assert_allclose(distribution.log_prob(y), twin.log_prob(y), rtol=1e-6)


def test_exp():
    bijector = bijectors.ExpTransform()
    np.testing.assert_allclose(bijector.forward([0.0, 1.0]), [1.0, np.e], rtol=1e-6)
    got = bijector.inverse([0.0, TINY, np.e, -1.0])
    expected = [np.log(TINY), np.log(TINY), 1.0, np.nan]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_array_equal(bijector.forward_log_det_jacobian([3.0]), [3.0])


def test_power():
    bijector = bijectors.PowerTransform([2.0, -0.5])
    x = tf.constant([3.0, 4.0])
    np.testing.assert_allclose(bijector.forward(x), [9.0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(bijector.inverse([9.0, 0.5]), x, rtol=1e-6)
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, np.log([6.0, 0.0625]), rtol=1e-6)
    for exponent in (0.5, -0.5, 2.0):
        assert np.isnan(bijectors.PowerTransform(exponent).inverse([-2.0]))
    y = tf.zeros([2])
    with tf.GradientTape() as tape:
        tape.watch(y)
        log_det = bijector.inverse_log_det_jacobian(y)
    assert np.isfinite(log_det).all()
    assert np.isfinite(tape.gradient(log_det, y)).all()
    exponent = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(exponent)
        x = bijectors.PowerTransform(exponent).inverse(8.0)
    np.testing.assert_allclose(tape.gradient(x, exponent), -2 / 9 * np.log(8.0), 1e-6)


def test_sigmoid():
    bijector = bijectors.SigmoidTransform()
    np.testing.assert_allclose(bijector.forward([np.log(3.0)]), [0.75], rtol=1e-6)
    got = bijector.inverse([0.0, 0.75, 1.0, -0.1, 1.1])
    top = np.log1p(-(2.0**-24)) + 24 * np.log(2)
    expected = [np.log(TINY), np.log(3.0), top, np.nan, np.nan]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    got = bijector.forward_log_det_jacobian([0.0, -500.0])
    np.testing.assert_allclose(got, [-2 * np.log(2.0), -500.0], rtol=1e-6)


def test_abs():
    bijector = bijectors.AbsTransform()
    x = tf.constant([-2.0, 3.0])
    y = bijector.forward(x)
    np.testing.assert_array_equal(y, [2.0, 3.0])
    assert bijector.inverse(y) is x
    np.testing.assert_array_equal(bijector.inverse(tf.identity(y)), [2.0, 3.0])
    for refused in (
        bijector.forward_log_det_jacobian,
        bijector.inverse_log_det_jacobian,
    ):
        with pytest.raises(NotImplementedError, match="`AbsTransform` has no log-det"):
            refused(x)


def test_softmax():
    bijector = bijectors.SoftmaxTransform()
    x = tf.constant([[0.0, np.log(3.0)], [1000.0, 1000.0]])
    y = bijector.forward(x)
    np.testing.assert_allclose(y, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(bijector.inverse(tf.identity(y)), np.log(y), rtol=1e-6)
    assert bijector.inverse(y) is x
    assert bijector.forward_min_event_ndims == 1
    with pytest.raises(NotImplementedError, match="`SoftmaxTransform` has no log-det"):
        bijector.forward_log_det_jacobian(x)


def test_get_invertible():
    for cls in (bijectors.Softsign, tfb.Exp):
        assert bijectors.get_invertible(cls) is cls
    for given in (bijectors.Softsign(), int, np.tanh):
        with pytest.raises(
            TypeError, match="`get_invertible`: `cls` expected a subcla"
        ):
            bijectors.get_invertible(given)


def test_refusals():
    for scale in (0.0, [1.0, 0.0], tf.constant(0.0), np.nan):
        with pytest.raises(
            ValueError, match="`AffineTransform`: `scale` expected numbe"
        ):
            bijectors.AffineTransform(0.0, scale)
    with pytest.raises(ValueError, match="`exponent` expected numbers other than 0"):
        bijectors.PowerTransform(0)
    with pytest.raises(ValueError, match="`event_dim` expected an int of at least"):
        bijectors.AffineTransform(0.0, 1.0, -1)
    with pytest.raises(TypeError, match="`event_dim` expected an int of .*; got 1.5"):
        bijectors.AffineTransform(0.0, 1.0, 1.5)


def test_increasing():
    x = tf.constant([0.5, 1.0, 2.0])
    base = tfd.Uniform(0.25, 4.0)
    for bijector in (
        bijectors.AffineTransform(1.0, -2.0),
        bijectors.PowerTransform(-1.0),
        bijectors.PowerTransform(2.0),
        bijectors.ExpTransform(),
        bijectors.StableTanh(),
    ):
        y = tf.identity(bijector.forward(x))
        got = tfd.TransformedDistribution(base, bijector).cdf(y)
        rises = bool(y[0] < y[1])
        expected = base.cdf(x) if rises else 1.0 - base.cdf(x)
        np.testing.assert_allclose(got, expected, rtol=1e-4)
