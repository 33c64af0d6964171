"""`AsKeras` as a citizen of Keras: trained, distributed, saved, exported."""

import copy
import subprocess
import sys

import foreign_layers
import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import layers


def data(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[rows, 3]).astype(np.float32)
    return x, x[:, :2] * 2.0 - 1.0


def model_around(given, **options):
    layer = layers.AsKeras(given, name="foreign", **options)
    inputs = keras.Input([3])
    return keras.Model(inputs, layer(inputs))


def values(model):
    return [variable.numpy() for variable in model.variables]


def assert_same_values(one, two):
    assert len(one.variables) == len(two.variables) > 4
    for mine, yours in zip(values(one), values(two), strict=True):
        np.testing.assert_array_equal(mine, yours)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_fit_equals_that_of_the_layer_written_in_keras(jit_compile):
    foreign = model_around(foreign_layers.Affine(2))
    native = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    native.set_weights(values(foreign)[:2])
    x, y = data(32)
    histories = []
    for model in (foreign, native):
        model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=jit_compile)
        fit = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        histories.append(fit.history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-4)
    assert histories[0][-1] < histories[0][0]
    for mine, yours in zip(values(foreign), native.get_weights(), strict=False):
        np.testing.assert_allclose(mine, yours, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_fit_advances_state_and_keys(jit_compile):
    model = model_around(foreign_layers.network, rng=1)
    model.compile("sgd", "mse", jit_compile=jit_compile, steps_per_execution=2)
    model.fit(*data(32), batch_size=8, verbose=0)
    alone = layers.AsKeras(foreign_layers.network(), rng=1)
    for _ in range(4):
        alone(data(8)[0], training=True)
    layer = model.get_layer("foreign")
    assert int(layer.rng) == int(alone.rng)
    (calls,) = (w for w in layer.weights if w.dtype == "int32")
    assert int(calls) == 4
    model.predict(data(8)[0], verbose=0)
    assert int(calls) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "kept", "computed"),
    [
        ("mixed_float16", "float32", "float16"),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("mixed_bfloat16", "float32", "bfloat16"),
                ("float64", "float64", "float64"),
                ("bfloat16", "bfloat16", "bfloat16"),
            )
        ),
    ],
)
def test_dtype_policies(policy, kept, computed):
    model = model_around(foreign_layers.network, dtype=policy)
    outputs = model(data(4)[0])
    assert outputs.dtype.name == computed
    assert {w.dtype for w in model.trainable_weights} == {kept}
    (mean,) = (w for w in model.non_trainable_weights if w.shape == (8,))
    assert mean.dtype == ("float64" if policy == "float64" else "float32")
    model.compile("sgd", "mse", jit_compile=False)
    losses = model.fit(*data(32), batch_size=8, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    # Float16 keeps 11 bits: the moving mean must not stall on them.
    before = mean.numpy().copy()
    model(data(4, seed=1)[0])
    assert np.all(before != mean.numpy())


@pytest.mark.filterwarnings("ignore:The model does not have any trainable")
def test_a_frozen_layer_does_not_train():
    model = model_around(foreign_layers.Affine(2), trainable=False)
    before = values(model)
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(*data(8), verbose=0)
    assert model.trainable_weights == []
    np.testing.assert_array_equal(before[0], values(model)[0])


def two_replicas():
    # The default way of reducing leaves a thread pool to the garbage collector.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


@pytest.mark.slow
def test_replicas_train_as_one_and_keep_one_state():
    strategy = two_replicas()
    with strategy.scope():
        many = model_around(foreign_layers.network)
        many.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
    before = many.get_layer("foreign").rng.numpy()
    many.fit(*data(32), batch_size=8, verbose=0)
    for variable in many.variables:
        one, two = strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(one, two)
    layer = many.get_layer("foreign")
    (calls,) = (w for w in layer.weights if w.dtype == "int32")
    assert calls.numpy() == 4
    assert layer.rng.numpy() != before


@pytest.mark.slow
def test_replicas_reduce_gradients_and_floating_state():
    strategy = two_replicas()
    with strategy.scope():
        many = model_around(
            lambda: foreign_layers.Chain(
                foreign_layers.Affine(2), foreign_layers.Means()
            )
        )
        many.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    x, y = data(8)
    weights = [tf.constant(v) for v in values(many)]
    many.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    kernel, bias, mean = weights[:3]
    with tf.GradientTape() as tape:
        tape.watch([kernel, bias])
        losses, means = [], []
        for rows in (slice(0, 4), slice(4, 8)):
            outputs = x[rows] @ kernel + bias
            means.append(mean + 0.5 * (tf.reduce_mean(outputs, 0) - mean))
            losses.append(tf.reduce_mean((outputs - means[-1] - y[rows]) ** 2) / 2)
        loss = tf.add_n(losses)
    gradients = tape.gradient(loss, [kernel, bias])
    np.testing.assert_allclose(
        values(many)[0], kernel - 0.1 * gradients[0], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(values(many)[2], (means[0] + means[1]) / 2, rtol=1e-4)


def test_replicas_draw_differently():
    strategy = two_replicas()
    with strategy.scope():
        layer = layers.AsKeras(foreign_layers.Dropout())
        layer.build((None, 64))
    run = tf.function(
        lambda: strategy.run(lambda: layer(tf.ones([2, 64]), training=True))
    )
    seen = [
        row.numpy().tobytes()
        for _ in range(2)
        for row in strategy.experimental_local_results(run())
    ]
    assert len(set(seen)) == 4


def trained(given=foreign_layers.registered_network, **options):
    model = model_around(given, **options)
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(*data(16), batch_size=8, verbose=0)
    return model


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_keras_saves_all_of_it(tmp_path):
    model = trained(
        initializer_rng=-3,
        rng=np.array([5, 6], np.int32),
        rng_updater=foreign_layers.add_seven,
    )
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    layer = loaded.get_layer("foreign")
    assert layer.get_config() == model.get_layer("foreign").get_config()
    other = model_around(
        foreign_layers.network, rng=np.zeros([2], np.int32), initializer_rng=9
    )
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same_values(other, model)
    x = data(4)[0]
    expected = model(x, training=True)
    np.testing.assert_allclose(loaded(x, training=True), expected, atol=1e-6)
    np.testing.assert_array_equal(layer.rng, model.get_layer("foreign").rng)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_model_of_nests_and_integers_loads(tmp_path):
    spec = {
        "a": keras.Input([4], name="a"),
        "b": (keras.Input([], dtype="int32", name="b"),),
    }
    layer = layers.AsKeras(foreign_layers.registered_mix)
    first, second = layer(spec)
    model = keras.Model(spec, [first, second["a"]])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = {"a": data(8)[1][:, [0, 1, 0, 1]], "b": (np.arange(8) % 7,)}
    for got, want in zip(loaded(x), model(x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_config_makes_the_same_layer():
    options = {"batch_size": 4, "initializer_rng": 1, "name": "x", "dtype": "float64"}
    layer = layers.AsKeras(foreign_layers.registered_mix, **options)
    again = layers.AsKeras.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert (
        again.batch_size == 4
        and again.name == "x"
        and again.get_config()["rng_updater"] is None
    )
    assert copy.deepcopy(layer).get_config() == layer.get_config()
    integers = layers.AsKeras(foreign_layers.registered_mix, dtype=np.int32)
    assert integers.get_config()["dtype"] == "int32"
    assert layers.AsKeras.from_config(integers.get_config()).dtype == "float32"


def test_configs_need_registered_factories():
    for given in (foreign_layers.network(), foreign_layers.network):
        layer = layers.AsKeras(given)
        with pytest.raises(ValueError, match="expected a function decorated by"):
            layer.get_config()
    layer = layers.AsKeras(foreign_layers.registered_mix, rng_updater=lambda key: key)
    with pytest.raises(ValueError, match="`rng_updater` expected a function decorated"):
        layer.get_config()
    config = layers.AsKeras(foreign_layers.registered_mix).get_config()
    with pytest.raises(ValueError, match="expected a registered function; got 'gone'"):
        layers.AsKeras.from_config({**config, "layer": "gone"})


def test_checkpoints_hold_all_of_it(tmp_path):
    model = trained()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "whole"))
    other = model_around(foreign_layers.network, initializer_rng=9, rng=9)
    status = tf.train.Checkpoint(model=other).restore(path)
    status.assert_existing_objects_matched().expect_partial()
    assert_same_values(other, model)
    path = tf.train.Checkpoint(v=list(model.variables)).save(str(tmp_path / "list"))
    other = model_around(foreign_layers.network, initializer_rng=9, rng=9)
    tf.train.Checkpoint(v=list(other.variables)).restore(path).assert_consumed()
    assert_same_values(other, model)


IN_ANOTHER_PROCESS = """
import sys
import numpy as np, tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], np.stack([loaded.serve(x) for _ in range(2)]))
assert not {"tfrl", "foreign_layers"} & set(sys.modules)
"""


@pytest.mark.slow
def test_saved_model_in_a_process_without_tfrl(tmp_path):
    def make(training):  # noqa: ARG001
        return foreign_layers.network()

    model = trained(make)
    model.export(str(tmp_path / "model"), verbose=False)
    x = data(5)[0]
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / name) for name in ("model", "x.npy", "y.npy")]
    subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, *files],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    expected = np.stack([model(x) for _ in range(2)])
    np.testing.assert_allclose(np.load(files[2]), expected, atol=1e-6)
    assert np.any(expected[0] != expected[1])


def test_stateless_call_leaves_the_variables():
    layer = layers.AsKeras(foreign_layers.network())
    layer.build((None, 3))
    trainable = [v.value + 0.0 for v in layer.trainable_variables]
    before = [v.numpy() for v in layer.non_trainable_variables]
    outputs, after = layer.stateless_call(trainable, before, data(4)[0], training=True)
    assert outputs.shape == (4, 2)
    changed = [bool(np.any(a != b)) for a, b in zip(before, after, strict=True)]
    assert changed == [True, True, False, True]
    for variable, value in zip(layer.non_trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
