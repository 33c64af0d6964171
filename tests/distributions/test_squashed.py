"""Tests of `tfrl.distributions.squashed`."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _draws, squashed

tfd = tfp.distributions

SEED = np.array([3, 7], np.int32)
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# name: batch shape, low, high
CASES = {
    "scalar": ([], -1.0, 1.0),
    "batch of scalars": ([5], 0.0, 3.0),
    "box": ([5], np.array([-1.0, 0.0, 10.0]), np.array([1.0, 5.0, 12.0])),
    "one bound for all": ([2, 4], -2.0, np.array([1.0, 5.0])),
    "matrix": ([4], -np.ones([2, 3]), np.full([2, 3], 2.0)),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


def made(case, dtype="float64", scale=(0.2, 1.0)):
    """A distribution and its parameters in float64 of numpy."""
    batch, low, high = case
    rng = np.random.default_rng(0)
    event = np.broadcast_shapes(np.shape(low), np.shape(high))
    loc = rng.normal(0.0, 0.7, [*batch, *event]).astype(dtype)
    scale = rng.uniform(*scale, [*batch, *event]).astype(dtype)
    arguments = [tf.constant(part, dtype) for part in (loc, scale, low, high)]
    return squashed.SquashedNormal(*arguments), [
        np.asarray(part, np.float64) for part in (loc, scale, low, high)
    ]


def density(raw, loc, scale, low, high):
    """Log-density of a squashed number, by the change of variables."""
    normal = -0.5 * ((raw - loc) / scale) ** 2 - np.log(scale) - HALF_LOG_2_PI
    slope = (high - low) / 2 / np.cosh(raw) ** 2
    terms = normal - np.log(slope)
    return terms.sum(tuple(range(-np.broadcast(low, high).ndim, 0)))


def inside(parameters, seed=1):
    """Values well inside the bounds and what they are the image of."""
    loc, scale, low, high = parameters
    raw = loc + scale * np.random.default_rng(seed).normal(size=loc.shape)
    raw = np.clip(raw, -2.5, 2.5)
    return (low + high) / 2 + (high - low) / 2 * np.tanh(raw), raw


# Density.


def test_by_hand():
    dist = squashed.SquashedNormal(0.0, 2.0, 1.0, 5.0)
    # u = 0: half range 2, tanh' = 1.
    expected = -HALF_LOG_2_PI - math.log(2.0) - math.log(2.0)
    np.testing.assert_allclose(dist.log_prob(3.0), expected, rtol=1e-6)
    # u = 1
    value = 3.0 + 2.0 * math.tanh(1.0)
    slope = 2.0 * (1.0 - math.tanh(1.0) ** 2)
    expected = -HALF_LOG_2_PI - math.log(2.0) - 0.125 - math.log(slope)
    np.testing.assert_allclose(dist.log_prob(value), expected, rtol=1e-5)


@EVERY_CASE
@DTYPES
def test_log_prob_against_the_change_of_variables(case, dtype):
    dist, parameters = made(case, dtype)
    value, raw = inside(parameters)
    got = dist.log_prob(value.astype(dtype))
    assert got.dtype.name == dtype
    assert got.shape == dist.batch_shape == case[0]
    tolerance = 1e-3 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(got, density(raw, *parameters), tolerance, tolerance)


def test_density_integrates_to_one():
    dist = squashed.SquashedNormal(tf.constant([-0.5, 1.0], tf.float64), 0.8, -2.0, 1.0)
    edges = np.linspace(-2.0, 1.0, 200_001)
    middles = (edges[1:] + edges[:-1]) / 2
    mass = np.exp(dist.log_prob(middles[:, None])).sum(0) * (edges[1] - edges[0])
    np.testing.assert_allclose(mass, [1.0, 1.0], atol=1e-6)


@EVERY_CASE
def test_gradients_against_central_differences(case):
    _, parameters = made(case)
    value, _ = inside(parameters)
    inputs = [tf.constant(part) for part in (*parameters, value)]

    def total(*inputs):
        *parameters, value = inputs
        return tf.reduce_sum(squashed.SquashedNormal(*parameters).log_prob(value))

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = total(*inputs)
    step = 1e-6
    for index, gradient in enumerate(tape.gradient(result, inputs)):
        ends = []
        for sign in (-1, 1):
            moved = list(inputs)
            moved[index] = moved[index] + sign * step
            ends.append(float(total(*moved)))
        slope = (ends[1] - ends[0]) / (2 * step)
        np.testing.assert_allclose(np.sum(gradient), slope, rtol=1e-5, atol=1e-4)


@DTYPES
def test_values_at_the_bounds_count_as_the_last_ones_before(dtype):
    low, high = np.array([-1.0, 0.0], dtype), np.array([1.0, 5.0], dtype)
    inputs = [tf.zeros([2, 2], dtype), tf.ones([2, 2], dtype), tf.stack([low, high])]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        dist = squashed.SquashedNormal(*inputs[:2], low, high)
        log_probs = dist.log_prob(inputs[2])
    last = math.atanh(1 - np.finfo(dtype).epsneg)
    expected = 2 * (-HALF_LOG_2_PI - 0.5 * last**2) - math.log(2.5)
    expected -= 2 * (math.log(4.0) - 2.0 * last)
    np.testing.assert_allclose(log_probs, [expected] * 2, rtol=1e-6)
    gradients = tape.gradient(log_probs, inputs)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_allclose(gradients[0], [[-last] * 2, [last] * 2], rtol=1e-5)


def test_no_density_beyond_the_bounds():
    value = tf.constant([[-1.1, 0.0], [0.0, 1.5], [np.inf, 0.0], [0.0, 0.0]])
    loc = tf.Variable([0.0, 0.0])
    with tf.GradientTape() as tape:
        dist = squashed.SquashedNormal(loc, 1.0, -np.ones(2, "f"), np.ones(2, "f"))
        log_probs = dist.log_prob(value)
    assert np.isneginf(log_probs[:3]).all()
    assert np.isfinite(log_probs[3])
    np.testing.assert_allclose(tape.gradient(log_probs, loc), [0.0, 0.0], atol=1e-6)


def test_extreme_parameters_give_finite_numbers():
    numbers = np.array([-1e15, -1e4, -1.0, 0.0, 1e-38, 3.0, 1e4, 1e15], np.float32)
    scales = np.array([1e-15, 1e-4, 1.0, 1e4, 1e15], np.float32)
    loc, scale = map(tf.constant, np.meshgrid(numbers, scales))

    @tf.function
    def everything(loc, scale):
        with tf.GradientTape() as tape:
            tape.watch([loc, scale])
            dist = squashed.SquashedNormal(loc, scale)
            value, log_prob = dist.experimental_sample_and_log_prob(seed=SEED)
        return value, log_prob, *tape.gradient(log_prob, [loc, scale])

    for result in everything(loc, scale):
        assert np.isfinite(result).all()


# Draws.


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_draws_have_the_distribution(jit):
    count = 40_000
    low, high = np.array([-2.0, 0.0], "f"), np.array([2.0, 1.0], "f")
    dist = squashed.SquashedNormal([0.3, -0.5], [0.5, 1.2], low, high)
    draw = tf.function(lambda: dist.sample(count, seed=SEED), jit_compile=jit)
    place = (draw().numpy().astype(np.float64) - low) / (high - low)
    assert place.min() >= 0 and place.max() <= 1
    raw = np.sort(np.arctanh(np.clip(2 * place - 1, -1 + 1e-7, 1 - 1e-7)), axis=0)
    normal = tfd.Normal(*(np.array(p, np.float64) for p in ([0.3, -0.5], [0.5, 1.2])))
    # Dvoretzky, Kiefer, Wolfowitz: exceeded with a probability below 1e-6.
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * count))
    ranks = np.arange(1, count + 1)[:, None] / count
    assert np.abs(normal.cdf(raw).numpy() - ranks).max() < bound + 1 / count


@EVERY_CASE
def test_log_prob_of_draws(case):
    dist, parameters = made(case)
    value, log_prob = dist.experimental_sample_and_log_prob([7], seed=SEED)
    assert value.shape == [7, *dist.batch_shape, *dist.event_shape]
    _, _, low, high = parameters
    raw = np.arctanh((value - (low + high) / 2) / ((high - low) / 2))
    expected = density(raw, *parameters)
    for got in (log_prob, dist.log_prob(value), dist.log_prob(value.numpy())):
        assert got.shape == [7, *dist.batch_shape]
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    drawn = dist.sample([7], seed=SEED)
    np.testing.assert_array_equal(drawn, value)
    np.testing.assert_allclose(dist.log_prob(drawn), log_prob, rtol=1e-12)


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
def test_saturated_draws_keep_their_density(in_graph):
    dist = squashed.SquashedNormal([-50.0, 50.0], 1.0)

    def score():
        value = dist.sample(seed=SEED)
        pair = dist.experimental_sample_and_log_prob(seed=SEED)
        return value, dist.log_prob(value), *pair, dist.log_prob(tf.identity(value))

    value, recalled, again, scored, recovered = (
        tf.function(score) if in_graph else score
    )()
    np.testing.assert_array_equal(value, [-1.0, 1.0])
    np.testing.assert_array_equal(again, value)
    noise = _draws.normal([2], SEED, tf.float32)
    raw = np.array([-50.0, 50.0]) + noise
    # -log(1 - tanh(u)^2) = 2 |u| - log 4 far out.
    expected = -HALF_LOG_2_PI - 0.5 * noise**2 + 2 * np.abs(raw) - math.log(4.0)
    np.testing.assert_allclose(recalled, expected, rtol=1e-5)
    np.testing.assert_allclose(scored, expected, rtol=1e-5)
    assert np.isfinite(recovered).all()
    assert np.abs(recovered - expected).min() > 100.0


def test_draws_are_differentiable():
    parameters = [tf.Variable([0.1, -0.4]), tf.Variable([0.5, 1.5])]
    dist = squashed.SquashedNormal(*parameters, [-1.0, -3.0], [1.0, 5.0])
    assert dist.reparameterization_type == tfd.FULLY_REPARAMETERIZED
    with tf.GradientTape() as tape:
        value = dist.sample(seed=SEED)
    noise = _draws.normal([2], SEED, tf.float32)
    slope = np.array([1.0, 4.0]) / np.cosh([0.1, -0.4] + [0.5, 1.5] * noise) ** 2
    of_loc, of_scale = tape.gradient(value, parameters)
    np.testing.assert_allclose(of_loc, slope, rtol=1e-5)
    np.testing.assert_allclose(of_scale, slope * noise, rtol=1e-5)


def test_seeds():
    dist = squashed.SquashedNormal(tf.zeros([9]), 1.0)
    for seed in (5, SEED, tf.constant(SEED)):
        np.testing.assert_array_equal(dist.sample(2, seed), dist.sample([2], seed))
    assert np.all(dist.sample(seed=5) != dist.sample(seed=6))
    assert np.all(dist.sample() != dist.sample())
