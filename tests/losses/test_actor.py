"""Tests of `tfrl.losses.actor`."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from modes import both_ways
from refusals import bad, zeros

from tfrl import losses

DTYPES = ["float16", "bfloat16", "float32", "float64"]


@both_ways(lambda *args: tuple(losses.sac_actor_loss(*args)))
def test_sac_actor_loss_by_hand(run):
    loss, extra = run(tf.constant([-2.0, 1.0]), [[4.0, 3.0], [-1.0, 5.0]], 0.5)
    np.testing.assert_allclose(loss, [-4.0, 1.5])
    np.testing.assert_allclose(extra.q_values, [3.0, -1.0])


@pytest.mark.parametrize("shape", [(), (5,), (3, 2)], ids=["scalar", "B", "TB"])
def test_sac_actor_loss_element_by_element(shape):
    rng = np.random.default_rng(0)
    log_probs, q_values = rng.normal(size=shape), rng.normal(size=(*shape, 3))
    loss = losses.sac_actor_loss(log_probs, q_values, 0.3).loss
    for index in np.ndindex(shape):
        expected = 0.3 * log_probs[index] - min(q_values[index])
        np.testing.assert_allclose(loss[index], expected, rtol=1e-12)


def test_sac_gradients_flow_to_log_probs_and_the_least_critic():
    log_probs, q_values = tf.constant([-2.0, 1.0]), tf.constant([[4.0, 3.0], [-1.0, 5]])
    alpha = tf.Variable(0.5)
    with tf.GradientTape() as tape:
        tape.watch([log_probs, q_values])
        loss = losses.sac_actor_loss(log_probs, q_values, alpha).loss
    gradients = tape.gradient(loss, [log_probs, q_values, alpha])
    np.testing.assert_allclose(gradients[0], [0.5, 0.5])
    np.testing.assert_allclose(gradients[1], [[0.0, -1.0], [-1.0, 0.0]])
    assert gradients[2] is None


@both_ways(lambda *args: tuple(losses.deterministic_policy_gradient_loss(*args)))
def test_deterministic_policy_gradient_loss_by_hand(run):
    actions, slopes = [[1.0, -1.0], [2.0, 0.5]], [[4.0, 8.0], [-9.0, 5.0]]
    loss, extra = run(tf.constant(actions), tf.constant(slopes), 5.0)
    np.testing.assert_allclose(loss, [1.0, 7.5])
    np.testing.assert_array_equal(extra.clipped, [[0.0, 1.0], [1.0, 0.0]])


def test_deterministic_gradient_is_that_of_the_value():
    rng = np.random.default_rng(0)
    weights = tf.constant(rng.normal(size=(3, 2)))
    observations = tf.constant(rng.normal(size=(5, 3)))

    def critic(actions):
        return tf.reduce_sum(tf.sin(actions) * tf.constant([1.0, -2.0], tf.float64), -1)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(weights)
        actions = tf.tanh(observations @ weights)
        q_values = critic(actions)
        slopes = tape.gradient(q_values, actions)
        plain = losses.deterministic_policy_gradient_loss(actions, slopes)
        cut = losses.deterministic_policy_gradient_loss(actions, slopes, clip=0.9)
    expected = tape.gradient(q_values, weights)
    np.testing.assert_allclose(
        -tape.gradient(plain.loss, weights), expected, rtol=1e-12
    )
    assert not np.any(plain.extra.clipped)
    limited = np.clip(slopes, -0.9, 0.9)
    assert np.any(limited != slopes)
    np.testing.assert_allclose(
        tape.gradient(cut.loss, weights),
        tape.gradient(actions, weights, output_gradients=tf.constant(-limited)),
        rtol=1e-12,
    )
    np.testing.assert_array_equal(cut.extra.clipped, limited != slopes)


def test_deterministic_gradient_flows_to_actions_alone():
    actions, slopes = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, -np.inf]])
    with tf.GradientTape() as tape:
        tape.watch([actions, slopes])
        loss = losses.deterministic_policy_gradient_loss(actions, slopes, 5.0).loss
    gradient, of_slopes = tape.gradient(loss, [actions, slopes])
    np.testing.assert_array_equal(gradient, [[-3.0, 5.0]])
    assert of_slopes is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_kept(dtype):
    row, table = tf.constant([0.5], dtype), tf.constant([[0.5, 1.0]], dtype)
    for info in (
        losses.sac_actor_loss(row, table, 0.2),
        losses.sac_actor_loss(row, table, tf.Variable(0.2)),
        losses.deterministic_policy_gradient_loss(table, table),
        losses.deterministic_policy_gradient_loss(table, table, 0.7),
    ):
        assert {x.dtype.name for x in tf.nest.flatten(info)} == {dtype}


@refusals.table(
    (
        losses.sac_actor_loss,
        bad(ValueError, "log_probs", zeros(2, 1), zeros(2, 3), 0.1),
        bad(ValueError, "q_values", 0.0, 0.0, 0.1),
        bad(TypeError, "log_probs", tf.zeros([]), zeros(2), 0.1),
    ),
    (
        losses.deterministic_policy_gradient_loss,
        bad(ValueError, "action_gradients", zeros(2), zeros(3)),
        bad(ValueError, "clip", zeros(2), zeros(2), clip=0.0),
    ),
)
def test_errors(row):
    row()
