"""`TrainState.to_keras`: models of a state's own, which say what the state says."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import gradient_transforms, train_state
from tfrl.agents.on_policy import ppo

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)


def state_of(layer, **settings):
    return train_state.TrainState.create(layer, **settings)


def built(layer, *shapes):
    layer.build(*shapes)
    return layer


@keras.saving.register_keras_serializable(package="tfrl_tests")
class Own(keras.Model):
    """Names its layers itself."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(4, name="inner")

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.built = True

    def call(self, x):
        return keras.ops.tanh(self.inner(x))


def functional():
    inputs = keras.Input((4,))
    dense = keras.layers.Dense(4, activation="tanh")
    return keras.Model(inputs, dense(inputs) + inputs)


MODELS = {
    "own class": lambda: built(Own(name="own"), (None, 4)),
    "sequential": lambda: keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4), keras.layers.BatchNormalization()]
    ),
    "functional": functional,
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_has_the_trained_weights_and_shares_none(tmp_path, kind):
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    model = MODELS[kind]()
    state = state_of(model, tx=gradient_transforms.sgd(0.1))
    grads = tf.nest.map_structure(tf.ones_like, state.params)
    trained = state.apply_gradients(grads=grads)
    found = trained.to_keras()
    assert type(found) is type(model) and found.name == model.name
    assert not {id(v) for v in found.variables} & {id(v) for v in model.variables}
    np.testing.assert_allclose(found(x), trained(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model(x), state(x), rtol=1e-5, atol=1e-6)
    assert np.abs(found(x) - model(x)).max() > 1e-3
    found.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x), trained(x), rtol=1e-5, atol=1e-6)


def test_models_of_other_names(tmp_path):
    state, x = state_of(MODELS["own class"]()), np.ones((3, 4), np.float32)
    inputs = keras.Input((4,))
    both = keras.Model(inputs, [state.to_keras(x)(inputs) for x in ("first", "second")])
    assert [layer.name for layer in both.layers[1:]] == ["first", "second"]
    np.testing.assert_allclose(both(x)[1], state(x), rtol=1e-6)
    state.to_keras("first").save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x), state(x), rtol=1e-6)
    with pytest.raises(TypeError, match="`to_keras`: `name` expected a str"):
        state.to_keras(3)


def doubled_tanh(x):
    return 2.0 * keras.ops.tanh(x)


def test_activations_need_not_be_registered():
    space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
    agent = ppo.PPO(activation=doubled_tanh).create(space, actions)
    state, rows = agent.policy.state, np.ones([2, 3], np.float32)
    for mine, its in zip(state(rows), state.to_keras()(rows), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6)


def test_a_layer_becomes_a_model():
    layer = built(keras.layers.Dense(2, name="dense"), (None, 3))
    state = state_of(layer)
    params = {name: value + 1.0 for name, value in state.params.items()}
    model = state.replace(params=params).to_keras()
    assert isinstance(model, keras.Model) and model.input_shape == (None, 3)
    assert model.name == "dense" and state.to_keras("other").name == "other"
    for variable, value in zip(model.variables, params.values(), strict=True):
        np.testing.assert_array_equal(variable, value)


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


@pytest.mark.parametrize("width", [2, 3])
def test_configurations_that_forget_are_refused(width):
    state = state_of(built(Lossy(width), (None, width)))
    with pytest.raises(ValueError, match="`to_keras`: expected the configuration of"):
        state.to_keras()


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
        np.testing.assert_allclose(
            state_of(made(2.0)).to_keras()(x), made(2.0)(x), rtol=1e-6
        )
        with pytest.raises(ValueError, match="`to_keras`: .* same answers; got other"):
            state_of(made(3.0)).to_keras()


def test_models_that_cannot_be_compared_are_refused():
    noisy, pair = (state_of(built(kind(), (None, 2))) for kind in (Noisy, Pair))
    with pytest.raises(ValueError, match="`to_keras`: .* change from call to call"):
        noisy.to_keras()
    with pytest.raises(ValueError, match="`model_def` .* does not: .*expected two"):
        pair.to_keras()


def test_models_of_several_arguments_and_of_whole_numbers():
    chosen = built(Chosen(), (None, 2), (None, 2))
    with pytest.raises(ValueError, match="a layer of one array"):
        state_of(chosen).to_keras()
    inputs = {
        "a": keras.Input((2,), dtype="int32", name="a"),
        "b": keras.Input((), dtype="bool", name="b"),
    }
    features = keras.layers.Embedding(2, 3)(inputs["a"])[:, 0]
    model = keras.Model(inputs, keras.ops.where(inputs["b"][:, None], features, 0.0))
    x = {"a": np.array([[0, 1]]), "b": np.array([True])}
    np.testing.assert_allclose(state_of(model).to_keras()(x), model(x), rtol=1e-6)


def test_what_becomes_no_model():
    function = state_of(tf.multiply, params=tf.ones(()))
    with pytest.raises(TypeError, match="`model_def` expected to be a Keras layer"):
        function.to_keras()
    dense = state_of(built(keras.layers.Dense(1), (None, 1)))
    with pytest.raises(ValueError, match="`to_keras`: expected to be called outside"):
        tf.function(dense.to_keras)()
