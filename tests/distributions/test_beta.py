"""Tests of `tfrl.distributions.beta`."""

import functools
import math

import confidence
import golden_distributions
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from default_rows import slow

from tfrl.distributions import beta

tfd = tfp.distributions
SEED = [3, 7]
CLASSES = ("Beta", "DiagMultivariateBeta")
EPS = np.finfo(np.float32).eps


@pytest.mark.slow
@golden_distributions.cases(CLASSES)
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@golden_distributions.draws(CLASSES)
def test_golden_draws(case):
    golden_distributions.check_draws(case)


def test_by_hand():
    dist = beta.DiagMultivariateBeta([2.0, 1.0], [2.0, 3.0])
    # 6 x (1 - x) and 3 (1 - x)^2 at 1/2
    np.testing.assert_allclose(dist.prob([0.5, 0.5]), 1.5 * 0.75, rtol=1e-6)
    np.testing.assert_allclose(dist.mean(), [0.5, 0.25])
    np.testing.assert_allclose(dist.variance(), [0.05, 3 / 80], rtol=1e-6)
    np.testing.assert_allclose(dist.stddev() ** 2, dist.variance())
    np.testing.assert_array_equal(dist.mode(), [0.5, 0.0])
    np.testing.assert_array_equal(dist.concentration1, [2.0, 1.0])
    np.testing.assert_array_equal(dist.concentration0, [2.0, 3.0])


def test_mode_and_its_gradient():
    ones = tf.constant([3.0, 1.0, 0.5, 1.0, 2.0, 1.0, 0.5, 1e30])
    zeros = tf.constant([2.0, 2.0, 0.6, 1.0, 1.0, 0.5, 1.5, 1e30])

    with tf.GradientTape() as tape:
        tape.watch([ones, zeros])
        mode = beta.Beta(ones, zeros).mode()
    np.testing.assert_allclose(mode, [2 / 3, 0, 0, 1, 1, 1, 0, 0.5], rtol=1e-6)
    by_ones, by_zeros = tape.gradient(mode, [ones, zeros])
    np.testing.assert_allclose(by_ones, [1 / 9, *[0] * 7], atol=1e-6)
    np.testing.assert_allclose(by_zeros, [-2 / 9, *[0] * 7], atol=1e-6)


CONCENTRATIONS = {
    "uniform": (1.0, 1.0),
    "u-shaped": (0.5, 0.3),
    "near the bounds": (0.01, 0.02),
    "one great": (2.0, 5000.0),
    "both great": (2000.0, 3000.0),
}


@pytest.mark.slow
def test_draws():
    ones, zeros = tf.unstack(tf.constant([*CONCENTRATIONS.values()]), axis=1)
    dist = beta.DiagMultivariateBeta(ones, zeros)
    draws = dist.sample(20_000, seed=SEED).numpy()
    compiled = tf.function(lambda: dist.sample(20_000, seed=SEED), jit_compile=True)
    np.testing.assert_allclose(compiled(), draws, rtol=1e-3, atol=1e-5)
    assert draws.min() >= EPS
    assert draws.max() <= 1 - EPS
    for i, (a, b) in enumerate(CONCENTRATIONS.values()):
        true = scipy.stats.beta(a, b)
        # Near 1 draws are rounded to a step of half of eps.
        confidence.assert_cdf(
            draws[:, i],
            lambda x, true=true: np.where(x >= 1 - EPS, 1, true.cdf(x + EPS / 2)),
            lambda x, true=true: np.where(x <= EPS, 0, true.cdf(x - EPS / 2)),
        )
        confidence.assert_mean(draws[:, i], true.mean(), 0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [tf.float32, pytest.param(tf.float64, marks=pytest.mark.slow)]
)
def test_draws_of_small_concentrations_have_finite_gradients(dtype):
    powers = tf.constant(10.0 ** -np.arange(1.0, 31.0, 3.0), dtype)
    ones, zeros = tf.meshgrid(powers, powers)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([ones, zeros])
        dist = beta.Beta(ones, zeros)
        draws = dist.sample(20, seed=SEED)
        log_probs = dist.log_prob(draws)
    assert np.isfinite(log_probs).all()
    for target in (draws, log_probs):
        for gradient in tape.gradient(target, [ones, zeros]):
            assert np.isfinite(gradient).all()
    # Almost surely 0 or 1: which one is a coin with the mean's probability.
    ups = (draws[:, 4, 3] > 0.5).numpy()
    assert ups.mean() > 0.9
    assert np.any(draws[:, 3, 3] > 0.5)
    assert np.any(draws[:, 3, 3] < 0.5)


def test_clipping():
    dist = beta.Beta(0.1, 0.1, eps=0.01)
    draws = dist.sample(1000, seed=SEED).numpy()
    assert (draws.min(), draws.max()) == (np.float32(0.01), np.float32(0.99))
    many = beta.DiagMultivariateBeta([0.1], [0.1], eps=0.01).sample(1000, seed=SEED)
    assert many.numpy().min() == np.float32(0.01)
    double = beta.Beta(tf.constant(1e-3, tf.float64), 1e-3).sample(100, seed=SEED)
    eps = np.finfo(float).eps
    assert (double.numpy().min(), double.numpy().max()) == (eps, 1 - eps)
    with tf.GradientTape() as tape:
        tape.watch(dist.concentration1)
        draws = dist.sample(1000, seed=SEED)
        clipped = tf.reduce_sum(tf.where((draws > 0.01) & (draws < 0.99), 0.0, draws))
    assert float(tape.gradient(clipped, dist.concentration1)) == 0.0


GRADIENTS = [0.003, 0.3, 1.0, 2.5, 30.0, 800.0, 1200.0, 3e4, 1e6]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 3e-5), ("float32", 1e-4)])
def test_gradients_of_draws_are_those_of_quantiles(dtype, tolerance):
    # The draw of a gamma variable moves along a quantile: d x / d a = -(dF/da) / p(x).
    rates = tf.function(beta._log_gamma_rate, jit_compile=dtype == "float32")
    levels = np.array([1e-4, 0.02, 0.3, 0.5, 0.8, 0.99, 0.9999])
    a, level = np.meshgrid(GRADIENTS, levels, indexing="ij")
    step = 1e-4 * a

    def log_quantile(a):
        # For small x, cdf(x) = x^a / Gamma(a + 1).
        small = (np.log(level) + scipy.special.gammaln(a + 1)) / a
        x = np.maximum(scipy.special.gammaincinv(a, level), 1e-300)
        return np.where(small < -50, small, np.log(x))

    numeric = (log_quantile(a + step) - log_quantile(a - step)) / (2 * step)
    got = rates(tf.constant(a, dtype), tf.constant(log_quantile(a), dtype))
    np.testing.assert_allclose(got, numeric, rtol=tolerance)


def test_gradient_estimates_the_gradient_of_the_mean():
    pairs = tf.constant([[0.4, 0.7], [3.0, 2.0], [2.0, 4000.0], [5e4, 4e4]])

    @tf.function
    def estimate(ones, zeros):
        ones, zeros = (
            tf.tile(ones[None], [20_000, 1]),
            tf.tile(zeros[None], [20_000, 1]),
        )
        with tf.GradientTape() as tape:
            tape.watch([ones, zeros])
            draws = beta.Beta(ones, zeros).sample(seed=SEED)
        return tape.gradient(draws, [ones, zeros])

    ones, zeros = pairs[:, 0].numpy().astype(float), pairs[:, 1].numpy().astype(float)
    total = ones + zeros
    for gradient, exact in zip(
        estimate(pairs[:, 0], pairs[:, 1]), [zeros, -ones], strict=True
    ):
        gradient = np.asarray(gradient, np.float64)
        # Five standard errors: one in 1.7 million.
        error = gradient.std(axis=0) / np.sqrt(len(gradient))
        assert np.all(np.abs(gradient.mean(axis=0) - exact / total**2) <= 5 * error)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_dtype_batch_and_copies(dtype):
    ones, zeros = tf.ones([4, 1, 3], dtype), tf.ones([2, 3], dtype)
    dist = beta.DiagMultivariateBeta(ones, zeros, eps=0.01, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == (dtype, [4, 2], [3])
    draws = dist.sample(5, seed=SEED)
    assert (draws.dtype, draws.shape) == (dtype, [5, 4, 2, 3])
    assert dist[1:, 0].batch_shape == [3]
    copied = dist.copy(concentration1=ones[0])
    assert (type(copied), copied.batch_shape) == (type(dist), [2])
    assert copied.parameters["eps"] == 0.01
    assert float(tf.reduce_min(dist[0].copy().sample(1000, seed=SEED))) >= 0.0099
    assert beta.Beta(1.0, 1.0, 0.1)[...].parameters["eps"] == 0.1
    given = tf.constant([1.0, 2.0])
    assert beta.Beta(given, given).concentration1 is given
    nothing = beta.Beta(tf.zeros([0]), tf.ones([0]))
    assert nothing.log_prob(tf.zeros([4, 0])).shape == [4, 0]
    assert nothing.sample(3, seed=SEED).shape == [3, 0]


def test_concentrations_that_are_no_numbers_are_not_drawn_for_ever():
    ones = tf.Variable([np.nan, 1e-30, 1e30])
    draws = beta.Beta(ones, 1.0).sample(100, seed=SEED)
    np.testing.assert_array_equal(np.isnan(draws), [[True, False, False]] * 100)


def test_kl_against_integration():
    one, other = beta.Beta(2.0, 3.0), beta.Beta(4.0, 1.5)
    x = (np.arange(100_000) + 0.5) / 100_000
    p, q = scipy.stats.beta(2, 3), scipy.stats.beta(4, 1.5)
    expected = np.mean(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)))
    np.testing.assert_allclose(tfd.kl_divergence(one, other), expected, rtol=1e-4)
    several = beta.Beta([[2.0], [4.0]], 3.0), beta.Beta(4.0, tf.constant([1.5] * 3))
    divergences = tfd.kl_divergence(*several)
    assert divergences.shape == (2, 3)
    np.testing.assert_allclose(divergences[0], [expected] * 3, rtol=1e-4)


@pytest.mark.parametrize("jit", [False, True])
def test_divergences_of_great_concentrations(jit):
    given = [(1e4, 1e4, 1e4 + 10, 1e4), (1e5, 1e5, 1e5 + 100, 1e5), (1e6, 1e6, 1, 1)]
    given += [(0.3, 1e6, 0.5, 9e5), (2e5, 7, 1e5, 8), (1, 1, 1e6, 1e6), (5, 2, 5, 2)]
    given += [(1e7, 1e8, 2, 30), (1e6, 1e5, 0.1, 0.01)]  # new ones are lost beside old
    given = np.array(given, np.float32).T

    @tf.function(jit_compile=jit)
    def divergences(a, b, new_a, new_b):
        with tf.GradientTape() as tape:
            tape.watch([a, b, new_a, new_b])
            one, other = beta.Beta(a, b), beta.Beta(new_a, new_b)
            divergence = tfd.kl_divergence(one, other)
        return divergence, tape.gradient(divergence, [a, b, new_a, new_b])

    values, gradients = divergences(*map(tf.constant, given))
    a, b, new_a, new_b = given.astype(np.float64)
    psi, slope = scipy.special.psi, functools.partial(scipy.special.polygamma, 1)
    d_a, d_b, total, new_total = new_a - a, new_b - b, a + b, new_a + new_b
    move = d_a + d_b
    expected = scipy.special.betaln(new_a, new_b) - scipy.special.betaln(a, b)
    expected -= d_a * psi(a) + d_b * psi(b) - move * psi(total)
    np.testing.assert_allclose(values, expected, rtol=3e-6, atol=1e-7)
    gap = psi(total) - psi(new_total)
    expected = [
        move * slope(total) - d_a * slope(a),
        move * slope(total) - d_b * slope(b),
        psi(new_a) - psi(a) + gap,
        psi(new_b) - psi(b) + gap,
    ]
    np.testing.assert_allclose(gradients, expected, rtol=1e-4, atol=1e-12)


def test_divergences_of_extremes_are_finite():
    powers = np.float32([1e-8, 1e-3, 1.0, 1e10, 1e19])
    given = [tf.constant(x.ravel()) for x in np.meshgrid(*[powers] * 4)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        divergence = tfd.kl_divergence(beta.Beta(*given[:2]), beta.Beta(*given[2:]))
    assert np.all(divergence >= 0.0) and np.isfinite(divergence).all()
    assert np.isfinite(tape.gradient(divergence, given)).all()


HALVES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
OF_BETA = {
    "log_prob": lambda d: d.log_prob(tf.constant(0.375, d.dtype)),
    "cdf": lambda d: d.cdf(tf.constant(0.375, d.dtype)),
    "quantile": lambda d: d.quantile(tf.constant(0.375, d.dtype)),
    "sample": lambda d: d.sample(100, seed=SEED),
    "mode": lambda d: d.mode(),
    "mean": lambda d: d.mean(),
    "stddev": lambda d: d.stddev(),
    "entropy": lambda d: d.entropy(),
}


@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float16")])
@pytest.mark.parametrize("name", OF_BETA)
def test_narrow_dtypes(name, dtype):
    def run(ones, zeros):
        with tf.GradientTape() as tape:
            tape.watch([ones, zeros])
            found = OF_BETA[name](beta.Beta(ones, zeros, eps=2.0**-7))
        return found, *tape.gradient(found, [ones, zeros])

    given = [2.0, 30.0], [3.0, 20.0]
    found = run(*(tf.constant(x, dtype) for x in given))
    expected = run(*(tf.constant(x, tf.float32) for x in given))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(tf.cast(one, tf.float32), other, rtol=0.02)


@HALVES
def test_margins_and_divergences_of_narrow_dtypes(dtype):
    small = beta.DiagMultivariateBeta(tf.constant([1e-3, 3.0], dtype), [1e-3, 2.0])
    draws = tf.cast(small.sample(100, seed=SEED)[:, 0], tf.float32).numpy()
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    assert (draws.min(), draws.max()) == (eps, 1 - eps)
    expected = tfd.kl_divergence(beta.Beta(2.0, 3.0), beta.Beta(4.0, 1.5))
    ones = tf.constant([2.0, 4.0], dtype)
    divergence = tfd.kl_divergence(beta.Beta(ones[0], 3.0), beta.Beta(ones[1], 1.5))
    assert divergence.dtype == dtype
    np.testing.assert_allclose(tf.cast(divergence, tf.float32), expected, rtol=0.01)


GREAT = [0.5, 3.0, 100.0, 1e4, 1e6]


@pytest.mark.parametrize("jit", [False, *slow(True)], ids=["graph", "xla"])
def test_distribution_function_of_great_concentrations(jit):
    a, b = (np.float32(x.ravel()) for x in np.meshgrid(GREAT, GREAT))
    true = scipy.stats.beta(a.astype(float), b.astype(float))
    x = np.minimum(np.float32(true.ppf([[0.01], [0.5], [0.9]])), np.float32(1 - 1e-7))

    @tf.function(jit_compile=jit)
    def cdf(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            cdf = beta.Beta(a, b).cdf(x)
        return cdf, tape.gradient(cdf, x)

    found, density = cdf(tf.constant(x))
    np.testing.assert_allclose(found, true.cdf(x.astype(float)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(density, true.pdf(x.astype(float)), rtol=1e-4)
    outside = beta.Beta(a, b).cdf(np.float32([[-0.5], [1.5]]))
    np.testing.assert_array_equal(outside, np.ones_like(outside) * [[0], [1]])


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [
        ({"concentration1": 0.0}, "concentration1"),
        ({"concentration1": np.nan}, "concentration1"),
        ({"concentration0": tf.constant(-1.0)}, "concentration0"),
        ({"concentration0": [1.0, -1.0]}, "concentration0"),
        ({"concentration1": [1.0, 1.0], "concentration0": [1.0] * 3}, "concentration0"),
        *(({"eps": eps}, "eps") for eps in (0.0, -0.1, 1e-9, 0.6)),
    ],
    ids=str,
)
def test_errors(kwargs, name):
    given = {"concentration1": 1.0, "concentration0": 1.0, **kwargs}
    with pytest.raises(ValueError, match=f"`Beta`: `{name}` expected"):
        beta.Beta(**given)
    with pytest.raises(ValueError, match="`DiagMultivariateBeta`: `concentration1`"):
        beta.DiagMultivariateBeta(1.0, 1.0)


# Densities and entropies of great concentrations. In float64 the textbook formulas keep
# seven digits for these.
POWERS = [1e-8, 1e-3, 0.1, 1.0, 1.5, 7.9, 8.1, 40.0, 1e3, 1e5, 1e7]


def exact_entropy(a, b):
    digamma = scipy.special.digamma
    parts = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
    return scipy.special.betaln(a, b) - parts


def test_entropy():
    a, b = (np.float32(x.ravel()) for x in np.meshgrid(POWERS, POWERS))
    expected = exact_entropy(a.astype(float), b.astype(float))
    np.testing.assert_allclose(beta.Beta(a, b).entropy(), expected, 2e-5, 2e-5)


def test_log_density_near_the_mean_of_unequal_concentrations():
    # A deviation from the mean of 1e-3 of its standard deviation, one of 1, two of 10.
    x = np.float32([1e-6, 1.001e-6, 1.01e-6, 0.99e-6])
    a, b = np.float32([1e6] * 4), np.float32([1e12] * 4)
    got = beta.Beta(a, b).log_prob(x)
    a, b, x = (v.astype(np.longdouble) for v in (a, b, x))
    u = (x * (a + b) - a) / a
    v = -u * a / b
    deviance = a * (np.log1p(u) - u) + b * (np.log1p(v) - v)
    width = 0.5 * np.log(a * b / (a + b) / (2 * np.pi))
    expected = deviance - np.log(x) - np.log1p(-x) + width
    np.testing.assert_allclose(expected[0], 19.80434, rtol=1e-6)
    np.testing.assert_allclose(got, expected.astype(float), rtol=2e-4)
    x, a, b = (tf.constant(v, tf.float64) for v in (1 - x, b, a))
    swapped = beta.Beta(a, b).log_prob(x)
    np.testing.assert_allclose(swapped, expected.astype(float), rtol=1e-6)


def test_log_density_at_and_beyond_the_bounds():
    a = tf.constant([0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 3.0, 3.0, 3.0, 30.0])
    b = tf.constant([2.0, 2.0, 2.0, 0.5, 1.0, 1.0, 3.0, 3.0, 3.0, 30.0])
    x = tf.constant([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, -0.1, 1.1, np.nan, 0.0])
    with tf.GradientTape() as tape:
        tape.watch([a, b, x])
        got = beta.Beta(a, b).log_prob(x)
    inf = math.inf
    log_2 = math.log(2.0)
    expected = [inf, log_2, -inf, inf, 0.0, log_2, -inf, -inf, np.nan, -inf]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    for gradient in tape.gradient(got, [a, b]):
        assert np.isfinite(np.delete(gradient, 8)).all()


def test_extremes_are_finite():
    powers = [2e-38, 1e-15, 1e-3, 1.0, 8.0, 1e3, 1e10, 1e30]
    inner = [1e-30, 1.2e-7, 1e-3, 0.5, 1 - 1.2e-7]
    a, b, x = (
        tf.constant(v.ravel(), tf.float32) for v in np.meshgrid(powers, powers, inner)
    )

    def everything(a, b, x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([a, b, x])
            dist = beta.Beta(a, b)
            density = dist.log_prob(x)
            entropy = dist.entropy()
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
