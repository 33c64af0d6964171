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


class Forgetful(keras.Model):
    """Keras takes it for its configuration that `scale` is the default."""

    def __init__(self, scale=2.0, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
        self.scale = scale

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, x):
        return self.dense(x) * self.scale


class Omitting(Forgetful):
    """Its own configuration says no `scale`."""

    def get_config(self):
        return {"name": self.name}


class Noisy(keras.layers.Layer):
    """Draws from the generator that all share."""

    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


class Pair(keras.layers.Layer):
    """Takes another argument than it was built for."""

    def call(self, x):
        if not isinstance(x, tuple):
            raise TypeError("expected two")
        return x[0] + x[1]


class Chosen(keras.layers.Layer):
    """Takes rows by number: numbers below 0 and above 1 are refused."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = keras.layers.Embedding(2, 3)

    def build(self, rows_shape, scales_shape):
        self.table.build(rows_shape)
        self.built = True

    def call(self, rows, scales):
        return self.table(rows) * scales[..., None]


def to_keras(layer):
    return _stateless.model_of(layer, *_stateless.layer_values(layer))


@pytest.mark.parametrize("kind", [Forgetful, Omitting])
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "functional"])
def test_models_that_would_answer_otherwise_are_refused(kind, wrapped):
    def made(scale):
        model = kind(scale)
        if not wrapped:
            model(np.ones((1, 3), np.float32))
            return model
        inputs = keras.Input((None, 3))
        with keras.saving.custom_object_scope({kind.__name__: kind}):
            return keras.Model(inputs, model(inputs))

    with keras.saving.custom_object_scope({kind.__name__: kind}):
        x = np.ones((2, 1, 3) if wrapped else (2, 3), np.float32)
        np.testing.assert_allclose(to_keras(made(2.0))(x), made(2.0)(x), rtol=1e-6)
        with pytest.raises(ValueError, match="`to_keras`: .* same answers; got other"):
            to_keras(made(3.0))


def test_models_that_cannot_be_compared_are_refused():
    noisy = Noisy()
    noisy.build((None, 2))
    with pytest.raises(ValueError, match="`to_keras`: .* change from call to call"):
        to_keras(noisy)
    pair = built(Pair(), (None, 2))
    with pytest.raises(ValueError, match="`model_def` .* does not: .*expected two"):
        to_keras(pair)


def test_models_of_several_arguments_and_of_whole_numbers():
    chosen = Chosen()
    chosen(np.array([[0, 1]]), np.array([[2.0, 3.0]], np.float32))
    values = _stateless.layer_values(chosen)
    _stateless.check_same_answers(chosen, _stateless.rebuilt(chosen), *values)
    inputs = {
        "a": keras.Input((2,), dtype="int32", name="a"),
        "b": keras.Input((), dtype="bool", name="b"),
    }
    features = keras.layers.Embedding(2, 3)(inputs["a"])[:, 0]
    model = keras.Model(inputs, keras.ops.where(inputs["b"][:, None], features, 0.0))
    x = {"a": np.array([[0, 1]]), "b": np.array([True])}
    np.testing.assert_allclose(to_keras(model)(x), model(x), rtol=1e-6)


def test_names_of_models():
    dense = built(keras.layers.Dense(1), (None, 2))
    own = Forgetful(name="own")
    own(np.ones((1, 3), np.float32))
    for layer in (dense, own):
        values = _stateless.layer_values(layer)
        assert _stateless.model_of(layer, *values).name == layer.name
        assert _stateless.model_of(layer, *values, name="other").name == "other"
        with pytest.raises(TypeError, match="`to_keras`: `name` expected a str"):
            _stateless.model_of(layer, *values, name=3)


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
