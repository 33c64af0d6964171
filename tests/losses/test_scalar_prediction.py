"""Tests of `tfrl.losses.scalar_prediction`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import discrete_regression, regression, scalar_prediction
from tfrl.ops import value_transforms


class Doubling:
    """A transform that is not derived from anything of ours."""

    def transform(self, x):
        return 2 * x

    def inverse_transform(self, y):
        return y / 2


LOSSES = [
    scalar_prediction.SquareLoss(value_transforms.Sqrt1pTransform()),
    scalar_prediction.QuantileRegressionLoss(None, True, 0.5),
    scalar_prediction.QuantileRegressionLoss(value_transforms.Log1pTransform(3.0)),
    discrete_regression.DiscreteRegressionLoss(
        value_transforms.SqrtLinearTransform(0.001), inverse_after_mean=True
    ),
    discrete_regression.OrderedDiscreteRegressionLoss(),
]
NAMES = [f"{type(loss).__name__}-{index}" for index, loss in enumerate(LOSSES)]
of_losses = pytest.mark.parametrize("loss", LOSSES, ids=NAMES)


def test_square_loss_by_hand():
    loss = scalar_prediction.SquareLoss(Doubling())
    np.testing.assert_allclose(loss([1.0, 5.0], [2.0, 2.0]), [9.0, 1.0])
    np.testing.assert_allclose(loss.calc_expectation([1.0, 5.0]), [0.5, 2.5])


def test_quantile_loss_is_the_function_on_transformed_targets():
    rng = np.random.default_rng(0)
    quantiles, target = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 5))
    loss = scalar_prediction.QuantileRegressionLoss(Doubling(), delta=0.3)
    expected = regression.multi_quantile_huber_loss(quantiles, 2 * target, 0.3)
    np.testing.assert_allclose(loss(quantiles, target), expected, rtol=1e-12)
    expected = regression.multi_quantile_huber_loss(quantiles, 2 * target[..., 0], 0.3)
    np.testing.assert_allclose(loss(quantiles, target[..., 0]), expected, rtol=1e-12)


def test_quantile_expectations_by_hand():
    transform = value_transforms.Sqrt1pTransform()  # inverse y (2 + |y|)
    quantiles = tf.constant([[0.0, 2.0], [-1.0, 1.0]])
    for after, expected in ((False, [4.0, 0.0]), (True, [3.0, 0.0])):
        loss = scalar_prediction.QuantileRegressionLoss(transform, after)
        for run in (
            loss.calc_expectation,
            tf.function(loss.calc_expectation, jit_compile=True),
        ):
            np.testing.assert_allclose(run(quantiles), expected, rtol=1e-6, atol=1e-6)


@of_losses
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept(loss, dtype):
    is_square = isinstance(loss, scalar_prediction.SquareLoss)
    pred = np.linspace(-1, 1, 12).reshape(4, 3)
    pred = pred[:, 0] if is_square else pred
    target = np.array([-1.5, 0.0, 0.7, 30.0])
    wide, kept = (
        (tf.constant(pred, kind), tf.constant(target, kind))
        for kind in ("float64", dtype)
    )
    tolerance = {"float16": 1e-2, "bfloat16": 5e-2}.get(dtype, 1e-4)
    for of in (loss, lambda pred, _: loss.calc_expectation(pred)):
        assert of(*kept).dtype == dtype
        np.testing.assert_allclose(
            tf.cast(of(*kept), tf.float64), of(*wide), rtol=tolerance, atol=tolerance
        )
    assert loss.initial_bias(3, dtype).dtype == dtype


@of_losses
def test_configurations_come_back(loss):
    config = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()
    pred = tf.constant([[0.5, -0.5, 0.1]])
    pred = pred[:, 0] if isinstance(loss, scalar_prediction.SquareLoss) else pred
    np.testing.assert_array_equal(again(pred, [0.7]), loss(pred, [0.7]))


def test_losses_are_values():
    one, same, other = (
        scalar_prediction.QuantileRegressionLoss(delta=delta) for delta in (0, 0, 1)
    )
    assert one == same and hash(one) == hash(same) and one != other
    with pytest.raises(AttributeError, match="cannot assign"):
        one.delta = 2.0


@of_losses
def test_initial_bias_in_a_layer_and_in_place(loss):
    layer = keras.layers.Dense(
        6,
        kernel_initializer="zeros",
        bias_initializer=scalar_prediction.InitialBias(loss),
    )
    outputs = layer(np.ones([2, 3], "float32"))
    np.testing.assert_allclose(outputs[1], loss.initial_bias(6, "float32"), rtol=1e-6)
    again = keras.layers.Dense.from_config(layer.get_config())
    np.testing.assert_array_equal(again(np.ones([2, 3], "float32")), outputs)
    for variable in (tf.Variable(np.ones(6)), keras.Variable(np.ones(6), "float64")):
        loss.initialize_bias(variable)
        values = tf.convert_to_tensor(variable)
        np.testing.assert_allclose(values, outputs[1], rtol=1e-6)


def test_first_prediction_of_a_fresh_layer_is_the_middle():
    loss = discrete_regression.OrderedDiscreteRegressionLoss()
    zeros = loss.calc_expectation(tf.zeros([1, 21]))
    biased = loss.calc_expectation(loss.initial_bias(21, tf.float32)[tf.newaxis])
    np.testing.assert_allclose(zeros, [-0.5], atol=1e-6)
    np.testing.assert_allclose(biased, [0.0], atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: scalar_prediction.ScalarPredictionLoss()([1.0], [1.0]),
            NotImplementedError,
            "does not define a loss",
        ),
        (
            lambda: scalar_prediction.ScalarPredictionLoss().calc_expectation([1.0]),
            NotImplementedError,
            "does not define an expectation",
        ),
        (
            lambda: scalar_prediction.SquareLoss(tf.sqrt),
            TypeError,
            "`SquareLoss`: `transform` expected an InvertibleTransform",
        ),
        (
            lambda: scalar_prediction.SquareLoss()(np.ones(2), np.ones([2, 1])),
            ValueError,
            "`SquareLoss`: `target` expected the shape of `pred`",
        ),
        (
            lambda: scalar_prediction.SquareLoss().initialize_bias(
                tf.Variable(tf.ones([2, 3]))
            ),
            ValueError,
            "`SquareLoss.initialize_bias`: `bias` expected rank 1",
        ),
        (
            lambda: scalar_prediction.QuantileRegressionLoss(delta=-1.0),
            ValueError,
            "`QuantileRegressionLoss`: `delta` expected numbers in",
        ),
        (
            lambda: scalar_prediction.QuantileRegressionLoss(transform=1.0),
            TypeError,
            "`QuantileRegressionLoss`: `transform` expected",
        ),
        (
            lambda: scalar_prediction.QuantileRegressionLoss()(
                np.ones([2, 3]), np.ones([3])
            ),
            ValueError,
            "`target` expected the batch shape",
        ),
        (
            lambda: scalar_prediction.QuantileRegressionLoss().calc_expectation(1.0),
            ValueError,
            "`quantiles` expected rank of at least 1",
        ),
        (
            lambda: scalar_prediction.InitialBias(scalar_prediction.SquareLoss())(
                [2, 3]
            ),
            ValueError,
            "`InitialBias`: `shape` expected rank 1",
        ),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
