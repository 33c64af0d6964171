"""Tests of `tfrl.losses.temporal_difference`."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses, ops

SHAPES = [(), (5,), (3, 2)]
IDS = ["scalar", "B", "TB"]


def draw(shape, n_actions=4, seed=0):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=shape)
    discounts = 0.9 * rng.integers(0, 2, shape)
    first, second = rng.normal(size=(2, *shape, n_actions))
    probs = rng.dirichlet(np.ones(n_actions), shape)
    return rewards, discounts, first, second, probs


def slowly(value_of, rewards, discounts):
    """Loops over the elements; `value_of(index)` is what follows."""
    targets = np.zeros(np.shape(rewards))
    for index in np.ndindex(targets.shape):
        targets[index] = np.asarray(rewards)[index]
        if np.asarray(discounts)[index] != 0:
            targets[index] += np.asarray(discounts)[index] * value_of(index)
    return targets


def expectile_slowly(sample, expectile):
    """The point at which the weighted errors cancel, by bisection."""
    low, high = min(sample), max(sample)
    for _ in range(200):
        middle = (low + high) / 2
        above = sum(x - middle for x in sample if x > middle)
        below = sum(middle - x for x in sample if x < middle)
        if expectile * above > (1 - expectile) * below:
            low = middle
        else:
            high = middle
    return middle


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_targets_element_by_element(shape):
    rewards, discounts, q, selector, probs = draw(shape)

    def close(target, value_of):
        expected = slowly(value_of, rewards, discounts)
        assert target.shape == shape
        np.testing.assert_allclose(target, expected, rtol=1e-12)

    close(losses.td_target(rewards, discounts, q[..., 0]), lambda i: q[i][0])
    close(losses.q_learning_target(rewards, discounts, q), lambda i: max(q[i]))
    close(
        losses.double_q_target(rewards, discounts, q, selector),
        lambda i: q[i][list(selector[i]).index(max(selector[i]))],
    )
    close(
        losses.expected_sarsa_target(rewards, discounts, q, probs),
        lambda i: math.fsum(p * x for p, x in zip(probs[i], q[i], strict=True)),
    )
    close(losses.clipped_double_q_target(rewards, discounts, q), lambda i: min(q[i]))
    close(
        losses.clipped_double_q_target(rewards, discounts, q, selector[..., 0], 0.2),
        lambda i: min(q[i]) - 0.2 * selector[i][0],
    )


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_targets_by_hand_with_unknown_sizes(jit_compile):
    row, table = tf.TensorSpec([None]), tf.TensorSpec([None, None])

    @tf.function(input_signature=[row, row, table, table], jit_compile=jit_compile)
    def targets(rewards, discounts, q, other):
        return (
            losses.q_learning_target(rewards, discounts, q),
            losses.double_q_target(rewards, discounts, q, other),
            losses.expected_sarsa_target(rewards, discounts, q, other),
            losses.clipped_double_q_target(rewards, discounts, q, other[:, 0], 2.0),
            losses.td_target(
                rewards, discounts, losses.q_taken(q, tf.constant([1, 0]))
            ),
        )

    q_values, probs = [[3.0, 5.0], [8.0, 6.0]], [[0.75, 0.25], [0.0, 1.0]]
    results = targets([1.0, 2.0], [0.5, 0.0], q_values, probs)
    expected = [[3.5, 2.0], [2.5, 2.0], [2.75, 2.0], [1.75, 2.0], [3.5, 2.0]]
    np.testing.assert_allclose(results, expected, rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_critic_that_diverged_shows(jit_compile):
    """XLA's minimum of NaN and a number is the number on a CPU."""

    @tf.function(jit_compile=jit_compile)
    def targets(values):
        ones = tf.ones([4])
        return (
            losses.q_learning_target(ones, ones, values),
            losses.clipped_double_q_target(ones, ones, values),
            losses.td_loss(values, ones).extra.priorities,
            losses.sac_actor_loss(ones, values, 1.0).loss,
            ops.q_lambda_return(ones, ones, values, 0.0),
        )

    rows = [[np.nan, 1.0], [1.0, np.nan], [np.inf, 0.0], [2.0, -np.inf]]
    sound = [[np.inf, 3.0], [1.0, -np.inf], [np.inf] * 2, [1.0, np.inf], [np.inf, 3.0]]
    for got, rest in zip(targets(tf.constant(rows)), sound, strict=True):
        np.testing.assert_array_equal(got, [np.nan, np.nan, *rest])


def test_identities():
    rewards, discounts, q, _, _ = draw((7,))
    greedy = np.eye(4)[np.argmax(q, -1)]
    learned = losses.q_learning_target(rewards, discounts, q)
    same = [
        losses.double_q_target(rewards, discounts, q, q),
        losses.expected_sarsa_target(rewards, discounts, q, greedy),
        losses.td_target(rewards, discounts, losses.q_taken(q, np.argmax(q, -1))),
        -losses.clipped_double_q_target(-rewards, discounts, -q),
    ]
    for target in same:
        np.testing.assert_allclose(target, learned, rtol=1e-12)


def test_several_steps_come_as_one():
    rewards, gamma, last = [1.0, -2.0, 4.0], 0.9, 10.0
    one_by_one = last
    for reward in reversed(rewards):
        one_by_one = float(losses.td_target(reward, gamma, np.float64(one_by_one)))
    summed = sum(gamma**n * reward for n, reward in enumerate(rewards))
    at_once = losses.td_target(summed, gamma**3, np.float64(last))
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-12)


def test_nothing_follows_the_end():
    # An end without a legal action: every masked value is -inf, and their mean NaN.
    masked = np.full((1, 2), -np.inf)
    for target in (
        losses.td_target([1.0], [0.0], np.array([np.nan])),
        losses.q_learning_target([1.0], [0.0], masked),
        losses.double_q_target([1.0], [0.0], masked, masked),
        losses.expected_sarsa_target([1.0], [0.0], masked, [[0.5, 0.5]]),
        losses.clipped_double_q_target([1.0], [0.0], masked),
    ):
        np.testing.assert_array_equal(target, [1.0])
    q_values = np.array([[-np.inf, 2.0]])
    target = losses.expected_sarsa_target([1.0], [0.5], q_values, [[0.0, 1.0]])
    np.testing.assert_array_equal(target, [2.0])


def test_critics_may_have_their_own_targets():
    target = losses.td_target(
        [1.0, 2.0], [0.5, 0.0], [[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]]
    )
    np.testing.assert_allclose(target, [[2.0, 3.0, 4.0], [2.0, 2.0, 2.0]])
    target = losses.td_target([1.0, 2.0], 0.5, [2.0, 4.0])
    np.testing.assert_allclose(target, [2.0, 4.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_is_kept(dtype):
    q, row = tf.constant([[1.0, 2.0]], dtype), tf.constant([1.0], dtype)
    for result in (
        losses.td_target(row, row, row),
        losses.q_learning_target(row, row, q),
        losses.double_q_target(row, row, q, q),
        losses.expected_sarsa_target(row, row, q, q),
        losses.clipped_double_q_target(row, row, q, row, 0.5),
        losses.clipped_double_q_target(row, row, q, row, tf.Variable(0.5)),
        losses.q_taken(q, [0]),
        *losses.td_loss(q, row),
        *losses.td_loss(row, row, 0.5),
        *losses.expectile_loss(q, row, 0.7),
    ):
        assert {x.dtype.name for x in tf.nest.flatten(result)} == {dtype}


def test_no_gradient_flows_through_targets():
    arguments = [tf.constant(x) for x in draw((5,))]
    rewards, discounts, q, selector, probs = arguments
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        total = (
            losses.td_target(rewards, discounts, q[..., 0])
            + losses.q_learning_target(rewards, discounts, q)
            + losses.double_q_target(rewards, discounts, q, selector)
            + losses.expected_sarsa_target(rewards, discounts, q, probs)
            + losses.clipped_double_q_target(rewards, discounts, q, rewards, 0.2)
        )
    assert tape.gradient(total, arguments) == [None] * 5


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_q_taken_gathers(dtype):
    q = np.random.default_rng(0).normal(size=(3, 2, 4, 5))
    actions = np.random.default_rng(1).integers(0, 4, (3, 2)).astype(dtype)
    for values in (q[..., 0], q):
        taken = losses.q_taken(values, actions)
        for index in np.ndindex(actions.shape):
            expected = values[index][actions[index]]
            np.testing.assert_array_equal(taken[index], expected)
    np.testing.assert_array_equal(losses.q_taken(q[0, 0, :, 0], 2), q[0, 0, 2, 0])


def test_q_taken_passes_the_gradient_to_what_it_picked():
    q = tf.constant([[1.0, 2.0, 3.0], [4.0, np.inf, 6.0]])
    with tf.GradientTape() as tape:
        tape.watch(q)
        taken = losses.q_taken(q, [2, 0])
    gradient = tape.gradient(taken, q, output_gradients=tf.constant([2.0, 3.0]))
    np.testing.assert_array_equal(gradient, [[0.0, 0.0, 2.0], [3.0, 0.0, 0.0]])


@pytest.mark.parametrize("action", [-1, 3])
def test_q_taken_refuses_unknown_actions(action):
    told = r"`q_taken`: `actions` expected numbers in \[0, 2\]; got"
    for function in (losses.q_taken, losses.conservative_q_loss):
        with pytest.raises(ValueError, match=told):
            function([[1.0, 2.0, 3.0]], [action])


def test_q_taken_takes_known_actions_of_unknown_values():
    taken = tf.function(
        lambda q: losses.q_taken(q, np.array([1])),
        input_signature=[tf.TensorSpec([1, None])],
    )
    assert taken(tf.constant([[1.0, 2.0]])).numpy().tolist() == [2.0]
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        taken(tf.constant([[1.0]]))


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_td_loss_by_hand(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def both(values, targets):
        return losses.td_loss(values, targets), losses.td_loss(
            values, targets, huber_delta=1.0
        )

    squared, huber = both([[1.0, 3.5], [2.0, 6.0]], [3.0, 2.0])  # two critics
    np.testing.assert_allclose(squared.loss, [[2.0, 0.125], [0.0, 8.0]])
    np.testing.assert_allclose(huber.loss, [[1.5, 0.125], [0.0, 3.5]])
    for extra in (squared.extra, huber.extra):
        np.testing.assert_allclose(extra.errors, [[2.0, -0.5], [0.0, -4.0]])
        np.testing.assert_allclose(extra.priorities, [2.0, 4.0])
    alone = losses.td_loss([1.0, 6.0], [3.0, 2.0]).extra
    np.testing.assert_allclose(alone.errors, [2.0, -4.0])
    np.testing.assert_allclose(alone.priorities, [2.0, 4.0])


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda v, t: losses.td_loss(v, t).loss,
        lambda v, t: losses.td_loss(v, t, 0.7).loss,
        lambda v, t: losses.expectile_loss(v, t, 0.8).loss,
    ],
    ids=["squared", "huber", "expectile"],
)
def test_gradients_flow_to_values_alone(loss_of):
    rng = np.random.default_rng(0)
    values, targets = (
        tf.constant(rng.normal(size=(4, 2))),
        tf.constant(rng.normal(size=4)),
    )
    with tf.GradientTape() as tape:
        tape.watch(targets)
        loss = loss_of(values, targets)
    assert tape.gradient(loss, targets) is None
    theory, measured = tf.test.compute_gradient(lambda v: loss_of(v, targets), [values])
    np.testing.assert_allclose(theory, measured, atol=1e-6)


def test_expectile_loss_by_hand():
    loss, extra = losses.expectile_loss([[0.0, 3.0], [1.0, 1.0]], [2.0, -1.0], 0.75)
    np.testing.assert_allclose(loss, [[3.0, 0.25], [1.0, 1.0]])
    np.testing.assert_allclose(extra.errors, [[2.0, -1.0], [-2.0, -2.0]])
    np.testing.assert_allclose(extra.priorities, [2.0, 2.0])


def test_middle_expectile_is_the_squared_loss():
    values, targets = np.random.default_rng(0).normal(size=(2, 9))
    np.testing.assert_allclose(
        losses.expectile_loss(values, targets, 0.5).loss,
        losses.td_loss(values, targets).loss,
    )


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.9])
def test_least_expectile_loss_is_at_the_expectile(expectile):
    sample = np.random.default_rng(0).normal(size=50)
    value = tf.constant(expectile_slowly(sample, expectile))
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = losses.expectile_loss(tf.fill([50], value), sample, expectile).loss
    assert abs(float(tape.gradient(loss, value))) < 1e-9


@refusals.table(
    (
        losses.td_target,
        bad(ValueError, "rewards", zeros(2, 1), 1.0, zeros(2)),
        bad(ValueError, "discounts", zeros(2), zeros(3), zeros(2)),
        bad(TypeError, "next_values", [1.0], [1.0], [1]),
        bad(TypeError, "rewards", np.ones(2), 1.0, np.ones(2, np.float32)),
    ),
    (
        losses.q_learning_target,
        bad(ValueError, "rewards", zeros(2, 4), 1.0, zeros(2, 4)),
    ),
    (
        losses.double_q_target,
        bad(ValueError, "next_q_selector", 0.0, 1.0, zeros(2, 4), zeros(2, 3)),
    ),
    (
        losses.expected_sarsa_target,
        bad(ValueError, "next_probs", 0.0, 1.0, zeros(4), zeros(2, 4)),
    ),
    (
        losses.clipped_double_q_target,
        bad(ValueError, "next_log_probs", 0.0, 1.0, [1.0, 2.0], next_log_probs=0.0),
        bad(ValueError, "alpha", 0.0, 1.0, [1.0, 2.0], alpha=0.1),
        bad(ValueError, "next_log_probs", 0.0, 1.0, [1.0, 2.0], [1.0], 0.1),
    ),
    (
        losses.q_taken,
        bad(TypeError, "actions", zeros(2, 3), zeros(2)),
        bad(ValueError, "actions", zeros(2, 3), [0, 1, 2]),
        bad(ValueError, "q_values", zeros(2), [0, 1]),
    ),
    (
        losses.td_loss,
        bad(ValueError, "targets", zeros(2), zeros(2, 1)),
        bad(ValueError, "huber_delta", zeros(2), zeros(2), huber_delta=0.0),
        bad(TypeError, "targets", tf.zeros(2), tf.zeros(2, tf.float64)),
    ),
    (losses.expectile_loss, bad(ValueError, "expectile", zeros(2), zeros(2), 1.5)),
)
def test_errors(row):
    row()
