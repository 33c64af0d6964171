"""Layers and functions called with their variables as arguments."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _stateless


class Twins(keras.layers.Layer):
    """Sublayers in a list and a dictionary, two of one name."""

    def __init__(self):
        super().__init__(name="twins")
        self.twins = [keras.layers.Dense(2, name="twin") for _ in range(2)]
        self.noise = {"drop": keras.layers.Dropout(0.5, name="drop")}

    def build(self, input_shape):
        for twin in self.twins:
            twin.build((None, 2))
        self.built = True

    def call(self, x, training=None):
        for twin in self.twins:
            x = twin(x)
        return self.noise["drop"](x, training=training)


def built(layer, shape):
    layer.build(shape)
    return layer


def apply(layer):
    return _stateless.LayerApply(layer, _stateless.variable_names(layer))


def test_names_are_paths_made_unique():
    layer = built(Twins(), (None, 2))
    params, extra = _stateless.layer_values(layer)
    names = ["bias", "kernel", "bias:1", "kernel:1"]
    assert sorted(params) == sorted(f"twins/twin/{name}" for name in names)
    assert len(extra) == 1
    x = np.ones((1, 2), np.float32)
    outputs, _ = apply(layer)(params, extra, x)
    np.testing.assert_allclose(outputs, layer(x), rtol=1e-6)
    zeros = {**params, "twins/twin/kernel:1": tf.zeros([2, 2])}
    outputs, _ = apply(layer)(zeros, extra, x)
    np.testing.assert_array_equal(outputs, params["twins/twin/bias:1"][None])


def test_values_are_apart_from_the_variables():
    layer = built(keras.layers.Dense(1), (None, 1))
    params, _ = _stateless.layer_values(layer)
    kernel = np.copy(params[layer.kernel.path])
    layer.kernel.assign(layer.kernel + 1.0)
    np.testing.assert_array_equal(params[layer.kernel.path], kernel)
    given, _ = _stateless.layer_values(
        layer, {k: np.zeros(v.shape) for k, v in params.items()}, None
    )
    assert {value.dtype for value in given.values()} == {tf.float32}


def test_what_is_frozen_is_extra():
    layer = built(keras.layers.Dense(1, name="d"), (None, 1))
    layer.trainable = False
    params, extra = _stateless.layer_values(layer)
    assert not params
    assert sorted(extra) == ["d/bias", "d/kernel"]


def test_applies_of_one_model_are_equal():
    layer = keras.layers.Dense(1)
    other = built(keras.layers.Dense(1), (None, 1))
    layer.build((None, 1))
    assert apply(layer) == apply(layer)
    assert hash(apply(layer)) == hash(apply(layer))
    assert apply(layer) != apply(other)
    assert _stateless.FunctionApply(abs) == _stateless.FunctionApply(abs)


class Late(keras.layers.Layer):
    """Says it is built, and makes its variables when called."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def build(self, input_shape):
        self.built = True

    def call(self, x):
        return self.dense(x)


def test_bad_layers_and_values():
    with pytest.raises(ValueError, match=r"built layer; .*`build\(input_shape\)`"):
        _stateless.layer_values(keras.layers.Dense(1))
    layer = built(keras.layers.Dense(1, name="d"), (None, 1))
    params, _ = _stateless.layer_values(layer)
    with pytest.raises(ValueError, match=r"`params` .*missing are \['d/bias'\]"):
        _stateless.layer_values(layer, {"d/kernel": np.ones((1, 1))}, None)
    with pytest.raises(ValueError, match=r"`extra_variables` .*unknown are \['x'\]"):
        _stateless.layer_values(layer, None, {"x": 1.0})
    wrong = {**params, "d/kernel": tf.ones([1, 2])}
    with pytest.raises(ValueError, match=r"expected shape \(1, 1\) for 'd/kernel'"):
        apply(layer)(wrong, {}, tf.ones([1, 1]))
    late = built(Late(), (None, 1))
    with pytest.raises(
        ValueError, match="expected the variables that it had in .*, 0; got 2"
    ):
        apply(late)({}, {}, tf.ones([1, 1]))
