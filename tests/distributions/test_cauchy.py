"""Tests of `tfrl.distributions.cauchy`."""

import confidence
import golden_distributions
import golden_io
import modes
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import draws as random_draws
from tfrl.distributions import cauchy

SEED = [3, 7]
CLASSES = ("StableCauchy", "DiagMultivariateCauchy")
INJECTED = golden_distributions.load(CLASSES, "injected")


@golden_distributions.cases(CLASSES)
def test_golden(case, mode):
    golden_distributions.check(case, mode)


@golden_distributions.draws(CLASSES)
def test_golden_draws(case):
    golden_distributions.check_draws(case)


@pytest.mark.parametrize("case", INJECTED, ids=golden_io.ids(INJECTED))
def test_golden_draws_of_given_noise(case, monkeypatch):
    given, expected = case["in"], case["out"]
    noise = tf.constant(given["u"])

    def uniform(shape, seed, dtype):
        return tf.cast(tf.reshape(noise, shape), dtype)

    monkeypatch.setattr(random_draws, "uniform", uniform)
    loc, scale = tf.constant(given["loc"]), tf.constant(given["scale"])
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        dist = cauchy.StableCauchy(loc, scale)
        shape = noise.shape[: noise.shape.rank - dist.batch_shape.rank]
        draws = dist.sample(shape, clipping_value=given["clipping_value"])
    gradients = tape.gradient(draws, [loc, scale])
    names = ("sample", "dloc", "dscale")
    for name, got in zip(names, [draws, *gradients], strict=True):
        np.testing.assert_allclose(got, expected[name], **case["tol"])


def test_by_hand():
    dist = cauchy.DiagMultivariateCauchy([0.0, 1.0], [1.0, 2.0])
    # 1 / (pi (1 + 1)) * 1 / (2 pi)
    np.testing.assert_allclose(dist.prob([1.0, 1.0]), 0.25 / np.pi**2, rtol=1e-6)
    np.testing.assert_allclose(dist.entropy(), 2 * np.log(4 * np.pi) + np.log(2.0))
    assert np.isnan(dist.mean()).all()
    assert np.isposinf(dist.variance()).all()
    np.testing.assert_array_equal(dist.loc, [0.0, 1.0])
    np.testing.assert_array_equal(dist.scale, [1.0, 2.0])


@pytest.mark.parametrize("clipping_value", [0.49, 0.25, 0.5])
def test_draws_are_clipped_quantiles(clipping_value):
    dist = cauchy.StableCauchy(tf.constant(1.0), tf.constant(2.0))
    draws = dist.sample(50_000, seed=SEED, clipping_value=clipping_value).numpy()
    reach = 2.0 * np.tan(np.pi * min(clipping_value, 0.4999999))
    assert np.abs(draws - 1.0).max() <= reach * (1 + 1e-5)
    true = scipy.stats.cauchy(1.0, 2.0)
    # The ends' masses are rounded to the last digit or two of the bound.
    low, high = 1.0 - reach * (1 - 1e-5), 1.0 + reach * (1 - 1e-5)

    def cdf(x):
        return np.where(
            x < low, 0.5 - clipping_value, np.where(x > high, 1, true.cdf(x))
        )

    def cdf_below(x):
        upper = 0.5 + clipping_value
        return np.where(x < low, 0, np.where(x > high, upper, true.cdf(x)))

    confidence.assert_cdf(draws, cdf, cdf_below)


GRID = [0.0, 1e-38, 1e-19, 1e-5, 1.0, 3.0, 1e5, 1e19, 1e30]


def test_extremes_under_xla():
    points = [*GRID, *(-x for x in GRID[1:])]
    grid = np.meshgrid(points, points, GRID[2:], indexing="ij")
    x, loc, scale = (tf.constant(part.ravel(), tf.float32) for part in grid)

    @tf.function(jit_compile=True)
    def everything(x, loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([x, loc, scale])
            log_prob = cauchy.StableCauchy(loc, scale).log_prob(x)
        return log_prob, tape.gradient(log_prob, [x, loc, scale])

    log_prob, gradients = everything(x, loc, scale)
    wide = [part.numpy().astype(np.float64) for part in (x, loc, scale)]
    x, loc, scale = wide
    distance = (x - loc).astype(np.float32).astype(np.float64)
    square = scale**2 + distance**2
    np.testing.assert_allclose(
        log_prob, np.log(scale / np.pi / square), rtol=2e-6, atol=1e-5
    )
    slope = 2 * distance / square
    for got, expected in zip(
        gradients, [-slope, slope, 1 / scale - 2 * scale / square], strict=True
    ):
        size = np.maximum(np.abs(expected), 1 / scale)
        assert np.all(np.abs(got - expected) <= 1e-5 * size + 1e-37)


MASSES = ("cdf", "log_cdf", "survival_function", "log_survival_function")


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_masses_keep_their_digits_far_out(mode):
    x = np.array([-1e30, -1e7, -3.0, -1e-3, 0.0, 0.1, 1e7, 1e30, -np.inf, np.inf])

    def masses(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            found = [getattr(cauchy.StableCauchy(0.0, 2.0), name)(x) for name in MASSES]
        return found, [tape.gradient(each, x) for each in found]

    values, slopes = modes.run(mode, masses, tf.constant(x, tf.float32))
    true = scipy.stats.cauchy(0.0, 2.0)
    for value, name in zip(values, ("cdf", "logcdf", "sf", "logsf"), strict=True):
        expected = getattr(true, name)(np.float32(x).astype(float))
        np.testing.assert_allclose(value[:8], expected[:8], rtol=1e-6)
    ends = [[0.0, 1.0], [-np.inf, 0.0], [1.0, 0.0], [0.0, -np.inf]]
    np.testing.assert_allclose([value[8:] for value in values], ends, atol=1e-30)
    assert np.isfinite(slopes).all()
    np.testing.assert_allclose(slopes[1][1], 1e-7, rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_dtype_batch_and_copies(dtype):
    loc, scale = tf.zeros([4, 1, 3], dtype), tf.ones([2, 3], dtype)
    dist = cauchy.DiagMultivariateCauchy(loc, scale, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == (dtype, [4, 2], [3])
    assert dist.sample(5, seed=SEED).dtype == dtype
    assert dist[1:, 0].batch_shape == [3]
    copied = dist.copy(loc=loc[0])
    assert (type(copied), copied.batch_shape) == (type(dist), [2])
    assert copied.parameters["validate_args"]
    scalar = cauchy.StableCauchy([1.0, 2.0], 3.0)
    np.testing.assert_array_equal(scalar.copy(loc=5.0).mode(), 5.0)
    np.testing.assert_array_equal(scalar[1].mode(), 2.0)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_densities_of_narrow_dtypes(dtype, jit):
    loc, scale, x = (tf.constant(v, dtype) for v in ([1.0], 0.5, [-200.0, 1.0, 1.5]))

    @tf.function(jit_compile=jit)
    def log_prob(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            log_prob = cauchy.StableCauchy(loc, scale).log_prob(x)
        return log_prob, tape.gradient(log_prob, x)

    found, slope = log_prob(x)
    assert found.dtype == slope.dtype == dtype
    expected = scipy.stats.cauchy(1.0, 0.5).logpdf([-200.0, 1.0, 1.5])
    np.testing.assert_allclose(tf.cast(found, tf.float32), expected, rtol=0.01)
    np.testing.assert_allclose(tf.cast(slope, tf.float32), [2 / 201, 0, -2], rtol=0.01)
    of_scale = cauchy.StableCauchy.parameter_properties(dtype=dtype)["scale"]
    bijector = of_scale.default_constraining_bijector_fn()
    assert bijector.forward(tf.constant(-100.0, dtype)) > 0


def test_kl_of_independent_cauchys():
    one = cauchy.DiagMultivariateCauchy([0.0, 0.0], [1.0, 1.0])
    other = cauchy.DiagMultivariateCauchy([0.0, 3.0], [1.0, 2.0])
    expected = np.log(((1 + 2) ** 2 + 3**2) / (4 * 1 * 2))
    np.testing.assert_allclose(tfp.distributions.kl_divergence(one, other), expected)


@pytest.mark.parametrize(
    "scale", [0.0, -1.0, np.nan, [1.0, -1.0], tf.constant(-1.0)], ids=str
)
def test_scale_must_be_positive(scale):
    with pytest.raises(
        ValueError, match="`StableCauchy`: `scale` expected numbers > 0"
    ):
        cauchy.StableCauchy(0.0, scale)


def test_other_errors():
    with pytest.raises(
        ValueError, match="`DiagMultivariateCauchy`: `loc` expected rank"
    ):
        cauchy.DiagMultivariateCauchy(0.0, 1.0)
    with pytest.raises(ValueError, match="`StableCauchy`: `scale` expected a shape"):
        cauchy.StableCauchy([0.0, 1.0], [1.0, 1.0, 1.0])
    dist = cauchy.StableCauchy(0.0, 1.0)
    with pytest.raises(ValueError, match="`StableCauchy.sample`: `clipping_value`"):
        dist.sample(clipping_value=0.0)
    with pytest.raises(ValueError, match="`StableCauchy.sample`: `clipping_value`"):
        dist.sample(clipping_value=0.6)
