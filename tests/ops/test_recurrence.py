"""The recurrence against a plain loop, its gradients against differences."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from tfrl import ops
from tfrl.ops import _recurrence


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


@pytest.mark.parametrize("mode", ["eager", "graph", "jit"])
def test_gradients_of_the_lambda_return(mode):
    rng = np.random.default_rng(10)
    n, r = rng.normal(size=(2, 5, 2))
    d, lambdas = rng.random((2, 5, 2))
    weights = rng.normal(size=(5, 2))
    tensors = [tf.constant(array) for array in (r, d, n, lambdas)]

    def gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(weights * ops.td_lambda_return(*tensors))
        return tape.gradient(loss, tensors)

    if mode != "eager":
        gradients = tf.function(gradients, jit_compile=mode == "jit")
    for index, got in enumerate(gradients(*tensors)):
        expected = np.zeros((5, 2))
        for at in np.ndindex(5, 2):
            difference = 0.0
            for sign in (-1, 1):
                moved = [np.array(tensor) for tensor in tensors]
                moved[index][at] += sign * 1e-6
                returns = oracles.td_lambda_return(*moved)
                difference += sign * np.sum(weights * returns)
            expected[at] = difference / 2e-6
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


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
