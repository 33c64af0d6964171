"""Tests of `tfrl.distributions.beta`."""

import confidence
import golden_distributions
import golden_io
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import beta

tfd = tfp.distributions
SEED = [3, 7]
CLASSES = ("Beta", "DiagMultivariateBeta")
CASES = golden_distributions.load(CLASSES)
DRAWS = golden_distributions.load(CLASSES, "stats")
EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@pytest.mark.parametrize("case", DRAWS, ids=golden_io.ids(DRAWS))
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


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "xla"])
def test_mode_and_its_gradient(jit):
    ones = tf.constant([3.0, 1.0, 0.5, 1.0, 2.0, 1.0, 0.5, 1e30])
    zeros = tf.constant([2.0, 2.0, 0.6, 1.0, 1.0, 0.5, 1.5, 1e30])

    def mode(ones, zeros):
        with tf.GradientTape() as tape:
            tape.watch([ones, zeros])
            mode = beta.Beta(ones, zeros).mode()
        return mode, *tape.gradient(mode, [ones, zeros])

    got = (tf.function(mode, jit_compile=True) if jit else mode)(ones, zeros)
    np.testing.assert_allclose(got[0], [2 / 3, 0, 0, 1, 1, 1, 0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(got[1], [1 / 9, *[0] * 7], atol=1e-6)
    np.testing.assert_allclose(got[2], [-2 / 9, *[0] * 7], atol=1e-6)


CONCENTRATIONS = {
    "uniform": (1.0, 1.0),
    "u-shaped": (0.5, 0.3),
    "near the bounds": (0.01, 0.02),
    "one great": (2.0, 5000.0),
    "both great": (2000.0, 3000.0),
}


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_draws(jit):
    pairs = tf.constant([*CONCENTRATIONS.values()])

    @tf.function(jit_compile=jit)
    def sample():
        dist = beta.DiagMultivariateBeta(pairs[:, 0], pairs[:, 1])
        return dist.sample(20_000, seed=SEED)

    draws = sample().numpy()
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


@pytest.mark.parametrize(
    "dtype", [tf.float32, pytest.param(tf.float64, marks=pytest.mark.slow)]
)
def test_draws_of_small_concentrations_have_finite_gradients(dtype):
    powers = tf.constant(10.0 ** -np.arange(1.0, 31.0), dtype)
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
    ups = (draws[:, 12, 9] > 0.5).numpy()
    assert ups.mean() > 0.9
    assert np.any(draws[:, 9, 9] > 0.5)
    assert np.any(draws[:, 9, 9] < 0.5)


def test_clipping():
    dist = beta.Beta(0.1, 0.1, eps=0.01)
    draws = dist.sample(1000, seed=SEED).numpy()
    assert (draws.min(), draws.max()) == (np.float32(0.01), np.float32(0.99))
    assert beta.DiagMultivariateBeta([0.1], [0.1], eps=0.01).sample(
        1000, seed=SEED
    ).numpy().min() == np.float32(0.01)
    with tf.GradientTape() as tape:
        tape.watch(dist.concentration1)
        draws = dist.sample(1000, seed=SEED)
        clipped = tf.reduce_sum(tf.where((draws > 0.01) & (draws < 0.99), 0.0, draws))
    assert float(tape.gradient(clipped, dist.concentration1)) == 0.0


GRADIENTS = [0.003, 0.3, 1.0, 2.5, 30.0, 800.0, 1200.0, 3e4, 1e6]


@pytest.mark.parametrize(
    ("dtype", "jit", "tolerance"),
    [("float64", False, 3e-5), ("float32", False, 1e-4), ("float32", True, 1e-4)],
    ids=["float64", "float32", "float32-xla"],
)
def test_gradients_of_draws_are_those_of_quantiles(dtype, jit, tolerance):
    # The draw of a gamma variable moves along a quantile: d x / d a = -(dF/da) / p(x).
    @tf.function(jit_compile=jit)
    def rates(concentration, log_draw):
        return beta._log_gamma_rate(concentration, log_draw)

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
    ones = tf.ones([4, 1, 3], dtype)
    zeros = tf.ones([2, 3], dtype)
    dist = beta.DiagMultivariateBeta(ones, zeros, eps=0.01, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == (dtype, [4, 2], [3])
    assert dist.sample(5, seed=SEED).dtype == dtype
    assert dist.sample(5, seed=SEED).shape == [5, 4, 2, 3]
    assert dist[1:, 0].batch_shape == [3]
    copied = dist.copy(concentration1=ones[0])
    assert (type(copied), copied.batch_shape) == (type(dist), [2])
    assert copied.parameters["eps"] == 0.01
    assert float(tf.reduce_min(dist[0].copy().sample(1000, seed=SEED))) >= 0.0099
    assert beta.Beta(1.0, 1.0, 0.1)[...].parameters["eps"] == 0.1
    given = tf.constant([1.0, 2.0])
    assert beta.Beta(given, given).concentration1 is given


def test_default_margin_is_the_dtypes():
    draws = beta.Beta(tf.constant(1e-3, tf.float64), 1e-3).sample(100, seed=SEED)
    low, high = float(tf.reduce_min(draws)), float(tf.reduce_max(draws))
    assert (low, high) == (np.finfo(float).eps, 1 - np.finfo(float).eps)


def test_crosses_function_boundaries():
    @tf.function
    def wider(dist):
        return beta.Beta(dist.concentration1 + 1.0, dist.concentration0, eps=0.1), dist

    for ones in (1.0, 2.0):
        dist, same = wider(beta.Beta(ones, 3.0, eps=0.2))
        np.testing.assert_allclose(dist.concentration1, ones + 1)
        assert [dist.parameters["eps"], same.parameters["eps"]] == [0.1, 0.2]
    assert wider.experimental_get_tracing_count() == 1


def test_kl_against_integration():
    one, other = beta.Beta(2.0, 3.0), beta.Beta(4.0, 1.5)
    x = (np.arange(100_000) + 0.5) / 100_000
    p, q = scipy.stats.beta(2, 3), scipy.stats.beta(4, 1.5)
    expected = np.mean(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)))
    np.testing.assert_allclose(tfd.kl_divergence(one, other), expected, rtol=1e-4)


BAD = {"zero": 0.0, "negative": -1.0, "nan": np.nan, "one of two": [1.0, -1.0]}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_concentrations_must_be_positive(value):
    with pytest.raises(
        ValueError, match="`Beta`: `concentration1` expected numbers > 0"
    ):
        beta.Beta(value, 1.0)
    with pytest.raises(
        ValueError, match="`Beta`: `concentration0` expected numbers > 0"
    ):
        beta.DiagMultivariateBeta([1.0, 1.0], tf.constant(value))


@pytest.mark.parametrize("eps", [0.0, -0.1, 1e-9, 0.6])
def test_margin_must_be_useful(eps):
    with pytest.raises(ValueError, match="`Beta`: `eps` expected numbers in"):
        beta.Beta(1.0, 1.0, eps)


def test_other_errors():
    where = "`DiagMultivariateBeta`: "
    with pytest.raises(ValueError, match=f"{where}`concentration1` expected rank"):
        beta.DiagMultivariateBeta(1.0, 1.0)
    with pytest.raises(ValueError, match="`Beta`: `concentration0` expected a shape"):
        beta.Beta([1.0, 1.0], [1.0, 1.0, 1.0])
