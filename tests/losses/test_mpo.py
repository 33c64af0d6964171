"""Tests of `tfrl.losses.mpo`: the papers' sums, their optima, and what flows where."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from modes import both_ways
from refusals import bad, zeros

from tfrl import distributions, losses


def weights_slowly(values, temperature):
    shares = [math.exp((x - max(values)) / temperature) for x in values]
    return [x / sum(shares) for x in shares]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=(2, *shape))


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_mpo_state_by_state(jit_compile):
    log_probs, q_values = draw(3, 2, 5)

    @tf.function(jit_compile=jit_compile)
    def both(log_probs, q_values):
        return (
            losses.mpo_policy_loss(log_probs, q_values, math.log(0.4)),
            losses.mpo_temperature_loss(math.log(0.4), q_values, 0.1),
        )

    info, dual = both(log_probs, q_values)
    for i in np.ndindex(3, 2):
        weights = weights_slowly(q_values[i], 0.4)
        np.testing.assert_allclose(info.extra.weights[i], weights, rtol=1e-9)
        np.testing.assert_allclose(info.loss[i], -np.dot(weights, log_probs[i]))
        mean = sum(math.exp(q / 0.4) for q in q_values[i]) / 5
        np.testing.assert_allclose(dual[i], 0.4 * (0.1 + math.log(mean)), rtol=1e-9)


@pytest.mark.parametrize("shape", [(7,), (2, 4)], ids=str)
@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_vmpo_learns_from_the_better_half(shape, jit_compile):
    log_probs, advantages = draw(*shape, seed=1)

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None] * len(shape), tf.float64)] * 2,
    )
    def both(log_probs, advantages):
        return (
            losses.vmpo_policy_loss(log_probs, advantages, math.log(0.4)),
            losses.vmpo_temperature_loss(math.log(0.4), advantages, 0.1),
        )

    info, dual = both(log_probs, advantages)
    flat, size = advantages.ravel(), advantages.size
    better = sorted(range(size), key=lambda i: -flat[i])[: (size + 1) // 2]
    shares = weights_slowly([flat[i] for i in better], 0.4)
    weights = np.zeros(size)
    weights[better] = shares
    np.testing.assert_allclose(info.extra.weights, weights.reshape(shape), rtol=1e-9)
    expected = -np.sum(weights * log_probs.ravel())
    np.testing.assert_allclose(np.mean(info.loss), expected, rtol=1e-9)
    mean = sum(math.exp(flat[i] / 0.4) for i in better) / len(better)
    np.testing.assert_allclose(dual, 0.4 * (0.1 + math.log(mean)), rtol=1e-9)


def test_of_equal_advantages_half_counts():
    weights = losses.vmpo_policy_loss(zeros(6), zeros(6), np.float64(0.0)).extra.weights
    np.testing.assert_allclose(np.sort(weights), [0, 0, 0, 1 / 3, 1 / 3, 1 / 3])


def of_a_row(log_temperature, values):
    """Losses of the policy; of the temperature, and their gradients; MPO's first."""
    log_probs = -1.0 - 2.0 * tf.range(tf.cast(tf.size(values), tf.float32))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(log_temperature)
        duals = (
            losses.mpo_temperature_loss(log_temperature, values, 0.1),
            losses.vmpo_temperature_loss(log_temperature, values, 0.1),
        )
    policies = (
        losses.mpo_policy_loss(log_probs, values, log_temperature).loss,
        losses.vmpo_policy_loss(log_probs, values, log_temperature).loss,
    )
    return policies, duals, [tape.gradient(loss, log_temperature) for loss in duals]


@pytest.mark.parametrize("size", [1e2, 1e6, 1e8, 3e38])
@both_ways(of_a_row)
def test_values_of_very_many_temperatures(run, size):
    """The better of two has all the weight: exponentials have half of its as a mean."""
    for log_temperature in (-9.0, -7.5, -5.0):
        values = tf.constant([size, -size])
        policies, duals, slopes = run(tf.constant(log_temperature), values)
        np.testing.assert_allclose(policies[0], 1.0)
        np.testing.assert_allclose(policies[1], [2.0, 0.0])
        expected = math.exp(log_temperature) * np.array([0.1 - math.log(2), 0.1])
        np.testing.assert_allclose(duals, size + expected, rtol=1e-6)
        np.testing.assert_allclose(slopes, expected, rtol=1e-5)


@both_ways(of_a_row)
def test_nothing_has_no_temperature(run):
    _, (_, dual), (_, slope) = run(tf.constant(0.3), tf.zeros([0]))
    assert (float(dual), float(slope)) == (0.0, 0.0)
    _, (_, dual), _ = run(tf.constant(0.3), tf.constant([np.nan, 0.0]))
    assert np.isnan(dual)


def with_weights(log_probs, advantages, weights, log_temperature):
    """Losses by weights, those of log_probs and temperature with their gradients."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([log_probs, log_temperature])
        info = losses.vmpo_policy_loss(log_probs, advantages, log_temperature, weights)
        dual = losses.vmpo_temperature_loss(log_temperature, advantages, 0.1, weights)
    slopes = tape.gradient(info.loss, log_probs)
    return (
        info.loss,
        info.extra.weights,
        slopes,
        dual,
        tape.gradient(dual, log_temperature),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("unknown", [0.0, 99.0, np.inf, -np.inf, np.nan])
@both_ways(with_weights)
def test_rows_of_weight_0_are_as_removed(run, unknown, dtype):
    log_probs, advantages = draw(9, seed=3).astype(dtype)
    log_temperature = tf.constant(-0.9, dtype)
    for valid in ([0, 2, 3, 5, 7], [1, 2, 4, 8], [6], [0, 1], [*range(9)]):
        weights = np.zeros(9, dtype)
        weights[valid] = 1.0
        given = [np.where(weights, x, unknown) for x in (log_probs, advantages)]
        got = run(*map(tf.constant, (*given, weights)), log_temperature)
        kept = [tf.constant(x[valid]) for x in (log_probs, advantages)]
        *expected, dual, slope = with_weights(*kept, None, log_temperature)
        for found, of_kept in zip(got[:3], expected, strict=True):
            rows = np.zeros(9)
            rows[valid] = of_kept
            np.testing.assert_allclose(found, rows, rtol=1e-5)
        np.testing.assert_allclose(got[3:], [dual, slope], rtol=1e-5)


@both_ways(with_weights)
def test_where_no_row_counts_there_is_no_loss(run):
    for log_probs in ([np.nan, -1.0, -2.0], [-1.0]):
        rows, nothing = tf.constant(log_probs), tf.zeros(len(log_probs))
        got = run(rows, rows, nothing, tf.constant(0.3))
        for found in got:
            np.testing.assert_array_equal(found, np.zeros(found.shape))


@both_ways(with_weights)
def test_of_what_is_infinitely_bad_half_counts_before_what_does_not(run):
    advantages = tf.constant([np.nan, -np.inf, -np.inf, 2.0, -np.inf, np.nan])
    weights = tf.constant([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    *_, dual, _ = run(tf.zeros(6), advantages, weights, tf.constant(0.0))
    # The mean of e^2 and 0.
    np.testing.assert_allclose(dual, 0.1 + 2.0 - math.log(2.0), rtol=1e-6)


@both_ways(with_weights)
def test_weights_of_any_size(run):
    log_probs, advantages = draw(8, seed=4)
    weights = np.random.default_rng(5).uniform(0.1, 3.0, 8)
    weights[[1, 6]] = 0.0
    given = (log_probs, advantages, weights, np.float64(math.log(0.4)))
    loss, shares, _, dual, _ = run(*map(tf.constant, given))
    counting = [i for i in range(8) if weights[i]]
    better = sorted(counting, key=lambda i: -advantages[i])[:3]
    heights = np.zeros(8)
    heights[better] = np.exp(advantages[better] / 0.4)
    expected = weights * heights / np.sum(weights * heights)
    np.testing.assert_allclose(shares, expected, rtol=1e-9)
    mean = np.sum(weights * loss) / np.sum(weights)
    np.testing.assert_allclose(mean, -np.sum(expected * log_probs), rtol=1e-9)
    mean = np.average(heights[better], weights=weights[better])
    np.testing.assert_allclose(dual, 0.4 * (0.1 + math.log(mean)), rtol=1e-9)


@both_ways(of_a_row)
def test_temperatures_that_no_number_is(run):
    """The best has all the weight, the loss is its value, and nothing is NaN."""
    for log_temperature in (-100.0, -88.5, -1e30):
        given = tf.constant(log_temperature), tf.constant([3.0, 1.0, 2.0])
        policies, duals, slopes = run(*given)
        np.testing.assert_array_equal(policies[0], 1.0)
        np.testing.assert_array_equal(policies[1], [3.0, 0.0, 0.0])
        np.testing.assert_array_equal(duals, [3.0, 3.0])
        np.testing.assert_allclose(slopes, [0.0, 0.0], atol=1e-37)


@pytest.mark.slow
def test_the_dual_is_least_where_weights_diverge_by_epsilon():
    _, q_values = draw(50, 20, seed=2)
    log_temperature = tf.Variable(0.0, dtype=tf.float64)
    for _ in range(500):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                losses.mpo_temperature_loss(log_temperature, q_values, 0.2)
            )
        log_temperature.assign_sub(0.5 * tape.gradient(loss, log_temperature))
    weights = losses.mpo_policy_loss(q_values, q_values, log_temperature).extra.weights
    divergence = np.sum(weights * np.log(20 * weights.numpy()), axis=-1)
    np.testing.assert_allclose(np.mean(divergence), 0.2, rtol=1e-3)


def test_gradients_flow_to_what_is_trained_alone():
    log_probs, q_values = map(tf.constant, draw(3, 5))
    log_temperature = tf.constant(0.1, tf.float64)
    given = [log_probs, q_values, log_temperature]
    for loss_of in (
        lambda: losses.mpo_policy_loss(*given).loss,
        lambda: losses.vmpo_policy_loss(*given).loss,
    ):
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = loss_of()
        gradient, *others = tape.gradient(loss, given)
        assert others == [None, None]
        assert np.any(gradient)
    for loss_of in (losses.mpo_temperature_loss, losses.vmpo_temperature_loss):
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = loss_of(log_temperature, q_values, 0.1)
        assert tape.gradient(loss, [q_values]) == [None]
        theory, measured = tf.test.compute_gradient(
            lambda x, loss_of=loss_of: loss_of(x, q_values, 0.1), [log_temperature]
        )
        np.testing.assert_allclose(theory, measured, atol=1e-6)


def test_a_normal_policy_goes_to_the_better_actions_within_its_region():
    """MPO of one state, whose reward is -(a - 1)^2: the mean moves, and is held."""
    rng = np.random.default_rng(0)
    loc, log_alpha = tf.Variable([0.0]), tf.Variable([2.0])

    @tf.function
    def step(actions, target):
        with tf.GradientTape() as tape:
            log_probs = -0.5 * ((actions - loc) / 0.5) ** 2
            info = losses.mpo_policy_loss(log_probs, -((actions - 1.0) ** 2), -1.0)
            moved = distributions.normal_divergence(target, [0.5], loc, [0.5])
            held = losses.trust_region_loss(log_alpha, moved, 0.001)
            loss = tf.reduce_mean(info.loss) + tf.reduce_sum(held.loss)
        for variable, gradient in zip(
            (loc, log_alpha), tape.gradient(loss, (loc, log_alpha)), strict=True
        ):
            variable.assign_sub(0.02 * gradient)
        return moved

    for _ in range(40):
        target = loc.numpy()
        actions = rng.normal(target, 0.5, size=(1, 200)).astype(np.float32)
        for _ in range(20):
            moved = step(actions, target)
        assert float(moved[0]) < 0.02
    np.testing.assert_allclose(loc, [1.0], atol=0.2)
    assert float(log_alpha[0]) > 2.0


@refusals.table(
    (
        losses.mpo_policy_loss,
        bad(ValueError, "log_probs", 1.0, 1.0, 0.0),
        bad(ValueError, "q_values", zeros(2, 3), zeros(2, 4), 0.0),
        bad(ValueError, "log_temperature", zeros(2, 3), zeros(2, 3), zeros(3)),
        bad(TypeError, "log_probs", [[1, 2]], [[1, 2]], 0.0),
    ),
    (
        losses.mpo_temperature_loss,
        bad(ValueError, "epsilon", 0.0, zeros(2, 3), -0.1),
        bad(ValueError, "log_temperature", zeros(3), zeros(2, 3), 0.1),
        bad(ValueError, "q_values", 0.0, 1.0, 0.1),
    ),
    (
        losses.vmpo_policy_loss,
        bad(ValueError, "advantages", zeros(2, 3), zeros(2), 0.0),
        bad(ValueError, "log_temperature", zeros(2), zeros(2), zeros(2)),
        bad(ValueError, "weights", zeros(2), zeros(2), 0.0, zeros(3)),
        bad(TypeError, "weights", zeros(2), zeros(2), 0.0, tf.constant([True, False])),
    ),
    (
        losses.vmpo_temperature_loss,
        bad(ValueError, "epsilon", 0.0, zeros(3), -0.1),
        bad(TypeError, "log_temperature", tf.constant(0.0), zeros(3), 0.1),
        bad(ValueError, "weights", 0.0, zeros(3), 0.1, zeros(2)),
    ),
)
def test_errors(row):
    row()
