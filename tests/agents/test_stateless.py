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


class Lossy(keras.layers.Layer):
    """Its configuration forgets how wide it is."""

    def __init__(self, width=1, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(self.width,), name="scale")

    def call(self, x):
        return x * self.scale

    def get_config(self):
        return keras.layers.Layer.get_config(self)


def test_rebuilt_layers_share_nothing():
    layer = built(keras.layers.BatchNormalization(), (None, 2))
    layer.moving_mean.assign([3.0, 4.0])
    other = _stateless.rebuilt(layer)
    assert [v.shape for v in other.variables] == [v.shape for v in layer.variables]
    assert not {id(v) for v in other.variables} & {id(v) for v in layer.variables}


@pytest.mark.parametrize("width", [2, 3])
def test_configurations_that_forget_are_refused(width):
    layer = built(Lossy(width), (None, width))
    with pytest.raises(ValueError, match="`to_keras`: expected the configuration of"):
        _stateless.rebuilt(layer)


def test_a_layer_becomes_a_model():
    layer = keras.layers.Dense(2, name="dense")
    layer(np.zeros((4, 3), np.float32))
    params, extra = _stateless.layer_values(layer)
    params = {name: value + 1.0 for name, value in params.items()}
    model = _stateless.model_of(layer, params, extra)
    assert isinstance(model, keras.Model) and model.input_shape == (None, 3)
    for variable, value in zip(model.variables, params.values(), strict=True):
        np.testing.assert_array_equal(variable, value)


def test_what_becomes_no_model():
    with pytest.raises(TypeError, match="`model_def` expected to be a Keras layer"):
        _stateless.model_of(tf.multiply, {}, {})
    layer = keras.layers.Attention(use_scale=True)
    layer([np.zeros((1, 2, 3), np.float32)] * 2)
    with pytest.raises(ValueError, match="a layer of one array"):
        _stateless.model_of(layer, *_stateless.layer_values(layer))
    dense = built(keras.layers.Dense(1), (None, 1))

    @tf.function
    def inside():
        return _stateless.model_of(dense, *_stateless.layer_values(dense))

    with pytest.raises(ValueError, match="expected no graph around it"):
        inside()
