"""Returns and advantages against definitions, recordings and hand-worked cases."""

import itertools

import numpy as np
import oracles
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad

from tfrl import ops
from tfrl.ops import _recurrence, _sequences

STEP_FORM = {
    "discounted_return": ops.discounted_return,
    "generalized_advantage_estimation": ops.generalized_advantage_estimation,
    "one_step_discounted_return": ops.one_step_discounted_return,
}


def step_data(rng, steps, *shape, last=0.3, dtype=np.float32):
    """Rewards, values, step types and discounts of random episodes."""
    rewards, values = rng.normal(size=(2, steps, *shape)).astype(dtype)
    step_types = np.where(rng.random((steps, *shape)) < last, 2, 1).astype(np.int32)
    discounts = (0.9 * (rng.random((steps, *shape)) > 0.2)).astype(dtype)
    return rewards, values, step_types, discounts


def transitions(rng, steps, *shape, dtype=np.float32):
    """Values, next values, rewards, discounts and ratios."""
    values, next_values, rewards = rng.normal(size=(3, steps, *shape)).astype(dtype)
    discounts = (0.9 * (rng.random((steps, *shape)) > 0.2)).astype(dtype)
    rhos = np.exp(rng.normal(size=(steps, *shape))).astype(dtype)
    return values, next_values, rewards, discounts, rhos


def test_hand_worked_two_episodes():
    # Step 1 ends an episode by a time limit, step 3 is the true end of the next.
    named = {
        "rewards": [0.0, 1.0, 100.0, 2.0],
        "values": [10.0, 20.0, 30.0, 40.0],
        "step_types": [0, 2, 0, 2],
        "discounts": [1.0, 0.5, 1.0, 0.0],
    }
    returns = ops.discounted_return(**named)
    np.testing.assert_allclose(returns, [1.0 + 0.5 * 20.0, 20.0, 2.0], rtol=1e-6)
    one_step = ops.one_step_discounted_return(**named)
    np.testing.assert_allclose(one_step, [11.0, 0.5 * 20.0, 2.0], rtol=1e-6)
    advantages = ops.generalized_advantage_estimation(**named, td_lambda=0.5)
    np.testing.assert_allclose(advantages, [11.0 - 10.0, 0.0, 2.0 - 30.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STEP_FORM))
def test_quantile_values_are_independent_columns(name):
    rng = np.random.default_rng(3)
    rewards, _, step_types, discounts = step_data(rng, 5, 4)
    # As many quantiles as environments: a wrong broadcast would go unnoticed.
    values = rng.normal(size=(5, 4, 4)).astype(np.float32)
    got = STEP_FORM[name](rewards, values, step_types, discounts)
    for quantile in range(4):
        expected = STEP_FORM[name](
            rewards, values[..., quantile], step_types, discounts
        )
        np.testing.assert_allclose(got[..., quantile], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_transition_form_takes_quantile_values():
    rng = np.random.default_rng(4)
    v, n, r, d, p = transitions(rng, 5, 3)
    wide = np.stack([n, 2 * n, 3 * n], axis=-1)
    lambdas = rng.random((5, 3)).astype(np.float32)
    got = ops.td_lambda_return(r, d, wide, lambdas)
    expected = ops.td_lambda_return(r, d, 2 * n, lambdas)
    np.testing.assert_allclose(got[..., 1], expected, rtol=1e-6, atol=1e-6)
    got = ops.vtrace(np.stack([v, v, v], axis=-1), wide, r, d, p)
    expected = ops.vtrace(v, 3 * n, r, d, p)
    np.testing.assert_allclose(
        got.advantages[..., 2], expected.advantages, rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_batch_major_is_the_transpose():
    rng = np.random.default_rng(5)
    tensors = step_data(rng, 6, 3)
    swapped = [tensor.T for tensor in tensors]
    for function in (ops.discounted_return, ops.generalized_advantage_estimation):
        got = function(*swapped, time_major=False)
        np.testing.assert_allclose(got, tf.transpose(function(*tensors)), rtol=1e-6)
    v, n, r, d, p = transitions(rng, 6, 3)
    got = ops.td_lambda_return(r.T, d.T, n.T, 0.9, time_major=False)
    expected = tf.transpose(ops.td_lambda_return(r, d, n, 0.9))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    got = ops.vtrace(v.T, n.T, r.T, d.T, p.T, time_major=False)
    expected = tf.transpose(ops.vtrace(v, n, r, d, p).advantages)
    np.testing.assert_allclose(got.advantages, expected, rtol=1e-6)


def all_five(rewards, values, step_types, discounts):
    """Results of every function, from the tensors of the step form."""
    rhos = tf.exp(values[:-1])
    traced = ops.vtrace(values[:-1], values[1:], rewards[1:], discounts[1:], rhos, 0.9)
    return (
        ops.discounted_return(rewards, values, step_types, discounts),
        ops.one_step_discounted_return(rewards, values, step_types, discounts),
        ops.generalized_advantage_estimation(
            rewards, values, step_types, discounts, 0.9
        ),
        ops.td_lambda_return(rewards[1:], discounts[1:], values[1:], 0.9),
        *traced,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("float16", "float64")),
    ],
)
def test_keeps_the_dtype(dtype):
    rewards, values, step_types, discounts = step_data(np.random.default_rng(8), 40, 2)
    cast = [tf.cast(tensor, dtype) for tensor in (rewards, values, discounts)]
    results = all_five(cast[0], cast[1], tf.constant(step_types), cast[2])
    assert {result.dtype.name for result in results} == {dtype}
    exact = [tf.cast(tensor, tf.float64) for tensor in cast]
    expected = ops.discounted_return(exact[0], exact[1], step_types, exact[2])
    # Summed in float32: one rounding of the dtype in the end.
    rtol = {"float64": 1e-12, "bfloat16": 2**-8, "float16": 2**-10}[dtype]
    np.testing.assert_allclose(
        tf.cast(results[0], tf.float64), expected, rtol=rtol, atol=1e-4
    )


def test_nan_beyond_a_boundary_does_not_leak():
    # The row after a LAST step belongs to another episode.
    advantages = ops.generalized_advantage_estimation(
        [0.0, 1.0, np.nan, 1.0], [0.0, 1.0, 1.0, 1.0], [1, 2, 0, 1], [1.0] * 4
    )
    np.testing.assert_allclose(advantages[:2], [2.0, 0.0])


def test_nan_beside_a_discount_of_0_does_not_count():
    # Nobody knows what follows an end, and nobody rewards the step behind it.
    nan, steps = np.nan, [1, 1, 1, 1]
    row = ([0.0, 1.0, nan, 1.0], [2.0, nan, 0.5, nan], steps, [1.0, 0.0, 1.0, 0.0])
    np.testing.assert_array_equal(ops.discounted_return(*row), [1.0, nan, 1.0])
    np.testing.assert_array_equal(ops.one_step_discounted_return(*row)[::2], [1, 1])
    advantages = ops.generalized_advantage_estimation(*row, 0.9)
    np.testing.assert_array_equal(advantages, [1.0 - 2.0, nan, 1.0 - 0.5])

    rewards, discounts = [1.0, 1.0, 1.0, nan], [1.0, 0.0, 0.0, 1.0]
    next_values = tf.Variable([2.0, nan, nan, 1.0])
    with tf.GradientTape() as tape:
        returns = ops.td_lambda_return(rewards, discounts, next_values, 0.5)
    np.testing.assert_array_equal(returns, [2.5, 1.0, 1.0, nan])
    gradient = tape.gradient(returns, next_values)
    np.testing.assert_array_equal(gradient, [0.5, 0.0, 0.0, 1.0])
    traced = ops.vtrace([0.0] * 4, next_values, rewards, discounts, [1.0] * 4, 0.5)
    np.testing.assert_array_equal(traced, [[3.5, 1.0, 1.0, nan]] * 3)


def test_a_jacobian_of_what_is_detached_is_none():
    rewards = tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch(rewards)
        targets = ops.vtrace(rewards, rewards, rewards, rewards, rewards, 1.0).targets
    assert tape.jacobian(targets, rewards) is None


@pytest.mark.slow
def test_jacobians_under_xla():
    rewards, discounts = tf.ones([3]), tf.constant([0.5, 0.5, 0.0])

    @tf.function(jit_compile=True, autograph=False)
    def jacobian(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            returns = ops.td_lambda_return(rewards, discounts, values, 0.5)
        return tape.jacobian(returns, values, experimental_use_pfor=False)

    expected = [[0.25, 0.25**2, 0.0], [0.0, 0.25, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(jacobian(tf.zeros([3])), expected)


ROW = tf.ones([3, 2])
HALF = tf.constant(0.5, tf.float64)
GAE = ops.generalized_advantage_estimation
ONES = dict.fromkeys(
    ("rewards", "values", "step_types", "discounts", "td_lambda"),
    np.ones([3, 2], np.float32),
)


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ((ROW, ROW[:1], ROW, ROW), ValueError, r"`values` expected at least 2 steps"),
        ((ROW[:2], ROW, ROW, ROW), ValueError, r"`rewards` expected the shape of `va"),
        ((ROW, ROW, ROW[:, :1], ROW), ValueError, r"`step_types` expected the shape"),
        ((ROW, ROW, ROW, ROW[None]), ValueError, r"`discounts` expected the shape of"),
        ((ROW, 1.0, ROW, ROW), ValueError, r"`values` expected rank of at least 1"),
        ((ROW, [[1], [2]], ROW, ROW), TypeError, r"`values` expected a floating"),
        (
            (tf.cast(ROW, "float64"), ROW, ROW, ROW),
            TypeError,
            r"`rewards` expected dty",
        ),
    ],
    ids=[
        "too short",
        "rewards",
        "step types",
        "discounts",
        "scalar",
        "ints",
        "float64",
    ],
)
@pytest.mark.parametrize("name", sorted(STEP_FORM))
def test_step_form_refuses(name, tensors, error, message):
    with pytest.raises(error, match=f"`{name}`: {message}"):
        STEP_FORM[name](*tensors)
    with pytest.raises(error, match=f"`{name}`: {message}"):
        tf.function(lambda: STEP_FORM[name](*tensors), autograph=False)()


@refusals.table(
    (
        GAE,
        bad(ValueError, "td_lambda", ROW, ROW, ROW, ROW, td_lambda=[0.5]),
        bad(ValueError, "td_lambda", ROW, ROW, ROW, ROW, td_lambda=1.5),
        bad(ValueError, "step_types", ROW, ROW, np.full_like(ROW, 0.5), ROW),
        *(
            bad(TypeError, name, **ONES | {name: ONES[name].astype(dtype)})
            for name in ("rewards", "discounts", "td_lambda")
            for dtype in (np.float64, np.int32)
        ),
    ),
    (ops.discounted_return, bad(ValueError, "values", *[ROW[:, 0]] * 4, False)),
    (
        ops.td_lambda_return,
        bad(ValueError, "rewards", tf.ones([2, 2]), ROW, ROW),
        bad(ValueError, "lambda_", ROW, ROW, ROW, tf.ones([2])),
        bad(TypeError, "lambda_", ROW, ROW, ROW, HALF),
        bad(ValueError, "lambda_", ROW, ROW, ROW, -0.1),
        bad(TypeError, "transform", ROW, ROW, ROW, transform=tf.exp),
    ),
    (
        ops.vtrace,
        bad(ValueError, "next_values", ROW, ROW[:2], ROW, ROW, ROW),
        bad(ValueError, "clip_rho", ROW, ROW, ROW, ROW, ROW, clip_rho=ROW),
        bad(ValueError, "clip_share", ROW, ROW, ROW, ROW, ROW, clip_share=1.5),
    ),
)
def test_other_refusals(row):
    row()


@pytest.mark.slow
def test_targets_carry_no_gradient():
    arrays = step_data(np.random.default_rng(12), 5, 2)
    rewards, values, step_types, discounts = map(tf.constant, arrays)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(values)
        results = all_five(rewards, values, step_types, discounts)
        sums = [tf.reduce_sum(result) for result in results]
    flows = [tape.gradient(each, values) is not None for each in sums]
    assert flows == [False, False, False, True, False, False, False]


GAMMA = 0.9
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def patterns(steps, *flags):
    """Every sequence of combinations of flags, `[T, patterns]` for each flag."""
    kinds = list(itertools.product(*flags))
    columns = np.array(list(itertools.product(kinds, repeat=steps)), np.float64)
    return columns.transpose(2, 1, 0)


@pytest.mark.parametrize("steps", [2, 5, *slow(3, 4)])
def test_step_form_on_every_pattern(steps):
    step_types, alive = patterns(steps, (0, 1, 2), (0, 1))
    rng = np.random.default_rng(steps)
    rewards, values = rng.normal(size=(2, *alive.shape))
    tensors = (rewards, values, step_types.astype(np.int32), GAMMA * alive)
    assert alive.shape == (steps, 6**steps)
    np.testing.assert_allclose(
        ops.discounted_return(*tensors), oracles.discounted_return(*tensors), **CLOSE
    )
    np.testing.assert_allclose(
        ops.one_step_discounted_return(*tensors),
        oracles.one_step_discounted_return(*tensors),
        **CLOSE,
    )
    np.testing.assert_allclose(
        ops.generalized_advantage_estimation(*tensors, 0.7),
        oracles.advantages(*tensors, 0.7),
        **CLOSE,
    )


@pytest.mark.parametrize("steps", [1, 5, *slow(2, 3, 4)])
def test_transition_form_on_every_pattern(steps):
    # Discounts tell ends, lambdas cut traces; ratios lie on both sides of the clips.
    alive, joined = patterns(steps, (0, 1), (0, 1))
    rng = np.random.default_rng(steps)
    rewards, values, next_values = rng.normal(size=(3, *alive.shape))
    discounts, lambdas = GAMMA * alive, 0.8 * joined
    rhos = rng.uniform(0.5, 1.6, size=alive.shape)
    named = (rewards, discounts, next_values, lambdas)
    got, expected = ops.td_lambda_return(*named), oracles.td_lambda_return(*named)
    np.testing.assert_allclose(got, expected, **CLOSE)
    named = (values, next_values, rewards, discounts, rhos, lambdas)
    got = ops.vtrace(*named, clip_rho=1.2, clip_pg_rho=0.7)
    targets = oracles.vtrace_targets(*named, 1.2)
    np.testing.assert_allclose(got.targets, targets, **CLOSE)
    later = np.concatenate([(targets - values)[1:], np.zeros_like(values[:1])])
    q_estimates = rewards + discounts * (next_values + lambdas * later)
    np.testing.assert_allclose(got.q_estimates, q_estimates, **CLOSE)
    advantages = np.minimum(rhos, 0.7) * (q_estimates - values)
    np.testing.assert_allclose(got.advantages, advantages, **CLOSE)


@pytest.mark.parametrize("time_major", [False, *slow(True)])
@pytest.mark.parametrize("shape", [(3, 2), *slow((), (3,))], ids=str)
def test_advantages_take_a_weight_for_each_step(shape, time_major):
    rng = np.random.default_rng(11)
    rewards, values, step_types, discounts = step_data(rng, 6, 3)
    if len(shape) == 2:
        values = rng.normal(size=[6, *shape]).astype(np.float32)
    weights = rng.uniform(size=[6, 3][: 1 + len(shape[:1])]).astype(np.float32)
    wide = (lambda x: x[..., None]) if len(shape) == 2 else (lambda x: x)
    spread = np.broadcast_to(weights.reshape(6, -1), [6, 3])
    expected, later = [], 0.0
    for t in reversed(range(5)):
        factor = wide(discounts[t + 1])
        delta = wide(rewards[t + 1]) + factor * values[t + 1] - values[t]
        later = delta + factor * wide(spread[t + 1]) * later
        later = np.where(wide(step_types[t]) == 2, 0.0, later)
        expected.append(later)
    given = [rewards, values, step_types, discounts, weights]
    if not time_major:
        given = [np.swapaxes(x, 0, 1) if x.ndim > 1 else x for x in given]
    if not time_major and weights.ndim == 1:
        return  # one weight per step needs the axes [B, T]
    found = ops.generalized_advantage_estimation(*given, time_major=time_major).numpy()
    found = found if time_major else np.swapaxes(found, 0, 1)
    np.testing.assert_allclose(found, expected[::-1], rtol=1e-5, atol=1e-6)
    same = ops.generalized_advantage_estimation(
        *given[:4], np.full_like(given[4], 0.7), time_major=time_major
    )
    one = ops.generalized_advantage_estimation(*given[:4], 0.7, time_major=time_major)
    np.testing.assert_allclose(same, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0.4, 0.0, 1.0])
def test_vtrace_leaks_what_is_not_clipped(share):
    v, n, r, d, p = transitions(np.random.default_rng(5), 6, 2, dtype=np.float64)

    def clipped(limit):
        return share * np.minimum(p, limit) + (1 - share) * p

    found = ops.vtrace(v, n, r, d, p, 0.9, 1.2, 0.7, clip_share=share)
    errors, following = np.zeros((7, 2)), np.zeros((6, 2))
    for t in reversed(range(6)):
        delta = clipped(1.2)[t] * (r[t] + d[t] * n[t] - v[t])
        errors[t] = delta + d[t] * 0.9 * clipped(1.0)[t] * errors[t + 1]
        following[t] = r[t] + d[t] * (n[t] + 0.9 * errors[t + 1])
    np.testing.assert_allclose(found.targets, v + errors[:-1], rtol=1e-9)
    np.testing.assert_allclose(found.advantages, clipped(0.7) * (following - v))


def test_td_lambda_returns_in_the_image_of_a_transform():
    _, n, r, d, _ = transitions(np.random.default_rng(6), 5, 2, dtype=np.float64)
    transform = ops.Log1pTransform(2.0)
    inside = ops.td_lambda_return(r, d, transform.inverse_transform(n), 0.7)
    found = ops.td_lambda_return(r, d, n, 0.7, transform=transform)
    np.testing.assert_allclose(found, transform.transform(inside), rtol=1e-12)


@_sequences.over_time
def running(values, rewards, factor):
    """Uses rank, time axis and dtype of everything it gets."""
    total = tf.cumsum(values + factor * rewards, reverse=True)
    return {"sum": total, "rest": 2 * values}


def test_aligns_ranks_and_puts_time_first():
    values = np.arange(12.0).reshape(2, 3, 2)
    rewards = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    got = running(values, rewards, tf.constant(10.0, tf.float64), time_major=False)
    expected = np.cumsum((values + 10 * rewards[..., None])[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(got["sum"], expected)
    np.testing.assert_allclose(got["rest"], 2 * values)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_are_summed_in_float32(dtype):
    ones = tf.ones([4096, 1], dtype)
    total = running(ones, ones, tf.zeros([], dtype), time_major=True)["sum"]
    # Summed in the dtype itself it would stop at 2048 or 256.
    assert total.dtype == dtype
    assert float(total[0, 0]) == 4096.0


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_lengths_that_differ_little_share_a_shape(time_major):
    for steps in (1, 3, 18, 100, 129, 131):
        values = np.arange(2.0 * steps).reshape(steps, 2)
        given = values if time_major else values.T
        got = running(given, given, np.float64(1.0), time_major=time_major)["sum"]
        expected = np.cumsum(2 * values[::-1], axis=0)[::-1]
        np.testing.assert_allclose(got if time_major else tf.transpose(got), expected)
    lengths = [
        _sequences._missing_rows([steps, 2], 0) + steps
        for steps in (2, 3, 16, 17, 101, 128, 129, 130)
    ]
    # A round number of steps stays as it is, and so does one more.
    assert lengths == [17, 17, 16, 17, 113, 128, 129, 161]
    assert _sequences._missing_rows([130, 4096], 0) == 0


def test_unknown_rank_is_refused():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def returns(values):
        return ops.td_lambda_return([1.0], [1.0], values)

    with pytest.raises(ValueError, match="`next_values` expected a known rank"):
        returns.get_concrete_function()


@pytest.mark.parametrize("backward", [True, False], ids=["backward", "forward"])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_solves_the_recurrence(steps, backward):
    rng = np.random.default_rng(steps)
    decays, inputs = rng.normal(size=(2, steps, 3))
    carry = rng.normal(size=3)
    unknown = tf.TensorSpec([None, None], tf.float64)

    @tf.function(input_signature=[unknown, unknown], jit_compile=True)
    def solve(decays, inputs):
        return _recurrence.given_recurrence(
            decays, inputs, tf.constant(carry), backward
        )

    got = solve(decays, inputs)
    expected = np.zeros((steps, 3))
    for step in reversed(range(steps)) if backward else range(steps):
        carry = expected[step] = inputs[step] + decays[step] * carry
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("backward", [True, False], ids=["backward", "forward"])
def test_gradients_both_ways(backward):
    rng = np.random.default_rng(0)
    tensors = [*map(tf.constant, rng.normal(size=(2, 4, 2))), tf.ones([2], tf.float64)]

    @tf.function(jit_compile=True)
    def loss(*tensors):
        outputs = _recurrence.given_recurrence(*tensors, backward=backward)
        return tf.reduce_sum(tf.sin(outputs))

    theoretical, numerical = tf.test.compute_gradient(loss, tensors, delta=1e-6)
    for got, expected in zip(theoretical, numerical, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_gradients_of_scalar_lambda_and_quantiles():
    rng = np.random.default_rng(11)
    rewards, discounts = tf.constant(rng.normal(size=(2, 4, 3)))
    next_values = tf.constant(rng.normal(size=(4, 3, 2)))
    weight = tf.constant(0.6, tf.float64)
    tensors = [rewards, discounts, next_values, weight]

    def returns(*tensors):
        return tf.reduce_sum(tf.square(ops.td_lambda_return(*tensors)))

    theoretical, numerical = tf.test.compute_gradient(returns, tensors, delta=1e-6)
    for got, expected in zip(theoretical, numerical, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_second_gradient_goes_through_the_recurrence():
    discounts = tf.constant([0.5, 0.8, 0.9], tf.float64)
    rewards = tf.constant([1.0, 2.0, 3.0], tf.float64)
    next_values = tf.constant([0.0, 0.0, 10.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(discounts)
        with tf.GradientTape() as inner:
            inner.watch(discounts)
            # r0 + d0 (r1 + d1 (r2 + d2 * 10))
            first = ops.td_lambda_return(rewards, discounts, next_values)[0]
        slope = inner.gradient(first, discounts)
    np.testing.assert_allclose(slope, [2 + 0.8 * 12, 0.5 * 12, 0.4 * 10], rtol=1e-12)
    # d slope[0] + d slope[1] + d slope[2], in each discount.
    expected = [12 + 0.8 * 10, 12 + 0.5 * 10, 0.8 * 10 + 0.5 * 10]
    np.testing.assert_allclose(outer.gradient(slope, discounts), expected, rtol=1e-12)
