"""Tests of `tfrl.losses.temporal_difference`."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import temporal_difference as td

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

    close(td.td_target(rewards, discounts, q[..., 0]), lambda i: q[i][0])
    close(td.q_learning_target(rewards, discounts, q), lambda i: max(q[i]))
    close(
        td.double_q_target(rewards, discounts, q, selector),
        lambda i: q[i][list(selector[i]).index(max(selector[i]))],
    )
    close(
        td.expected_sarsa_target(rewards, discounts, q, probs),
        lambda i: math.fsum(p * x for p, x in zip(probs[i], q[i], strict=True)),
    )
    close(td.clipped_double_q_target(rewards, discounts, q), lambda i: min(q[i]))
    close(
        td.clipped_double_q_target(rewards, discounts, q, selector[..., 0], 0.2),
        lambda i: min(q[i]) - 0.2 * selector[i][0],
    )


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_targets_by_hand_with_unknown_sizes(jit_compile):
    row, table = tf.TensorSpec([None]), tf.TensorSpec([None, None])

    @tf.function(input_signature=[row, row, table, table], jit_compile=jit_compile)
    def targets(rewards, discounts, q, other):
        return (
            td.q_learning_target(rewards, discounts, q),
            td.double_q_target(rewards, discounts, q, other),
            td.expected_sarsa_target(rewards, discounts, q, other),
            td.clipped_double_q_target(rewards, discounts, q, other[:, 0], 2.0),
            td.td_target(rewards, discounts, td.q_taken(q, tf.constant([1, 0]))),
        )

    q_values, probs = [[3.0, 5.0], [8.0, 6.0]], [[0.75, 0.25], [0.0, 1.0]]
    results = targets([1.0, 2.0], [0.5, 0.0], q_values, probs)
    expected = [[3.5, 2.0], [2.5, 2.0], [2.75, 2.0], [1.75, 2.0], [3.5, 2.0]]
    np.testing.assert_allclose(results, expected, rtol=1e-6)


def test_identities():
    rewards, discounts, q, _, _ = draw((7,))
    greedy = np.eye(4)[np.argmax(q, -1)]
    learned = td.q_learning_target(rewards, discounts, q)
    same = [
        td.double_q_target(rewards, discounts, q, q),
        td.expected_sarsa_target(rewards, discounts, q, greedy),
        td.td_target(rewards, discounts, td.q_taken(q, np.argmax(q, -1))),
        -td.clipped_double_q_target(-rewards, discounts, -q),
    ]
    for target in same:
        np.testing.assert_allclose(target, learned, rtol=1e-12)


def test_several_steps_come_as_one():
    rewards, gamma, last = [1.0, -2.0, 4.0], 0.9, 10.0
    one_by_one = last
    for reward in reversed(rewards):
        one_by_one = float(td.td_target(reward, gamma, np.float64(one_by_one)))
    summed = sum(gamma**n * reward for n, reward in enumerate(rewards))
    at_once = td.td_target(summed, gamma**3, np.float64(last))
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-12)


def test_nothing_follows_the_end():
    # An end without a legal action: every masked value is -inf, and their mean NaN.
    masked = np.full((1, 2), -np.inf)
    for target in (
        td.td_target([1.0], [0.0], np.array([np.nan])),
        td.q_learning_target([1.0], [0.0], masked),
        td.double_q_target([1.0], [0.0], masked, masked),
        td.expected_sarsa_target([1.0], [0.0], masked, [[0.5, 0.5]]),
        td.clipped_double_q_target([1.0], [0.0], masked),
    ):
        np.testing.assert_array_equal(target, [1.0])
    q_values = np.array([[-np.inf, 2.0]])
    target = td.expected_sarsa_target([1.0], [0.5], q_values, [[0.0, 1.0]])
    np.testing.assert_array_equal(target, [2.0])


def test_critics_may_have_their_own_targets():
    target = td.td_target([1.0, 2.0], [0.5, 0.0], [[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]])
    np.testing.assert_allclose(target, [[2.0, 3.0, 4.0], [2.0, 2.0, 2.0]])
    target = td.td_target([1.0, 2.0], 0.5, [2.0, 4.0])
    np.testing.assert_allclose(target, [2.0, 4.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_is_kept(dtype):
    q, row = tf.constant([[1.0, 2.0]], dtype), tf.constant([1.0], dtype)
    for result in (
        td.td_target(row, row, row),
        td.q_learning_target(row, row, q),
        td.double_q_target(row, row, q, q),
        td.expected_sarsa_target(row, row, q, q),
        td.clipped_double_q_target(row, row, q, row, 0.5),
        td.clipped_double_q_target(row, row, q, row, tf.Variable(0.5)),
        td.q_taken(q, [0]),
        *td.td_loss(q, row),
        *td.td_loss(row, row, 0.5),
        *td.expectile_loss(q, row, 0.7),
    ):
        assert {x.dtype.name for x in tf.nest.flatten(result)} == {dtype}


def test_no_gradient_flows_through_targets():
    arguments = [tf.constant(x) for x in draw((5,))]
    rewards, discounts, q, selector, probs = arguments
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        total = (
            td.td_target(rewards, discounts, q[..., 0])
            + td.q_learning_target(rewards, discounts, q)
            + td.double_q_target(rewards, discounts, q, selector)
            + td.expected_sarsa_target(rewards, discounts, q, probs)
            + td.clipped_double_q_target(rewards, discounts, q, rewards, 0.2)
        )
    assert tape.gradient(total, arguments) == [None] * 5


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_q_taken_gathers(dtype):
    q = np.random.default_rng(0).normal(size=(3, 2, 4, 5))
    actions = np.random.default_rng(1).integers(0, 4, (3, 2)).astype(dtype)
    for values in (q[..., 0], q):
        taken = td.q_taken(values, actions)
        for index in np.ndindex(actions.shape):
            expected = values[index][actions[index]]
            np.testing.assert_array_equal(taken[index], expected)
    np.testing.assert_array_equal(td.q_taken(q[0, 0, :, 0], 2), q[0, 0, 2, 0])


def test_q_taken_passes_the_gradient_to_what_it_picked():
    q = tf.constant([[1.0, 2.0, 3.0], [4.0, np.inf, 6.0]])
    with tf.GradientTape() as tape:
        tape.watch(q)
        taken = td.q_taken(q, [2, 0])
    gradient = tape.gradient(taken, q, output_gradients=tf.constant([2.0, 3.0]))
    np.testing.assert_array_equal(gradient, [[0.0, 0.0, 2.0], [3.0, 0.0, 0.0]])


@pytest.mark.parametrize("action", [-1, 3])
def test_q_taken_refuses_unknown_actions_on_a_cpu(action):
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        td.q_taken([[1.0, 2.0, 3.0]], [action])


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_td_loss_by_hand(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def losses(values, targets):
        return td.td_loss(values, targets), td.td_loss(values, targets, huber_delta=1.0)

    squared, huber = losses([[1.0, 3.5], [2.0, 6.0]], [3.0, 2.0])  # two critics
    np.testing.assert_allclose(squared.loss, [[2.0, 0.125], [0.0, 8.0]])
    np.testing.assert_allclose(huber.loss, [[1.5, 0.125], [0.0, 3.5]])
    for extra in (squared.extra, huber.extra):
        np.testing.assert_allclose(extra.errors, [[2.0, -0.5], [0.0, -4.0]])
        np.testing.assert_allclose(extra.priorities, [2.0, 4.0])
    alone = td.td_loss([1.0, 6.0], [3.0, 2.0]).extra
    np.testing.assert_allclose(alone.errors, [2.0, -4.0])
    np.testing.assert_allclose(alone.priorities, [2.0, 4.0])


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda v, t: td.td_loss(v, t).loss,
        lambda v, t: td.td_loss(v, t, 0.7).loss,
        lambda v, t: td.expectile_loss(v, t, 0.8).loss,
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
    loss, extra = td.expectile_loss([[0.0, 3.0], [1.0, 1.0]], [2.0, -1.0], 0.75)
    np.testing.assert_allclose(loss, [[3.0, 0.25], [1.0, 1.0]])
    np.testing.assert_allclose(extra.errors, [[2.0, -1.0], [-2.0, -2.0]])
    np.testing.assert_allclose(extra.priorities, [2.0, 2.0])


def test_middle_expectile_is_the_squared_loss():
    values, targets = np.random.default_rng(0).normal(size=(2, 9))
    np.testing.assert_allclose(
        td.expectile_loss(values, targets, 0.5).loss, td.td_loss(values, targets).loss
    )


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.9])
def test_least_expectile_loss_is_at_the_expectile(expectile):
    sample = np.random.default_rng(0).normal(size=50)
    value = tf.constant(expectile_slowly(sample, expectile))
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = td.expectile_loss(tf.fill([50], value), sample, expectile).loss
    assert abs(float(tape.gradient(loss, value))) < 1e-9


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: td.td_target(np.zeros((2, 1)), 1.0, np.zeros(2)),
            ValueError,
            r"`td_target`: `rewards` expected the shape of `next_values` \[2\]",
        ),
        (
            lambda: td.td_target(np.zeros(2), np.zeros(3), np.zeros(2)),
            ValueError,
            "`td_target`: `discounts` expected the shape",
        ),
        (
            lambda: td.td_target([1.0], [1.0], [1]),
            TypeError,
            "`td_target`: `next_values` expected a floating-point dtype",
        ),
        (
            lambda: td.q_learning_target(np.zeros((2, 4)), 1.0, np.zeros((2, 4))),
            ValueError,
            r"`rewards` expected the shape of `next_q_values\[..., 0\]` \[2\]",
        ),
        (
            lambda: td.double_q_target(0.0, 1.0, np.zeros((2, 4)), np.zeros((2, 3))),
            ValueError,
            r"`next_q_selector` expected the shape of `next_q_values` \[2, 4\]",
        ),
        (
            lambda: td.expected_sarsa_target(0.0, 1.0, np.zeros(4), np.zeros((2, 4))),
            ValueError,
            "`expected_sarsa_target`: `next_probs` expected the shape",
        ),
        (
            lambda: td.clipped_double_q_target(
                0.0, 1.0, [1.0, 2.0], next_log_probs=0.0
            ),
            ValueError,
            "expected together; got only `next_log_probs`",
        ),
        (
            lambda: td.clipped_double_q_target(0.0, 1.0, [1.0, 2.0], alpha=0.1),
            ValueError,
            "expected together; got only `alpha`",
        ),
        (
            lambda: td.clipped_double_q_target(0.0, 1.0, [1.0, 2.0], [1.0], 0.1),
            ValueError,
            "`next_log_probs` expected the shape",
        ),
        (
            lambda: td.q_taken(np.zeros((2, 3)), np.zeros(2)),
            TypeError,
            "`q_taken`: `actions` expected integers; got float64",
        ),
        (
            lambda: td.q_taken(np.zeros((2, 3)), [0, 1, 2]),
            ValueError,
            "`q_taken`: `actions` expected the shape of `q_values`",
        ),
        (
            lambda: td.q_taken(np.zeros(2), [0, 1]),
            ValueError,
            "`q_taken`: `q_values` expected rank of at least 2",
        ),
        (
            lambda: td.td_loss(np.zeros(2), np.zeros((2, 1))),
            ValueError,
            "`td_loss`: `targets` expected the shape of `values`",
        ),
        (
            lambda: td.td_loss(np.zeros(2), np.zeros(2), huber_delta=0.0),
            ValueError,
            "`td_loss`: `huber_delta` expected numbers > 0",
        ),
        (
            lambda: td.td_loss(tf.zeros(2), tf.zeros(2, tf.float64)),
            TypeError,
            "`td_loss`: `targets` expected dtype float32",
        ),
        (
            lambda: td.expectile_loss(np.zeros(2), np.zeros(2), 1.5),
            ValueError,
            r"`expectile_loss`: `expectile` expected numbers in \[0.0, 1.0\]",
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
