"""Tests of `tfrl.losses.offline`."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from modes import both_ways
from refusals import bad, zeros

from tfrl import losses

DTYPES = ["float16", "bfloat16", "float32", "float64"]


def penalty_slowly(exponents, value):
    """log sum exp minus the value, summed exactly."""
    return math.log(math.fsum(math.exp(x) for x in exponents)) - value


def test_behavior_cloning_loss():
    log_probs = tf.constant([[-0.5, -2.0]])
    with tf.GradientTape() as tape:
        tape.watch(log_probs)
        loss, extra = losses.behavior_cloning_loss(log_probs)
    np.testing.assert_array_equal(loss, [[0.5, 2.0]])
    np.testing.assert_array_equal(tape.gradient(loss, log_probs), [[-1.0, -1.0]])
    np.testing.assert_array_equal(extra.weights, [[1.0, 1.0]])
    np.testing.assert_array_equal(extra.clipped, [[0.0, 0.0]])


@both_ways(lambda *args: losses.advantage_weighted_loss(*args))
def test_advantage_weighted_loss_by_hand(run):
    advantages = tf.constant([0.0, 0.5 * math.log(2.0), -1e4, 1e4, 3.0])
    loss, extra = run(tf.fill([5], -2.0), advantages, 2.0, 10.0)
    np.testing.assert_allclose(loss, [2.0, 4.0, 0.0, 20.0, 20.0], rtol=1e-6)
    np.testing.assert_allclose(extra.weights, [1.0, 2.0, 0.0, 10.0, 10.0], rtol=1e-6)
    np.testing.assert_array_equal(extra.clipped, [0.0, 0.0, 0.0, 1.0, 1.0])


def test_advantage_weighted_gradient_flows_to_log_probs_alone():
    log_probs, advantages = tf.constant([-1.0, -2.0]), tf.constant([0.5, 9.0])
    beta = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([log_probs, advantages, beta])
        loss = losses.advantage_weighted_loss(log_probs, advantages, beta).loss
    gradient, *others = tape.gradient(loss, [log_probs, advantages, beta])
    np.testing.assert_allclose(gradient, [-math.exp(1.5), -100.0], rtol=1e-6)
    assert others == [None, None]


def test_without_beta_advantages_do_not_matter():
    log_probs, advantages = np.random.default_rng(0).normal(size=(2, 6))
    weighted = losses.advantage_weighted_loss(log_probs, advantages, beta=0.0)
    cloned = losses.behavior_cloning_loss(log_probs)
    for one, other in zip(*map(tf.nest.flatten, (weighted, cloned)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)], ids=["scalar", "B", "TB"])
def test_conservative_q_loss_element_by_element(shape):
    rng = np.random.default_rng(0)
    q_values, actions = rng.normal(size=(*shape, 4, 2)), rng.integers(0, 4, shape)
    loss, extra = losses.conservative_q_loss(q_values, actions)
    alone = losses.conservative_q_loss(q_values[..., 1], actions)
    for index in np.ndindex(shape):
        for critic in range(2):
            q = q_values[index][:, critic]
            expected = penalty_slowly(q, q[actions[index]])
            place = (*index, critic)
            np.testing.assert_allclose(loss[place], expected, rtol=1e-12)
            np.testing.assert_array_equal(extra.data_values[place], q[actions[index]])
            np.testing.assert_allclose(extra.soft_maxima[place], penalty_slowly(q, 0.0))
    np.testing.assert_allclose(alone.loss, loss[..., 1], rtol=1e-12)


@both_ways(lambda *args: tuple(losses.conservative_q_loss(*args)))
def test_conservative_q_loss_by_hand(run):
    q_values = tf.math.log([[1.0, 3.0], [0.5, 0.5], [0.0, 2.0]])  # log 0 = -inf
    loss, extra = run(q_values, [1, 0, 1])
    np.testing.assert_allclose(loss, np.log([4 / 3, 2.0, 1.0]), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(extra.soft_maxima, np.log([4.0, 1.0, 2.0]), atol=1e-6)


def test_conservative_q_loss_keeps_its_digits_far_from_zero():
    near, far = tf.constant([[0.0, 1.0, -1.0]]), tf.constant([[4096.0, 4097.0, 4095.0]])
    small = losses.conservative_q_loss(near, [1]).loss
    np.testing.assert_allclose(
        losses.conservative_q_loss(far, [1]).loss, small, rtol=1e-6
    )
    with tf.GradientTape() as tape:
        extreme = tf.constant([[1e30, -1e30], [-1e30, 1e30]])
        tape.watch(extreme)
        loss = losses.conservative_q_loss(extreme, [0, 0]).loss
    np.testing.assert_allclose(loss, [0.0, 2e30], rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(loss, extreme), [[0, 0], [-1, 1]])


def test_conservative_gradient_is_softmax_minus_data():
    q_values = tf.constant(np.random.default_rng(0).normal(size=(3, 4)))
    with tf.GradientTape() as tape:
        tape.watch(q_values)
        loss = losses.conservative_q_loss(q_values, [0, 3, 1]).loss
    expected = tf.nn.softmax(q_values) - np.eye(4)[[0, 3, 1]]
    np.testing.assert_allclose(tape.gradient(loss, q_values), expected, atol=1e-14)


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)], ids=["scalar", "B", "TB"])
def test_sampled_conservative_q_loss_element_by_element(shape):
    rng = np.random.default_rng(0)
    sampled, q_values = rng.normal(size=(*shape, 6, 2)), rng.normal(size=(*shape, 2))
    log_probs = rng.normal(size=(*shape, 6))
    loss, extra = losses.sampled_conservative_q_loss(sampled, log_probs, q_values)
    alone = losses.sampled_conservative_q_loss(
        sampled[..., 1], log_probs, q_values[..., 1]
    )
    for index in np.ndindex(shape):
        for critic in range(2):
            exponents = sampled[index][:, critic] - log_probs[index] - math.log(6)
            expected = penalty_slowly(exponents, q_values[index][critic])
            np.testing.assert_allclose(loss[(*index, critic)], expected, rtol=1e-11)
    np.testing.assert_allclose(alone.loss, loss[..., 1], rtol=1e-12)
    np.testing.assert_array_equal(extra.data_values, q_values)
    np.testing.assert_allclose(extra.soft_maxima, loss + q_values, rtol=1e-12)


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_sampled_conservative_q_loss_by_hand_with_unknown_sizes(jit_compile):
    table, row = tf.TensorSpec([None, None]), tf.TensorSpec([None])
    estimate = tf.function(
        lambda *args: tuple(losses.sampled_conservative_q_loss(*args)),
        input_signature=[table, table, row],
        jit_compile=jit_compile,
    )
    # exp(Q) is 1, 2 and 3 with densities 1/2, 1/2 and 1: the mean of 2, 4 and 3 is 3.
    sampled, log_probs = np.log([[1.0, 2.0, 3.0]]), np.log([[0.5, 0.5, 1.0]])
    loss, _ = estimate(np.float32(sampled), np.float32(log_probs), np.float32([0.5]))
    np.testing.assert_allclose(loss, [math.log(3.0) - 0.5], rtol=1e-6)


def test_uniform_sample_of_all_actions_is_the_whole_sum():
    q_values = np.random.default_rng(0).normal(size=(3, 4))
    uniform = np.full((3, 4), -math.log(4.0))
    sampled = losses.sampled_conservative_q_loss(q_values, uniform, q_values[:, 2])
    whole = losses.conservative_q_loss(q_values, [2, 2, 2])
    np.testing.assert_allclose(sampled.loss, whole.loss, rtol=1e-12)


def test_sample_estimates_the_integral():
    # The integral of exp(a) over [-1, 1] is e - 1/e; half the sample is uniform, half
    # has the density (1 + a) / 2.
    rng = np.random.default_rng(0)
    actions = np.concatenate(
        [rng.uniform(-1, 1, 50_000), 2 * np.sqrt(rng.uniform(size=50_000)) - 1]
    )
    densities = np.concatenate([np.full(50_000, 0.5), (1 + actions[50_000:]) / 2])
    loss = losses.sampled_conservative_q_loss(actions, np.log(densities), 0.0).loss
    np.testing.assert_allclose(loss, math.log(math.e - 1 / math.e), atol=0.02)


def test_sampled_gradients_flow_to_values_alone():
    rng = np.random.default_rng(0)
    sampled, log_probs = tf.constant(rng.normal(size=(2, 3, 4)))
    q_values = tf.constant(rng.normal(size=3))
    with tf.GradientTape() as tape:
        tape.watch([sampled, log_probs, q_values])
        loss = losses.sampled_conservative_q_loss(sampled, log_probs, q_values).loss
    of_sampled, of_log_probs, of_values = tape.gradient(
        loss, [sampled, log_probs, q_values]
    )
    weights = tf.nn.softmax(sampled - log_probs)
    np.testing.assert_allclose(of_sampled, weights, rtol=1e-10)
    np.testing.assert_allclose(of_values, -np.ones(3), rtol=1e-12)
    assert of_log_probs is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_kept(dtype):
    row, table = tf.constant([0.5], dtype), tf.constant([[0.5, 1.0]], dtype)
    for info in (
        losses.behavior_cloning_loss(row),
        losses.advantage_weighted_loss(row, row, 3.0),
        losses.conservative_q_loss(table, [1]),
        losses.sampled_conservative_q_loss(table, table, row),
    ):
        assert {x.dtype.name for x in tf.nest.flatten(info)} == {dtype}


@refusals.table(
    (losses.behavior_cloning_loss, bad(TypeError, "log_probs", [1, 2])),
    (
        losses.advantage_weighted_loss,
        bad(ValueError, "advantages", zeros(2), zeros(2, 1), 1.0),
        bad(ValueError, "beta", zeros(2), zeros(2), -1.0),
        bad(ValueError, "max_weight", zeros(2), zeros(2), 1.0, 0.0),
    ),
    (
        lambda: losses.conservative_q_loss(zeros(2, 3), [0, 1, 2]),
        bad(ValueError, "actions"),
    ),
    (
        lambda: losses.conservative_q_loss(zeros(2, 3), [0.0, 1.0]),
        bad(TypeError, "actions"),
    ),
    (
        losses.sampled_conservative_q_loss,
        bad(ValueError, "sampled_log_probs", zeros(2, 3), zeros(2, 4), zeros(2)),
        bad(ValueError, "sampled_log_probs", zeros(3), 0.0, zeros(3)),
        bad(ValueError, "q_values", zeros(2, 3, 5), zeros(2, 3), zeros(2, 3)),
    ),
)
def test_errors(row):
    row()
