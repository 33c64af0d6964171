"""Tests of `tfrl.losses._transformed`."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import _transformed
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
        there = _transformed.forward(transform, target)
        back = _transformed.backward(transform, there)
        assert there.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(back, target, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(_transformed.forward(Halving(), target), [-1.5, 0, 2.5])


def test_none_changes_nothing():
    target = tf.constant([-3.0, 0.0])
    assert _transformed.forward(None, target) is target
    assert _transformed.backward(None, target) is target


@pytest.mark.parametrize("transform", [np.sqrt, 1.0], ids=["function", "number"])
def test_what_is_no_transform(transform):
    with pytest.raises(TypeError, match="`Some`: `transform` expected an Invertible"):
        _transformed.check_transform("Some", transform)


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
    data = json.loads(json.dumps(_transformed.serialized(transform)))
    again = _transformed.deserialized(data)
    assert type(again) is type(transform)
    assert vars(again) == vars(transform)


def test_plain_values_become_data_and_come_back():
    for value in (None, True, 0.5):
        assert _transformed.deserialized(_transformed.serialized(value)) is value


def test_what_keras_cannot_save():
    with pytest.raises(TypeError, match="get_config"):
        _transformed.serialized(Halving())
