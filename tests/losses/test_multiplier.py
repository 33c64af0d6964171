"""Tests of `tfrl.losses.multiplier`."""

import math

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from modes import both_ways
from refusals import bad, zeros

from tfrl import losses

DTYPES = ["float16", "bfloat16", "float32", "float64"]
VARIABLES = {"tf": tf.Variable, "keras": keras.Variable}


@both_ways(
    lambda *args: (
        *losses.temperature_loss(*args),
        *losses.conservative_alpha_loss(*args),
    )
)
def test_by_hand(run):
    values = tf.constant([[1.5, -2.0], [3.0, 0.0]])
    loss, extra, conservative, of_penalties = run(math.log(2.0), values, 1.0)
    np.testing.assert_allclose(loss, [[-5.0, 2.0], [-8.0, -2.0]], rtol=1e-6)
    np.testing.assert_allclose(extra.violations, [[2.5, -1.0], [4.0, 1.0]])
    np.testing.assert_allclose(extra.alpha, 2.0, rtol=1e-6)
    np.testing.assert_allclose(conservative, [[-1.0, 6.0], [-4.0, 2.0]], rtol=1e-6)
    np.testing.assert_allclose(of_penalties.violations, [[0.5, -3.0], [2.0, -1.0]])


@pytest.mark.parametrize("kind", VARIABLES)
@pytest.mark.parametrize(
    ("loss_of", "violations"),
    [
        (losses.temperature_loss, [0.5, -3.0]),
        (losses.conservative_alpha_loss, [2.5, -1.0]),
    ],
    ids=["temperature", "conservative"],
)
def test_gradients_flow_to_the_multiplier_alone(kind, loss_of, violations):
    log_alpha = VARIABLES[kind](math.log(2.0))
    values, limit = tf.constant([1.5, -2.0]), tf.constant(-1.0)
    with tf.GradientTape() as tape:
        tape.watch([values, limit])
        loss = loss_of(log_alpha, values, limit).loss
    inner = log_alpha.value if kind == "keras" else log_alpha
    gradient, *others = tape.gradient(loss, [inner, values, limit])
    np.testing.assert_allclose(gradient, -2.0 * sum(violations), rtol=1e-6)
    assert others == [None, None]


@pytest.mark.parametrize("spread", [0.1, 2.0], ids=["certain", "uncertain"])
def test_temperature_grows_when_the_policy_is_too_certain(spread):
    # The entropy of a normal distribution, against that of spread 1.
    entropy = 0.5 * math.log(2 * math.pi * math.e) + math.log(spread)
    target = 0.5 * math.log(2 * math.pi * math.e)
    log_alpha = tf.Variable(0.0, dtype=tf.float64)
    with tf.GradientTape() as tape:
        loss = losses.temperature_loss(log_alpha, np.array([-entropy]), target).loss
    step = -float(tape.gradient(loss, log_alpha))
    np.testing.assert_allclose(step, -math.log(spread), rtol=1e-12)


def test_gradient_against_central_differences():
    log_probs = np.random.default_rng(0).normal(size=5)
    theory, measured = tf.test.compute_gradient(
        lambda x: losses.temperature_loss(x, log_probs, -2.0).loss,
        [tf.constant(0.3, tf.float64)],
    )
    np.testing.assert_allclose(theory, measured, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_kept(dtype):
    log_alpha, row = tf.constant(0.5, dtype), tf.constant([0.5], dtype)
    for info in (
        losses.temperature_loss(log_alpha, row, -3),
        losses.temperature_loss(0.5, row, -3.0),
        losses.conservative_alpha_loss(log_alpha, row, 5.0),
    ):
        assert {x.dtype.name for x in tf.nest.flatten(info)} == {dtype}


@refusals.table(
    (
        losses.temperature_loss,
        bad(ValueError, "log_alpha", zeros(2), zeros(2), -1.0),
        bad(TypeError, "log_probs", 0.0, [1, 2], -1.0),
        bad(TypeError, "log_alpha", tf.constant(0.0), zeros(2), -1.0),
    ),
    (
        losses.conservative_alpha_loss,
        bad(ValueError, "log_alpha", zeros(1), zeros(2), 5.0),
    ),
)
def test_errors(row):
    row()


def test_trust_region_by_hand():
    log_alpha = tf.Variable([math.log(2.0), 0.0])
    divergences = tf.Variable([[0.5, 0.1], [0.0, 0.4]])
    with tf.GradientTape() as tape:
        loss, extra = losses.trust_region_loss(log_alpha, divergences, 0.2)
    np.testing.assert_allclose(extra.violations, [[0.3, -0.1], [-0.2, 0.2]], atol=1e-7)
    # alpha * threshold: what the policy and the weight pay cancels but for that.
    np.testing.assert_allclose(loss, [[0.4, 0.2], [0.4, 0.2]], rtol=1e-6)
    to_alpha, to_policy = tape.gradient(loss, [log_alpha, divergences])
    np.testing.assert_allclose(to_alpha, [-2 * 0.1, -0.1], rtol=1e-5)
    np.testing.assert_allclose(to_policy, [[2.0, 1.0], [2.0, 1.0]], rtol=1e-6)
    alone = losses.trust_region_loss(tf.constant(0.0), [0.5, 0.0], 0.2)
    np.testing.assert_allclose(alone.loss, [0.2, 0.2], rtol=1e-6)


@both_ways(lambda *args: losses.trust_region_loss(*args, 0.2))
def test_trust_regions_of_an_empty_batch(run):
    for shape in ([0, 4], [0, 2, 4], [2, 0, 4]):
        loss, extra = run(tf.zeros([4]), tf.zeros(shape))
        assert loss.shape == extra.violations.shape == shape
        assert extra.alpha.shape == [4]
    assert run(tf.zeros([0]), tf.zeros([3, 0])).loss.shape == [3, 0]


@refusals.table(
    (
        losses.trust_region_loss,
        bad(ValueError, "log_alpha", zeros(3), zeros(4, 2), 0.1),
        bad(ValueError, "log_alpha", zeros(4, 2), zeros(4, 2), 0.1),
        bad(ValueError, "divergences", [0.0, 0.0], 0.5, 0.1),
        bad(TypeError, "log_alpha", tf.constant(0.0), zeros(2), 0.1),
    ),
)
def test_errors_of_trust_regions(row):
    row()
