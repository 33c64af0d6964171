"""Tests of `tfrl.losses.categorical`."""

import bisect
import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses, ops

HALF = {"float16": 2e-3, "bfloat16": 2e-2}


def project_slowly(support, probs, target_support):
    """One atom at a time: finds its neighbours and shares its mass among them."""
    result = [0.0] * len(target_support)
    for atom, prob in zip(support, probs, strict=True):
        atom = min(max(atom, target_support[0]), target_support[-1])
        upper = bisect.bisect_left(target_support, atom)
        if target_support[upper] == atom:
            result[upper] += prob
            continue
        low, high = target_support[upper - 1], target_support[upper]
        result[upper - 1] += prob * (high - atom) / (high - low)
        result[upper] += prob * (atom - low) / (high - low)
    return result


def draw(batch, n_atoms, low=-3.0, high=3.0, seed=0):
    rng = np.random.default_rng(seed)
    support = rng.uniform(low, high, (*batch, n_atoms))
    return support, rng.dirichlet(np.ones(n_atoms), batch)


@pytest.mark.parametrize(
    "target_support",
    [np.linspace(-2.0, 2.0, 9), np.array([-2.5, -1.0, -0.9, 0.0, 1.5]), [-1.0, 1.0]],
    ids=["even", "uneven", "two"],
)
@pytest.mark.parametrize("batch", [(), (3, 2)], ids=["none", "TB"])
def test_projection_atom_by_atom(batch, target_support):
    support, probs = draw(batch, 7)
    projected = losses.categorical_projection(support, probs, target_support)
    assert projected.shape == (*batch, len(target_support))
    for index in np.ndindex(batch):
        expected = project_slowly(support[index], probs[index], list(target_support))
        np.testing.assert_allclose(projected[index], expected, atol=1e-14)


def test_projection_by_hand_onto_supports_of_their_own():
    # 0.5 lies in the middle of 0 and 1, and a quarter of the way from 0 to 2; 9 and -9
    # are beyond the ends.
    projected = losses.categorical_projection(
        [0.5, 9.0, -9.0], [[0.4, 0.5, 0.1]] * 2, [[0.0, 1.0, 5.0], [-1.0, 0.0, 2.0]]
    )
    np.testing.assert_allclose(projected, [[0.3, 0.2, 0.5], [0.1, 0.3, 0.6]], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", *slow("bfloat16", "float16", "float64")])
@pytest.mark.parametrize("scale", [0.1, *slow(1e-3, 1.0, 300.0)])
def test_projection_onto_the_same_atoms_changes_nothing(dtype, scale):
    # 0.1 and its multiples are no machine numbers: their gaps differ in the last digit.
    support = tf.constant(scale * np.linspace(-10, 10, 51), dtype)
    probs = tf.constant(draw((3,), 51)[1], dtype)
    for atoms in (support, tf.tile(support[tf.newaxis], [3, 1])):
        projected = losses.categorical_projection(atoms, probs, support)
        assert projected.dtype == dtype
        np.testing.assert_array_equal(projected, probs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("centre", [0.0, 1e3, -1e6])
def test_projection_keeps_mass_and_mean(dtype, centre):
    target_support = tf.constant(centre + np.linspace(-4.0, 4.0, 33), dtype)
    support, probs = draw((6,), 51)
    support, probs = tf.constant(centre + support, dtype), tf.constant(probs, dtype)
    projected = losses.categorical_projection(support, probs, target_support)
    tolerance = 3e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(tf.reduce_sum(projected, -1), 1.0, rtol=tolerance)
    assert np.min(projected) >= 0
    before = losses.categorical_mean(support - centre, probs)
    after = losses.categorical_mean(target_support - centre, projected)
    np.testing.assert_allclose(after, before, atol=5 * tolerance)


def test_projection_piles_up_at_the_ends():
    inf = math.inf
    projected = losses.categorical_projection(
        [[-inf, -1e30, 5.0, inf]], [[0.1, 0.2, 0.3, 0.4]], [-1.0, 0.0, 1.0]
    )
    np.testing.assert_allclose(projected, [[0.3, 0.0, 0.7]], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_projection_onto_uneven_supports_of_their_own_in_graphs(jit_compile):
    table = tf.TensorSpec([None, None], tf.float64)
    project = tf.function(
        lambda *arguments: losses.categorical_projection(*arguments),
        input_signature=[table] * 3,
        jit_compile=jit_compile,
    )
    support, probs = draw((4,), 6)
    targets = np.sort(np.random.default_rng(1).normal(size=(4, 9)))
    projected = project(support, probs, targets)
    for row in zip(support, probs, targets, projected, strict=True):
        np.testing.assert_allclose(row[3], project_slowly(*row[:3]), atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target_support",
    [
        np.array([[-2.0, -1.9, 0.1, 2.1], [-1.0, 0.3, 0.9, 1.1]]),
        *slow(np.linspace(-2, 2, 4)),
    ],
    ids=["uneven", "even"],
)
def test_gradients_of_the_projection(target_support):
    support, probs = draw((2,), 5)
    theory, measured = tf.test.compute_gradient(
        losses.categorical_projection,
        [tf.constant(x) for x in (support, probs, target_support)],
        delta=1e-5,
    )
    for one, other in zip(theory, measured, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_categorical_mean():
    support, probs = draw((3,), 5)
    np.testing.assert_allclose(
        losses.categorical_mean(support, probs),
        [
            math.fsum(z * p for z, p in zip(*pair, strict=True))
            for pair in zip(support, probs, strict=True)
        ],
    )
    mean = losses.categorical_mean([1.0, 2.0], [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_allclose(mean, [1.5, 2.0])


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("transform", [None, ops.SqrtLinearTransform(0.01)])
def test_two_hot_and_back(transform, dtype):
    support = [-3.0, -1.0, 0.0, 0.5, 2.0]
    values = tf.constant([[-9.0, -2.5, -1.0], [0.1, 1.9, 77.0]], dtype)
    found = losses.two_hot(values, support, transform)
    assert found.dtype == dtype
    wide = tf.cast(values, tf.float64)
    moved = wide if transform is None else transform.transform(wide)
    for index in np.ndindex(2, 3):
        expected = project_slowly([float(moved[index])], [1.0], support)
        np.testing.assert_allclose(
            tf.cast(found[index], tf.float64), expected, atol=HALF.get(dtype, 1e-12)
        )
    back = losses.categorical_mean(support, found, transform)
    clipped = tf.clip_by_value(moved, -3.0, 2.0)
    expected = clipped if transform is None else transform.inverse_transform(clipped)
    rtol = 5 * HALF.get(dtype, 1e-12)
    np.testing.assert_allclose(tf.cast(back, tf.float64), expected, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True], ids=["own-choice", "double"])
@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_q_target_row_by_row(double, jit_compile):
    rng = np.random.default_rng(0)
    support = np.linspace(-2.0, 3.0, 11)
    logits, rewards = rng.normal(size=(4, 3, 11)), rng.normal(size=4)
    discounts = np.array([0.9, 0.0, 0.5, 0.99])
    selector = rng.normal(size=(4, 3)) if double else None
    target = tf.function(losses.categorical_q_target, jit_compile=jit_compile)(
        rewards, discounts, support, logits, selector
    )
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for row in range(4):
        choice = selector[row] if double else probs[row] @ support
        expected = project_slowly(
            rewards[row] + discounts[row] * support,
            probs[row, np.argmax(choice)],
            list(support),
        )
        np.testing.assert_allclose(target[row], expected, atol=1e-12)


@pytest.mark.slow
def test_q_target_identities():
    rng = np.random.default_rng(0)
    support, logits = np.linspace(-40.0, 40.0, 81), 3 * rng.normal(size=(6, 3, 81))
    rewards, discounts = rng.normal(size=6), np.full(6, 0.9)
    alone = losses.categorical_q_target(rewards, discounts, support, logits)
    means = losses.categorical_mean(support, tf.nn.softmax(logits))
    double = losses.categorical_q_target(rewards, discounts, support, logits, means)
    np.testing.assert_array_equal(double, alone)
    # Nothing is beyond the ends, so the means are the targets of Q-learning.
    expected = losses.q_learning_target(rewards, discounts, means)
    mean = losses.categorical_mean(support, alone)
    np.testing.assert_allclose(mean, expected, rtol=1e-10)
    ended = losses.categorical_q_target([2.0], [0.0], support, logits[:1])
    np.testing.assert_allclose(ended, [support == 2.0], atol=1e-12)
    for next_value in (np.nan, np.inf):
        nexts = np.full_like(logits[:1], next_value)
        found = losses.categorical_q_target([2.0], [0.0], support, nexts)
        np.testing.assert_allclose(found, ended, atol=1e-12)


def test_no_gradient_flows_through_the_target():
    rng = np.random.default_rng(0)
    arguments = [
        tf.constant(x)
        for x in (
            *(rng.normal(size=2), np.ones(2), np.linspace(0.0, 1.0, 5)),
            *(rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3))),
        )
    ]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        target = losses.categorical_q_target(*arguments)
    assert tape.gradient(target, arguments) == [None] * 5


@pytest.mark.parametrize("jit_compile", [True, *slow(False)], ids=["xla", "graph"])
def test_td_loss_by_hand(jit_compile):
    logits = tf.constant(np.log([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]) + 7.0)
    targets = tf.constant([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], tf.float64)
    loss, extra = tf.function(losses.categorical_td_loss, jit_compile=jit_compile)(
        logits, targets
    )
    entropy = -sum(p * math.log(p) for p in (0.2, 0.3, 0.5))
    np.testing.assert_allclose(loss, [math.log(2), entropy], rtol=1e-9)
    np.testing.assert_allclose(extra.priorities, [math.log(2), 0.0], atol=1e-9)


def test_td_loss_pulls_the_prediction_to_the_target():
    rng = np.random.default_rng(0)
    logits, targets = (
        tf.constant(rng.normal(size=(3, 5))),
        tf.constant(draw((3,), 5)[1]),
    )
    with tf.GradientTape() as tape:
        tape.watch([logits, targets])
        loss, extra = losses.categorical_td_loss(logits, targets)
    gradient, of_targets = tape.gradient(loss, [logits, targets])
    np.testing.assert_allclose(gradient, tf.nn.softmax(logits) - targets, atol=1e-14)
    assert of_targets is None
    assert np.min(extra.priorities) > 0


def test_td_loss_of_atoms_that_cannot_be():
    logits = tf.constant([[0.0, -np.inf, 0.0], [1e30, 0.0, -1e30]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = losses.categorical_td_loss(logits, [[0.5, 0.0, 0.5], [1.0, 0, 0]]).loss
    np.testing.assert_allclose(loss, [math.log(2), 0.0], rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(loss, logits), np.zeros((2, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float16")])
def test_half_precision_is_kept_and_computed_in_single(dtype):
    support, logits = (
        np.linspace(-10, 10, 51),
        np.random.default_rng(0).normal(size=(4, 2, 51)),
    )
    rewards, discounts = np.arange(4.0), np.full(4, 0.9)
    arguments = [tf.constant(x, dtype) for x in (rewards, discounts, support, logits)]
    exact = [tf.cast(x, tf.float64) for x in arguments]
    targets = losses.categorical_q_target(*arguments)
    found = losses.categorical_td_loss(arguments[3][:, 0], targets)
    mean = losses.categorical_mean(arguments[2], targets)
    assert {x.dtype.name for x in tf.nest.flatten([targets, found, mean])} == {dtype}
    expected = losses.categorical_q_target(*exact)
    np.testing.assert_allclose(
        tf.cast(targets, tf.float64), expected, atol=HALF[dtype], rtol=5 * HALF[dtype]
    )


@refusals.table(
    (
        losses.categorical_mean,
        bad(ValueError, "support", zeros(3), zeros(2, 4)),
        bad(TypeError, "transform", zeros(3), zeros(2, 3), tf.exp),
    ),
    (
        losses.two_hot,
        bad(TypeError, "values", [1, 2], [0.0, 1.0]),
        bad(ValueError, "support", [1.0], [0.0]),
        bad(ValueError, "support", [1.0], [1.0, 0.0]),
        bad(ValueError, "support", [1.0], [0.0, np.nan, 1.0]),
        bad(ValueError, "support", [1.0], [[0.0, 1.0]]),
        bad(TypeError, "transform", [1.0], [0.0, 1.0], tf.exp),
    ),
    (
        losses.categorical_projection,
        bad(ValueError, "support", zeros(3, 4), zeros(2, 4), [0.0, 1.0]),
        bad(ValueError, "target_support", [0.0], [1.0], [0.0]),
        bad(ValueError, "target_support", zeros(2), zeros(3, 2), zeros(4, 2)),
        bad(ValueError, "target_support", [0.0, 1.0], [0.5, 0.5], [1.0, 1.0, 2.0]),
        bad(TypeError, "probs", [0.0, 1.0], [1, 0], [0.0, 1.0]),
    ),
    (
        losses.categorical_q_target,
        bad(ValueError, "next_q_selector", 0.0, 1.0, [0.0, 1.0], zeros(3, 2), zeros(2)),
        bad(ValueError, "support", 0.0, 1.0, [0.0, 1.0, 2.0], zeros(3, 2)),
        bad(ValueError, "support", 0.0, 1.0, [0.0, 0.0], zeros(3, 2)),
        bad(ValueError, "rewards", [0.0, 1.0], 1.0, [0.0, 1.0], zeros(3, 4, 2)),
    ),
    (losses.categorical_td_loss, bad(ValueError, "targets", zeros(2, 3), zeros(2, 4))),
)
def test_errors(row):
    row()


@pytest.mark.parametrize("jit_compile", [True, *slow(None)])
@pytest.mark.parametrize("shape", [[0, 4], *slow([2, 0, 4])], ids=str)
def test_no_rows_are_projected_to_no_rows(shape, jit_compile):
    def project(probs):
        with tf.GradientTape() as tape:
            tape.watch(probs)
            found = losses.categorical_projection(
                tf.linspace(0.0, 1.0, 4), probs, [0.0, 0.5, 1.0]
            )
        return found, tape.gradient(found, probs)

    spec = tf.TensorSpec([None] * len(shape))
    graph = tf.function(project, input_signature=[spec], jit_compile=jit_compile)
    for call in (project, graph):
        found, gradient = call(tf.zeros(shape))
        assert found.shape == [*shape[:-1], 3]
        assert gradient.shape == shape
