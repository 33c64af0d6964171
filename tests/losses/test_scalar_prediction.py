"""Tests of `tfrl.losses.scalar_prediction`."""

import json

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad, zeros

from tfrl import losses
from tfrl.ops import value_transforms


class Doubling:
    """A transform that is not derived from anything of ours."""

    def transform(self, x):
        return 2 * x

    def inverse_transform(self, y):
        return y / 2


LOSSES = [
    losses.SquareLoss(value_transforms.Sqrt1pTransform()),
    losses.QuantileRegressionLoss(None, True, 0.5),
    losses.QuantileRegressionLoss(value_transforms.Log1pTransform(3.0)),
    losses.DiscreteRegressionLoss(
        value_transforms.SqrtLinearTransform(0.001), inverse_after_mean=True
    ),
    losses.OrderedDiscreteRegressionLoss(),
]
NAMES = [f"{type(loss).__name__}-{index}" for index, loss in enumerate(LOSSES)]
of_losses = pytest.mark.parametrize("loss", LOSSES, ids=NAMES)


def test_square_loss_by_hand():
    loss = losses.SquareLoss(Doubling())
    np.testing.assert_allclose(loss([1.0, 5.0], [2.0, 2.0]), [9.0, 1.0])
    np.testing.assert_allclose(loss.calc_expectation([1.0, 5.0]), [0.5, 2.5])


def test_quantile_loss_is_the_function_on_transformed_targets():
    rng = np.random.default_rng(0)
    quantiles, target = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 5))
    loss = losses.QuantileRegressionLoss(Doubling(), delta=0.3)
    expected = losses.multi_quantile_huber_loss(quantiles, 2 * target, 0.3)
    np.testing.assert_allclose(loss(quantiles, target), expected, rtol=1e-12)
    expected = losses.multi_quantile_huber_loss(quantiles, 2 * target[..., 0], 0.3)
    np.testing.assert_allclose(loss(quantiles, target[..., 0]), expected, rtol=1e-12)


def test_quantile_expectations_by_hand():
    transform = value_transforms.Sqrt1pTransform()  # inverse y (2 + |y|)
    quantiles = tf.constant([[0.0, 2.0], [-1.0, 1.0]])
    for after, expected in ((False, [4.0, 0.0]), (True, [3.0, 0.0])):
        loss = losses.QuantileRegressionLoss(transform, after)
        for run in (
            loss.calc_expectation,
            tf.function(loss.calc_expectation, jit_compile=True),
        ):
            np.testing.assert_allclose(run(quantiles), expected, rtol=1e-6, atol=1e-6)


@of_losses
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept(loss, dtype):
    is_square = isinstance(loss, losses.SquareLoss)
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


def test_losses_are_values():
    one, same, other = (
        losses.QuantileRegressionLoss(delta=delta) for delta in (0, 0, 1)
    )
    assert one == same and hash(one) == hash(same) and one != other
    with pytest.raises(AttributeError, match="cannot assign"):
        one.delta = 2.0


@of_losses
def test_initial_bias_in_a_layer_and_in_place(loss):
    layer = keras.layers.Dense(
        6, kernel_initializer="zeros", bias_initializer=losses.InitialBias(loss)
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
    loss = losses.OrderedDiscreteRegressionLoss()
    zeros = loss.calc_expectation(tf.zeros([1, 21]))
    biased = loss.calc_expectation(loss.initial_bias(21, tf.float32)[tf.newaxis])
    np.testing.assert_allclose(zeros, [-0.5], atol=1e-6)
    np.testing.assert_allclose(biased, [0.0], atol=1e-5)


@refusals.table(
    (losses.SquareLoss, bad(TypeError, "transform", tf.sqrt)),
    (losses.SquareLoss(), bad(ValueError, "target", zeros(2), zeros(2, 1))),
    (
        losses.SquareLoss().initialize_bias,
        bad(ValueError, "bias", tf.Variable(tf.ones([2, 3]))),
    ),
    (
        losses.QuantileRegressionLoss,
        bad(ValueError, "delta", delta=-1.0),
        bad(TypeError, "transform", transform=1.0),
    ),
    (
        lambda: losses.QuantileRegressionLoss()(zeros(2, 3), zeros(3)),
        bad(ValueError, "target"),
    ),
    (
        losses.QuantileRegressionLoss().calc_expectation,
        bad(ValueError, "quantiles", 1.0),
    ),
    (losses.InitialBias(losses.SquareLoss()), bad(ValueError, "shape", [2, 3])),
)
def test_errors(row):
    row()


def test_the_base_defines_neither_loss_nor_expectation():
    base = losses.ScalarPredictionLoss()
    with pytest.raises(NotImplementedError, match="does not define a loss"):
        base([1.0], [1.0])
    with pytest.raises(NotImplementedError, match="does not define an expectation"):
        base.calc_expectation([1.0])


class Halving:
    """Not derived from anything of ours."""

    def transform(self, x):
        return x / 2

    def inverse_transform(self, y):
        return 2 * y


def test_none_changes_nothing():
    target = tf.constant([-3.0, 0.0])
    loss = losses.SquareLoss()
    assert loss.transformed(target) is target
    assert loss.restored(target) is target


@keras.saving.register_keras_serializable(package="tests")
class Tripling(Halving):
    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@pytest.mark.parametrize(
    "transform",
    [
        value_transforms.Log1pTransform(3.0),
        value_transforms.Sqrt1pTransform(),
        value_transforms.SqrtLinearTransform(0.25),
        Tripling(),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_transforms_become_data_and_come_back(transform):
    loss = losses.SquareLoss(transform)
    data = json.loads(json.dumps(loss.get_config()))
    again = losses.SquareLoss.from_config(data).transform
    assert type(again) is type(transform)
    assert vars(again) == vars(transform)


def test_plain_values_become_data_and_come_back():
    loss = losses.QuantileRegressionLoss(None, True, 0.5)
    data = json.loads(json.dumps(loss.get_config()))
    assert data == {"transform": None, "inverse_after_mean": True, "delta": 0.5}
    assert losses.QuantileRegressionLoss.from_config(data) == loss


def test_what_keras_cannot_save():
    with pytest.raises(TypeError, match="get_config"):
        losses.SquareLoss(Halving()).get_config()
