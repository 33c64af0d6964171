"""Functions and TensorFlow modules inside `AsKeras`."""

import json
import math

import foreign_layers
import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import layers
from tfrl.layers import _configs


def data(rows):
    return np.random.default_rng(rows).normal(size=[rows, 3]).astype(np.float32)


def test_functions_by_hand():
    def init(rng, inputs):
        assert rng.dtype == tf.int32 and rng.shape == [2]
        assert inputs.shape == [1, 3]
        return {"scale": tf.fill([3], 2.0)}, tf.constant(0)

    def apply(params, state, rng, inputs, training):
        noise = tf.random.stateless_uniform([3], rng) if training else 0.0
        return inputs * params["scale"] + noise, state + 1

    layer = layers.AsKeras(layers.FunctionLayer(init, apply))
    x = data(4)
    model = keras.Sequential([keras.Input([3]), layer])
    np.testing.assert_allclose(model(x), 2 * x)
    noisy = [layer(x, training=True).numpy() for _ in range(2)]
    assert np.any(noisy[0] != noisy[1]) and np.any(noisy[0] != 2 * x)
    assert int(layer.state_0) == 3
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(x, x, verbose=0)
    assert np.all(layer.weights_0.numpy() < 2.0)


@pytest.mark.parametrize("outer", [False, True], ids=["eager", "graph"])
def test_functions_take_only_what_they_name(outer):
    layer = layers.AsKeras(
        layers.FunctionLayer(lambda inputs: (), lambda inputs: inputs["a"] + 1.0)
    )
    x = {"a": tf.zeros([2])}
    layer(x)
    call = tf.function(layer.__call__) if outer else layer
    np.testing.assert_array_equal(call(x), [1.0, 1.0])
    assert layer.trainable_weights == []


@pytest.mark.parametrize(
    ("init", "apply", "name"),
    [
        (lambda x: x, lambda inputs: inputs, "init"),
        (lambda inputs: inputs, lambda x, params: x, "apply"),
        (lambda inputs, training: inputs, lambda inputs: inputs, "init"),
    ],
    ids=["no inputs", "other name", "too much"],
)
def test_functions_of_other_parameters(init, apply, name):
    with pytest.raises(TypeError, match=f"`FunctionLayer`: `{name}` expected a func"):
        layers.FunctionLayer(init, apply)


class Affine(tf.Module):
    """Makes its variables when it is first called, as modules of Sonnet do."""

    def __init__(self, units):
        super().__init__()
        self.units, self.kernel = units, None

    def __call__(self, x):
        if self.kernel is None:
            self.kernel = tf.Variable(tf.ones([x.shape[-1], self.units]), name="kernel")
            self.bias = tf.Variable(tf.zeros([self.units]), name="bias")
        return x @ self.kernel + self.bias


class Network(tf.Module):
    def __init__(self):
        super().__init__()
        self.parts = [Affine(4), {"last": Affine(2)}]
        self.count = tf.Variable(0, trainable=False)
        self.mean = tf.Variable(tf.zeros([4]), trainable=False)

    @tf.function
    def inner(self, x):
        return self.parts[1]["last"](x - self.mean)

    def __call__(self, x, is_training):
        x = tf.nn.tanh(self.parts[0](x))
        if is_training:
            self.count.assign_add(1)
            self.mean.assign_sub(0.5 * (self.mean - tf.reduce_mean(x, 0)))
        return self.inner(x) * (2.0 - tf.cast(self.count.read_value() >= 0, tf.float32))


def network_layer():
    return layers.ModuleLayer(Network(), training_argument="is_training")


def test_modules_keep_their_variables_to_themselves():
    module = Network()
    layer = layers.AsKeras(layers.ModuleLayer(module, training_argument="is_training"))
    x = data(5)
    layer(x)
    assert len(layer.trainable_weights) == 4
    before = [v.numpy() for v in module.variables]
    layer(x, training=True)
    layer.trainable_weights[0].assign_add(tf.ones_like(layer.trainable_weights[0]))
    for variable, value in zip(module.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    counts = [w for w in layer.non_trainable_weights if w.dtype == "int32"]
    assert int(counts[0]) == 1


def test_modules_see_the_weights_of_each_call():
    layer = layers.AsKeras(network_layer)
    x = data(5)

    def by_hand():
        named = {w.shape: w.numpy() for w in layer.weights}
        first, last = named[(3, 4)], named[(4, 2)]
        return np.tanh(x @ first) @ last

    np.testing.assert_allclose(layer(x), by_hand(), rtol=1e-5)
    for weight in layer.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(weight * 0.5)
    np.testing.assert_allclose(layer(x), by_hand(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_modules_train_checkpoint_and_export(jit_compile, tmp_path):
    inputs = keras.Input([3])
    model = keras.Model(inputs, layers.AsKeras(network_layer, name="x")(inputs))
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=jit_compile)
    before = [v.numpy() for v in model.variables]
    x = data(16)
    fit = model.fit(x, x[:, :2], batch_size=8, epochs=4, verbose=0)
    assert fit.history["loss"][-1] < fit.history["loss"][0]
    for old, new in zip(before, model.variables, strict=True):
        assert np.any(old != new.numpy())
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = keras.Model(inputs, layers.AsKeras(network_layer)(inputs))
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    model.export(str(tmp_path / "model"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(served.serve(x[:5]), model(x[:5]), atol=1e-6)
    np.testing.assert_allclose(other(x[:5]), model(x[:5]), atol=1e-6)


def test_modules_that_no_layer_can_be_made_of():
    with pytest.raises(
        TypeError, match="`module` expected a tf.Module with `__call__`"
    ):
        layers.ModuleLayer(tf.Module())
    with pytest.raises(TypeError, match="got function; use `FunctionLayer`"):
        layers.ModuleLayer(lambda x: x)
    mixed = Affine(2)
    mixed.dense = keras.layers.Dense(2)
    mixed.dense.build([None, 3])
    with pytest.raises(ValueError, match="got Affine with Keras layers inside"):
        layers.AsKeras(layers.ModuleLayer(mixed))(data(2))


class Counts(Affine):
    def __call__(self, x):
        outputs = super().__call__(x)
        self.bias.assign_add(tf.ones_like(self.bias))
        return outputs


class Grows(Affine):
    def __call__(self, x, training):
        outputs = super().__call__(x)
        if training:
            self.late = tf.Variable(1.0)
        return outputs


def test_modules_that_change_what_they_should_not():
    with pytest.raises(ValueError, match="which assigns other variables in a later"):
        layers.AsKeras(layers.ModuleLayer(Counts(2)))(data(2))
    layer = layers.AsKeras(layers.ModuleLayer(Grows(2), training_argument="training"))
    layer(data(2))
    with pytest.raises(ValueError, match="which makes variables in a later call"):
        layer(data(2), training=True)


@pytest.mark.filterwarnings("ignore")
def test_modules_of_sonnet():
    snt = pytest.importorskip("sonnet")

    class Small(snt.Module):
        def __init__(self):
            super().__init__()
            self.mlp = snt.nets.MLP([8, 4], activate_final=True)
            self.norm = snt.BatchNorm(create_scale=True, create_offset=True)
            self.last = snt.Sequential([snt.Linear(2), snt.LayerNorm(-1, True, True)])

        def __call__(self, x, is_training):
            return self.last(self.norm(self.mlp(x), is_training=is_training))

    module = Small()
    layer = layers.AsKeras(layers.ModuleLayer(module, training_argument="is_training"))
    x = data(8)
    layer(x)
    np.testing.assert_allclose(layer(x), module(x, is_training=False), atol=1e-5)
    got = layer(x, training=True)
    np.testing.assert_allclose(got, module(x, is_training=True), atol=1e-5)
    assert len(layer.trainable_weights) == len(module.trainable_variables)
    np.testing.assert_allclose(layer(x), module(x, is_training=False), atol=1e-5)
    model = keras.Sequential([keras.Input([3]), layer])
    model.compile("adam", "mse", jit_compile=False)
    model.fit(x, x[:, :2], verbose=0)


VALUES = {
    "function": foreign_layers.network,
    "class": foreign_layers.Affine,
    "built in": math.sqrt,
    "nest": {"a": (1, 2.5, None), "b": ["x", True, foreign_layers.Mix]},
    "object": foreign_layers.Chain.__init__.__globals__["core"],
}


@pytest.mark.parametrize("kind", VALUES)
def test_names_come_back_from_json(kind):
    data = json.loads(json.dumps(_configs.described("from_jax", VALUES[kind])))
    found = _configs.made("from_jax", data)
    assert found == VALUES[kind] and type(found) is type(VALUES[kind])


@pytest.mark.parametrize("value", [lambda x: x, object(), {1: 2}, foreign_layers.Mix()])
def test_what_has_no_name(value):
    with pytest.raises(ValueError, match="`from_jax`: expected functions, classes and"):
        _configs.described("from_jax", [value])


@pytest.mark.parametrize("name", ["absent_module:f", "math:absent", "no colon", ":"])
def test_what_is_not_there(name):
    with pytest.raises(ValueError, match="`x`: expected what a module that is import"):
        _configs.made("x", {"name": name})


def test_nothing_is_imported_for_a_file():
    with pytest.raises(ValueError, match="got .*antigravity.*; import the module"):
        _configs.made("x", {"name": "antigravity:fly"})


@pytest.mark.parametrize("data", [{"linen": {"name": "math:sqrt"}, "fields": {}}, {}])
def test_what_is_no_module_of_flax(data):
    with pytest.raises(ValueError, match="`x`: expected what a module that is import"):
        _configs.made("x", data)
