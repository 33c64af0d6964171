"""How losses use and save their transforms."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import scalar_prediction
from tfrl.ops import value_transforms


class Halving:
    """Not derived from anything of ours."""

    def transform(self, x):
        return x / 2

    def inverse_transform(self, y):
        return 2 * y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_there_and_back(dtype):
    target = tf.constant([-3.0, 0.0, 5.0], dtype)
    for transform in (Halving(), value_transforms.Sqrt1pTransform()):
        loss = scalar_prediction.SquareLoss(transform)
        there = loss.transformed(target)
        back = loss.restored(there)
        assert there.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(back, target, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        scalar_prediction.SquareLoss(Halving()).transformed(target), [-1.5, 0, 2.5]
    )


def test_none_changes_nothing():
    target = tf.constant([-3.0, 0.0])
    loss = scalar_prediction.SquareLoss()
    assert loss.transformed(target) is target
    assert loss.restored(target) is target


@pytest.mark.parametrize("transform", [np.sqrt, 1.0], ids=["function", "number"])
def test_what_is_no_transform(transform):
    with pytest.raises(TypeError, match="`SquareLoss`: `transform` expected an Inv"):
        scalar_prediction.SquareLoss(transform)


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
    loss = scalar_prediction.SquareLoss(transform)
    data = json.loads(json.dumps(loss.get_config()))
    again = scalar_prediction.SquareLoss.from_config(data).transform
    assert type(again) is type(transform)
    assert vars(again) == vars(transform)


def test_plain_values_become_data_and_come_back():
    loss = scalar_prediction.QuantileRegressionLoss(None, True, 0.5)
    data = json.loads(json.dumps(loss.get_config()))
    assert data == {"transform": None, "inverse_after_mean": True, "delta": 0.5}
    assert scalar_prediction.QuantileRegressionLoss.from_config(data) == loss


def test_what_keras_cannot_save():
    with pytest.raises(TypeError, match="get_config"):
        scalar_prediction.SquareLoss(Halving()).get_config()
