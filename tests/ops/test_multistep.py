"""Returns over several steps against their definitions, written out step by step."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad

from tfrl import losses, ops


def draw(steps, *shape, seed=0, dtype=np.float64):
    """Values, next values, rewards, discounts, ratios and lambdas."""
    rng = np.random.default_rng(seed)
    values, next_values, rewards, logs = rng.normal(size=(4, steps, *shape))
    discounts = 0.9 * (rng.random((steps, *shape)) > 0.2)
    lambdas = rng.random((steps, *shape)) * (rng.random((steps, *shape)) > 0.3)
    drawn = values, next_values, rewards, discounts, np.exp(logs), lambdas
    return [array.astype(dtype) for array in drawn]


def n_steps_slowly(rewards, discounts, next_values, n_steps, lambdas):
    """Forward view: the sums that end at each step, and how much of each there is."""
    out = np.zeros_like(next_values)
    steps = len(rewards)
    for start in range(steps):
        reached, summed, discounted = 1.0, 0.0, 1.0
        for t in range(start, min(start + n_steps, steps)):
            summed += discounted * rewards[t]
            discounted *= discounts[t]
            is_last = t in (steps - 1, start + n_steps - 1)
            stays = 0.0 if is_last else lambdas[t]
            out[start] += reached * (1 - stays) * (summed + discounted * next_values[t])
            reached *= stays
    return out


def corrected_slowly(values, next_values, rewards, discounts, traces, lambdas):
    """Munos et al. (2016), equation 3: errors, each by the traces up to it."""
    out = np.array(values)
    for start in range(len(values)):
        product = 1.0
        for t in range(start, len(values)):
            delta = rewards[t] + discounts[t] * next_values[t] - values[t]
            out[start] += product * delta
            if t + 1 < len(values):
                product *= discounts[t] * lambdas[t] * traces[t + 1]
    return out


def columns(function, *arrays):
    """Applies a function of sequences to each column."""
    out = np.zeros(arrays[0].shape)
    for column in np.ndindex(arrays[0].shape[1:]):
        at = (slice(None), *column)
        out[at] = function(*(array[at] for array in arrays))
    return out


@pytest.mark.parametrize("n_steps", [1, 3, *slow(2, 5, 9)])
@pytest.mark.parametrize("steps", [1, 5])
def test_n_steps_one_by_one(steps, n_steps):
    _, following, rewards, discounts, _, lambdas = draw(steps, 3)
    for given in (1.0, lambdas):
        whole = np.broadcast_to(given, rewards.shape)
        expected = columns(
            lambda *row: n_steps_slowly(*row[:3], n_steps, row[3]),
            *(rewards, discounts, following, whole),
        )
        got = ops.n_step_return(rewards, discounts, following, n_steps, given)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        turned = given.T if np.ndim(given) else given
        got = ops.n_step_return(
            *(rewards.T, discounts.T, following.T, n_steps, turned), time_major=False
        )
        np.testing.assert_allclose(np.transpose(got), expected, rtol=1e-12, atol=1e-12)


def n_steps_in_turn(rewards, discounts, next_values, n_steps, lambdas):
    """The definition for all rows at once, as many times as there are steps."""
    out = rewards + discounts * next_values
    for _ in range(n_steps - 1):
        later = np.concatenate([out[1:], next_values[-1:]])
        mixed = (1 - lambdas) * next_values + lambdas * later
        out = rewards + discounts * mixed
    return out


@pytest.mark.parametrize("steps", [100, *slow(2, 12, 64)])
@pytest.mark.parametrize("n_steps", [11, *slow(10, 12, 16, 17, 63, 64, 65, 99, 100)])
def test_many_steps(steps, n_steps):
    _, following, rewards, _, _, lambdas = draw(steps, 3)
    discounts = 0.99 * (np.random.default_rng(1).random((steps, 3)) > 0.02)
    for given in (1.0, lambdas):
        expected = n_steps_in_turn(rewards, discounts, following, n_steps, given)
        got = ops.n_step_return(rewards, discounts, following, n_steps, given)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_steps", [12, *slow(8, 32, 33, 40, 500)])
def test_the_gradient_of_many_steps(n_steps):
    _, following, rewards, discounts, _, lambdas = draw(40, 2)
    lambdas, discounts = 0.5 + 0.5 * lambdas, 0.9 + 0.1 * discounts
    given = [tf.constant(x) for x in (rewards, discounts, following, lambdas)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        got = ops.n_step_return(*given[:3], n_steps, given[3])
        total = tf.reduce_sum(tf.square(got))
    direction = np.random.default_rng(1).normal(size=[4, 40, 2])
    along = sum(
        np.sum(gradient * part)
        for gradient, part in zip(tape.gradient(total, given), direction, strict=True)
    )

    def totals(share):
        moved = [x + share * part for x, part in zip(given, direction, strict=True)]
        out = n_steps_in_turn(*map(np.asarray, moved[:3]), n_steps, moved[3].numpy())
        return np.sum(out**2)

    expected = (totals(1e-6) - totals(-1e-6)) / 2e-6
    np.testing.assert_allclose(along, expected, rtol=1e-6)


@pytest.mark.slow
def test_the_graph_of_many_steps_is_small():
    def size_of(n_steps):
        function = tf.function(lambda x: ops.n_step_return(x, x, x, n_steps))
        graph = function.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph
        inner = graph.as_graph_def().library.function
        return len(graph.get_operations()) + sum(len(f.node_def) for f in inner)

    assert size_of(1024) < 1.5 * size_of(256)


def test_what_is_infinite_counts_after_any_number_of_steps():
    rewards = np.zeros(600, np.float32)
    discounts = np.full(600, 0.5, np.float32)  # 0 in float32 over 300 steps
    values = np.zeros(600, np.float32)
    values[599] = np.inf
    got = ops.n_step_return(rewards, discounts, values, 400)
    np.testing.assert_array_equal(np.isinf(got), np.arange(600) >= 200)
    discounts[500] = 0.0
    got = ops.n_step_return(rewards, discounts, values, 400)
    np.testing.assert_array_equal(np.isinf(got), np.arange(600) > 500)
    assert not np.isnan(got).any()


@pytest.mark.slow
def test_all_steps_are_the_return_of_td_lambda():
    _, following, rewards, discounts, _, lambdas = draw(5, 3)
    for n_steps in (5, 8, 10**9):
        np.testing.assert_allclose(
            ops.n_step_return(rewards, discounts, following, n_steps, lambdas),
            ops.td_lambda_return(rewards, discounts, following, lambdas),
            rtol=1e-12,
        )


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_corrections_step_by_step(steps):
    values, following, rewards, discounts, rhos, lambdas = draw(steps, 3)
    given = values, following, rewards, discounts
    expected = columns(corrected_slowly, *given, rhos, lambdas)
    got = ops.off_policy_return(*given, rhos, lambdas)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    errors = ops.importance_corrected_td_errors(*given, rhos, lambdas)
    np.testing.assert_allclose(errors, rhos * (expected - values), rtol=1e-9)
    clipped = np.minimum(rhos, 1.0)
    expected = columns(corrected_slowly, *given, clipped, lambdas)
    np.testing.assert_allclose(ops.retrace(*given, rhos, lambdas), expected, rtol=1e-12)
    turned = ops.retrace(
        *(array.T for array in given), rhos.T, lambdas.T, time_major=False
    )
    np.testing.assert_allclose(np.transpose(turned), expected, rtol=1e-12)


def test_known_members_of_the_family():
    values, following, rewards, discounts, _, lambdas = draw(6, 3)
    given, ones = (values, following, rewards, discounts), np.ones_like(rewards)
    # With V(s[t+1]) the value of the successor and no correction: TD(lambda).
    after = np.concatenate([values[1:], following[-1:]])
    errors = ops.importance_corrected_td_errors(
        values, after, rewards, discounts, ones, lambdas
    )
    td_lambda = ops.td_lambda_return(rewards, discounts, after, lambdas)
    np.testing.assert_allclose(values + errors, td_lambda, rtol=1e-9, atol=1e-12)
    one_step = rewards + discounts * following
    for cut in (
        ops.retrace(*given, ones, 0.0),
        ops.off_policy_return(*given, 0 * ones),
    ):
        np.testing.assert_allclose(cut, one_step, rtol=1e-12)


def test_retrace_of_discrete_actions_as_its_docstring_says():
    rng = np.random.default_rng(0)
    q_values, next_q_values = rng.normal(size=(2, 5, 4, 3))
    probs, next_probs, acted = rng.dirichlet(np.ones(3), (3, 5, 4))
    actions = rng.integers(0, 3, (5, 4))
    _, _, rewards, discounts, _, lambdas = draw(5, 4)
    got = ops.retrace(
        losses.q_taken(q_values, actions),
        tf.reduce_sum(next_probs * next_q_values, axis=-1),
        rewards,
        discounts,
        losses.q_taken(probs, actions) / losses.q_taken(acted, actions),
        lambdas,
    )
    for b in range(4):
        taken = [q_values[t, b, actions[t, b]] for t in range(5)]
        means = [next_probs[t, b] @ next_q_values[t, b] for t in range(5)]
        traces = [
            min(1.0, probs[t, b, actions[t, b]] / acted[t, b, actions[t, b]])
            for t in range(5)
        ]
        columns_of = rewards[:, b], discounts[:, b], traces, lambdas[:, b]
        expected = corrected_slowly(taken, means, *columns_of)
        np.testing.assert_allclose(got[:, b], expected, rtol=1e-9)


def test_q_lambda_takes_the_best_action():
    _, _, rewards, discounts, _, lambdas = draw(5, 3)
    q_values = np.random.default_rng(1).normal(size=(5, 3, 4))
    expected = ops.td_lambda_return(rewards, discounts, q_values.max(-1), lambdas)
    got = ops.q_lambda_return(rewards, discounts, q_values, lambdas)
    np.testing.assert_array_equal(got, expected)
    got = ops.q_lambda_return(
        rewards.T, discounts.T, q_values.swapaxes(0, 1), lambdas.T, time_major=False
    )
    np.testing.assert_array_equal(np.transpose(got), expected)
    alone = ops.q_lambda_return(rewards[:, 0], discounts[:, 0], q_values[:, 0])
    expected = ops.td_lambda_return(
        rewards[:, 0], discounts[:, 0], q_values[:, 0].max(-1)
    )
    np.testing.assert_array_equal(alone, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_values_in_the_image_of_a_transform(dtype):
    values, following, rewards, discounts, rhos, lambdas = (
        tf.constant(array, dtype) for array in draw(6, 3)
    )
    transform = ops.SqrtLinearTransform(0.01)

    def outside(op, named, *rest, **options):
        """By hand: out of the image, in float64, and back."""
        wide = {k: tf.cast(v, tf.float64) for k, v in named.items()}
        wide = {
            k: transform.inverse_transform(v) if "values" in k else v
            for k, v in wide.items()
        }
        return transform.transform(op(**wide, **options))

    transitions = {"rewards": rewards, "discounts": discounts}
    corrected = {"q_values": values, "next_values": following, **transitions}
    mixed = {"lambda_": lambdas, **transitions}
    for op, named, options in (
        (ops.n_step_return, {"next_values": following, **mixed}, {"n_steps": 3}),
        (ops.q_lambda_return, {"next_q_values": values[..., tf.newaxis], **mixed}, {}),
        (ops.retrace, {"rhos": rhos, **corrected}, {}),
        (ops.off_policy_return, {"traces": rhos, **corrected}, {}),
    ):
        got = op(**named, **options, transform=transform)
        assert got.dtype == dtype
        error = 1e-10 if dtype == "float64" else 0.03
        np.testing.assert_allclose(
            tf.cast(got, tf.float64),
            outside(op, named, **options),
            rtol=error,
            atol=error,
        )


def test_what_nobody_knows_does_not_count():
    nan = np.nan
    rewards, discounts = [1.0, 1.0, 1.0], [0.5, 0.0, 0.5]
    next_values, row = [2.0, nan, 4.0], [1.0, 1.0, 1.0]
    got = ops.n_step_return(rewards, discounts, next_values, 2)
    np.testing.assert_array_equal(got, [1.5, 1.0, 3.0])
    got = ops.n_step_return([1.0, 1.0], [0.5, 0.5], [2.0, nan], 2, [0.0, 1.0])
    np.testing.assert_array_equal(got, [2.0, nan])
    got = ops.retrace([0.0] * 3, next_values, rewards, discounts, row)
    np.testing.assert_array_equal(got, [2.5, 1.0, 3.0])
    best = ops.q_lambda_return([1.0], [0.0], [[-np.inf, -np.inf]])
    np.testing.assert_array_equal(best, [1.0])


@pytest.mark.parametrize("unknown", [np.inf, np.nan])
def test_no_ratio_counts_behind_an_end(unknown):
    given = [0.0] * 3, [2.0] * 3, [1.0] * 3
    discounts, rhos = [0.5, 0.0, 0.5], [1.0, 1.0, unknown]
    got = ops.off_policy_return(*given, discounts, rhos)
    np.testing.assert_array_equal(got, [2.5, 1.0, 2.0])
    errors = ops.importance_corrected_td_errors(*given, discounts, rhos)
    np.testing.assert_array_equal(errors, [2.5, 1.0, unknown])
    got = ops.off_policy_return(*given, [0.5] * 3, rhos, [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(got, [3.0, 2.0, 2.0])
    counted = ops.off_policy_return(*given, [0.5] * 3, rhos)
    assert not np.isfinite(counted[:2]).any()


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_sizes_that_no_graph_knows(jit_compile):
    values, following, rewards, discounts, rhos, _ = draw(5, 2, dtype=np.float32)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None])] * 5, jit_compile=jit_compile
    )
    def both(values, following, rewards, discounts, rhos):
        return (
            ops.n_step_return(rewards, discounts, following, 8),
            ops.retrace(values, following, rewards, discounts, rhos),
        )

    n_step, corrected = both(values, following, rewards, discounts, rhos)
    np.testing.assert_allclose(
        n_step, ops.td_lambda_return(rewards, discounts, following), rtol=1e-5
    )
    expected = ops.retrace(values, following, rewards, discounts, rhos)
    np.testing.assert_allclose(corrected, expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_an_error_is_that_of_its_own_value():
    tensors = [tf.constant(array) for array in draw(5, 2)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        errors = ops.importance_corrected_td_errors(*tensors)
    gradient, *others = tape.gradient(errors, tensors)
    np.testing.assert_array_equal(gradient, -np.ones((5, 2)))
    assert others == [None] * 5


ROW = np.ones((3, 2))


@refusals.table(
    (
        ops.n_step_return,
        bad(ValueError, "n_steps", ROW, ROW, ROW, 0),
        bad(TypeError, "n_steps", ROW, ROW, ROW, 1.5),
        bad(ValueError, "rewards", ROW[1:], ROW, ROW, 1),
        bad(ValueError, "next_values", ROW[0, 0], 1.0, 1.0, 1),
        bad(TypeError, "next_values", ROW, ROW, [1, 2, 3], 1),
        bad(ValueError, "lambda_", ROW, ROW, ROW, 1, 1.5),
        bad(TypeError, "transform", ROW, ROW, ROW, 1, transform=tf.exp),
    ),
    (
        ops.off_policy_return,
        bad(ValueError, "next_values", ROW, ROW[1:], ROW, ROW, ROW),
        bad(ValueError, "traces", ROW, ROW, ROW, ROW, 1.0),
        bad(TypeError, "transform", ROW, ROW, ROW, ROW, ROW, transform=tf.exp),
    ),
    (
        ops.retrace,
        bad(ValueError, "discounts", ROW, ROW, ROW, ROW.T, ROW),
        bad(TypeError, "rhos", ROW, ROW, ROW, ROW, tf.ones([3, 2])),
        bad(ValueError, "lambda_", ROW, ROW, ROW, ROW, ROW, ROW.T),
        bad(TypeError, "transform", ROW, ROW, ROW, ROW, ROW, transform=tf.exp),
    ),
    (
        ops.q_lambda_return,
        bad(ValueError, "next_q_values", ROW[0], ROW[0], ROW[0]),
        bad(ValueError, "rewards", ROW.T, ROW, ROW[..., None]),
        bad(ValueError, "next_q_values", ROW, ROW, ROW, time_major=False),
        bad(TypeError, "transform", ROW[0], ROW[0], ROW, transform=tf.exp),
    ),
    (
        ops.importance_corrected_td_errors,
        bad(ValueError, "next_values", ROW, ROW[..., None], ROW, ROW, ROW),
        bad(ValueError, "rhos", ROW, ROW, ROW, ROW, ROW.T),
    ),
)
def test_errors(row):
    row()
