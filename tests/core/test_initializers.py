"""Tests of `tfrl.core.initializers`."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import initializers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (2, 3, 2)], ids=str)
def test_orthonormal_in_every_dtype(dtype, shape):
    values = initializers.Orthogonal(2.0, seed=1)(shape, dtype)
    assert (values.shape, values.dtype) == (shape, dtype)
    flat = tf.cast(tf.reshape(values, [-1, shape[-1]]), tf.float64).numpy()
    flat = flat if len(flat) < shape[-1] else flat.T
    tolerance = 0.05 if tf.as_dtype(dtype).size == 2 else 1e-5
    np.testing.assert_allclose(flat @ flat.T, 4 * np.eye(len(flat)), atol=tolerance)


@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
def test_wide_values_are_those_of_keras(dtype):
    ours, theirs = (
        make(gain=0.5, seed=7)((4, 3), dtype)
        for make in (initializers.Orthogonal, keras.initializers.Orthogonal)
    )
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_config():
    stored = keras.saving.serialize_keras_object(initializers.Orthogonal(0.5, seed=7))
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(stored)))
    assert type(again) is initializers.Orthogonal
    assert again.get_config() == {"gain": 0.5, "seed": 7}
