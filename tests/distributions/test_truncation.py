"""Tests of `tfrl.distributions._truncation`."""

import itertools

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from tfrl.distributions import _truncation, inverse_transform

STANDARD = {
    "normal": inverse_transform.NormalITS,
    "cauchy": inverse_transform.CauchyITS,
    "t2": inverse_transform.T2ITS,
}
NAMES = ("loc", "scale", "lower", "upper", "value")
# Locations up to a billion scales from the bounds, scales a billion times their gap.
GRID = [
    (loc, scale, low, high, low + share * (high - low))
    for loc, scale, (low, high), share in itertools.product(
        [0.0, 0.5, 1.0, -1.001, 3.0, -10.0, 50.0, 1e3, -1e4, 1e6],
        [1e-3, 0.1, 1.0, 10.0, 1e3, 1e6],
        [(-1.0, 1.0), (-0.001, 0.001), (-100.0, 1.0), (0.25, 0.75)],
        [0.0, 0.25, 1.0],
    )
]
EXTREME = [0.0, 1e-38, -1e-38, 1e4, -1e4, 1e30, -1e30]
EXTREMES = [
    (loc, scale, low, high, min(max(low, -1e30), high))
    for loc, scale, (low, high) in itertools.product(
        EXTREME,
        [1e-38, 1e-30, 1e-4, 1.0, 1e4, 1e30],
        [
            (-1.0, 1.0),
            (-np.inf, np.inf),
            (0.0, np.inf),
            (-1e30, 1e30),
            (0.0, 1e-37),
            (-1e4, 1e-4),
        ],
    )
]


def columns(rows, dtype):
    """Rows of numbers that float32 can hold, as a column for each name."""
    exact = np.array(rows, np.float32)
    exact[:, 4] = np.clip(exact[:, 4], exact[:, 2], exact[:, 3])
    return [tf.constant(column, dtype) for column in exact.T]


def elementwise(its, mass_floor):
    """Log-densities of a column of values with bounds of their own, and gradients."""

    @tf.function
    def run(loc, scale, lower, upper, value):
        inputs = [loc, scale, lower, upper, value]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            densities = _truncation.log_densities(value, *inputs[:4], its, mass_floor)
        return densities, tape.gradient(densities, inputs)

    return run


def normal_oracle(loc, scale, lower, upper, value):
    """By the logarithm of the distribution function, in the tail that is smaller."""
    low, high = (lower - loc) / scale, (upper - loc) / scale
    low, high = np.where(low + high > 0, (-high, -low), (low, high))
    log_low, log_high = scipy.special.log_ndtr(low), scipy.special.log_ndtr(high)
    log_mass = log_high + np.log(-np.expm1(log_low - log_high))
    squares = 0.5 * ((value - loc) / scale) ** 2 + 0.5 * np.log(2 * np.pi)
    return -squares - np.log(scale) - log_mass


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_against_the_log_distribution_function(dtype):
    rng = np.random.default_rng(1)
    loc = rng.normal(size=2000) * rng.choice([0.3, 3.0, 10.0], 2000)
    rows = [loc, np.exp(rng.normal(size=2000)), rng.uniform(-1, 1, 2000)]
    loc, scale, value = (np.float64(np.float32(row)) for row in rows)
    bounds = [tf.constant(bound, dtype) for bound in (-1.0, 1.0)]
    got = _truncation.log_density(
        tf.constant(value, dtype),
        [*(tf.constant(v, dtype) for v in (loc, scale)), *bounds],
        inverse_transform.NormalITS,
        0.0,
    )
    expected = normal_oracle(loc, scale, -1.0, 1.0, value)
    tolerance = {"float32": 2e-6, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "mass_floor"),
    [("normal", 0.0), ("normal", 1e-30), ("cauchy", 1e-30), ("t2", 0.0)],
)
def test_float32_has_the_digits_of_float64_however_far_away(name, mass_floor):
    run = elementwise(STANDARD[name], mass_floor)
    density, gradients = run(*columns(GRID, tf.float32))
    exact_density, exact_gradients = run(*columns(GRID, tf.float64))
    np.testing.assert_allclose(density, exact_density, rtol=2e-5, atol=2e-6)
    for index, (got, exact) in enumerate(zip(gradients, exact_gradients, strict=True)):
        # A heavy tail's derivatives are differences of numbers of about 1 / scale.
        unit = 0.0 if name == "normal" else 1.0 / np.array(GRID)[:, 1]
        assert np.isfinite(got).all()
        np.testing.assert_allclose(
            *(
                np.float64(each) / (np.abs(exact) + unit + 1e-30)
                for each in (got, exact)
            ),
            # What the floor leaves of a mass is the exponential of a difference.
            atol=1e-2 if mass_floor else 1e-4,
            err_msg=NAMES[index],
        )


@pytest.mark.parametrize("name", STANDARD)
def test_nothing_extreme_gives_nan(name):
    run = elementwise(STANDARD[name], 1e-30)
    inputs = columns(EXTREMES, tf.float32)
    density, gradients = run(*inputs)
    assert not np.isnan(density).any()
    assert not any(np.isnan(gradient).any() for gradient in gradients)
    if name != "normal":
        assert np.isfinite(density).all()
    for uniform in (0.0, 0.3, 1.0 - 2.0**-24):
        with tf.GradientTape() as tape:
            tape.watch(inputs[:4])
            draws = _truncation.quantiles(
                tf.fill([len(EXTREMES)], uniform), inputs[:4], STANDARD[name]
            )
        assert np.all((draws >= inputs[2]) & (draws <= inputs[3]))
        assert np.isfinite(draws).all()
        for gradient in tape.gradient(draws, inputs[:4]):
            assert not np.isnan(gradient).any()


@pytest.mark.parametrize("name", STANDARD)
def test_gradients_are_central_differences(name):
    point = np.array([0.3, 0.7, -1.0, 1.5, 0.9])
    far = np.array([-4.0, 0.7, -1.0, 1.5, 0.9])
    run = elementwise(STANDARD[name], 1e-30)
    for centre in (point, far):
        _, gradients = run(*(tf.constant([v], tf.float64) for v in centre))
        for index, gradient in enumerate(gradients):
            moved = np.tile(centre, (2, 1))
            moved[:, index] += [1e-5, -1e-5]
            up, down = run(*(tf.constant(v) for v in moved.T))[0].numpy()
            difference = (up - down) / 2e-5
            np.testing.assert_allclose(gradient[0], difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", STANDARD)
def test_quantiles_hold_their_share_of_the_mass(name):
    its = STANDARD[name]
    given = [tf.constant(v, tf.float64) for v in (0.4, 0.8, -1.0, 1.5)]
    uniform = np.linspace(0.02, 0.98, 7)

    @tf.function(jit_compile=True)
    def run():
        return _truncation.quantiles(tf.constant(uniform), given, its)

    loc, scale, low, high = (float(v) for v in given)
    draws = run().numpy()
    at = [its.cdf((x - loc) / scale).numpy() for x in (draws, low, high)]
    np.testing.assert_allclose((at[0] - at[1]) / (at[2] - at[1]), uniform, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "jit"), [("normal", True), ("cauchy", False), ("t2", False)], ids=str
)
def test_eager_and_compiled_agree(name, jit):
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(2, 4, 3)).astype(np.float32)
    values = rng.uniform(-1, 1, (5, 4, 3)).astype(np.float32)
    bounds = -np.ones(3, np.float32), np.ones(3, np.float32)
    inputs = [tf.constant(v) for v in (values, loc, np.exp(scale), *bounds)]
    its = STANDARD[name]

    def run(value, *parameters):
        return _truncation.log_density(value, parameters, its, 1e-30)

    eager = run(*inputs)
    assert eager.shape == [5, 4]
    compiled = tf.function(run, jit_compile=jit)
    np.testing.assert_allclose(compiled(*inputs), eager, rtol=1e-5)


@pytest.mark.parametrize("pair", ["near", "far", "wide"])
def test_divergence_is_an_integral(pair):
    one, other = {
        "near": ((0.3, 0.5), (-0.2, 0.9)),
        "far": ((-6.0, 0.5), (8.0, 0.9)),
        "wide": ((0.3, 40.0), (2.0, 0.4)),
    }[pair]
    x = np.linspace(-1.0, 1.5, 200_001)
    log_p, log_q = (normal_oracle(*p, -1.0, 1.5, x) for p in (one, other))
    expected = np.trapezoid(np.exp(log_p) * (log_p - log_q), x)
    sides = [tf.constant(v, tf.float64) for v in (-1.0, 1.5)]
    first, second = ([tf.constant(v, tf.float64) for v in p] for p in (one, other))
    got = _truncation.kl_divergence([*first, *sides], [*second, *sides])
    np.testing.assert_allclose(got, expected, rtol=1e-7)


def test_quotients_are_finite_with_their_gradients():
    x = tf.constant([3.0, 0.0, np.inf, -1e30, 1e30])
    scale = tf.constant([2.0, 1e-30, 1.0, 1e-30, 1e-37])
    with tf.GradientTape() as tape:
        tape.watch([x, scale])
        quotient = _truncation.standardized(x, scale)
        loss = quotient / tf.stop_gradient(tf.maximum(tf.abs(quotient), 1.0))
    gradients = tape.gradient(loss, [x, scale])
    assert np.isfinite([quotient, *gradients]).all()
    np.testing.assert_allclose([g[0] for g in gradients], [1 / 3, -0.5])
    assert float(gradients[1][3]) == 0.0  # held at the limit


def test_norm_does_not_overflow():
    norm, share = _truncation.norm_and_share(tf.constant([-1e30, 0.0, 0.75]))
    np.testing.assert_allclose(norm, [1e30, 1.0, 1.25], rtol=1e-6)
    np.testing.assert_allclose(share, [-1.0, 0.0, 0.6], rtol=1e-6)
