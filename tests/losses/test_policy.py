"""Tests of `tfrl.losses.policy`."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from modes import both_ways
from refusals import bad, zeros

from tfrl import losses

RATIOS = np.array([0.5, 0.9, 1.1, 1.5, 0.5, 1.5, 1.0])
ADVANTAGES = np.array([1.0, 2.0, 2.0, 1.0, -1.0, -1.0, 0.0])


def ppo_slowly(ratio, advantage, clip):
    """The surrogate of one action, case by case."""
    if advantage > 0 and ratio > 1 + clip:
        return -(1 + clip) * advantage, True
    if advantage < 0 and ratio < 1 - clip:
        return -(1 - clip) * advantage, True
    return -ratio * advantage, False


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_policy_gradient_loss(dtype):
    log_probs = tf.constant([-0.5, -2.0], dtype)
    advantages = tf.constant([2.0, -1.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch([log_probs, advantages])
        info = losses.policy_gradient_loss(log_probs, advantages)
    assert info.loss.dtype == dtype
    np.testing.assert_allclose(info.loss, [1.0, -2.0])
    gradients = tape.gradient(info.loss, [log_probs, advantages])
    np.testing.assert_allclose(gradients[0], [-2.0, 1.0])
    assert gradients[1] is None
    np.testing.assert_array_equal(info.extra.ratios, [1.0, 1.0])
    np.testing.assert_array_equal(info.extra.clipped, [0.0, 0.0])
    np.testing.assert_array_equal(info.extra.approx_kl, [0.0, 0.0])


@both_ways(lambda *args: tuple(losses.ppo_clip_loss(*args)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ppo_clip_loss_case_by_case(run, dtype):
    old = tf.constant([-1.0, -0.1, -3.0, -2.0, -1.0, -0.5, 0.0], dtype)
    log_probs = old + tf.constant(np.log(RATIOS), dtype)
    loss, extra = run(log_probs, old, tf.constant(ADVANTAGES, dtype), 0.2)
    cases = [ppo_slowly(r, a, 0.2) for r, a in zip(RATIOS, ADVANTAGES, strict=True)]
    assert loss.dtype == dtype
    np.testing.assert_allclose(loss, [loss for loss, _ in cases], rtol=1e-5)
    np.testing.assert_array_equal(extra.clipped, [cut for _, cut in cases])
    np.testing.assert_allclose(extra.ratios, RATIOS, rtol=1e-5)
    np.testing.assert_allclose(
        extra.approx_kl, RATIOS - 1.0 - np.log(RATIOS), rtol=1e-4, atol=1e-6
    )


def test_ppo_gradient_is_zero_exactly_where_clipped():
    log_probs = tf.constant(np.log(RATIOS))
    old, advantages = tf.zeros_like(log_probs), tf.constant(ADVANTAGES)
    with tf.GradientTape() as tape:
        tape.watch([log_probs, old, advantages])
        info = losses.ppo_clip_loss(log_probs, old, advantages, 0.2)
    gradient, of_old, of_advantages = tape.gradient(
        info.loss, [log_probs, old, advantages]
    )
    free = -RATIOS * ADVANTAGES
    expected = np.where(info.extra.clipped.numpy() == 1.0, 0.0, free)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)
    assert of_old is None
    assert of_advantages is None


@pytest.mark.parametrize(
    ("old_log_prob", "advantage", "loss"),
    [(-100.0, 1.0, -1.2), (-1e30, 0.0, 0.0), (100.0, -1.0, 0.8)],
    ids=["above", "indifferent", "below"],
)
def test_ppo_ratios_beyond_the_number_range_are_cut_like_others(
    old_log_prob, advantage, loss
):
    log_probs = tf.zeros([1])
    with tf.GradientTape() as tape:
        tape.watch(log_probs)
        info = losses.ppo_clip_loss(
            log_probs, tf.constant([old_log_prob]), tf.constant([advantage]), 0.2
        )
    np.testing.assert_allclose(info.loss, [loss], rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(info.loss, log_probs), [0.0])


def test_ppo_takes_a_tensor_as_clip():
    loss = tf.function(
        lambda clip: (
            losses.ppo_clip_loss(
                tf.math.log([1.5]), tf.zeros([1]), tf.ones([1]), clip
            ).loss
        )
    )
    np.testing.assert_allclose(loss(tf.constant(0.1)), [-1.1], rtol=1e-6)
    np.testing.assert_allclose(loss(tf.constant(0.3)), [-1.3], rtol=1e-6)


@both_ways(lambda *args: tuple(losses.value_loss(*args)))
def test_value_loss(run):
    loss, extra = run(tf.constant([3.0, 0.0]), tf.constant([1.0, 4.0]))
    np.testing.assert_allclose(loss, [2.0, 8.0])
    np.testing.assert_allclose(extra.errors, [-2.0, 4.0])


@both_ways(lambda *args: losses.value_loss(*args).loss)
def test_value_loss_clipped_by_hand(run):
    # values:        inside, too far towards the return, too far away from it
    values = tf.constant([1.2, 3.0, -2.0])
    returns = tf.constant([2.0, 3.0, 3.0])
    old_values = tf.constant([1.0, 1.0, 1.0])
    loss = run(values, returns, old_values, 0.5)
    # near = 1.2, 1.5, 0.5; the worse of both errors counts.
    np.testing.assert_allclose(loss, [0.32, 1.125, 12.5], rtol=1e-6)


def test_value_gradient_stops_where_clipping_is_worse():
    values = tf.constant([1.2, 3.0, -2.0])
    returns, old_values = tf.constant([2.0, 3.0, 3.0]), tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch([values, returns, old_values])
        loss = losses.value_loss(values, returns, old_values, 0.5).loss
    gradient, *others = tape.gradient(loss, [values, returns, old_values])
    np.testing.assert_allclose(gradient, [-0.8, 0.0, -5.0], rtol=1e-5)
    assert others == [None, None]


@refusals.table(
    (losses.policy_gradient_loss, bad(ValueError, "advantages", zeros(2), zeros(2, 1))),
    (
        losses.ppo_clip_loss,
        bad(ValueError, "old_log_probs", zeros(2), zeros(3), zeros(2), 0.2),
        bad(ValueError, "advantages", zeros(2), zeros(2), zeros(1), 0.2),
        bad(ValueError, "clip", zeros(2), zeros(2), zeros(2), -0.2),
    ),
    (
        losses.value_loss,
        bad(ValueError, "returns", zeros(2), zeros(2, 2)),
        bad(ValueError, "old_values", zeros(2), zeros(2), zeros(3), 0.1),
        bad(ValueError, "old_values", zeros(2), zeros(2), zeros(2)),
        bad(ValueError, "clip", zeros(2), zeros(2), clip=0.1),
        bad(ValueError, "clip", zeros(2), zeros(2), zeros(2), -1.0),
    ),
)
def test_errors(row):
    row()


F, D, N = (tf.ones([2], dtype) for dtype in ("float32", "float64", "int32"))


@refusals.table(
    (
        losses.value_loss,
        bad(TypeError, "returns", F, N),
        bad(TypeError, "values", N, N),
        bad(TypeError, "old_values", F, F, D, 0.2),
    ),
    (
        losses.ppo_clip_loss,
        bad(TypeError, "old_log_probs", F, D, F, 0.2),
        bad(TypeError, "advantages", F, F, N, 0.2),
        bad(TypeError, "log_probs", N, N, N, 0.2),
    ),
    (
        losses.policy_gradient_loss,
        bad(TypeError, "advantages", F, D),
        bad(TypeError, "log_probs", N, N),
    ),
)
def test_dtypes_are_checked(row):
    row()


LOGITS = np.array([[0.3, -1.0, 0.7], [0.0, 2.0, -0.5]])
VALUES = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])


def softmax(row):
    shares = np.exp(row - row.max())
    return shares / shares.sum()


@both_ways(
    lambda logits, q_values: (
        losses.entropy_loss(logits),
        losses.q_policy_gradient_loss(logits, q_values),
        losses.regret_matching_loss(logits, q_values),
        losses.regret_policy_gradient_loss(logits, q_values),
    )
)
def test_losses_of_all_actions_row_by_row(run):
    found = run(tf.constant(LOGITS), tf.constant(VALUES))
    for row in range(2):
        probs = softmax(LOGITS[row])
        advantages = VALUES[row] - probs @ VALUES[row]
        better = np.maximum(advantages, 0)
        expected = [
            probs @ np.log(probs),
            -probs @ VALUES[row],
            -probs @ better,
            better.sum(),
        ]
        np.testing.assert_allclose([x[row] for x in found], expected, atol=1e-12)


def test_gradients_of_all_actions():
    logits, values = tf.constant(LOGITS), tf.constant(VALUES)
    probs = np.array([softmax(row) for row in LOGITS])
    advantages = VALUES - np.sum(probs * VALUES, axis=1, keepdims=True)
    # Each with a derivative of its own: of pi where A is held, of A where pi is.
    by_probs = {
        losses.q_policy_gradient_loss: -advantages,
        losses.regret_matching_loss: -np.maximum(advantages, 0),
        losses.regret_policy_gradient_loss: -VALUES
        * np.sum(advantages > 0, axis=1, keepdims=True),
    }
    for loss_of, slopes in by_probs.items():
        with tf.GradientTape() as tape:
            tape.watch([logits, values])
            loss = loss_of(logits, values)
        gradient, to_values = tape.gradient(loss, [logits, values])
        assert to_values is None
        mean = np.sum(probs * slopes, axis=1, keepdims=True)
        np.testing.assert_allclose(gradient, probs * (slopes - mean), atol=1e-12)


def test_entropy_of_masked_actions_is_that_of_the_others():
    none = -np.inf
    logits = tf.constant([[0.5, none, 0.1], [none, 3.0, none], [none] * 3])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = losses.entropy_loss(logits)
    expected = [float(losses.entropy_loss([0.5, 0.1])), 0.0, 0.0]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    gradient = tape.gradient(loss, logits).numpy()
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[1:], zeros(2, 3))
    assert np.isnan(losses.entropy_loss([np.nan, 0.0]))


ALL_ACTIONS = (
    losses.q_policy_gradient_loss,
    losses.regret_matching_loss,
    losses.regret_policy_gradient_loss,
)


def losses_and_slopes(logits, q_values):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        found = [loss(logits, q_values) for loss in ALL_ACTIONS]
    return [(loss, tape.gradient(loss, logits)) for loss in found]


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, 100.0, -100.0])
@both_ways(losses_and_slopes)
def test_the_value_of_a_masked_action_does_not_count(run, value):
    logits = tf.constant([[0.5, -np.inf, 0.1]])
    masked = run(logits, tf.constant([[-1.0, value, -3.0]]))
    others = run(tf.constant([[0.5, 0.1]]), tf.constant([[-1.0, -3.0]]))
    for (loss, slopes), (expected, slopes_of_others) in zip(
        masked, others, strict=True
    ):
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_allclose(slopes.numpy()[:, ::2], slopes_of_others, rtol=1e-5)
        np.testing.assert_array_equal(slopes[:, 1], [0.0])
    seen = run(tf.zeros([1, 3]), tf.constant([[1.0, np.nan, 3.0]]))
    assert all(np.isnan(loss).all() for loss, _ in seen)


@both_ways(losses_and_slopes)
def test_an_action_that_is_allowed_has_a_regret_however_improbable(run):
    found = run(tf.constant([[0.0, -300.0]]), tf.constant([[1.0, 3.0]]))
    np.testing.assert_array_equal([loss for loss, _ in found], [[-1.0], [0.0], [2.0]])


@refusals.table(
    (
        losses.entropy_loss,
        bad(ValueError, "logits", 1.0),
        bad(TypeError, "logits", [1, 2]),
    ),
    *(
        (
            loss,
            bad(ValueError, "q_values", zeros(2, 3), zeros(2, 4)),
            bad(TypeError, "q_values", zeros(2, 3), tf.ones([2, 3])),
        )
        for loss in ALL_ACTIONS
    ),
)
def test_errors_of_all_actions(row):
    row()
