"""Tests of `tfrl.distributions._draws`."""

import confidence
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _draws

SEED = np.array([3, 7], np.int32)
CONCENTRATIONS = [0.05, 0.6, 0.99, 1.0, 1.5, 30.0, 1e4, 1e7]


def all_three(seed=SEED, n_draws=50_000):
    a = tf.constant(CONCENTRATIONS, tf.float64)
    return (
        _draws.normal([n_draws], seed, tf.float32),
        _draws.uniform([n_draws], seed, tf.float32),
        _draws.log_gamma(a, [n_draws, len(CONCENTRATIONS)], seed),
    )


@pytest.fixture(scope="module")
def draws():
    return [draw.numpy() for draw in all_three()]


def test_normal_and_uniform_distributions(draws):
    normal, uniform, _ = draws
    confidence.assert_cdf(normal, scipy.stats.norm.cdf)
    confidence.assert_cdf(uniform, lambda x: x)
    assert 0 < uniform.min() < uniform.max() < 1


def test_gamma_distributions(draws):
    for index, a in enumerate(CONCENTRATIONS):
        logs = draws[2][:, index]
        # The distribution function of a tiny x is x^a / Gamma(a + 1).
        confidence.assert_cdf(
            logs,
            lambda log_x, a=a: np.where(
                log_x < -40,
                np.exp(np.minimum(a * log_x, 0) - scipy.special.gammaln(a + 1)),
                scipy.special.gammainc(a, np.exp(log_x)),
            ),
        )


def test_gamma_draws_of_a_step_do_not_depend_on_each_other(draws):
    logs = draws[2]
    ranks = scipy.stats.rankdata(logs, axis=0) / len(logs)
    for other in (draws[0], draws[1], np.roll(ranks[:, 3], 1)):
        for index in range(len(CONCENTRATIONS)):
            correlation = np.corrcoef(ranks[:, index], other)[0, 1]
            assert abs(correlation) < 5.5 / np.sqrt(len(logs))


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_equal_wherever_they_are_drawn(jit, draws):
    @tf.function(jit_compile=jit)
    def run(seed):
        return all_three(seed)

    normal, uniform, log_gamma = run(tf.constant(SEED))
    np.testing.assert_array_equal(uniform, draws[1])
    np.testing.assert_allclose(normal, draws[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_gamma, draws[2], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(dtype):
    normal = _draws.normal([1001], SEED, tf.as_dtype(dtype))
    uniform = _draws.uniform([1001], SEED, tf.as_dtype(dtype))
    assert normal.dtype == uniform.dtype == dtype
    for draw, cdf in ((normal, scipy.stats.norm.cdf), (uniform, lambda x: x)):
        draw = tf.cast(draw, tf.float64).numpy()
        step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
        spread = step * np.maximum(np.abs(draw), 1)
        below = np.argsort(np.argsort(draw - spread)) / 1001
        margin = confidence.cdf_margin(1001) + 2 * step
        assert np.all(np.abs(cdf(draw) - below) < margin + 4 / 1001 + 3 * spread)
    assert 0 < float(tf.reduce_min(uniform)) < float(tf.reduce_max(uniform)) < 1


def test_shapes_known_or_not():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def run(shape):
        return _draws.normal(shape, 7, tf.float32)

    for shape in ([], [0], [3, 0], [5], [2, 3]):
        expected = _draws.normal(shape, 7, tf.float32)
        assert expected.shape == shape
        np.testing.assert_array_equal(run(np.array(shape, np.int32)), expected)
        assert _draws.log_gamma(tf.constant(2.0), shape, 7).shape == shape
    static = tf.function(lambda: _draws.uniform([2, 3], 7, tf.float32))
    assert static.get_concrete_function().output_shapes == [2, 3]


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=["float32", "float64"])
def test_extreme_bits(dtype, jit, monkeypatch):
    def bits(shape, key, counter, alg, dtype):
        del shape, key, counter, alg
        # The sign alone, all but the sign, no bit, all.
        return tf.constant([[dtype.min, dtype.max], [0, -1]], dtype)

    monkeypatch.setattr(tf.raw_ops, "StatelessRandomUniformFullIntV2", bits)
    draw = tf.function(
        lambda draw: draw([4], SEED, dtype), jit_compile=jit, autograph=False
    )
    least = np.finfo(dtype.as_numpy_dtype).epsneg
    expected = [least, 1 - least, 0.5 + least, 0.5 - least]
    np.testing.assert_array_equal(draw(_draws.uniform), expected)
    far, near = scipy.special.ndtri(least), scipy.special.ndtri(0.5 + least)
    expected = [far, -far, near, -near]
    np.testing.assert_allclose(draw(_draws.normal), expected, rtol=1e-6)


def test_gammas_without_end_or_number():
    a = tf.constant([np.nan, np.inf, 1e-30, 1e30])
    with tf.GradientTape() as tape:
        tape.watch(a)
        logs = _draws.log_gamma(a, [100, 4], SEED)
    assert tape.gradient(logs, a) is None
    assert np.isnan(logs[:, 0]).all()
    assert np.isposinf(logs[:, 1]).all()
    assert np.isfinite(logs[:, 2:]).all()


def test_seeds():
    def draw(seed):
        return _draws.normal([50], seed, tf.float32).numpy()

    sanitized = tfp.random.sanitize_seed([1, 2])
    for seed in (5, SEED, tf.constant(SEED), tf.constant(-(2**40)), sanitized):
        np.testing.assert_array_equal(draw(seed), draw(seed))
        np.testing.assert_array_equal(draw(lambda seed=seed: seed), draw(seed))
    assert not np.any(draw(None) == draw(None))
    # Numbers of neighbouring seeds, in either half, have nothing in common.
    seeds = [[low, high] for low in range(40) for high in range(-2, 3)]
    many = np.stack([draw(seed) for seed in seeds])
    correlations = np.corrcoef(many)[np.triu_indices(len(seeds), 1)]
    assert np.abs(correlations).max() < 6.5 / np.sqrt(50)


def test_a_generator_of_the_same_seed_has_other_bits():
    generator = tf.random.Generator.from_seed(5, alg="philox")
    others = generator.uniform_full_int([200], tf.int32).numpy()
    draws = _draws.uniform([200], 5, tf.float64).numpy()
    high = np.floor(draws * 2.0**32).astype(np.int64) - 2**31
    assert np.intersect1d(others, high).size == 0
    assert np.intersect1d(generator.uniform([200], dtype=tf.float64), draws).size == 0
