"""Tests of `tfrl.losses.keras_losses`."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import (
    categorical,
    discrete_regression,
    keras_losses,
    policy,
    regression,
    scalar_prediction,
    supervised,
    temporal_difference,
)
from tfrl.ops import value_transforms

RNG = np.random.default_rng(0)
COLUMN = RNG.normal(size=(6, 1)).astype("float32")
SCALARS = RNG.normal(size=6).astype("float32")
ROWS = RNG.normal(size=(6, 4)).astype("float32")
PROBS = np.abs(ROWS) / np.abs(ROWS).sum(-1, keepdims=True)
TRANSFORM = value_transforms.SqrtLinearTransform(0.001)

# loss, arguments, targets, predictions
READINGS = {
    "huber": (regression.element_wise_huber_loss, {}, SCALARS, COLUMN),
    "squared": (regression.element_wise_squared_loss, {}, COLUMN, COLUMN[:, 0]),
    "quantiles": (regression.multi_quantile_huber_loss, {"delta": 0.0}, SCALARS, ROWS),
    "samples": (regression.multi_quantile_huber_loss, {}, ROWS[:, :3], ROWS),
    "mean squared": (regression.MeanSquaredLoss(), {}, ROWS, ROWS[::-1].copy()),
    "square": (scalar_prediction.SquareLoss(TRANSFORM), {}, SCALARS, COLUMN),
    "quantile": (scalar_prediction.QuantileRegressionLoss(), {}, COLUMN, ROWS),
    "discrete": (
        discrete_regression.DiscreteRegressionLoss(TRANSFORM, True),
        {},
        COLUMN,
        ROWS,
    ),
    "ordered": (discrete_regression.OrderedDiscreteRegressionLoss(), {}, SCALARS, ROWS),
    "td": (temporal_difference.td_loss, {"huber_delta": 0.5}, SCALARS, COLUMN),
    "critics": (temporal_difference.td_loss, {}, COLUMN, ROWS),
    "expectile": (temporal_difference.expectile_loss, {"expectile": 0.7}, ROWS, ROWS),
    "categorical": (categorical.categorical_td_loss, {}, PROBS, ROWS),
    "value": (policy.value_loss, {}, SCALARS, COLUMN),
    "policy gradient": (policy.policy_gradient_loss, {}, SCALARS, COLUMN[:, 0]),
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
    keras_loss = keras_losses.as_keras_loss(loss, arguments=arguments, reduction=None)
    values = keras_loss(targets, predictions)
    np.testing.assert_allclose(np.reshape(values, expected.shape), expected, rtol=1e-5)
    mean = keras_losses.as_keras_loss(loss, arguments=arguments)
    np.testing.assert_allclose(
        mean(targets, predictions), expected.mean(), rtol=1e-5, atol=1e-7
    )


@readings
def test_configurations_come_back(reading):
    loss, arguments, targets, predictions = reading
    keras_loss = keras_losses.as_keras_loss(
        loss, arguments=arguments, reduction="sum", name="mine", dtype="float64"
    )
    config = keras.saving.serialize_keras_object(keras_loss)
    again = keras.saving.deserialize_keras_object(config)
    assert (again.name, again.reduction, again.dtype) == ("mine", "sum", "float64")
    assert again.get_config() == keras_loss.get_config()
    np.testing.assert_array_equal(
        again(targets, predictions), keras_loss(targets, predictions)
    )


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
        keras_loss = keras_losses.as_keras_loss(loss, reduction=reduction)
        for shape in ((6,), (6, 1)):
            got = keras_loss(targets, predictions, weights.reshape(shape))
            np.testing.assert_allclose(np.squeeze(got), expected, rtol=1e-5)


def test_names_and_dtypes():
    loss = keras_losses.as_keras_loss(regression.element_wise_huber_loss)
    assert (loss.name, loss.dtype) == ("element_wise_huber_loss", "float32")
    loss = keras_losses.as_keras_loss(scalar_prediction.SquareLoss(), dtype="bfloat16")
    assert loss.name == "SquareLoss"
    assert loss(SCALARS, COLUMN).dtype == "bfloat16"
    loss = keras_losses.as_keras_loss(lambda pred, target: abs(pred - target))
    assert tf.function(loss)(SCALARS, COLUMN).shape == []


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
        bias = scalar_prediction.InitialBias(loss)
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
        optimizer=keras.optimizers.Adam(0.05),
        loss=keras_losses.as_keras_loss(loss, arguments=arguments),
        jit_compile=True,
    )
    before = model.evaluate(inputs, targets, verbose=0)
    np.testing.assert_allclose(
        before,
        np.mean(
            directly(loss, arguments, targets, model.predict(inputs, verbose=0)),
        ),
        rtol=1e-5,
    )
    model.fit(
        inputs, targets, sample_weight=weights, epochs=10, batch_size=64, verbose=0
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_saved_model_opens_in_a_fresh_process(tmp_path):
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(4)])
    loss, arguments, *_ = READINGS["discrete"]
    model.compile(loss=keras_losses.as_keras_loss(loss, arguments=arguments))
    model.save(tmp_path / "model.keras")
    program = (
        "import keras, tfrl.losses; "
        f"print(keras.models.load_model(r'{tmp_path}/model.keras').loss.get_config())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "SqrtLinearTransform" in printed.stdout


def total(pred, target):
    return tf.reduce_sum((pred - target) ** 2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: keras_losses.as_keras_loss("mse"),
            TypeError,
            "`as_keras_loss`: `loss` expected a function",
        ),
        (
            lambda: keras_losses.as_keras_loss(keras.losses.Huber()),
            TypeError,
            "`as_keras_loss`: `loss` expected a function",
        ),
        (
            lambda: keras_losses.as_keras_loss(policy.ppo_clip_loss),
            TypeError,
            "expected to take a prediction, a target and",
        ),
        (
            lambda: keras_losses.as_keras_loss(total, arguments={"delta": 1.0}),
            TypeError,
            "expected to take a prediction, a target and .'delta'.",
        ),
        (
            lambda: keras_losses.as_keras_loss(total)(SCALARS, SCALARS),
            ValueError,
            "expected one value per element; got a single one from `total`",
        ),
        (
            lambda: keras_losses.as_keras_loss(supervised.regression_loss)(
                COLUMN, COLUMN
            ),
            ValueError,
            "expected one value per element",
        ),
        (
            lambda: keras_losses.as_keras_loss(regression.element_wise_huber_loss)(
                COLUMN, ROWS
            ),
            ValueError,
            "`element_wise_huber_loss`: `y` expected the shape of `x`",
        ),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
