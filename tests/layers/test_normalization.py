"""`RunningNormalization` against the normalizers, and as a citizen of Keras."""

import copy

import default_rows
import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import layers, stats

KINDS = {
    "exponential": ({"update_rate": 0.1}, lambda spec: stats.EMNormalizer(spec, 0.1)),
    "adaptive": ({"speed": 3.0}, lambda spec: stats.AdaptiveNormalizer(spec, 3.0)),
    "window": ({"window_size": 2}, lambda spec: stats.WindowNormalizer(spec, 2)),
}
EVERY_KIND = pytest.mark.parametrize(
    ("options", "normalizer"), KINDS.values(), ids=KINDS.keys()
)


def batches(count, *shape):
    rng = np.random.default_rng(0)
    return (1e5 + rng.normal(size=(count, *shape))).astype(np.float32)


def model_around(layer):
    inputs = keras.Input([3])
    outputs = keras.layers.Dense(1, kernel_initializer="ones")(layer(inputs))
    return keras.Model(inputs, outputs)


def assert_same_weights(one, two, **tolerance):
    assert [w.name for w in one.weights] == [w.name for w in two.weights]
    for mine, yours in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), yours.numpy(), **tolerance)


@EVERY_KIND
@pytest.mark.parametrize("feature_axes", [0, 2, *slow(1)])
def test_equals_the_normalizer(options, normalizer, feature_axes):
    data = batches(4, 5, 2, 3)
    layer = layers.RunningNormalization(**options, feature_axes=feature_axes)
    expected = normalizer(tf.TensorSpec(data.shape[4 - feature_axes :]))
    for batch in data:
        got = layer(batch, training=True)
        np.testing.assert_array_equal(got, expected.normalize(batch))
    for weight, variable in zip(layer.weights, expected.variables, strict=True):
        np.testing.assert_array_equal(weight.numpy(), variable.numpy())
    before = int(layer.weights[0])
    np.testing.assert_array_equal(layer(batch), expected(batch, training=False))
    assert int(layer.weights[0]) == before
    assert layer.trainable_weights == []


def test_a_frozen_layer_only_normalizes():
    first, second = batches(2, 5, 3)
    layer = layers.RunningNormalization(0.1)
    layer(first, training=True)
    layer.trainable = False
    before = [weight.numpy() for weight in layer.weights]
    expected = layer(second, training=False)
    np.testing.assert_array_equal(layer(second, training=True), expected)
    np.testing.assert_array_equal(before[0], layer.weights[0])
    layer.trainable = True
    assert np.any(layer(second, training=True) != expected)


def test_options_are_those_of_the_normalizer():
    (batch,) = batches(1, 4, 2)
    for options in (
        {"zero_mean": False},
        {"unit_std": True},
        {"variance_epsilon": 2.0},
    ):
        layer = layers.RunningNormalization(**options)
        expected = stats.AdaptiveNormalizer(tf.TensorSpec([2]), **options)
        got = layer(batch, training=True)
        np.testing.assert_array_equal(got, expected.normalize(batch))
    clipped = layers.RunningNormalization(clip_value=0.5)(batch, training=True)
    assert float(tf.reduce_max(tf.abs(clipped))) == 0.5
    free = layers.RunningNormalization(clip_value=None)
    assert free.get_config()["clip_value"] is None
    np.testing.assert_array_equal(
        free(batch, training=True), layers.RunningNormalization()(batch, training=True)
    )


POLICIES = ["float32", "bfloat16", *slow("float64", "mixed_float16", "mixed_bfloat16")]


@EVERY_KIND
@pytest.mark.parametrize("policy", POLICIES)
def test_a_layer_that_saw_nothing_leaves_inputs_as_they_are(
    options,
    normalizer,  # noqa: ARG001
    policy,
):
    values = np.array([[0.9, -0.7, 300.0]], np.float32)
    layer = layers.RunningNormalization(**options, dtype=policy)
    got = layer(values)
    assert got.dtype == layer.compute_dtype
    right = tf.cast(tf.cast(values, got.dtype), tf.float32)
    np.testing.assert_allclose(tf.cast(got, tf.float32), right, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "normalizer"), default_rows.params(KINDS, ["window"])
)
@pytest.mark.parametrize("bad", [np.nan, *slow(np.inf)])
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_one_bad_value_does_not_stay(options, normalizer, bad, jit_compile):
    data = batches(3, 8, 3)
    layer = layers.RunningNormalization(**options)
    model = model_around(layer)
    model.compile("sgd", "mse", jit_compile=jit_compile)
    spoiled = np.copy(data)
    spoiled[1, 4, 2] = bad
    model.fit(
        spoiled.reshape(-1, 3),
        np.zeros([24, 1]),
        batch_size=8,
        shuffle=False,
        verbose=0,
    )
    expected = normalizer(tf.TensorSpec([3]))
    for batch in data[[0, 2]]:
        expected.update(batch)
    for weight, variable in zip(layer.weights, expected.variables, strict=True):
        np.testing.assert_allclose(weight.numpy(), variable.numpy(), rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_fit_learns_and_predict_does_not(jit_compile):
    data = batches(4, 8, 3)
    layer = layers.RunningNormalization(speed=1.0)
    model = model_around(layer)
    model.compile("sgd", "mse", jit_compile=jit_compile)
    model.fit(
        data.reshape(-1, 3), np.zeros([32, 1]), batch_size=8, shuffle=False, verbose=0
    )
    expected = stats.AdaptiveNormalizer(tf.TensorSpec([3]), 1.0)
    for batch in data:
        expected.update(batch)
    for weight, variable in zip(layer.weights, expected.variables, strict=True):
        np.testing.assert_allclose(weight.numpy(), variable.numpy(), rtol=1e-5)
    model.predict(data[0], verbose=0)
    assert int(layer.weights[0]) == 4


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("options", [{"window_size": 2}, *slow({"speed": 3.0})])
def test_keras_saves_all_of_it(options, tmp_path):
    layer = layers.RunningNormalization(**options, clip_value=3.0, name="norm")
    model = model_around(layer)
    for batch in batches(3, 4, 3):
        model(batch, training=True)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same_weights(loaded.get_layer("norm"), layer, rtol=0)
    assert loaded.get_layer("norm").get_config() == layer.get_config()
    other = model_around(layers.RunningNormalization(**options, clip_value=3.0))
    other.load_weights(tmp_path / "model.weights.h5")
    (batch,) = batches(1, 4, 3)
    expected = model(batch, training=True)
    for copied in (loaded, other):
        np.testing.assert_array_equal(copied(batch, training=True), expected)


def test_config_makes_the_same_layer():
    given = {
        "window_size": 5,
        "feature_axes": 2,
        "zero_mean": True,
        "unit_std": True,
        "variance_epsilon": 1e-3,
        "clip_value": 4.0,
        "name": "norm",
    }
    config = layers.RunningNormalization(**given).get_config()
    assert config.items() >= given.items()
    again = copy.deepcopy(layers.RunningNormalization.from_config(config))
    assert again.get_config() == config
    default = layers.RunningNormalization()
    assert (default.get_config()["speed"], default.get_config()["update_rate"]) == (
        8,
        None,
    )
    assert layers.RunningNormalization.from_config(default.get_config()).speed == 8.0


def test_saved_model_of_a_training_function_goes_on(tmp_path):
    layer = layers.RunningNormalization()
    layer.build([None, 3])
    module = tf.Module()
    module.kept = [weight.value for weight in layer.weights]
    module.learn = tf.function(
        lambda x: layer(x, training=True), input_signature=[tf.TensorSpec([None, 3])]
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for batch in batches(2, 4, 3):
        expected = layer(batch, training=True)
        np.testing.assert_allclose(loaded.learn(batch), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "normalizer"), default_rows.params(KINDS, ["adaptive"])
)
def test_replicas_learn_from_the_global_batch(options, normalizer):
    # The default way of reducing leaves a thread pool to the garbage collector.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    data = batches(3, 8, 3)
    with strategy.scope():
        layer = layers.RunningNormalization(**options)
        model = model_around(layer)
        model.compile("sgd", "mse", jit_compile=False)
    model.fit(
        data.reshape(-1, 3), np.zeros([24, 1]), batch_size=8, shuffle=False, verbose=0
    )
    expected = normalizer(tf.TensorSpec([3]))
    for batch in data:
        expected.update(batch)
    for weight, variable in zip(layer.weights, expected.variables, strict=True):
        first, second = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, variable, rtol=1e-5)


def test_mixed_precision_centres_before_it_rounds():
    layer = layers.RunningNormalization(dtype="mixed_float16")
    batch = 1e6 + np.array([[-1.0], [1.0]], np.float32)
    got = layer(batch, training=True)
    assert got.dtype == tf.float16
    np.testing.assert_allclose(got, [[-1.0], [1.0]], rtol=1e-3)
    assert {w.dtype for w in layer.weights} == {"int64", "float64"}
    double = layers.RunningNormalization(dtype="float64")(batch.astype("float64"))
    assert double.dtype == tf.float64


def test_stateless_call_returns_the_new_statistics():
    layer = layers.RunningNormalization(speed=1.0)
    layer.build([None, 1])
    before = [weight.numpy() for weight in layer.weights]
    outputs, after = layer.stateless_call(
        [], before, tf.constant([[1.0], [3.0]]), training=True
    )
    np.testing.assert_allclose(outputs, [[-1.0], [1.0]], rtol=1e-6)
    assert (int(after[0]), float(after[2][0])) == (1, 2.0)
    assert int(layer.weights[0]) == 0


def test_gradients_take_the_moments_for_constants():
    layer = layers.RunningNormalization()
    values = tf.constant([[1.0], [5.0]])
    with tf.GradientTape() as tape:
        tape.watch(values)
        result = layer(values, training=True)
    np.testing.assert_allclose(tape.gradient(result, values), [[0.5], [0.5]], rtol=1e-6)


def test_sequences_share_moments_over_time_and_keep_their_mask():
    layer = layers.RunningNormalization()
    inputs = keras.Input([None, 2])
    assert layer(inputs).shape == (None, None, 2)
    assert layer.weights[2].shape == (2,)
    assert layer.supports_masking


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"speed": 1.0, "window_size": 2}, "expected one of them at most"),
        ({"zero_mean": False, "unit_std": True}, "`zero_mean` expected to be True"),
        ({"update_rate": 2.0}, "`update_rate` expected numbers in"),
        ({"speed": 0.0}, "`speed` expected numbers > 0"),
        ({"window_size": 0}, "`window_size` expected numbers > 0"),
        ({"feature_axes": -1}, "`feature_axes` expected an int of at least 0"),
        ({"variance_epsilon": -1.0}, "`variance_epsilon` expected"),
        ({"clip_value": float("nan")}, "`clip_value` expected a number in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_bad_options(options, match):
    with pytest.raises(ValueError, match=f"`RunningNormalization`: .*{match}"):
        layers.RunningNormalization(**options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip_value", "a"),
        ("clip_value", True),
        ("clip_value", [1.0]),
        ("window_size", True),
        ("update_rate", True),
        ("speed", True),
        ("feature_axes", True),
        ("feature_axes", 1.5),
    ],
)
def test_options_are_numbers(name, value):
    with pytest.raises(TypeError, match=f"`RunningNormalization`: `{name}` expected"):
        layers.RunningNormalization(**{name: value})


@EVERY_KIND
@pytest.mark.parametrize("mode", ["eager", *slow("graph", "xla")])
def test_masked_steps_are_not_learned_from(options, normalizer, mode):
    layer, expected = layers.RunningNormalization(**options), normalizer
    layer.build([None, None, 3])
    expected = normalizer(tf.TensorSpec([3]))
    learn = tf.function(
        lambda x, keep: layer(x, training=True, mask=keep), jit_compile=mode == "xla"
    )
    if mode == "eager":
        learn = learn.python_function
    data, keep = batches(3, 4, 5, 3), np.arange(5) < np.array([[2], [5], [0], [1]])
    for batch, padding in zip(data, [0.0, np.nan, 1e30], strict=True):
        expected.update(batch[keep])
        padded = np.where(keep[..., None], batch, np.float32(padding))
        got = learn(tf.constant(padded), tf.constant(keep)).numpy()
        wanted = expected(batch[keep], training=False)
        np.testing.assert_allclose(got[keep], wanted, atol=1e-3)
    for weight, variable in zip(layer.weights, expected.variables, strict=True):
        np.testing.assert_allclose(weight.numpy(), variable.numpy(), rtol=1e-4)
    before = [weight.numpy() for weight in layer.weights]
    learn(tf.constant(padded), tf.zeros([4, 5], tf.bool))
    for weight, old in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)


@pytest.mark.slow
@pytest.mark.parametrize("run_eagerly", [False, *slow(True)])
def test_a_mask_of_keras_counts_in_fit(run_eagerly):
    layer = layers.RunningNormalization(speed=1.0)
    inputs = keras.Input([None, 1])
    hidden = layer(keras.layers.Masking()(inputs))
    outputs = keras.layers.Dense(1)(keras.layers.LSTM(2)(hidden))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", run_eagerly=run_eagerly, jit_compile=False)
    data = np.array([[[1.0], [3.0], [0.0]], [[5.0], [0.0], [0.0]]], np.float32)
    model.fit(data, np.zeros([2, 1]), verbose=0)
    np.testing.assert_allclose(layer.mean.numpy(), [3.0])
    np.testing.assert_allclose(layer.variance.numpy(), [8 / 3])


def test_masks_of_the_first_batch_axes():
    (batch,) = batches(1, 2, 3, 2)
    keep = np.array([[True, False, True], [False, True, True]])
    layer = layers.RunningNormalization(feature_axes=0, speed=1.0)
    layer(batch, training=True, mask=keep)
    np.testing.assert_allclose(layer.mean.numpy(), batch[keep].mean(), rtol=1e-6)
    rows = layers.RunningNormalization(feature_axes=2, speed=1.0)
    rows(batch, training=True, mask=np.array([False, True]))
    np.testing.assert_allclose(rows.mean.numpy(), batch[1], rtol=1e-6)
    with pytest.raises(ValueError, match="`mask` expected the first of the batch axes"):
        rows(batch, training=True, mask=keep)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_widths_are_checked_when_they_are_known(jit_compile):
    layer = layers.RunningNormalization()
    layer.build([None, 3])
    call = tf.function(
        lambda x, training=False: layer(x, training=training),
        input_signature=[tf.TensorSpec([None, None])],
        jit_compile=jit_compile,
    )
    assert call(tf.ones([4, 3])).shape == [4, 3]
    for width in (1, 4):
        with pytest.raises(tf.errors.InvalidArgumentError, match="RunningNormalizat"):
            call(tf.ones([4, width]))


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize(
    "inputs", [{"a": np.ones([4, 3])}, [np.ones([4, 3])] * 2, None], ids=type
)
def test_inputs_are_one_tensor(built, inputs):
    layer = layers.RunningNormalization()
    if built:
        layer.build([None, 3])
    # Keras itself refuses what is not one tensor where it knows what it was built for.
    by_keras = r"|expects 1 input\(s\)|Inputs to a layer should be tensors"
    with pytest.raises((TypeError, ValueError), match="`inputs` expected" + by_keras):
        layer(inputs)


def test_bad_inputs():
    built = layers.RunningNormalization(feature_axes=2)
    built(tf.zeros([4, 2, 3]))
    for wrong in ((4, 2, 4), (4, 3, 2), (3,)):
        for inputs in (tf.zeros(wrong), keras.KerasTensor(wrong)):
            with pytest.raises(ValueError, match="incompatible with the layer"):
                built(inputs)
    with pytest.raises(TypeError, match="`inputs` expected a floating-point dtype"):
        layers.RunningNormalization()(tf.constant([[1, 2]]))
    with pytest.raises(ValueError, match="`inputs` expected rank of at least 2"):
        layers.RunningNormalization(feature_axes=2)(tf.zeros([3]))
    with pytest.raises(ValueError, match="`inputs` expected known feature dimensions"):
        layers.RunningNormalization(feature_axes=2)(keras.Input([None, 3]))
