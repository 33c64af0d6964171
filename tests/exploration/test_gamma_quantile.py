"""The inverse of the incomplete gamma function against SciPy's."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from tfrl.exploration import _gamma_quantile


def grid(dtype):
    """All pairs of shapes from 1e-4 to 1e4 and probabilities from 1e-35 to 1 - eps."""
    shapes = np.logspace(-4, 4, 160)
    closest = -np.log10(np.finfo(dtype).epsneg)
    probabilities = np.concatenate(
        [
            np.logspace(-35, -1, 60),
            np.linspace(0.1, 0.999, 60),
            1.0 - np.logspace(-3, -closest, 30),
        ]
    )
    pairs = np.meshgrid(shapes.astype(dtype), probabilities.astype(dtype))
    return [pair.ravel() for pair in pairs]


def reference(shape, probability):
    """log x, from the series where x is less than SciPy can say."""
    a, p = shape.astype(np.float64), probability.astype(np.float64)
    with np.errstate(divide="ignore"):
        found = np.log(special.gammaincinv(a, p))
    log_x = (np.log(p) + special.gammaln(1.0 + a)) / a
    return np.where(log_x < -20.0, log_x, found)


def error_bound(log_x, shape, probability, dtype):
    """What rounding of the inputs, of P and of log x alone amounts to."""
    a = shape.astype(np.float64)
    density = np.exp(a * log_x - np.exp(log_x) - special.gammaln(a))  # dP / dlog x
    unit = np.finfo(dtype).eps
    gamma = np.abs(special.gammaln(1.0 + a)) + 1.0
    return unit * (probability / density + np.abs(log_x) + gamma / a + 1.0)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_against_scipy(dtype, mode):
    shape, probability = grid(dtype)
    run = _gamma_quantile.log_gamma_quantile
    run = tf.function(run) if mode == "graph" else run
    got = run(tf.constant(shape), tf.constant(probability)).numpy()
    assert got.dtype == dtype
    expected = reference(shape, probability)
    bound = error_bound(expected, shape, probability, dtype)
    # The series stops where float64 would go on.
    units = np.abs(got - expected) / (3e-10 + bound)
    assert np.quantile(units, 0.99) <= 16.0
    worst = np.argmax(units)
    assert units[worst] <= 150.0, (shape[worst], probability[worst], got[worst])


def test_shape_one_is_the_exponential_distribution():
    p = np.array([1e-30, 1e-6, 0.1, 0.5, 0.75, 0.999], np.float64)
    got = _gamma_quantile.log_gamma_quantile(tf.ones([6], tf.float64), tf.constant(p))
    np.testing.assert_allclose(got, np.log(-np.log1p(-p)), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_finite_and_ascending_for_any_shape(dtype):
    shape = np.logspace(-30, 5, 200).astype(dtype)
    limits = np.finfo(dtype)
    p = np.array([limits.tiny, 1e-7, 0.3, 0.7, 0.999, 1.0 - limits.epsneg], dtype)
    shape, probability = np.meshgrid(shape, p)
    got = _gamma_quantile.log_gamma_quantile(
        tf.constant(shape), tf.constant(probability)
    ).numpy()
    assert np.all(np.isfinite(got))
    # Where shapes are so small that P is a step in its dtype, equal up to its width.
    assert np.all(np.diff(got, axis=0) > -0.6)
    normal = (shape > 1e-3) & (shape < 1e3)
    assert np.all(np.diff(got, axis=0)[normal[1:]] > 0)


def test_xla_agrees():
    shape, probability = (x[::53] for x in grid(np.float32))
    tensors = tf.constant(shape), tf.constant(probability)
    run = tf.function(_gamma_quantile.log_gamma_quantile, jit_compile=True)
    expected = _gamma_quantile.log_gamma_quantile(*tensors)
    bound = error_bound(expected.numpy(), shape, probability, np.float32)
    assert np.all(np.abs(run(*tensors) - expected) <= 300.0 * bound)
