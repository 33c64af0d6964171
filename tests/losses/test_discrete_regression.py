"""Tests of `tfrl.losses.discrete_regression`."""

import functools
import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses
from tfrl.losses import discrete_regression
from tfrl.ops import value_transforms

DISCRETE = losses.DiscreteRegressionLoss
ORDERED = losses.OrderedDiscreteRegressionLoss
both = pytest.mark.parametrize("cls", [DISCRETE, ORDERED])


def squeeze(x):
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x)


def stretch(y):
    return math.copysign((abs(y) + 1) ** 2 - 1, y)


def split_slowly(target, size, transformed, after):
    """Probability of each grid value, from the definition."""
    low, high = -((size - 1) // 2), size // 2
    position = min(max(squeeze(target) if transformed else target, low), high)
    below = math.floor(position)
    if below == high:
        share = 0.0
    elif after or not transformed:
        share = position - below
    else:
        left, right = stretch(below), stretch(below + 1)
        share = min(max((target - left) / (right - left), 0.0), 1.0)
    probs = [0.0] * size
    probs[below - low] = 1 - share
    if below < high:
        probs[below - low + 1] = share
    return probs


def plogp(p, q):
    return p * math.log(p / q) if p > 0 else 0.0


def discrete_slowly(logits, probs):
    total = math.fsum(math.exp(logit) for logit in logits)
    return sum(
        plogp(p, math.exp(logit) / total)
        for p, logit in zip(probs, logits, strict=True)
    )


def ordered_slowly(logits, probs):
    loss = 0.0
    for index, logit in enumerate(logits):
        tail = min(math.fsum(probs[index:]), 1.0)
        if 1 - tail < 1e-12:
            tail = 1.0
        predicted = 1 / (1 + math.exp(-logit))
        loss += plogp(tail, predicted) + plogp(1 - tail, 1 - predicted)
    return loss


SLOWLY = {DISCRETE: discrete_slowly, ORDERED: ordered_slowly}


@both
@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_loss_from_the_definition(cls, transformed, after):
    rng = np.random.default_rng(0)
    transform = value_transforms.Sqrt1pTransform() if transformed else None
    loss = cls(transform, after)
    for size in (1, 3, 5, 8):
        logits = 3 * rng.normal(size=(2, 6, size))
        target = np.array([0, 1, -1, 0.2, -1.7, 99, -99, 2.2, 15.5, -0.5, 3, 8])
        target = target.reshape(2, 6)
        expected = [
            SLOWLY[cls](logits[i], split_slowly(target[i], size, transformed, after))
            for i in np.ndindex(2, 6)
        ]
        got = loss(logits, target)
        assert got.dtype == "float64" and got.shape == (2, 6)
        np.testing.assert_allclose(got, np.reshape(expected, (2, 6)), rtol=1e-9)


def test_a_target_between_the_last_value_and_the_next():
    transform = value_transforms.Sqrt1pTransform()  # inverse of 0, 1, 2: 0, 3, 8
    logits = np.log([[0.5, 0.5], [0.99, 0.01]])
    entropy = -0.2 * math.log(0.2) - 0.8 * math.log(0.8)
    expected = [math.log(2) - entropy, math.log(100) - entropy]
    np.testing.assert_allclose(DISCRETE(transform)(logits, [4.0, 4.0]), expected)
    expected = [math.log(2), math.log(100)]
    loss = DISCRETE(transform, inverse_after_mean=True)
    np.testing.assert_allclose(loss(logits, [4.0, 4.0]), expected)
    np.testing.assert_allclose(
        ORDERED(transform)(np.zeros([1, 2]), [4.0]), [2 * math.log(2)]
    )


@both
def test_the_split_has_the_target_as_its_expectation(cls):
    transform = value_transforms.Sqrt1pTransform()
    target = np.array([0.3, -2.0, 7.7, 0.0])
    for after in (False, True):
        probs = np.array([split_slowly(t, 9, True, after) for t in target])
        if cls is ORDERED:
            tails = np.cumsum(probs[:, ::-1], -1)[:, ::-1].clip(1e-300, 1 - 1e-16)
            logits = np.log(tails) - np.log1p(-tails)
        else:
            logits = np.log(probs + 1e-300)
        loss = cls(transform, after)
        np.testing.assert_allclose(loss(logits, target), 0.0, atol=1e-10)
        np.testing.assert_allclose(
            loss.calc_expectation(logits), target, rtol=1e-9, atol=1e-9
        )


def test_expectations_by_hand():
    transform = value_transforms.Sqrt1pTransform()  # inverse of -1, 0, 1: -3, 0, 3
    logits = np.log([[0.2, 0.5, 0.3]])
    for loss, expected in (
        (DISCRETE(), 0.1),
        (DISCRETE(transform), 0.3),
        (DISCRETE(transform, True), 0.21),
    ):
        np.testing.assert_allclose(loss.calc_expectation(logits), [expected])
    tails = np.array([[0.9, 0.4, 0.6]])  # the last counts as 0.4
    logits = np.log(tails) - np.log1p(-tails)
    for loss, expected in (
        (ORDERED(), -2 + 0.9 + 0.4 + 0.4),
        (ORDERED(transform), -3 * 0.5 + 3 * 0.4),
        (ORDERED(transform, True), stretch(-0.3)),
    ):
        np.testing.assert_allclose(loss.calc_expectation(logits), [expected])


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls", [DISCRETE, pytest.param(ORDERED, marks=pytest.mark.slow)]
)
def test_any_rank_and_unknown_sizes_in_graphs(cls):
    rng = np.random.default_rng(1)
    transform = value_transforms.Sqrt1pTransform()
    loss = cls(transform)
    logits, target = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3))
    losses, means = loss(logits, target), loss.calc_expectation(logits)
    for i in np.ndindex(2, 3):
        np.testing.assert_allclose(loss(logits[i], target[i]), losses[i], rtol=1e-12)
        np.testing.assert_allclose(
            loss.calc_expectation(logits[i]), means[i], rtol=1e-12
        )

    def everything(logits, target):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            results = loss(logits, target), loss.calc_expectation(logits)
            total = tf.reduce_sum(results[0] + results[1])
        return *results, tape.gradient(total, logits)

    expected = everything(tf.constant(logits), tf.constant(target))
    specs = [tf.TensorSpec([None] * rank, "float64") for rank in (3, 2)]
    run = tf.function(everything, specs, jit_compile=True)
    for got, wanted in zip(run(logits, target), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cls", [DISCRETE, *slow(ORDERED)])
def test_gradients_against_differences(cls):
    rng = np.random.default_rng(2)
    loss = cls(value_transforms.Sqrt1pTransform())
    logits, target = rng.normal(size=(4, 6)), np.array([0.4, -5.0, 1e3, 2.0])
    for function in (functools.partial(loss, target=target), loss.calc_expectation):
        analytic, numeric = tf.test.compute_gradient(
            lambda logits, function=function: tf.reduce_sum(function(logits)),
            [tf.constant(logits)],
            delta=1e-5,
        )
        np.testing.assert_allclose(analytic[0], numeric[0], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [DISCRETE, *slow(ORDERED)])
def test_second_derivative(cls):
    logits = tf.constant([[0.3, -1.0, 0.5], [2.0, 0.1, -0.4]], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = cls()(logits, [0.25, -1.0])
        gradient = tape.gradient(loss, logits)
        first = gradient[:, 0]
    q = tf.sigmoid(logits).numpy() if cls is ORDERED else tf.nn.softmax(logits).numpy()
    others = np.eye(3)[:1] * q if cls is ORDERED else q
    expected = q[:, :1] * (np.eye(3)[:1] - others)
    np.testing.assert_allclose(outer.gradient(first, logits), expected, rtol=1e-12)


def test_cumulative_minimum():
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 7, 8, 9, 100):
        x = rng.integers(-50, 50, size=(4, size)).astype(float)
        expected = np.minimum.accumulate(x, axis=-1)
        np.testing.assert_array_equal(
            discrete_regression._cumulative_minimum(tf.constant(x)), expected
        )
        run = tf.function(
            discrete_regression._cumulative_minimum,
            [tf.TensorSpec([None, None], tf.float64)],
        )
        np.testing.assert_array_equal(run(x), expected)


@pytest.mark.parametrize("static", [False, *slow(True)], ids=["unknown", "static"])
def test_cumulative_minimum_sends_gradients_to_the_lowest(static):
    x = np.random.default_rng(4).permutation(9).astype(float)[np.newaxis]
    weights = np.arange(1.0, 10.0)
    expected = np.zeros(9)
    for index, weight in enumerate(weights):
        expected[np.argmin(x[0, : index + 1])] += weight

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            minima = discrete_regression._cumulative_minimum(x)
        return tape.gradient(minima, x, weights[np.newaxis])

    spec = tf.TensorSpec([1, 9] if static else [None, None], tf.float64)
    for jit_compile in (False, True):
        run = tf.function(gradient, [spec], jit_compile=jit_compile)
        np.testing.assert_allclose(run(x)[0], expected)


@both
@pytest.mark.parametrize("dtype", ["float32", *slow("float16", "bfloat16")])
def test_extreme_numbers_stay_finite(cls, dtype):
    huge = 1e4 if dtype == "float16" else 1e30
    logits = np.array(
        [[0, huge, -huge, 50, -50], [huge] * 5, [-huge] * 5, [0, 1e-4, -1e-4, 0, 0]]
    )
    logits = tf.repeat(tf.constant(logits, dtype), 6, axis=0)
    target = tf.tile(tf.constant([0, -huge, huge, 1e-4, -0.5, 2], dtype), [4])
    for transform in (None, value_transforms.SqrtLinearTransform(0.001)):
        loss = cls(transform)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(logits)
            losses, means = loss(logits, target), loss.calc_expectation(logits)
        for tensor in (
            losses,
            means,
            tape.gradient(losses, logits),
            tape.gradient(means, logits),
        ):
            assert np.all(np.isfinite(tensor.numpy().astype("float64")))


def test_impossible_values_cost_nothing_where_unused():
    logits = tf.constant([[-np.inf, 0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = DISCRETE()(logits, [0.5])
    np.testing.assert_allclose(loss, [0.0], atol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, logits), np.zeros([1, 3]), atol=1e-6)
    assert DISCRETE()(logits, [-1.0]).numpy() == np.inf


@both
def test_nan_targets_show(cls):
    for transform in (None, value_transforms.Sqrt1pTransform()):
        loss = cls(transform)(tf.zeros([2, 5]), [0.0, np.nan])
        np.testing.assert_array_equal(np.isnan(loss), [False, True])


@both
def test_large_grids_in_bfloat16(cls):
    """601 values, as MuZero has; bfloat16 itself cannot count so far."""
    logits = tf.random.stateless_normal([2, 601], [1, 2], dtype=tf.float64)
    target = tf.constant([256.0, -128.0], tf.float64)
    narrow = tf.cast(logits, tf.bfloat16)
    loss = cls()
    np.testing.assert_allclose(
        tf.cast(loss(narrow, tf.cast(target, tf.bfloat16)), tf.float64),
        loss(tf.cast(narrow, tf.float64), target),
        rtol=1e-2,
    )


@refusals.table(
    (DISCRETE, bad(TypeError, "transform", transform=np.sqrt)),
    (
        DISCRETE(),
        bad(ValueError, "target", zeros(2, 3), zeros(2, 3)),
        bad(TypeError, "target", zeros(2, 3), tf.zeros([2])),
    ),
    (
        ORDERED(),
        bad(ValueError, "target", zeros(2, 3), zeros(2, 1)),
        bad(TypeError, "pred", np.zeros([2, 3], int), zeros(2)),
    ),
    (ORDERED().calc_expectation, bad(ValueError, "logits", 1.0)),
    (DISCRETE().calc_expectation, bad(ValueError, "logits", 1.0)),
)
def test_errors(row):
    row()
