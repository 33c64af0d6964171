"""Clipped distributions: what is at the bounds, between and beyond them."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
import tensorflow_probability as tfp
from refusals import bad

from tfrl import distributions

tfd = tfp.distributions


def normal_cdf(x, loc, scale):
    return 0.5 * math.erfc(-(x - loc) / scale / math.sqrt(2))


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_by_hand(mode):
    loc, scale, low, high = 0.3, 0.8, -0.5, 1.5

    def log_prob(values):
        base = tfd.Normal(np.float64(loc), np.float64(scale))
        return distributions.Clipped(base, low, high).log_prob(values)

    run = tf.function(log_prob, jit_compile=True) if mode == "xla" else log_prob
    found = run(tf.constant([-9.0, low, 0.0, 1.4, high, 1.6], tf.float64))
    density = [
        math.exp(-0.5 * ((x - loc) / scale) ** 2) / scale / math.sqrt(2 * math.pi)
        for x in (0.0, 1.4)
    ]
    below, above = normal_cdf(low, loc, scale), 1 - normal_cdf(high, loc, scale)
    np.testing.assert_allclose(np.exp(found), [0, below, *density, above, 0])


def test_bounds_far_from_a_cauchy_have_a_mass():
    loc = tf.constant([-1e7, 1e5])
    with tf.GradientTape() as tape:
        tape.watch(loc)
        base = distributions.StableCauchy(loc, 1.0)
        log_prob = distributions.Clipped(base, -1.0, 1.0).log_prob([1.0, -1.0])
    np.testing.assert_allclose(log_prob, [-17.262825, -12.657665], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(log_prob, loc), [1e-7, -1e-5], rtol=1e-4)


@pytest.mark.parametrize("kind", [tfd.Normal, tfd.Laplace, distributions.StableCauchy])
def test_everything_adds_up_to_1(kind):
    base = kind(tf.constant([-2.0, 0.0, 3.0], tf.float64), np.float64(0.7))
    dist = distributions.Clipped(base, -1.0, [0.5, 1.0, 2.0])
    edges = np.linspace(-1.0, [0.5, 1.0, 2.0], 20_001)
    between = np.exp(dist.log_prob((edges[1:] + edges[:-1]) / 2))
    total = np.sum(between * (edges[1:] - edges[:-1]), axis=0)
    total += np.exp(dist.log_prob(edges[0])) + np.exp(dist.log_prob(edges[-1]))
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


def test_draws_are_clipped_as_often_as_it_says():
    base = tfd.Normal([0.0, 2.0], 1.0)
    dist = distributions.Clipped(base, -1.0, 1.0)
    draws = dist.sample(20_000, seed=[1, 2]).numpy()
    assert draws.min() == -1.0 and draws.max() == 1.0
    for bound in (-1.0, 1.0):
        share = np.mean(draws == bound, axis=0)
        np.testing.assert_allclose(share, np.exp(dist.log_prob(bound)), atol=0.015)
    drawn, log_prob = dist.experimental_sample_and_log_prob(100, seed=[3, 4])
    np.testing.assert_allclose(log_prob, dist.log_prob(drawn), rtol=1e-6)
    np.testing.assert_array_equal(dist.mode(), [0.0, 1.0])


def test_gradients_of_scores_are_those_of_differences():
    values = tf.constant([-1.0, -0.2, 0.9, 1.0, 1.0], tf.float64)

    def log_prob(loc, scale):
        return distributions.Clipped(tfd.Normal(loc, scale), -1.0, 1.0).log_prob(values)

    given = [tf.constant(0.3, tf.float64), tf.constant(0.6, tf.float64)]
    theory, measured = tf.test.compute_gradient(log_prob, given, delta=1e-5)
    for one, other in zip(theory, measured, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_clipped_has_no_gradient():
    loc = tf.constant([0.0, 50.0])
    with tf.GradientTape() as tape:
        tape.watch(loc)
        dist = distributions.Clipped(tfd.Normal(loc, 0.1), -1.0, 1.0)
        draw = dist.sample(seed=[1, 2])
    assert dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    np.testing.assert_array_equal(tape.gradient(draw, loc), [1.0, 0.0])


@pytest.mark.parametrize("bounds", [(-np.inf, 1.0), (-1.0, np.inf), (-np.inf, np.inf)])
def test_an_infinite_bound_is_none(bounds):
    base = tfd.Normal(0.0, 1.0)
    loc = tf.constant(0.0)
    with tf.GradientTape() as tape:
        tape.watch(loc)
        dist = distributions.Clipped(tfd.Normal(loc, 1.0), *bounds)
        found = dist.log_prob([-0.5, 0.0, 0.5])
    np.testing.assert_allclose(found, base.log_prob([-0.5, 0.0, 0.5]))
    np.testing.assert_allclose(tape.gradient(found, loc), 0.0, atol=1e-6)
    for bound, value in zip(bounds, (-9.0, 9.0), strict=True):
        beyond = float(dist.log_prob(value))
        assert beyond == (-np.inf if np.isfinite(bound) else base.log_prob(value))


def test_actions_of_several_numbers():
    base = distributions.Clipped(tfd.Normal(tf.zeros([5, 2]), 1.0), -1.0, [0.5, 2.0])
    dist = tfd.Independent(base, 1)
    assert (dist.batch_shape, dist.event_shape) == ([5], [2])
    value = dist.sample(seed=[1, 2])
    np.testing.assert_allclose(
        dist.log_prob(value), tf.reduce_sum(base.log_prob(value), axis=-1), rtol=1e-6
    )


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_distribution_function(jit):
    loc, scale, low, high = 0.3, 0.8, -0.5, 1.5
    values = tf.constant([-0.6, low, 0.0, 1.4, high, 1.6], tf.float64)

    @tf.function(jit_compile=jit)
    def cdf(loc):
        with tf.GradientTape() as tape:
            tape.watch(loc)
            dist = distributions.Clipped(tfd.Normal(loc, scale), low, high)
            found = dist.cdf(values)
        return found, tape.jacobian(found, loc), dist.log_cdf(values)

    found, slopes, logs = cdf(tf.constant(loc, tf.float64))
    inside = [normal_cdf(x, loc, scale) for x in (low, 0.0, 1.4)]
    np.testing.assert_allclose(found, [0, *inside, 1, 1], rtol=1e-12)
    np.testing.assert_allclose(np.exp(logs), found, rtol=1e-12)
    inside = [
        -math.exp(-0.5 * ((x - loc) / scale) ** 2) / scale / math.sqrt(2 * math.pi)
        for x in (low, 0.0, 1.4)
    ]
    np.testing.assert_allclose(slopes, [0, *inside, 0, 0], rtol=1e-12)
    free = distributions.Clipped(tfd.Normal(0.0, 1.0), -np.inf, np.inf)
    np.testing.assert_allclose(free.cdf([-9.0, 0.0, 9.0]), [0, 0.5, 1], atol=1e-6)


def test_distribution_function_far_off():
    dist = distributions.Clipped(tfd.Normal(50.0, 1.0), -1.0, 1.0)
    assert float(dist.log_cdf(-1.0)) == float(dist.log_prob(-1.0)) < -1000.0
    wide = distributions.Clipped(tfd.Normal(0.0, 1.0), -20.0, 20.0)
    np.testing.assert_allclose(wide.survival_function(5.0), 2.8665e-7, rtol=1e-4)
    np.testing.assert_allclose(wide.log_survival_function(5.0), -15.065, rtol=1e-4)
    assert wide.survival_function([-21.0, 20.0]).numpy().tolist() == [1.0, 0.0]


BASES = {
    "normal": lambda loc: tfd.Normal(loc, 0.75),
    "t": lambda loc: tfd.StudentT(4.0, loc, tf.Variable(0.75, dtype=loc.dtype)),
    "cauchy": lambda loc: distributions.StableCauchy(loc, 0.75),
    "nested": lambda loc: tfd.TransformedDistribution(
        tfd.Laplace(tf.zeros([], loc.dtype), 0.75), tfp.bijectors.Shift(loc)
    ),
}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes(base, dtype):
    def run(dtype):
        loc, values = tf.constant(0.25, dtype), tf.constant([-2, -1, 0.5, 1, 2], dtype)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(loc)
            dist = distributions.Clipped(base(loc), -1.0, 1.0)
            found = dist.log_prob(values), dist.cdf(values)
        return *found, *(tape.gradient(x, loc) for x in found)

    for found, expected in zip(run(dtype), run("float32"), strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(
            tf.cast(found, tf.float32), expected, rtol=0.03, atol=0.03
        )


NORMAL = tfd.Normal([0.0, 1.0], 1.0)


@refusals.table(
    (
        distributions.Clipped,
        bad(TypeError, "distribution", None, -1.0, 1.0),
        bad(TypeError, "distribution", tfd.Categorical([0.0, 1.0]), -1.0, 1.0),
        bad(ValueError, "distribution", tfd.Independent(NORMAL, 1), -1.0, 1.0),
        bad(ValueError, "high", NORMAL, 1.0, 1.0),
        bad(ValueError, "low", NORMAL, [-1.0, -1.0, -1.0], 1.0),
        bad(TypeError, "low", NORMAL, None, 1.0),
    ),
    (distributions.Clipped(NORMAL, -1.0, 1.0).log_prob, bad(TypeError, "value", "a")),
)
def test_errors(row):
    row()
