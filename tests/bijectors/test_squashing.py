"""Tests of tfrl.bijectors.squashing; laws and recordings are in test_laws."""

import decimal
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors
from tfrl._internal import precision
from tfrl.bijectors import squashing

tfb, tfd = tfp.bijectors, tfp.distributions


def test_worked_values():
    half = np.log(3.0) / 2  # tanh(ln(3) / 2) = 1 / 2
    tanh = bijectors.StableTanh()
    np.testing.assert_allclose(tanh.forward([half]), [0.5], rtol=1e-6)
    np.testing.assert_allclose(tanh.inverse([-0.5]), [-half], rtol=1e-6)
    got = tanh.forward_log_det_jacobian([half])
    np.testing.assert_allclose(got, [np.log(0.75)], rtol=1e-6)
    softsign = bijectors.Softsign()
    np.testing.assert_allclose(softsign.inverse([0.75]), [3.0], rtol=1e-6)
    got = softsign.forward_log_det_jacobian([3.0, -1.0])
    np.testing.assert_allclose(got, -2 * np.log([4.0, 2.0]), rtol=1e-6)
    softplus = bijectors.Softplus(2.0)
    np.testing.assert_allclose(softplus.forward([0.0]), [2 * np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(softplus.inverse([2 * np.log(2)]), [0.0], atol=1e-6)
    got = softplus.forward_log_det_jacobian([0.0])
    np.testing.assert_allclose(got, [-np.log(2)], rtol=1e-6)
    clip = bijectors.Softclip(1.0, 5.0, 7.0)
    np.testing.assert_allclose(clip.forward([3.0]), [3.0], rtol=1e-6)


BOUNDED = {
    "tanh": (bijectors.StableTanh(), [-1.0, 1.0]),
    "softsign": (bijectors.Softsign(), [-1.0, 1.0]),
    "softplus": (bijectors.Softplus(0.1), [0.0]),
    "softlower": (bijectors.Softlower(-300.0, 2.0), [-300.0]),
    "softupper": (bijectors.Softupper(0.7), [0.7]),
    "softclip": (bijectors.Softclip(-1.0, 2.0, 0.01), [-1.0, 2.0]),
    "softclip around 0": (bijectors.Softclip(0.0, 1e-3), [0.0, 1e-3]),
    "softclip above": (bijectors.Softclip(-np.inf, 0.0), [0.0]),
    "softclip_tf": (bijectors.SoftclipTF(-1.0, 2.0, 5.0), [-1.0, 2.0]),
    "softclip_tf wide": (bijectors.SoftclipTF(0.0, 1e4, 0.1), [0.0, 1e4]),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_actions_stored_on_the_bounds_are_safe(name, dtype="float32"):
    bijector, bounds = BOUNDED[name]
    loc = tf.constant(0.3, dtype)
    scale = tf.constant(1.0, dtype)
    y = tf.constant(bounds, dtype)
    with tf.GradientTape() as tape:
        tape.watch([loc, scale, y])
        distribution = tfd.TransformedDistribution(tfd.Normal(loc, scale), bijector)
        log_prob = distribution.log_prob(y)
    assert np.isfinite(log_prob).all()
    for gradient in tape.gradient(log_prob, [loc, scale, y]):
        assert np.isfinite(gradient).all()
    x = bijector.inverse(y)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(bijector.forward(x), bounds, rtol=eps, atol=1e-37)
    step = 1e-3 * np.maximum(np.abs(bounds), 1.0)
    if len(bounds) == 2:
        beyond = tf.constant([bounds[0] - step[0], bounds[1] + step[1]], dtype)
        assert np.isnan(bijector.inverse(beyond)).all()


@pytest.mark.slow
def test_bounds_may_be_variables_and_learn():
    low, softness = tf.Variable(-1.0), tf.Variable(0.5)
    bijector = bijectors.Softclip(low, 2.0, softness)
    with tf.GradientTape() as tape:
        log_det = bijector.inverse_log_det_jacobian([-0.9, 0.0, 1.9], event_ndims=1)
    gradients = tape.gradient(log_det, [low, softness])
    for variable, gradient in zip([low, softness], gradients, strict=True):
        ends = []
        for step in (1e-2, -2e-2):
            variable.assign_add(step)
            ends.append(bijector.inverse_log_det_jacobian([-0.9, 0.0, 1.9], 1))
        variable.assign_add(1e-2)
        np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / 2e-2, rtol=5e-2)


REFUSALS = {
    "zero softness": (lambda: bijectors.Softplus(0.0), "`Softplus`: `hinge_softness`"),
    "softness": (lambda: bijectors.Softclip(0.0, 1.0, [1.0, -1.0]), "`hinge_softness`"),
    "tensor": (lambda: bijectors.Softplus(tf.constant(-1.0)), "`hinge_softness` exp"),
    "variable": (lambda: bijectors.Softlower(0.0, tf.Variable(0.0)), "`hinge_softn"),
    "reversed": (lambda: bijectors.Softclip(1.0, -1.0), "`high` expected numbers > "),
    "equal": (lambda: bijectors.SoftclipTF(1.0, [2.0, 1.0]), "`high` expected numbers"),
    "nan": (lambda: bijectors.Softlower(np.nan), "`Softlower`: `low` expected numbers"),
    "infinite": (lambda: bijectors.SoftclipTF(-np.inf, 0.0), "`low` expected finite"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    make, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_symbolic_parameters_pass():
    function = tf.function(lambda *given: bijectors.Softclip(*given).forward(0.0))
    got = function(*map(tf.constant, (-1.0, 1.0, 0.5)))
    np.testing.assert_allclose(got, 0.0, atol=1e-7)


def test_the_inverse_of_a_bound_fits_into_float16():
    bounds = tf.constant([-1.0, 1.0], tf.float16)
    inverted = bijectors.Softsign().inverse(bounds)
    assert np.isfinite(inverted).all()
    np.testing.assert_array_equal(bijectors.Softsign().forward(inverted), bounds)


# The numerics of the soft bounds against definitions in many decimal digits.

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


@pytest.fixture
def digits(bounds, dtype):
    # The least float64 number above a bound of 0 is 1e-308.
    prec = 500 if (bounds, dtype) == ("low", "float64") else 150
    with decimal.localcontext(prec=prec, Emax=10**9, Emin=-(10**9)):
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
    """A difference quotient, exact to 30 digits also where it is tiny."""
    (x,), step = exact(x), decimal.Decimal(10) ** -(decimal.getcontext().prec // 3)
    rise = function(x + step, *parameters) - function(x - step, *parameters)
    return rise / (2 * step)


def inputs(low, high, s, dtype):
    finite = [bound for bound in (low, high) if abs(bound) < INF] or [0.0]
    offsets = s * np.array([-90.0, -3, -0.1, 0, 0.5, 4, 90])
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
@pytest.mark.usefixtures("digits")
def test_inverse(name, bounds, dtype):
    function, inverse, _, _ = FUNCTIONS[name]
    low, high, s = np.array(BOUNDS[bounds], dtype)
    values = outputs(low, high, np.dtype(dtype).type)
    inputs = inverse(tf.constant(values), low, high, s).numpy()
    assert inputs.dtype == dtype
    for x, y in zip(inputs, values, strict=True):
        residue = function(x, low, high, s) - exact(y)[0]
        error = abs(float(residue / slope(function, x, low, high, s)))
        size = max(abs(bound) for bound in (x, s, low, high) if abs(bound) < INF)
        assert error <= 8 * np.finfo(dtype).eps * size, (y, x)


@over_dtypes
@over_cases
@pytest.mark.usefixtures("digits")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)]
)
def test_far_out(dtype):
    far = [-INF, -1e30, -1e4, -1e-38, 0.0, 1e-38, 1e4, 1e30, INF]
    x, low, s = np.meshgrid(far, [-INF, -1e4, 0.0, 1.0], [1e-3, 1.0, 1e4])
    x, low, s = (each.ravel().astype(dtype) for each in (x, low, s))
    high = np.where(np.arange(x.size) % 2, INF, np.maximum(low + 1, -1)).astype(dtype)

    def derivatives(function, *arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        return value, tape.gradient(value, arguments)

    @tf.function(jit_compile=True)
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
    before = squashing._inverse.trace_count()
    for number in (1.0, 2, np.float64(3.0)):
        bijectors.Softclip(-number, number, number).inverse(y)
    assert squashing._inverse.trace_count() == before


def test_a_warm_call_is_short():
    house = str(pathlib.Path(bijectors.__file__).parents[1])
    bijector, x = bijectors.Softclip(-1.0, 1.0), tf.zeros([4])
    bijector.forward(x)
    called = []

    def note(frame, event, _):
        code = frame.f_code
        is_function = event == "call" and not code.co_name.endswith("comp>")
        if is_function and code.co_filename.startswith(house):
            called.append(code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        bijector.forward(x)
    finally:
        sys.setprofile(before)
    assert 1 <= len(called) <= 12, called
