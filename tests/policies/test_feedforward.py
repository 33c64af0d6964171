"""Tests of `tfrl.policies.feedforward`."""

import json

import default_rows
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.policies import feedforward


@pytest.mark.parametrize("activation", ["relu", keras.activations.relu, None])
def test_config_survives_json(activation):
    layer = feedforward.MLP((np.int64(3), 4), activation, 2, 0.5, 7, name="net")
    config = json.loads(json.dumps(layer.get_config()))
    again = feedforward.MLP.from_config(config)
    assert json.dumps(again.get_config()) == json.dumps(layer.get_config())
    assert again.dtype_policy.name == layer.dtype_policy.name
    assert again.dense[0].activation is layer.dense[0].activation


@pytest.mark.parametrize(
    ("arguments", "width"),
    [(((5,),), 5), (((5,), "tanh", 2), 2), (((), "tanh", 2), 2), (((),), 6)],
    ids=["hidden", "output", "linear", "flatten"],
)
def test_mlp(arguments, width):
    layer = feedforward.MLP(*arguments)
    inputs = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    outputs = layer(inputs)
    assert outputs.shape == (4, width)
    assert layer.compute_output_shape((None, 2, 3)) == (None, width)
    x = inputs.reshape(4, 6)
    for index, dense in enumerate(layer.dense):
        x = x @ dense.kernel.numpy() + dense.bias.numpy()
        if index < len(arguments[0]):
            x = np.tanh(x)
    np.testing.assert_allclose(outputs, x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", *default_rows.slow("mixed_float16")])
@pytest.mark.parametrize("n_outputs", [1, 2, 6, 7])
@pytest.mark.parametrize("by_xla", [False, True], ids=["eager", "xla"])
def test_outputs_are_the_same_where_they_are_differentiated(policy, n_outputs, by_xla):
    layer = feedforward.MLP((5,), "tanh", n_outputs, dtype=policy)
    layer.build((None, 3))
    layer.dense[-1].bias.assign(range(n_outputs))
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)

    @tf.function(jit_compile=True)
    def compiled(x):
        return found(x)

    def found(x):
        with tf.GradientTape() as tape, feedforward.differentiated():
            outputs = layer(x)
            loss = tf.reduce_sum(tf.sin(outputs))
        return outputs, tape.gradient(loss, [v.value for v in layer.weights])

    with tf.GradientTape() as tape:
        wanted = layer(x)
        loss = tf.reduce_sum(tf.sin(wanted))
    gradients = tape.gradient(loss, [v.value for v in layer.weights])
    outputs, others = (compiled if by_xla else found)(x)
    assert outputs.dtype == wanted.dtype == tf.float32
    rtol = 1e-5 if policy == "float32" else 1e-2
    np.testing.assert_allclose(outputs, wanted, rtol=rtol, atol=rtol)
    for other, gradient in zip(others, gradients, strict=True):
        np.testing.assert_allclose(other, gradient, rtol=rtol, atol=rtol)


def test_conv_encoder_divides_pixels():
    encoder = feedforward.conv_encoder(seed=1)
    shape = (3, 36, 40, 3)
    images = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    features = encoder(images)
    assert features.shape == (3, 512)
    assert np.all(features.numpy() >= 0.0)
    rescaled = images.astype(np.float32) / 255.0
    x = tf.constant(rescaled)
    for layer in encoder.layers[1:]:
        x = layer(x)
    np.testing.assert_allclose(features, x, rtol=1e-4, atol=1e-5)
    assert len(encoder.layers[1:]) == 4
    half = feedforward.conv_encoder(dtype="mixed_float16")(images)
    assert half.dtype == tf.float16 and np.isfinite(half).all()


def test_dimensions_that_are_not_known():
    layer = feedforward.MLP([4])
    assert layer.compute_output_shape((None, None, 3)) == (None, 4)
    assert feedforward.MLP([]).compute_output_shape((2, None, 3)) == (2, None)
    assert feedforward.MLP([])(keras.Input((None, 3))).shape == (None, None)
    with pytest.raises(ValueError, match="`MLP`: `inputs` must have known dimensions"):
        layer(keras.Input((None, 3)))


@pytest.mark.parametrize("policy", ["bfloat16", "float64"])
def test_weights_are_orthogonal_in_every_precision(policy):
    layer = feedforward.MLP([6], dtype=policy)
    layer.build([None, 6])
    kernel = tf.cast(layer.dense[0].kernel, tf.float64).numpy()
    assert layer.dense[0].kernel.dtype == policy
    np.testing.assert_allclose(kernel @ kernel.T, 2 * np.eye(6), atol=0.05)


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    [
        (TypeError, "hidden_units", {"hidden_units": 4}),
        (TypeError, "hidden_units", {"hidden_units": [1.5]}),
        (ValueError, "hidden_units", {"hidden_units": (0,)}),
        (ValueError, "n_outputs", {"n_outputs": 0}),
        (TypeError, "seed", {"seed": None}),
        (ValueError, "activation", {"activation": "rellu"}),
    ],
)
def test_bad_arguments_are_named(error, name, arguments):
    with pytest.raises(error, match=f"`MLP`: `{name}` expected"):
        feedforward.MLP(**arguments)


@pytest.mark.parametrize("built", [False, True])
def test_inputs_are_one_tensor(built):
    mlp = feedforward.MLP([4])
    if built:
        mlp.build([None, 3])
    for inputs in ({"a": np.ones([4, 3])}, [np.ones([4, 3])] * 2, None):
        with pytest.raises(TypeError, match="`MLP`: `inputs` expected one tensor"):
            mlp(inputs)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_quantized_output_is_the_same_where_it_is_differentiated():
    mlp = feedforward.MLP((8,), n_outputs=2, seed=0)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    mlp(x)
    mlp.dense[-1].quantize("int8")
    with feedforward.differentiated():
        found = mlp(x)
    np.testing.assert_allclose(found, mlp(x), rtol=1e-6)


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


def test_channels_are_last_whatever_keras_is_set_to(request):
    images, rows = np.ones([2, 40, 44, 3], np.uint8), np.arange(24.0).reshape(2, 4, 3)
    images[:, :20] = 200
    expected = feedforward.conv_encoder(1)(images), feedforward.MLP([8], seed=1)(rows)
    request.getfixturevalue("channels_first")
    found = feedforward.conv_encoder(1)(images), feedforward.MLP([8], seed=1)(rows)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
def test_what_reorders_a_row_is_more_than_dense_layers(order):
    network = keras.Sequential(
        [keras.Input([2, 3]), keras.layers.Flatten(order), keras.layers.Dense(4)]
    )
    found = feedforward.layers_of(network)
    assert (found is None) == (order == "channels_first")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_files_of_keras_keep_the_strength_of_the_noise(tmp_path):
    def made():
        return keras.Sequential([keras.Input([4]), feedforward.NoisyDense(3)])

    model, rng = made(), np.random.default_rng(0)
    model.set_weights([rng.normal(size=x.shape) for x in model.get_weights()])
    model.save(tmp_path / "noisy.keras")
    model.save_weights(tmp_path / "noisy.weights.h5")
    other = made()
    other.load_weights(tmp_path / "noisy.weights.h5")
    for again in (other, keras.models.load_model(tmp_path / "noisy.keras")):
        for found, wanted in zip(again.weights, model.weights, strict=True):
            np.testing.assert_array_equal(found, wanted)
    # What Keras alone writes, as of before, is less than the layer.
    store = {}
    keras.layers.Dense.save_own_variables(model.layers[0], store)
    with pytest.raises(ValueError, match="expected 4 variables, but received 2"):
        model.layers[0].load_own_variables(store)
