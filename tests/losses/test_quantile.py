"""Tests of `tfrl.losses.quantile`."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses

# Of the pinball loss, and of a Huber function of delta 0.6, in float32.
RECORDED = {
    "q": (1.006666660308838, 0.4505433440208435),
    "sarsa": (0.9246666431427002, 0.40705832839012146),
}


def loss_slowly(quantiles, fractions, targets, weights, delta):
    """The loss of one element, number by number."""
    total = 0.0
    for quantile, tau in zip(quantiles, fractions, strict=True):
        for target, weight in zip(targets, weights, strict=True):
            if weight == 0:
                continue
            error = target - quantile
            if abs(error) < delta:
                height = error * error / (2 * delta)
            else:
                height = abs(error) - delta / 2
            total += weight * abs(tau - (1.0 if error < 0 else 0.0)) * height
    return total


def draw(batch, n, m, seed=0):
    rng = np.random.default_rng(seed)
    quantiles, fractions = rng.normal(size=(*batch, n)), rng.uniform(size=(*batch, n))
    targets, weights = rng.normal(size=(*batch, m)), rng.dirichlet(np.ones(m), batch)
    return quantiles, fractions, targets, weights


@pytest.mark.parametrize("delta", [0.0, *slow(1.0)])
@pytest.mark.parametrize("batch", [(), (3, 2)], ids=str)
def test_loss_number_by_number(batch, delta):
    quantiles, fractions, targets, weights = draw(batch, 4, 5)
    given, extra = losses.quantile_td_loss(
        quantiles, targets, fractions, delta, target_weights=weights
    )
    plain = losses.quantile_td_loss(quantiles, targets, huber_delta=delta).loss
    one_row = losses.quantile_td_loss(
        quantiles, targets, np.array([0.9, 0.1, 0.5, 0.0]), delta
    ).loss
    even, middle = np.full(5, 0.2), (np.arange(4) + 0.5) / 4
    for i in np.ndindex(batch):
        q, t = quantiles[i], targets[i]
        expected = loss_slowly(q, fractions[i], t, weights[i], delta)
        np.testing.assert_allclose(given[i], expected, rtol=1e-12)
        expected = loss_slowly(q, middle, t, even, delta)
        np.testing.assert_allclose(plain[i], expected, rtol=1e-12)
        expected = loss_slowly(q, [0.9, 0.1, 0.5, 0.0], t, even, delta)
        np.testing.assert_allclose(one_row[i], expected, rtol=1e-12)
    np.testing.assert_array_equal(extra.priorities, given)


def test_critics_share_targets():
    quantiles, fractions, _, _ = draw((3, 2), 4, 5)
    _, _, targets, weights = draw((3,), 4, 5)
    loss, extra = losses.quantile_td_loss(
        quantiles, targets, fractions, 0.5, target_weights=weights
    )
    for critic in range(2):
        alone = losses.quantile_td_loss(
            quantiles[:, critic], targets, fractions[:, critic], 0.5, weights
        )
        np.testing.assert_allclose(loss[:, critic], alone.loss, rtol=1e-12)
    np.testing.assert_array_equal(extra.priorities, np.max(loss, axis=1))


def test_recorded_losses():
    # rlax.quantile_q_learning and quantile_expected_sarsa of these, in float32.
    quantiles = tf.constant([[[0.5, -1.0], [1.0, 0.2], [2.0, 1.5]]])  # [1, N, A]
    quantiles = tf.transpose(quantiles, [0, 2, 1])
    following = tf.constant([[[0.3, 2.0], [-0.7, 0.1], [1.2, 0.9]]])
    following = tf.transpose(following, [0, 2, 1])
    fractions, taken = [[0.1, 0.4, 0.8]], losses.q_taken(quantiles, [1])
    selector = [[0.1, 0.7]]
    targets = losses.quantile_q_target([0.5], [0.9], following, selector)
    for delta, expected in ((0.0, RECORDED["q"][0]), (0.6, RECORDED["q"][1])):
        loss = losses.quantile_td_loss(taken, targets, fractions, delta).loss
        # Their Huber function is not divided by its delta.
        np.testing.assert_allclose(loss * (delta or 1.0), [expected], rtol=1e-5)
    targets, weights = losses.quantile_expected_sarsa_target(
        [0.5], [0.9], following, [[0.25, 0.75]]
    )
    for delta, expected in ((0.0, RECORDED["sarsa"][0]), (0.6, RECORDED["sarsa"][1])):
        loss = losses.quantile_td_loss(taken, targets, fractions, delta, weights).loss
        np.testing.assert_allclose(loss * (delta or 1.0), [expected], rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_targets_row_by_row(jit_compile):
    rng = np.random.default_rng(0)
    quantiles, selector = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3))
    rewards, discounts = rng.normal(size=4), np.array([0.9, 0.0, 0.5, 1.0])
    probs = rng.dirichlet(np.ones(3), 4)

    @tf.function(jit_compile=jit_compile)
    def targets(*arguments):
        return (
            losses.quantile_q_target(*arguments),
            losses.quantile_q_target(*arguments, selector),
            losses.quantile_expected_sarsa_target(*arguments, probs),
        )

    own, double, (mixed, weights) = targets(rewards, discounts, quantiles)
    for row in range(4):
        moved = rewards[row] + discounts[row] * quantiles[row]
        best = max(range(3), key=lambda a, row=row: math.fsum(quantiles[row, a]))
        np.testing.assert_allclose(own[row], moved[best], rtol=1e-12)
        np.testing.assert_allclose(double[row], moved[np.argmax(selector[row])])
        np.testing.assert_allclose(mixed[row], moved.ravel(), rtol=1e-12)
        np.testing.assert_allclose(weights[row], np.repeat(probs[row] / 5, 5))


def test_nothing_follows_the_end_and_what_is_never_taken_does_not_count():
    masked = np.full((1, 2, 3), -np.inf)
    target = losses.quantile_q_target([1.0], [0.0], masked)
    np.testing.assert_array_equal(target, np.ones((1, 3)))
    masked[:, 1] = 2.0
    targets, weights = losses.quantile_expected_sarsa_target(
        [1.0], [0.5], masked, [[0.0, 1.0]]
    )
    quantiles = tf.constant([[1.0, 3.0]], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(quantiles)
        loss = losses.quantile_td_loss(quantiles, targets, target_weights=weights).loss
    expected = losses.quantile_td_loss([[1.0, 3.0]], [[2.0]]).loss
    np.testing.assert_allclose(loss, expected)
    np.testing.assert_allclose(tape.gradient(loss, quantiles), [[-0.25, 0.25]])


def test_no_gradient_flows_to_anything_but_the_quantiles():
    quantiles, fractions, targets, weights = map(tf.constant, draw((3,), 4, 5))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([quantiles, fractions, targets, weights])
        loss = losses.quantile_td_loss(quantiles, targets, fractions, 0.5, weights).loss
        further = losses.quantile_q_target(loss, loss, quantiles[:, tf.newaxis])
    sources = [fractions, targets, weights]
    assert tape.gradient(loss, sources) == [None] * 3
    assert tape.gradient(further, [quantiles]) == [None]
    theory, measured = tf.test.compute_gradient(
        lambda q: losses.quantile_td_loss(q, targets, fractions, 0.5, weights).loss,
        [quantiles],
    )
    np.testing.assert_allclose(theory, measured, atol=1e-6)


def test_given_fractions_are_where_the_quantiles_go():
    samples = np.random.default_rng(2).exponential(size=4000)
    fractions = np.array([0.95, 0.05, 0.5])
    quantiles = tf.Variable(np.zeros(3))
    for _ in range(300):
        with tf.GradientTape() as tape:
            loss = losses.quantile_td_loss(quantiles, samples, fractions, 0.0).loss
        quantiles.assign_sub(tape.gradient(loss, quantiles))
    np.testing.assert_allclose(quantiles, np.quantile(samples, fractions), atol=0.1)


def test_fractions_are_proposed_where_steps_fit_best():
    """For F^-1(tau) = tau^2 the gradient is that of the distance, by differences."""

    def distance(inner):
        ends = np.array([0.0, *inner, 1.0])
        total = 0.0
        for low, high in zip(ends[:-1], ends[1:], strict=True):
            grid = low + (high - low) * (np.arange(20_000) + 0.5) / 20_000
            middle = (low + high) / 2
            total += np.mean(np.abs(grid**2 - middle**2)) * (high - low)
        return total

    inner = tf.constant([0.3, 0.45, 0.9], tf.float64)
    ends = np.array([0.0, *inner.numpy(), 1.0])
    middle = ((ends[:-1] + ends[1:]) / 2) ** 2
    with tf.GradientTape() as tape:
        tape.watch(inner)
        loss = losses.fraction_proposal_loss(inner, inner**2, middle)
    steps = 1e-4 * np.eye(3)
    expected = [(distance(inner + d) - distance(inner - d)) / 2e-4 for d in steps]
    np.testing.assert_allclose(tape.gradient(loss, inner), expected, atol=1e-5)


@refusals.table(
    (
        losses.quantile_q_target,
        bad(ValueError, "next_quantiles", 0.0, 1.0, zeros(2)),
        bad(ValueError, "rewards", zeros(3), 1.0, zeros(2, 3, 4)),
        bad(ValueError, "discounts", zeros(2), zeros(2, 3), zeros(2, 3, 4)),
        bad(ValueError, "next_q_selector", 0.0, 1.0, zeros(3, 4), zeros(4)),
        bad(TypeError, "next_quantiles", 0.0, 1.0, [[1, 2]]),
    ),
    (
        losses.quantile_expected_sarsa_target,
        bad(ValueError, "rewards", zeros(3), 1.0, zeros(2, 3, 4), zeros(2, 3)),
        bad(ValueError, "next_probs", zeros(2), 1.0, zeros(2, 3, 4), zeros(2, 4)),
    ),
    (
        losses.quantile_td_loss,
        bad(ValueError, "quantiles", 1.0, [1.0]),
        bad(ValueError, "targets", zeros(2, 3), 1.0),
        bad(ValueError, "targets", zeros(2, 3), zeros(3, 3)),
        bad(ValueError, "fractions", zeros(2, 3), zeros(2, 4), zeros(4)),
        bad(ValueError, "fractions", zeros(2, 3), zeros(2, 4), [0.5, 1.5, 0.1]),
        bad(ValueError, "fractions", zeros(2, 3), zeros(2, 4), [0.5, np.nan, 0.1]),
        bad(ValueError, "huber_delta", [1.0], [1.0], None, -1.0),
        bad(ValueError, "target_weights", [1.0], [1.0], None, 1.0, [0.5, 0.5]),
        bad(TypeError, "targets", [1.0], tf.ones([1], tf.float64)),
    ),
    (
        losses.fraction_proposal_loss,
        bad(ValueError, "at_fractions", zeros(2, 3), zeros(2, 2), zeros(2, 4)),
        bad(ValueError, "at_midpoints", zeros(2, 3), zeros(2, 3), zeros(2, 3)),
    ),
)
def test_errors(row):
    row()
