"""The numerics of the soft bounds against definitions in 500 decimal digits."""

import decimal

import numpy as np
import pytest
import tensorflow as tf

from tfrl import bijectors
from tfrl._internal import precision
from tfrl.bijectors import squashing
from tfrl.core import compile

INF = float("inf")
BOUNDS = {
    "unit": (-1.0, 2.0, 1.0),
    "sharp": (-1.0, 2.0, 0.01),
    "soft": (-1.0, 2.0, 50.0),
    "far": (-300.0, 1e4, 0.1),
    "low": (0.0, INF, 1.0),
    "high": (-INF, 3.0, 0.1),
    "none": (-INF, INF, 1.0),
}
STRETCHED = ["unit", "sharp", "soft", "far"]


@pytest.fixture(autouse=True)
def _digits():
    with decimal.localcontext(prec=500, Emax=10**9, Emin=-(10**9)):
        yield


def exact(*numbers):
    return [
        number
        if isinstance(number, decimal.Decimal)
        else decimal.Decimal(float(number))
        for number in numbers
    ]


def softplus(z):
    return (1 + z.exp()).ln() if z < 100 else z + (1 + (-z).exp()).ln()


def clip(x, low, high, s):
    """softclip, defined as low + s * softplus(A) - s * softplus(B)."""
    if low == -INF and high == INF:
        return exact(x)[0]
    if low == -INF:
        x, high, s = exact(x, high, s)
        return high - s * softplus((high - x) / s)
    if high == INF:
        x, low, s = exact(x, low, s)
        return low + s * softplus((x - low) / s)
    x, low, high, s = exact(x, low, high, s)
    return low + s * (softplus((x - low) / s) - softplus((x - high) / s))


def stretched(x, low, high, s):
    """softclip_tf, by its definition as a composition."""
    x, low, high, s = exact(x, low, high, s)
    lower = low + s * softplus((x - low) / s)
    least = high - s * softplus((high - low) / s)
    upper = high - s * softplus((high - lower) / s)
    return high - (high - low) * (high - upper) / (high - least)


FUNCTIONS = {
    "softclip": (clip, precision.inverse, precision.log_slope, list(BOUNDS)),
    "softclip_tf": (
        stretched,
        precision.stretched_inverse,
        precision.stretched_log_slope,
        STRETCHED,
    ),
}
CASES = [(name, bounds) for name in FUNCTIONS for bounds in FUNCTIONS[name][-1]]
over_cases = pytest.mark.parametrize(("name", "bounds"), CASES)
over_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def slope(function, x, *parameters):
    """A difference quotient, exact to 30 digits wherever it exceeds 1e-220."""
    (x,), step = exact(x), decimal.Decimal(10) ** -150
    rise = function(x + step, *parameters) - function(x - step, *parameters)
    return rise / (2 * step)


def inputs(low, high, s, dtype):
    finite = [bound for bound in (low, high) if abs(bound) < INF] or [0.0]
    offsets = s * np.array([-500.0, -30, -3, -0.1, 0, 0.5, 4, 25, 500])
    return np.append(np.add.outer(finite, offsets), np.mean(finite)).astype(dtype)


def outputs(low, high, dtype):
    """Numbers at all distances from the bounds, the nearest neighbours among them."""
    low, high = np.array([low, high], dtype)
    start = low if low > -INF else high - dtype(100.0) if high < INF else dtype(0.0)
    stop = high if high < INF else start + dtype(100.0)
    shares = np.array([1e-6, 1e-3, 0.3, 0.5, 0.7, 0.999], dtype)
    tiny = np.finfo(dtype).tiny
    ends = [np.nextafter(start, INF), np.nextafter(stop, -INF)]
    ends = [max(ends[0], start + tiny), ends[1]]
    return np.array([*ends, *(start + shares * (stop - start))], dtype)


@over_dtypes
@over_cases
def test_inverse(name, bounds, dtype):
    function, inverse, _, _ = FUNCTIONS[name]
    low, high, s = np.array(BOUNDS[bounds], dtype)
    for y in outputs(low, high, np.dtype(dtype).type):
        x = inverse(tf.constant(y), low, high, s).numpy()
        assert x.dtype == dtype
        residue = function(x, low, high, s) - exact(y)[0]
        error = abs(float(residue / slope(function, x, low, high, s)))
        size = max(abs(bound) for bound in (x, s, low, high) if abs(bound) < INF)
        assert error <= 8 * np.finfo(dtype).eps * size, (y, x)


@over_dtypes
@over_cases
def test_log_slope(name, bounds, dtype):
    function, _, log_slope, _ = FUNCTIONS[name]
    low, high, s = np.array(BOUNDS[bounds], dtype)
    x = inputs(low, high, s, dtype)
    got = log_slope(tf.constant(x), low, high, s).numpy()
    assert got.dtype == dtype
    expected = [float(slope(function, each, low, high, s).ln()) for each in x]
    # What rounding of x - low costs.
    size = max(abs(bound) for bound in (low, high, s) if abs(bound) < INF) / s
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got, expected, rtol=8 * eps, atol=4 * eps * size)


@over_cases
def test_gradients(name, bounds):
    _, inverse, log_slope, _ = FUNCTIONS[name]
    low, high, s = BOUNDS[bounds]
    for function in (inverse, log_slope):
        points = outputs(low, high, np.float64)[3:]
        arguments = [np.full_like(points, each) for each in (low, high, s)]
        arguments = [tf.constant(each) for each in (points, *arguments)]
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        gradients = tape.gradient(value, arguments, unconnected_gradients="zero")
        for place, gradient in enumerate(gradients):
            if np.isinf(arguments[place]).any():
                assert (gradient.numpy() == 0.0).all()
                continue
            step = 1e-6 * min(high - low, 100.0 * s)
            ends = []
            for sign in (1.0, -1.0):
                moved = list(arguments)
                moved[place] = moved[place] + sign * step
                ends.append(function(*moved).numpy())
            quotient = (ends[0] - ends[1]) / (2 * step)
            scale = np.abs(quotient).max() + 1.0 / s
            np.testing.assert_allclose(gradient, quotient, rtol=1e-5, atol=1e-6 * scale)


@over_dtypes
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_far_out(dtype, jit_compile):
    far = [-INF, -1e30, -1e4, -1e-38, 0.0, 1e-38, 1e4, 1e30, INF]
    x, low, s = np.meshgrid(far, [-INF, -1e4, 0.0, 1.0], [1e-3, 1.0, 1e4])
    x, low, s = (each.ravel().astype(dtype) for each in (x, low, s))
    high = np.where(np.arange(x.size) % 2, INF, np.maximum(low + 1, -1)).astype(dtype)

    def derivatives(function, *arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        return value, tape.gradient(value, arguments)

    @tf.function(jit_compile=jit_compile)
    def everything(*arguments):
        finite = [tf.maximum(arguments[1], -1e6), tf.minimum(arguments[2], 1e6)]
        stretched = [arguments[0], *finite, arguments[3]]
        return (
            derivatives(precision.log_slope, *arguments),
            derivatives(precision.stretched_log_slope, *stretched),
        )

    for value, gradients in everything(*map(tf.constant, (x, low, high, s))):
        assert not np.isnan(value).any()
        assert np.isfinite(value.numpy()[np.isfinite(x)]).all()
        for gradient in gradients:
            assert np.isfinite(gradient.numpy()[np.isfinite(x)]).all()


def test_numbers_do_not_retrace():
    y = tf.fill([1, 1, 1, 1, 3], 0.5)
    bijectors.Softclip(-0.5, 0.7, 0.3).inverse(y)
    before = compile.trace_count(squashing._inverse)
    for number in (1.0, 2, np.float64(3.0)):
        bijectors.Softclip(-number, number, number).inverse(y)
    assert compile.trace_count(squashing._inverse) == before
