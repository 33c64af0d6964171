"""Tests of `tfrl.distributions._beta_function`."""

import math

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from tfrl.distributions import _beta_function

POWERS = [1e-8, 1e-3, 0.1, 1.0, 1.5, 7.9, 8.1, 40.0, 1e3, 1e5, 1e7]


# The textbook formulas: in float64 they keep seven digits for these POWERS.


def exact_entropy(a, b):
    digamma = scipy.special.digamma
    parts = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
    return scipy.special.betaln(a, b) - parts


def exact_log_density(x, a, b):
    powers = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x)
    return powers - scipy.special.betaln(a, b)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_entropy(dtype):
    a, b = (x.ravel() for x in np.meshgrid(POWERS, POWERS))
    a, b = (x.astype(dtype.as_numpy_dtype) for x in (a, b))
    got = _beta_function.entropy(tf.constant(a), tf.constant(b))
    expected = exact_entropy(a.astype(float), b.astype(float))
    tolerance = 2e-5 if dtype == tf.float32 else 1e-6
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_log_density(dtype):
    a, b, z = (
        x.ravel()
        for x in np.meshgrid(POWERS[2:], POWERS[2:], [-3.0, -0.5, 0.0, 1.0, 5.0])
    )
    std = np.sqrt(a * b / (a + b + 1)) / (a + b)
    x = a / (a + b) + z * std
    fits = (x > 1e-3 * a / (a + b)) & (1 - x > 1e-3 * b / (a + b)) & (x < 1 - 1e-4)
    a, b, x = (v[fits].astype(dtype.as_numpy_dtype) for v in (a, b, x))
    got = _beta_function.log_density(*map(tf.constant, (x, a, b)))
    x, a, b = (v.astype(float) for v in (x, a, b))
    expected = exact_log_density(x, a, b)
    # What one step of rounding in the mean and in 1 - x does.
    slope = np.abs((a - 1) / x - (b - 1) / (1 - x)) + (a + b) * 1e-4
    step = np.finfo(dtype.as_numpy_dtype).eps
    tolerance = 20 * step * (1 + np.abs(expected)) + 4 * step * slope + 3e-7
    assert np.all(np.abs(got - expected) <= tolerance)
    assert fits.sum() > 200


def test_log_density_near_the_mean_of_unequal_concentrations():
    # A deviation from the mean of 1e-3 of its standard deviation, one of 1, two of 10.
    x = np.float32([1e-6, 1.001e-6, 1.01e-6, 0.99e-6])
    a, b = np.float32([1e6] * 4), np.float32([1e12] * 4)
    got = _beta_function.log_density(*map(tf.constant, (x, a, b)))
    a, b, x = (v.astype(np.longdouble) for v in (a, b, x))
    u = (x * (a + b) - a) / a
    v = -u * a / b
    deviance = a * (np.log1p(u) - u) + b * (np.log1p(v) - v)
    width = 0.5 * np.log(a * b / (a + b) / (2 * np.pi))
    expected = deviance - np.log(x) - np.log1p(-x) + width
    np.testing.assert_allclose(expected[0], 19.80434, rtol=1e-6)
    np.testing.assert_allclose(got, expected.astype(float), rtol=2e-4)
    swapped = _beta_function.log_density(
        *(tf.constant(v, tf.float64) for v in (1 - x, b, a))
    )
    np.testing.assert_allclose(swapped, expected.astype(float), rtol=1e-6)


def test_log_density_at_and_beyond_the_bounds():
    a = tf.constant([0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 3.0, 3.0, 3.0, 30.0])
    b = tf.constant([2.0, 2.0, 2.0, 0.5, 1.0, 1.0, 3.0, 3.0, 3.0, 30.0])
    x = tf.constant([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, -0.1, 1.1, np.nan, 0.0])
    with tf.GradientTape() as tape:
        tape.watch([a, b, x])
        got = _beta_function.log_density(x, a, b)
    inf = math.inf
    log_2 = math.log(2.0)
    expected = [inf, log_2, -inf, inf, 0.0, log_2, -inf, -inf, np.nan, -inf]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    for gradient in tape.gradient(got, [a, b]):
        assert np.isfinite(np.delete(gradient, 8)).all()


def test_gradients_against_differences():
    a = tf.constant([0.3, 1.0, 2.0, 2.0, 9.0, 300.0, 1e4], tf.float64)
    b = tf.constant([0.7, 1.0, 30.0, 1e4, 12.0, 200.0, 1e4], tf.float64)
    x = tf.constant([0.2, 0.6, 0.03, 1e-4, 0.5, 0.62, 0.501], tf.float64)

    for function, arguments in (
        (_beta_function.log_density, [x, a, b]),
        (_beta_function.entropy, [a, b]),
    ):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        for i, gradient in enumerate(tape.gradient(value, arguments)):
            step = 1e-5 * arguments[i]
            up, down = list(arguments), list(arguments)
            up[i], down[i] = arguments[i] + step, arguments[i] - step
            numeric = (function(*up) - function(*down)) / (2 * step)
            np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("a", [1.0, 3.0, 50.0])
def test_density_integrates_to_one(a):
    x = (np.arange(200_000) + 0.5) / 200_000
    b = tf.constant(30.0, tf.float64)
    density = tf.exp(_beta_function.log_density(x, tf.constant(a, tf.float64), b))
    np.testing.assert_allclose(np.mean(density), 1.0, rtol=1e-7)


def test_extremes_are_finite():
    powers = [2e-38, 1e-15, 1e-3, 1.0, 8.0, 1e3, 1e10, 1e30]
    inner = [1e-30, 1.2e-7, 1e-3, 0.5, 1 - 1.2e-7]
    a, b, x = (
        tf.constant(v.ravel(), tf.float32) for v in np.meshgrid(powers, powers, inner)
    )

    def everything(a, b, x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([a, b, x])
            density = _beta_function.log_density(x, a, b)
            entropy = _beta_function.entropy(a, b)
        by_a, by_b, by_x = tape.gradient(density, [a, b, x])
        return [density, entropy, by_a, by_b], by_x, tape.gradient(entropy, [a, b])

    finite, by_x, of_entropy = tf.function(everything)(a, b, x)
    for value in finite:
        assert np.isfinite(value).all()
    # The density is highest at 1/2, and so it is for all great concentrations.
    middle = (a == b) & (a > 1e9) & (x == 0.5)
    np.testing.assert_allclose(tf.boolean_mask(finite[2], middle), 0.0, atol=1e-6)
    # Only what exceeds float32 is infinite.
    wide = [v.numpy().astype(float) for v in (a, b, x)]
    slope = (wide[0] - 1) / wide[2] - (wide[1] - 1) / (1 - wide[2])
    assert np.isfinite(by_x.numpy()[np.abs(slope) < 1e37]).all()
    fits = (wide[0] > 1e-16) & (wide[1] > 1e-16)
    for gradient in of_entropy:
        assert np.isfinite(gradient.numpy()[fits]).all()
