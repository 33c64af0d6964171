"""Tests of `tfrl.losses.regression`."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad, zeros

from tfrl import losses


def pinball_slowly(quantiles, targets, delta, taus=None):
    """The loss of one element, number by number."""
    total = 0.0
    for k, quantile in enumerate(quantiles):
        tau = (k + 0.5) / len(quantiles) if taus is None else taus[k]
        for target in targets:
            error = target - quantile
            if abs(error) < delta:
                height = error * error / (2 * delta)
            else:
                height = abs(error) - delta / 2
            total += abs(tau - (1.0 if error < 0 else 0.0)) * height
    return total / len(quantiles) / len(targets)


def all_ways(function):
    return (function, tf.function(function), tf.function(function, jit_compile=True))


def test_huber_by_hand():
    x = tf.constant([-3.0, -2.0, -1.0, 0.0, 0.5, 2.0, 4.0])
    expected = [4.0, 2.0, 0.5, 0.0, 0.125, 2.0, 6.0]
    for run in all_ways(lambda x: losses.huber_function(x, 2.0)):
        np.testing.assert_allclose(run(x), expected, rtol=1e-6)


@pytest.mark.parametrize("delta", [0.0, 0.3])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("samples", [None, 1, 5])
def test_multi_quantile_huber_loss_number_by_number(delta, batch, samples):
    rng = np.random.default_rng(0)
    quantiles = rng.normal(size=(*batch, 4))
    targets = rng.normal(size=batch if samples is None else (*batch, samples))
    expected = np.empty(batch)
    for index in np.ndindex(batch):
        expected[index] = pinball_slowly(
            quantiles[index], np.atleast_1d(targets[index]), delta
        )
    loss = losses.multi_quantile_huber_loss(quantiles, targets, delta)
    assert loss.dtype == "float64"
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_multi_quantile_huber_loss_at_given_fractions(delta):
    rng = np.random.default_rng(0)
    quantiles, taus = rng.normal(size=(2, 3, 4)), rng.uniform(size=(2, 3, 4))
    targets = rng.normal(size=(2, 3, 5))
    weights = np.full((2, 3, 5), [0.5, 0.0, 0.25, 0.25, 0.0])
    repeated = targets[..., [0, 0, 2, 3]]
    for call, rows in (
        ({"fractions": taus}, taus),
        ({"fractions": taus[0, 0]}, np.broadcast_to(taus[0, 0], taus.shape)),
        ({}, [[None] * 3] * 2),
    ):
        loss = losses.multi_quantile_huber_loss(quantiles, targets, delta, **call)
        weighed = losses.multi_quantile_huber_loss(
            quantiles, targets, delta, **call, target_weights=weights
        )
        for i in np.ndindex(2, 3):
            tau = rows[i[0]][i[1]]
            expected = pinball_slowly(quantiles[i], targets[i], delta, tau)
            np.testing.assert_allclose(loss[i], expected, rtol=1e-12)
            expected = pinball_slowly(quantiles[i], repeated[i], delta, tau)
            np.testing.assert_allclose(weighed[i], expected, rtol=1e-12)


def test_multi_quantile_huber_loss_of_unknown_sizes():
    rng = np.random.default_rng(1)
    quantiles, targets = rng.normal(size=(3, 4)), rng.normal(size=(3, 5))
    expected = [
        pinball_slowly(q, t, 0.1) for q, t in zip(quantiles, targets, strict=True)
    ]
    unknown = [tf.TensorSpec([None, None], tf.float64)] * 2
    for jit_compile in (False, True):
        run = tf.function(
            losses.multi_quantile_huber_loss,
            input_signature=unknown,
            jit_compile=jit_compile,
        )
        np.testing.assert_allclose(run(quantiles, targets), expected, rtol=1e-12)


def test_pinball_is_least_at_the_quantiles():
    samples = np.random.default_rng(2).exponential(size=4000)
    quantiles = tf.Variable(np.zeros(5))
    for _ in range(300):
        with tf.GradientTape() as tape:
            loss = losses.multi_quantile_huber_loss(quantiles, samples, 0.0)
        quantiles.assign_sub(5.0 * tape.gradient(loss, quantiles))
    expected = np.quantile(samples, [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(quantiles, expected, atol=0.03)


@pytest.mark.parametrize("delta", [0.0, 1e-30, 0.1, 1e4])
def test_quantile_gradients_stay_finite_and_right(delta):
    quantiles = tf.constant([[0.0, -1e30, 1e30, 1e-36, 5.0]])
    target = tf.constant([[0.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch([quantiles, target])
        loss = losses.multi_quantile_huber_loss(quantiles, target, delta)
    gradients = tape.gradient(loss, [quantiles, target])
    errors = target.numpy()[:, None, :].astype(float) - quantiles.numpy()[..., None]
    taus = (np.arange(5)[:, None] + 0.5) / 5
    # Without a parabola, the slope at the kink is that of the upper side.
    pinball = np.where(errors < 0, -1.0, 1.0)
    slopes = np.clip(errors / delta, -1, 1) if delta else pinball
    steep = np.abs(taus - (errors < 0)) * slopes / 10
    np.testing.assert_allclose(gradients[0], -steep.sum(-1), rtol=1e-5)
    np.testing.assert_allclose(gradients[1], steep.sum(-2), rtol=1e-5)
    assert np.all(np.isfinite(loss))


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True], ids=["eager", "graph"])
def test_second_derivative_of_the_quantile_loss(inside):
    def second(quantiles, target):
        with tf.GradientTape() as outer:
            outer.watch(quantiles)
            with tf.GradientTape() as tape:
                tape.watch(quantiles)
                loss = losses.multi_quantile_huber_loss(quantiles, target, 0.5)
            gradient = tape.gradient(loss, quantiles)
        return outer.gradient(gradient, quantiles)

    run = tf.function(second) if inside else second
    quantiles = tf.constant([[0.0, 0.2, 3.0]], tf.float64)
    target = tf.constant([[0.1, 5.0]], tf.float64)
    # Of each pair within 0.5: |tau - (1 if error < 0 else 0)| / 0.5 / 6.
    expected = [[1 / 6 / 3, 1 / 2 / 3, 0.0]]
    np.testing.assert_allclose(run(quantiles, target), expected, rtol=1e-12)


def test_huber_gradient_of_infinite_error_is_its_slope():
    x = tf.constant([np.inf, -np.inf, 1e38])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = losses.huber_function(x, 3.0)
    np.testing.assert_array_equal(tape.gradient(loss, x), [3.0, -3.0, 3.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept(dtype):
    x, y = tf.constant([[1.0, 300.0]], dtype), tf.constant([[0.5, 1.0]], dtype)
    assert losses.huber_function(x).dtype == dtype
    assert losses.element_wise_huber_loss(x, y).dtype == dtype
    assert losses.element_wise_squared_loss(x, y).dtype == dtype
    # The squared error of 300 overflows in float16, not before the mean.
    loss = losses.MeanSquaredLoss()(x / 2, y)
    assert loss.dtype == dtype
    np.testing.assert_allclose(float(loss[0]), 149.0**2 / 2, rtol=1e-2)
    many = tf.fill([1, 4096], tf.constant(2.0, dtype))
    loss = losses.multi_quantile_huber_loss(many, tf.zeros([1], dtype), 0.0)
    assert loss.dtype == dtype
    np.testing.assert_allclose(float(loss[0]), 1.0, rtol=1e-2)


def test_mean_squared_loss_keeps_leading_axes():
    pred, target = np.random.default_rng(3).normal(size=(2, 2, 3, 4))
    for dims, axes in ((0, (0, 1, 2)), (1, (1, 2)), (2, (2,)), (3, ())):
        loss = losses.MeanSquaredLoss(batch_dims=dims)
        for run in (loss, tf.function(loss)):
            np.testing.assert_allclose(
                run(pred[0][None], target[0][None]),
                ((pred[0] - target[0])[None] ** 2).mean(axes),
                rtol=1e-12,
            )


def test_mean_squared_losses_compare_by_configuration():
    loss = losses.MeanSquaredLoss(2, False, "mse")
    assert loss == losses.MeanSquaredLoss.from_config(loss.get_config())
    assert loss != losses.MeanSquaredLoss(1, False, "mse")


@refusals.table(
    (
        losses.huber_function,
        bad(ValueError, "delta", [1.0], 0.0),
        bad(ValueError, "delta", [1.0], np.inf),
        bad(ValueError, "delta", [1.0], [1.0, 2.0]),
        bad(TypeError, "x", np.arange(3)),
    ),
    (losses.element_wise_huber_loss, bad(ValueError, "y", zeros(2), zeros(2, 1))),
    (
        losses.element_wise_squared_loss,
        bad(ValueError, "y", zeros(2), zeros()),
        bad(TypeError, "y", zeros(2), tf.ones(2)),
    ),
    (
        losses.multi_quantile_huber_loss,
        bad(ValueError, "quantiles", 1.0, 1.0),
        bad(ValueError, "target", zeros(2, 3), zeros(3)),
        bad(ValueError, "target", zeros(2, 3), zeros(1, 3)),
        bad(ValueError, "delta", [1.0], 1.0, -0.1),
        bad(ValueError, "fractions", [1.0], 1.0, 0.1, fractions=[0.5, 0.5]),
        bad(ValueError, "fractions", [1.0], 1.0, 0.1, fractions=[-0.5]),
        bad(ValueError, "target_weights", [1.0], [1.0], target_weights=[0.5, 0.5]),
    ),
    (losses.MeanSquaredLoss, bad(ValueError, "batch_dims", -1)),
    (losses.MeanSquaredLoss(), bad(ValueError, "target", zeros(2, 3), zeros(2, 1))),
    (losses.MeanSquaredLoss(2), bad(ValueError, "pred", zeros(2), zeros(2))),
)
def test_errors(row):
    row()


@pytest.mark.parametrize("jit_compile", [None, True])
def test_pinball_has_the_slope_of_the_upper_side_at_its_kink(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def gradients(quantiles, target):
        with tf.GradientTape() as tape:
            tape.watch([quantiles, target])
            loss = losses.multi_quantile_huber_loss(quantiles, target, delta=0.0)
        return tape.gradient(loss, [quantiles, target])

    quantiles, target = tf.constant([[0.0, 1.0, 2.0]]), tf.constant([1.0])
    by_quantiles, by_target = gradients(quantiles, target)
    # -tau above and at the quantile, 1 - tau below, over their number.
    expected = np.array([-1 / 6, -1 / 2, 1 - 5 / 6]) / 3
    np.testing.assert_allclose(by_quantiles[0], expected, rtol=1e-6)
    np.testing.assert_allclose(by_target, [-np.sum(expected)], rtol=1e-6)
