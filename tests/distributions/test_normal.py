"""Tests of `tfrl.distributions.normal`."""

import confidence
import golden_distributions
import golden_io
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import normal

SEED = [3, 7]
CASES = golden_distributions.load(["DiagMultivariateNormal"])


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, mode):
    golden_distributions.check(case, mode)


def test_by_hand():
    dist = normal.DiagMultivariateNormal([0.0, 1.0], [1.0, 2.0])
    # exp(-1/2) / sqrt(2 pi) * exp(-1/2) / (2 sqrt(2 pi))
    np.testing.assert_allclose(dist.prob([1.0, 3.0]), np.exp(-1) / (4 * np.pi), 1e-6)
    expected = np.log(2 * np.pi * np.e) + np.log(2.0)
    np.testing.assert_allclose(dist.entropy(), expected, 1e-6)
    np.testing.assert_array_equal(dist.mean(), [0.0, 1.0])
    np.testing.assert_array_equal(dist.mode(), [0.0, 1.0])
    np.testing.assert_array_equal(dist.loc, [0.0, 1.0])
    np.testing.assert_array_equal(dist.scale, [1.0, 2.0])
    np.testing.assert_array_equal(dist.stddev(), [1.0, 2.0])
    np.testing.assert_array_equal(dist.variance(), [1.0, 4.0])


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_draws(jit):
    dist = normal.DiagMultivariateNormal(tf.constant([1.0, -5.0]), [2.0, 0.1])

    @tf.function(jit_compile=jit)
    def sample(dist):
        with tf.GradientTape() as tape:
            tape.watch(dist.scale)
            draws = dist.sample(50_000, seed=SEED)
        return draws, tape.gradient(draws, dist.scale)

    draws, gradient = sample(dist)
    for i, true in enumerate([scipy.stats.norm(1, 2), scipy.stats.norm(-5, 0.1)]):
        confidence.assert_cdf(draws[:, i], true.cdf)
        noise = (draws.numpy()[:, i] - true.mean()) / true.std()
        np.testing.assert_allclose(gradient[i], noise.sum(), rtol=1e-3, atol=0.05)


def test_density_integrates_to_one():
    x = np.linspace(-40.0, 40.0, 100_001)
    density = normal.Normal(tf.constant(0.5, tf.float64), 2.0).prob(x)
    np.testing.assert_allclose(np.trapezoid(density, x), 1.0, 1e-12)


GRID = [0.0, 1e-30, 1e-19, 1e-3, 1.0, 7.0, 1e4, 1e19, 1e30]


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "xla"])
def test_extremes(jit):
    points = [*GRID, *(-x for x in GRID[1:])]
    grid = np.meshgrid(points, points, GRID[1:], indexing="ij")
    x, loc, scale = (tf.constant(part.ravel(), tf.float32) for part in grid)

    def everything(x, loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([x, loc, scale])
            log_prob = normal.Normal(loc, scale).log_prob(x)
        return log_prob, *tape.gradient(log_prob, [x, loc, scale])

    function = tf.function(everything, jit_compile=True) if jit else everything
    results = function(x, loc, scale)
    rise = (x - loc).numpy().astype(np.float64)
    scale = scale.numpy().astype(np.float64)
    z = rise / scale
    expected = [
        -(z**2) / 2 - np.log(scale) - np.log(2 * np.pi) / 2,
        -z / scale,
        z / scale,
        (z**2 - 1) / scale,
    ]
    for got, exact in zip(results, expected, strict=True):
        got = got.numpy()
        largest = np.abs(np.where(z**2 > 1e37, np.inf, exact))
        fits = largest < 1e37
        assert fits.mean() > 0.4
        scaled = np.abs(got[fits] - exact[fits]) <= 1e-5 * np.abs(exact[fits]) + 1e-36
        # 1 of z^2 - 1 may be lost beside z^2.
        lost = np.abs(got - exact)[fits] <= 2e-6 * (z**2 + 1)[fits] / scale[fits]
        assert np.all(scaled | lost)
        assert not np.isnan(got).any()


def test_accurate_far_from_zero():
    # TFP's formula loses three digits here.
    log_prob = normal.Normal(1000.0, 1e-3).log_prob(np.float32(1000.001))
    z = (float(np.float32(1000.001)) - 1000.0) / 1e-3
    np.testing.assert_allclose(
        log_prob, scipy.stats.norm.logpdf(z) + np.log(1e3), rtol=1e-5
    )


def test_gradients_against_differences():
    loc, scale, x = (tf.constant(v, tf.float64) for v in ([0.3, -2.0], [0.7, 3.0], 1.1))

    def log_prob(loc, scale, x):
        return normal.DiagMultivariateNormal(loc, scale).log_prob(
            x + tf.zeros([2], x.dtype)
        )

    exact, numeric = tf.test.compute_gradient(log_prob, [loc, scale, x], 1e-5)
    for one, other in zip(exact, numeric, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_zero_scale():
    dist = normal.DiagMultivariateNormal([1.0, 2.0], [0.0, 0.0])
    np.testing.assert_array_equal(dist.sample(3, seed=SEED), [[1.0, 2.0]] * 3)
    assert np.isneginf(dist.entropy())


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_dtype_batch_and_copies(dtype):
    loc = tf.zeros([4, 1, 3], dtype)
    scale = tf.ones([2, 3], dtype)
    dist = normal.DiagMultivariateNormal(loc, scale, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == (dtype, [4, 2], [3])
    draws, log_probs = dist.experimental_sample_and_log_prob(5, seed=SEED)
    assert (draws.dtype, log_probs.dtype, log_probs.shape) == (dtype, dtype, [5, 4, 2])
    np.testing.assert_allclose(dist.log_prob(draws), log_probs)
    assert dist[1:, 0].batch_shape == [3]
    assert type(dist.copy(loc=loc[0])) is type(dist)
    assert dist.copy(loc=loc[0]).batch_shape == [2]
    assert dist.copy().parameters["validate_args"]


def test_copies_and_slices_of_the_scalar_distribution():
    dist = normal.Normal([1.0, 2.0], 3.0)
    np.testing.assert_array_equal(dist.copy(loc=5.0).mean(), 5.0)
    np.testing.assert_array_equal(dist[1].mean(), 2.0)
    assert type(dist.copy()) is normal.Normal


def test_crosses_function_boundaries():
    @tf.function
    def shifted(dist):
        return normal.DiagMultivariateNormal(dist.loc + 1.0, dist.scale)

    for loc in ([1.0, 2.0], [3.0, 4.0]):
        dist = shifted(normal.DiagMultivariateNormal(loc, [1.0, 1.0]))
        assert isinstance(dist, normal.DiagMultivariateNormal)
        assert isinstance(dist.distribution, normal.Normal)
        np.testing.assert_array_equal(dist.mode(), np.array(loc) + 1)
    assert shifted.experimental_get_tracing_count() == 1


def test_kl():
    one = normal.DiagMultivariateNormal([0.0, 0.0], [1.0, 1.0])
    other = normal.DiagMultivariateNormal([0.0, 3.0], [1.0, 2.0])
    expected = np.log(2.0) + (1 + 9) / 8 - 0.5
    got = tfp.distributions.kl_divergence(one, other)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_variables_stay_connected():
    scale = tf.Variable([1.0, 2.0])
    dist = normal.DiagMultivariateNormal([0.0, 0.0], scale)
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob([0.0, 0.0])
    np.testing.assert_allclose(tape.gradient(log_prob, scale), [-1.0, -0.5])


@pytest.mark.parametrize(
    "scale", [-1.0, np.nan, [1.0, -1.0], tf.constant(-1.0)], ids=str
)
def test_scale_must_not_be_negative(scale):
    with pytest.raises(ValueError, match="`Normal`: `scale` expected numbers in"):
        normal.Normal(0.0, scale)


def test_known_constants_are_checked_in_graphs():
    @tf.function
    def build():
        return normal.DiagMultivariateNormal([0.0], tf.constant([-1.0])).mean()

    with pytest.raises(ValueError, match="`Normal`: `scale` expected numbers in"):
        build()


def test_other_errors():
    with pytest.raises(
        ValueError, match="`DiagMultivariateNormal`: `loc` expected rank"
    ):
        normal.DiagMultivariateNormal(0.0, 1.0)
    with pytest.raises(ValueError, match="`Normal`: `scale` expected a shape"):
        normal.DiagMultivariateNormal([0.0, 1.0], [1.0, 1.0, 1.0])
    dist = normal.Normal(0.0, tf.Variable(-1.0), validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
        dist.log_prob(0.0)
