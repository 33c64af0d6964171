"""Returns and advantages against definitions, recordings and hand-worked cases."""

import golden_io
import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import tensorflow as tf

from tfrl import ops
from tfrl.core import compile
from tfrl.ops import value

STEP_FORM = {
    "discounted_return": ops.discounted_return,
    "generalized_advantage_estimation": ops.generalized_advantage_estimation,
    "one_step_discounted_return": ops.one_step_discounted_return,
}
CASES = [
    case
    for case in golden_io.load("alf/value_ops", {"t": tf.constant})
    if case["symbol"].rsplit(".", 1)[-1] in STEP_FORM
]
RECORDED = [case for case in CASES if case["kind"] == "call"]
# The original refuses values with more axes than rewards; here they are aligned.
REFUSED = [
    case
    for case in CASES
    if case["kind"] == "raises" and "quantile" not in (case["note"] or "")
]


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


def test_recordings_are_there():
    assert {case["symbol"].rsplit(".", 1)[-1] for case in RECORDED} == set(STEP_FORM)
    assert len(REFUSED) == 3


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("case", RECORDED, ids=golden_io.ids(RECORDED))
def test_equals_the_recording(case, graph):
    function = STEP_FORM[case["symbol"].rsplit(".", 1)[-1]]
    if graph:
        options = {k: v for k, v in case["kwargs"].items() if not tf.is_tensor(v)}
        tensors = {k: v for k, v in case["kwargs"].items() if tf.is_tensor(v)}
        got = tf.function(lambda **named: function(**named, **options))(**tensors)
    else:
        got = function(*case["args"], **case["kwargs"])
    np.testing.assert_allclose(got, case["out"], **case["tol"])


@pytest.mark.parametrize("case", REFUSED, ids=golden_io.ids(REFUSED))
def test_refuses_what_the_original_refused(case):
    function = STEP_FORM[case["symbol"].rsplit(".", 1)[-1]]
    with pytest.raises(ValueError, match="`values` expected at least 2 steps"):
        function(*case["args"], **case["kwargs"])


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


def test_hand_worked_advantages_sum_discounted_errors():
    # delta = 1 + 0.9 * 1 - 1 = 0.9 in each step; weights 1, 0.45, 0.2025.
    advantages = ops.generalized_advantage_estimation(
        tf.ones([4]), tf.ones([4]), tf.ones([4]), tf.fill([4], 0.9), td_lambda=0.5
    )
    expected = [0.9 * (1 + 0.45 + 0.2025), 0.9 * (1 + 0.45), 0.9]
    np.testing.assert_allclose(advantages, expected, rtol=1e-6)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(
    steps=st.integers(1, 9),
    shape=st.sampled_from([(), (1,), (3,), (2, 3)]),
    seed=st.integers(0, 2**20),
)
def test_transition_form_equals_the_definitions(steps, shape, seed):
    rng = np.random.default_rng(seed)
    v, n, r, d, p = transitions(rng, steps, *shape, dtype=np.float64)
    lambdas = rng.random((steps, *shape)) * (rng.random((steps, *shape)) > 0.3)
    tight = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(
        ops.td_lambda_return(r, d, n, lambdas),
        oracles.td_lambda_return(r, d, n, lambdas),
        **tight,
    )
    got = ops.vtrace(v, n, r, d, p, lambdas, clip_rho=1.3, clip_pg_rho=0.8)
    targets = oracles.vtrace_targets(v, n, r, d, p, lambdas, 1.3)
    np.testing.assert_allclose(got.targets, targets, **tight)
    following = np.concatenate([(targets - v)[1:], np.zeros((1, *shape))])
    q_estimates = r + d * (n + lambdas * following)
    np.testing.assert_allclose(got.q_estimates, q_estimates, **tight)
    expected = np.minimum(p, 0.8) * (q_estimates - v)
    np.testing.assert_allclose(got.advantages, expected, **tight)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(
    steps=st.integers(2, 12), batch=st.integers(0, 4), seed=st.integers(0, 2**20)
)
def test_step_form_equals_the_definitions(steps, batch, seed):
    tensors = step_data(np.random.default_rng(seed), steps, batch)
    got = ops.generalized_advantage_estimation(*tensors, td_lambda=0.95)
    expected = oracles.advantages(*tensors, 0.95)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    got = ops.discounted_return(*tensors)
    expected = oracles.discounted_return(*tensors)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_both_forms_agree_on_whole_episodes():
    rng = np.random.default_rng(0)
    rewards, values, _, discounts = step_data(rng, 7, 3, last=0.0)
    step_types = np.ones([7, 3], np.int32)
    advantages = ops.generalized_advantage_estimation(
        rewards, values, step_types, discounts, 0.8
    )
    returns = ops.td_lambda_return(rewards[1:], discounts[1:], values[1:], 0.8)
    np.testing.assert_allclose(advantages + values[:-1], returns, rtol=1e-5, atol=1e-5)


def test_lambda_zero_keeps_episodes_apart():
    rng = np.random.default_rng(1)
    v, n, r, d, p = transitions(rng, 6, dtype=np.float64)
    lambdas = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    whole = ops.td_lambda_return(r, d, n, lambdas)
    apart = [ops.td_lambda_return(r[c], d[c], n[c]) for c in (np.s_[:3], np.s_[3:])]
    np.testing.assert_allclose(whole, np.concatenate(apart), rtol=1e-12)
    whole = ops.vtrace(v, n, r, d, p, lambdas)
    parts = [ops.vtrace(v[c], n[c], r[c], d[c], p[c]) for c in (np.s_[:3], np.s_[3:])]
    for name in ops.VTraceReturns._fields:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(getattr(whole, name), joined, rtol=1e-12)


def test_vtrace_on_policy_is_the_lambda_return():
    rng = np.random.default_rng(2)
    v, n, r, d, _ = transitions(rng, 8, 2)
    v[1:] = n[:-1]
    got = ops.vtrace(v, n, r, d, tf.ones_like(v), 0.7)
    expected = ops.td_lambda_return(r, d, n, 0.7)
    np.testing.assert_allclose(got.targets, expected, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize(
    ("jit_compile", "known"),
    [
        # What either does worse.
        pytest.param(False, False, id="unknown sizes-graph"),
        pytest.param(True, True, id="known sizes-jit"),
        pytest.param(True, False, id="unknown sizes-jit", marks=pytest.mark.slow),
        pytest.param(False, True, id="known sizes-graph", marks=pytest.mark.slow),
    ],
)
def test_graph_equals_eager(jit_compile, known):
    arrays = step_data(np.random.default_rng(6), 9, 3)
    tensors = [tf.constant(array) for array in arrays]
    signature = [
        tf.TensorSpec(t.shape if known else [None, None], t.dtype) for t in tensors
    ]
    function = tf.function(all_five, jit_compile=jit_compile, input_signature=signature)
    concrete = function.get_concrete_function()
    if known:
        shapes = [leaf.shape for leaf in concrete.structured_outputs]
        assert shapes == [(8, 3)] * 7
    for got, expected in zip(function(*tensors), all_five(*tensors), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_runs_eagerly_when_told_to():
    tensors = [tf.constant(a) for a in step_data(np.random.default_rng(7), 4, 2)]
    expected = all_five(*tensors)
    tf.config.run_functions_eagerly(True)
    try:
        for got, wanted in zip(all_five(*tensors), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
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


def test_one_trace_per_rank_and_dtype():
    rng = np.random.default_rng(9)
    core = value._advantages
    before = compile.trace_count(core)
    for steps, batch, td_lambda in [(3, 5, 0.5), (4, 5, 0.6), (6, 1, 1), (2, 7, 0)]:
        tensors = [
            array[..., None, None, None] for array in step_data(rng, steps, batch)
        ]
        ops.generalized_advantage_estimation(*tensors, td_lambda=td_lambda)
    assert compile.trace_count(core) == before + 1
    wide = [array.astype(np.float64) for array in tensors]
    ops.generalized_advantage_estimation(*wide, td_lambda=np.float64(0.5))
    assert compile.trace_count(core) == before + 2


def test_nan_beyond_a_boundary_does_not_leak():
    # The row after a LAST step belongs to another episode.
    advantages = ops.generalized_advantage_estimation(
        [0.0, 1.0, np.nan, 1.0], [0.0, 1.0, 1.0, 1.0], [1, 2, 0, 1], [1.0] * 4
    )
    np.testing.assert_allclose(advantages[:2], [2.0, 0.0])


ROW = tf.ones([3, 2])


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


def test_other_refusals():
    with pytest.raises(ValueError, match="`td_lambda` expected the shape"):
        ops.generalized_advantage_estimation(ROW, ROW, ROW, ROW, td_lambda=[0.5])
    with pytest.raises(ValueError, match="`values` expected rank of at least 2"):
        flat = tf.ones([3])
        ops.discounted_return(flat, flat, flat, flat, time_major=False)
    with pytest.raises(ValueError, match="`rewards` expected the shape of `next_val"):
        ops.td_lambda_return(tf.ones([2, 2]), ROW, ROW)
    with pytest.raises(ValueError, match="`lambda_` expected the shape"):
        ops.td_lambda_return(ROW, ROW, ROW, tf.ones([2]))
    with pytest.raises(ValueError, match="`next_values` expected the shape of `val"):
        ops.vtrace(ROW, ROW[:2], ROW, ROW, ROW)
    with pytest.raises(ValueError, match="`clip_rho` expected rank 0"):
        ops.vtrace(ROW, ROW, ROW, ROW, ROW, clip_rho=ROW)


def test_targets_carry_no_gradient():
    arrays = step_data(np.random.default_rng(12), 5, 2)
    rewards, values, step_types, discounts = map(tf.constant, arrays)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(values)
        results = all_five(rewards, values, step_types, discounts)
        sums = [tf.reduce_sum(result) for result in results]
    flows = [tape.gradient(each, values) is not None for each in sums]
    assert flows == [False, False, False, True, False, False, False]
