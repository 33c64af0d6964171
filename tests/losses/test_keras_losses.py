"""Tests of `tfrl.losses.keras_losses`."""

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import losses
from tfrl.ops import value_transforms

RNG = np.random.default_rng(0)
COLUMN = RNG.normal(size=(6, 1)).astype("float32")
SCALARS = RNG.normal(size=6).astype("float32")
ROWS = RNG.normal(size=(6, 4)).astype("float32")
PROBS = np.abs(ROWS) / np.abs(ROWS).sum(-1, keepdims=True)
TRANSFORM = value_transforms.SqrtLinearTransform(0.001)

# loss, arguments, targets, predictions
READINGS = {
    "huber": (losses.element_wise_huber_loss, {}, SCALARS, COLUMN),
    "squared": (losses.element_wise_squared_loss, {}, COLUMN, COLUMN[:, 0]),
    "quantiles": (losses.multi_quantile_huber_loss, {"delta": 0.0}, SCALARS, ROWS),
    "samples": (losses.multi_quantile_huber_loss, {}, ROWS[:, :3], ROWS),
    "mean squared": (losses.MeanSquaredLoss(), {}, ROWS, ROWS[::-1].copy()),
    "square": (losses.SquareLoss(TRANSFORM), {}, SCALARS, COLUMN),
    "quantile": (losses.QuantileRegressionLoss(), {}, COLUMN, ROWS),
    "discrete": (losses.DiscreteRegressionLoss(TRANSFORM, True), {}, COLUMN, ROWS),
    "ordered": (losses.OrderedDiscreteRegressionLoss(), {}, SCALARS, ROWS),
    "td": (losses.td_loss, {"huber_delta": 0.5}, SCALARS, COLUMN),
    "critics": (losses.td_loss, {}, COLUMN, ROWS),
    "expectile": (losses.expectile_loss, {"expectile": 0.7}, ROWS, ROWS),
    "categorical": (losses.categorical_td_loss, {}, PROBS, ROWS),
    "value": (losses.value_loss, {}, SCALARS, COLUMN),
    "policy gradient": (losses.policy_gradient_loss, {}, SCALARS, COLUMN[:, 0]),
    "weighted": (losses.advantage_weighted_loss, {"beta": 1.0}, SCALARS, SCALARS[::-1]),
    "all actions": (losses.q_policy_gradient_loss, {}, ROWS, ROWS[::-1].copy()),
    "matching": (losses.regret_matching_loss, {}, ROWS, ROWS[::-1].copy()),
    "regret": (losses.regret_policy_gradient_loss, {}, ROWS, ROWS[::-1].copy()),
    "slopes": (losses.deterministic_policy_gradient_loss, {}, ROWS, ROWS[::-1].copy()),
    "quantile td": (losses.quantile_td_loss, {}, ROWS[:, :3], ROWS),
}


def directly(loss, arguments, targets, predictions):
    """The loss per element, its arguments shaped by hand."""
    if predictions.shape[-1] == 1 and targets.ndim == 1:
        predictions = predictions[:, 0]
    elif targets.shape[-1] == 1 and targets.ndim == 2:
        targets = targets[:, 0]
    result = loss(tf.constant(predictions), tf.constant(targets), **arguments)
    return np.array(getattr(result, "loss", result))


readings = pytest.mark.parametrize("reading", READINGS.values(), ids=list(READINGS))


@readings
def test_every_reading(reading):
    loss, arguments, targets, predictions = reading
    expected = directly(*reading)
    keras_loss = losses.as_keras_loss(loss, arguments=arguments, reduction=None)
    values = keras_loss(targets, predictions)
    np.testing.assert_allclose(np.reshape(values, expected.shape), expected, rtol=1e-5)
    mean = losses.as_keras_loss(loss, arguments=arguments)
    np.testing.assert_allclose(
        mean(targets, predictions), expected.mean(), rtol=1e-5, atol=1e-7
    )


@readings
def test_every_reading_can_be_loaded(reading):
    loss, arguments, targets, predictions = reading
    made = losses.as_keras_loss(loss, arguments=arguments)
    config = keras.saving.serialize_keras_object(made)
    again = keras.saving.deserialize_keras_object(config)
    assert again(targets, predictions) == made(targets, predictions)


@pytest.mark.parametrize("targets", [COLUMN, SCALARS], ids=["column", "scalars"])
def test_one_sample_for_each_row_of_quantiles(targets):
    """Not samples that all rows share, as of `[B]` targets of the loss itself."""
    loss = losses.as_keras_loss(losses.quantile_td_loss, reduction=None)
    expected = 4 * losses.multi_quantile_huber_loss(ROWS, targets.ravel(), 1.0)
    np.testing.assert_allclose(loss(targets, ROWS), expected, rtol=1e-5)


def test_what_cannot_be_loaded_tells_how():
    config = keras.saving.serialize_keras_object(losses.as_keras_loss(total))
    with pytest.raises(TypeError, match="`as_keras_loss`: `loss` expected.*'total'"):
        keras.saving.deserialize_keras_object(config)
    known = {"total": total}
    again = keras.saving.deserialize_keras_object(config, custom_objects=known)
    assert again.name == "total"


def test_sample_weights_and_reductions():
    each = directly(*READINGS["discrete"])
    loss, _, targets, predictions = READINGS["discrete"]
    weights = np.array([0.0, 1.0, 2.0, 0.0, 0.5, 1.0])
    for reduction, expected in (
        ("sum", (each * weights).sum()),
        ("sum_over_batch_size", (each * weights).mean()),
        ("mean_with_sample_weight", (each * weights).sum() / weights.sum()),
        (None, each * weights),
    ):
        keras_loss = losses.as_keras_loss(loss, reduction=reduction)
        for shape in ((6,), (6, 1)):
            got = keras_loss(targets, predictions, weights.reshape(shape))
            np.testing.assert_allclose(np.squeeze(got), expected, rtol=1e-5)


def test_names_and_dtypes():
    loss = losses.as_keras_loss(losses.element_wise_huber_loss)
    assert (loss.name, loss.dtype) == ("element_wise_huber_loss", "float32")
    loss = losses.as_keras_loss(losses.SquareLoss(), dtype="bfloat16")
    assert loss.name == "SquareLoss"
    assert loss(SCALARS, COLUMN).dtype == "bfloat16"
    loss = losses.as_keras_loss(lambda pred, target: abs(pred - target))
    assert tf.function(loss)(SCALARS, COLUMN).shape == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["td", pytest.param("discrete", marks=pytest.mark.slow)]
)
def test_fit_learns_saves_and_goes_on(name, tmp_path):
    """Targets are a linear function of the inputs; the loss must fall a lot."""
    loss, arguments, _, predictions = READINGS[name]
    inputs = np.random.default_rng(1).normal(size=(256, 3)).astype("float32")
    targets = inputs @ np.array([1.0, -0.5, 0.25], "float32")
    weights = np.ones(256, "float32")
    if name == "discrete":
        bias = losses.InitialBias(loss)
    else:
        bias = "zeros"
    model = keras.Sequential(
        [
            keras.layers.Input([3]),
            keras.layers.Dense(
                predictions.shape[-1], kernel_initializer="zeros", bias_initializer=bias
            ),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.1),
        loss=losses.as_keras_loss(loss, arguments=arguments),
        jit_compile=False,
    )
    before = model.evaluate(inputs, targets, verbose=0)
    np.testing.assert_allclose(
        before,
        np.mean(directly(loss, arguments, targets, model.predict(inputs, verbose=0))),
        rtol=1e-5,
    )
    model.fit(
        inputs, targets, sample_weight=weights, epochs=5, batch_size=64, verbose=0
    )
    after = model.evaluate(inputs, targets, verbose=0)
    assert after < 0.6 * before

    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_allclose(again.evaluate(inputs, targets, verbose=0), after, 1e-6)
    assert again.loss.get_config() == model.loss.get_config()
    history = again.fit(inputs, targets, epochs=1, verbose=0).history
    assert history["loss"][0] < 0.6 * before


def total(pred, target):
    return tf.reduce_sum((pred - target) ** 2)


@refusals.table(
    (
        losses.as_keras_loss,
        bad(TypeError, "loss", "mse"),
        bad(TypeError, "loss", keras.losses.Huber()),
        bad(TypeError, "loss", losses.ppo_clip_loss),
        bad(TypeError, "loss", total, arguments={"delta": 1.0}),
    ),
    (lambda: losses.as_keras_loss(total)(SCALARS, SCALARS), bad(ValueError, "loss")),
    (
        lambda: losses.as_keras_loss(losses.regression_loss)(COLUMN, COLUMN),
        bad(ValueError, "loss"),
    ),
    (
        lambda: losses.as_keras_loss(losses.element_wise_huber_loss)(COLUMN, ROWS),
        bad(ValueError, "y"),
    ),
)
def test_errors(row):
    row()
