"""Tests of `tfrl.distributions.normal`, and of the draws of all families by it."""

import confidence
import golden_distributions
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import normal

SEED = np.array([3, 7], np.int32)
CLASSES = ["DiagMultivariateNormal"]


@golden_distributions.cases(CLASSES)
def test_golden(case, mode):
    golden_distributions.check(case, mode)


def test_by_hand():
    dist = normal.DiagMultivariateNormal([0.0, 1.0], [1.0, 2.0])
    # exp(-1/2) / sqrt(2 pi) * exp(-1/2) / (2 sqrt(2 pi))
    np.testing.assert_allclose(dist.prob([1.0, 3.0]), np.exp(-1) / (4 * np.pi), 1e-6)
    expected = np.log(2 * np.pi * np.e) + np.log(2.0)
    np.testing.assert_allclose(dist.entropy(), expected, 1e-6)
    for mean in (dist.mean(), dist.mode(), dist.loc):
        np.testing.assert_array_equal(mean, [0.0, 1.0])
    for deviation in (dist.scale, dist.stddev(), dist.variance() ** 0.5):
        np.testing.assert_array_equal(deviation, [1.0, 2.0])
    other = normal.DiagMultivariateNormal([0.0, 4.0], [1.0, 4.0])
    expected = np.log(2.0) + (4 + 9) / 32 - 0.5
    np.testing.assert_allclose(tfp.distributions.kl_divergence(dist, other), expected)


def test_accurate_far_from_zero():
    # TFP's formula loses three digits here.
    log_prob = normal.Normal(1000.0, 1e-3).log_prob(np.float32(1000.001))
    z = (float(np.float32(1000.001)) - 1000.0) / 1e-3
    np.testing.assert_allclose(
        log_prob, scipy.stats.norm.logpdf(z) + np.log(1e3), rtol=1e-5
    )


def test_zero_scale():
    dist = normal.DiagMultivariateNormal([1.0, 2.0], [0.0, 0.0])
    np.testing.assert_array_equal(dist.sample(3, seed=SEED), [[1.0, 2.0]] * 3)
    assert np.isneginf(dist.entropy())


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_dtype_batch_and_copies(dtype):
    loc, scale = tf.zeros([4, 1, 3], dtype), tf.ones([2, 3], dtype)
    dist = normal.DiagMultivariateNormal(loc, scale, validate_args=True)
    assert (dist.dtype, dist.batch_shape, dist.event_shape) == (dtype, [4, 2], [3])
    draws, log_probs = dist.experimental_sample_and_log_prob(5, seed=SEED)
    assert (draws.dtype, log_probs.dtype, log_probs.shape) == (dtype, dtype, [5, 4, 2])
    np.testing.assert_allclose(dist.log_prob(draws), log_probs)
    assert dist[1:, 0].batch_shape == [3]
    copied = dist.copy(loc=loc[0])
    assert (type(copied), copied.batch_shape) == (type(dist), [2])
    assert copied.parameters["validate_args"]
    scalar = normal.Normal([1.0, 2.0], 3.0)
    assert type(scalar.copy()) is type(scalar[1]) is normal.Normal
    np.testing.assert_array_equal(scalar.copy(loc=5.0).mean(), 5.0)
    np.testing.assert_array_equal(scalar[1].mean(), 2.0)
    # What TFP maps free numbers by stays above 0.
    properties = normal.Normal.parameter_properties(dtype)
    least = properties["scale"].default_constraining_bijector_fn().forward
    eps = np.finfo(dtype.as_numpy_dtype).eps
    np.testing.assert_allclose(least(tf.constant(-1e3, dtype)), eps, rtol=1e-6)


def test_variables_stay_connected():
    scale = tf.Variable([1.0, 2.0])
    dist = normal.DiagMultivariateNormal([0.0, 0.0], scale)
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob([0.0, 0.0])
    np.testing.assert_allclose(tape.gradient(log_prob, scale), [-1.0, -0.5])


@pytest.mark.parametrize("scale", [-1.0, np.nan, [1.0, -1.0], tf.constant(-1.0)])
def test_scale_must_not_be_negative(scale):
    with pytest.raises(ValueError, match="`Normal`: `scale` expected numbers in"):
        normal.Normal(0.0, scale)


def test_other_errors():
    make = normal.DiagMultivariateNormal
    with pytest.raises(ValueError, match="`DiagMultivariateNormal`: `loc` expected"):
        make(0.0, 1.0)
    with pytest.raises(ValueError, match="`Normal`: `scale` expected a shape"):
        make([0.0, 1.0], [1.0, 1.0, 1.0])
    with pytest.raises(TypeError, match="`Normal`: `loc` expected"):
        normal.Normal(None, 1.0)
    # Constants are known in graphs too; variables when they are read.
    with pytest.raises(ValueError, match="`Normal`: `scale` expected numbers in"):
        tf.function(lambda: make([0.0], tf.constant([-1.0])).mean())()
    dist = normal.Normal(0.0, tf.Variable(-1.0), validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
        dist.log_prob(0.0)


# The random numbers of all families.


def test_draws_are_equal_wherever_they_are_made():
    dist = normal.DiagMultivariateNormal(tf.constant([1.0, -5.0]), [2.0, 0.1])

    @tf.function(jit_compile=True)
    def sample(dist):
        with tf.GradientTape() as tape:
            tape.watch(dist.scale)
            draws = dist.sample(50_000, seed=SEED)
        return draws, tape.gradient(draws, dist.scale)

    draws, gradient = sample(dist)
    np.testing.assert_allclose(draws, dist.sample(50_000, seed=SEED), rtol=1e-4)
    for i, true in enumerate([scipy.stats.norm(1, 2), scipy.stats.norm(-5, 0.1)]):
        confidence.assert_cdf(draws[:, i], true.cdf)
        noise = (draws.numpy()[:, i] - true.mean()) / true.std()
        np.testing.assert_allclose(gradient[i], noise.sum(), rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_draws_of_narrow_dtypes(dtype):
    draws = normal.Normal(tf.zeros([1001], dtype), 1.0).sample(seed=SEED)
    assert draws.dtype == dtype
    draws = tf.cast(draws, tf.float64).numpy()
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    spread = step * np.maximum(np.abs(draws), 1)
    below = np.argsort(np.argsort(draws - spread)) / 1001
    margin = confidence.cdf_margin(1001) + 2 * step + 4 / 1001 + 3 * spread
    assert np.all(np.abs(scipy.special.ndtr(draws) - below) < margin)


def test_shapes_known_or_not():
    dist = normal.Normal(0.0, 1.0)
    signature = [tf.TensorSpec([None], tf.int32)]
    run = tf.function(lambda shape: dist.sample(shape, seed=7), signature)
    for shape in ([], [0], [3, 0], [5], [2, 3]):
        expected = dist.sample(shape, seed=7)
        assert expected.shape == shape
        np.testing.assert_array_equal(run(np.array(shape, np.int32)), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_bits(dtype, monkeypatch):
    def bits(shape, key, counter, alg, dtype):
        del shape, key, counter, alg
        # The sign alone, all but the sign, no bit, all.
        return tf.constant([[dtype.min, dtype.max], [0, -1]], dtype)

    monkeypatch.setattr(tf.raw_ops, "StatelessRandomUniformFullIntV2", bits)
    dist = normal.Normal(tf.zeros([4], dtype), 1.0)
    draws = tf.function(lambda: dist.sample(seed=SEED), autograph=False)()
    least = np.finfo(dtype).epsneg
    far, near = scipy.special.ndtri([least, 0.5 + least])
    np.testing.assert_allclose(draws, [far, -far, near, -near], rtol=1e-6)


def test_seeds():
    dist = normal.Normal(tf.zeros([50]), 1.0)

    def draw(seed):
        return dist.sample(seed=seed).numpy()

    sanitized = tfp.random.sanitize_seed([1, 2])
    for seed in (5, SEED, tf.constant(SEED), tf.constant(-(2**40)), sanitized):
        np.testing.assert_array_equal(draw(seed), draw(seed))
    assert not np.any(draw(None) == draw(None))
    # Numbers of neighbouring seeds, in either half, have nothing in common.
    seeds = [[low, high] for low in range(20) for high in range(-2, 3)]
    many = np.stack([draw(seed) for seed in seeds])
    correlations = np.corrcoef(many)[np.triu_indices(len(seeds), 1)]
    assert np.abs(correlations).max() < 6.5 / np.sqrt(50)
