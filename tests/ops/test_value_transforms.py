"""Tests of tfrl.ops.value_transforms."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from derivatives import curvature, slope
from refusals import bad

from tfrl import ops

TRANSFORMS = {
    "log1p": ops.Log1pTransform(),
    "log1p 5": ops.Log1pTransform(alpha=5.0),
    "sqrt1p": ops.Sqrt1pTransform(),
    "sqrt linear": ops.SqrtLinearTransform(),
    "sqrt linear 0.25": ops.SqrtLinearTransform(eps=0.25),
}
EVERYWHERE = np.concatenate(
    [-np.logspace(30, -30, 241), [0.0], np.logspace(-30, 30, 241)]
)


def oracles(name):
    """The map, its slope, its inverse, in float64 and without cancellation."""
    if name.startswith("log1p"):
        alpha = TRANSFORMS[name].alpha
        return (
            lambda x: alpha * np.sign(x) * np.log1p(np.abs(x)),
            lambda x: alpha / (1 + np.abs(x)),
            lambda y: np.sign(y) * np.expm1(np.abs(y) / alpha),
        )
    eps = getattr(TRANSFORMS[name], "eps", 0.0)

    def inverse(y):
        y, z = np.longdouble(np.abs(y)), np.sign(y)
        half = np.longdouble(0.5) + np.longdouble(eps)
        root = y / (half + np.sqrt(half**2 + eps * y))
        return np.float64(z * root * (root + 2))

    return (
        lambda x: x / (np.sqrt(np.abs(x) + 1) + 1) + eps * x,
        lambda x: 0.5 / np.sqrt(1 + np.abs(x)) + eps,
        inverse,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_accuracy_at_every_size(name, dtype):
    transform, (forward, rate, inverse) = TRANSFORMS[name], oracles(name)
    rtol = {"float32": 1e-6, "float64": 1e-13}[dtype]
    x = EVERYWHERE.astype(dtype)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(transform.transform(x), forward(exact), rtol=rtol)
    np.testing.assert_allclose(slope(transform.transform, x), rate(exact), rtol=rtol)
    # Where the inverse is representable.
    with np.errstate(over="ignore"):
        expected = inverse(exact)
    fits = np.abs(expected) < 1e37
    y, expected = x[fits], expected[fits]
    got = transform.inverse_transform(y)
    np.testing.assert_allclose(got, expected, rtol=rtol)
    rates = slope(transform.inverse_transform, y)
    np.testing.assert_allclose(rates, 1 / rate(expected), rtol=2 * rtol)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_derivatives_at_zero(name):
    transform = TRANSFORMS[name]
    rate = {"log1p": 20, "log1p 5": 5, "sqrt linear": 0.501, "sqrt linear 0.25": 0.75}
    expected = rate.get(name, 0.5)
    zeros = np.float32([0.0, -0.0])
    np.testing.assert_allclose(slope(transform.transform, zeros), expected, rtol=1e-6)
    inverse = slope(transform.inverse_transform, zeros)
    np.testing.assert_allclose(inverse, 1 / expected, rtol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_second_derivatives(name):
    transform = TRANSFORMS[name]
    x = np.concatenate([np.linspace(-50, -0.01, 80), np.linspace(0.01, 50, 80)])
    step = 1e-6
    for function in (transform.transform, transform.inverse_transform):
        change = slope(function, x + step) - slope(function, x - step)
        np.testing.assert_allclose(
            curvature(function, x), change / (2 * step), rtol=1e-5, atol=1e-8
        )


@pytest.mark.parametrize(
    "dtype",
    [
        *("bfloat16", "float32"),
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("float16", "float64")),
    ],
)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_far_out(name, dtype):
    transform = TRANSFORMS[name]
    x = tf.cast([-np.inf, -1e30, -1e4, -1e-38, 0.0, 1e-38, 1e4, 1e30, np.inf], dtype)
    for function in (transform.transform, transform.inverse_transform):
        y = function(x)
        assert y.dtype == x.dtype
        values = y.numpy().astype(float)
        np.testing.assert_array_equal(values[[0, -1]], [-np.inf, np.inf])
        assert (np.diff(values[np.isfinite(values)]) >= 0).all()
        rates = slope(function, x).astype(float)
        assert not np.isnan(rates).any()
        # What has overflowed has no curvature.
        curves = curvature(function, x).astype(float)
        assert not np.isnan(curves[np.isfinite(rates) & np.isfinite(values)]).any()
    assert np.isfinite(transform.transform(x)[1:-1].numpy().astype(float)).sum() >= 5
    assert np.isnan(transform.transform([np.nan]))


def test_worked_values():
    assert ops.Sqrt1pTransform().transform([-8.0]).numpy() == [-2.0]
    assert ops.Sqrt1pTransform().inverse_transform([2.0]).numpy() == [8.0]
    got = ops.SqrtLinearTransform(0.5).transform([8.0])
    assert got.numpy() == [6.0]
    assert ops.SqrtLinearTransform(0.5).inverse_transform(got).numpy() == [8.0]
    got = ops.Log1pTransform(2).inverse_transform([-2 * np.log(3)])
    np.testing.assert_allclose(got, [-2.0], rtol=1e-6)


@refusals.table(
    (ops.Log1pTransform, bad(ValueError, "alpha", alpha=0.0)),
    (ops.SqrtLinearTransform, bad(ValueError, "eps", eps=-0.1)),
    (ops.Log1pTransform().transform, bad(TypeError, "x", [1])),
)
def test_refusals(row):
    row()


def test_the_interface_defines_nothing():
    with pytest.raises(NotImplementedError, match="does not define `inverse_transf"):
        ops.InvertibleTransform().inverse_transform([1.0])
