"""Modules of JAX inside `AsKeras`, against JAX itself; `tfrl[jax]` installs it."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import layers

jax = pytest.importorskip("jax")
pytest.importorskip("flax")
# JAX says what it will change.
pytestmark = pytest.mark.filterwarnings("ignore")


def data(rows):
    return np.random.default_rng(rows).normal(size=[rows, 3]).astype(np.float32)


def linen_layer():
    from flax import linen

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x, train):
            x = linen.Dense(8, name="first")(x)
            x = linen.BatchNorm(use_running_average=not train, momentum=0.5)(x)
            x = linen.Dropout(0.5, deterministic=not train)(x)
            return linen.Dense(2, name="last")(x)

    return layers.from_flax(Network(), training_argument="train")


def nnx_layer():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 8, rngs=rngs)
            self.norm = nnx.BatchNorm(8, momentum=0.5, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.last = nnx.Linear(8, 2, rngs=rngs)

        def __call__(self, x):
            return self.last(self.drop(self.norm(self.first(x))))

    return layers.from_nnx(Network(nnx.Rngs(params=0, dropout=1)))


def haiku_layer():
    hk = pytest.importorskip("haiku")

    def network(x, is_training):
        x = hk.Linear(8, name="first")(x)
        x = hk.BatchNorm(True, True, 0.5)(x, is_training)
        if is_training:
            x = hk.dropout(hk.next_rng_key(), 0.5, x)
        return hk.Linear(2, name="last")(x)

    return layers.from_haiku(
        hk.transform_with_state(network), training_argument="is_training"
    )


def jax_layer():
    jnp = jax.numpy

    def init(rng, inputs):
        first, last = jax.random.split(rng)
        return {
            "first": jax.random.normal(first, [inputs.shape[-1], 8]),
            "last": jax.random.normal(last, [8, 2]),
        }, {"mean": jnp.zeros([8]), "n": jnp.int32(0)}

    def apply(params, state, rng, inputs, training):
        x = inputs @ params["first"]
        mean = state["mean"]
        if training:
            mean = 0.5 * (mean + x.mean(0))
        x -= mean
        if training:
            x *= 2.0 * jax.random.bernoulli(rng, 0.5, x.shape)
        return x @ params["last"], {"mean": mean, "n": state["n"] + training}

    return layers.from_jax(init, apply)


ELSEWHERE = """
import sys
import numpy as np, tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
np.save(sys.argv[3], loaded.serve(np.load(sys.argv[2])))
assert not {"flax", "tfrl"} & set(sys.modules)
"""
EVERY = pytest.mark.parametrize(
    "make", [linen_layer, nnx_layer, haiku_layer, jax_layer]
)


def model_around(make, **options):
    layer = layers.AsKeras(make, name="foreign", **options)
    inputs = keras.Input([3])
    return keras.Model(inputs, layer(inputs))


@EVERY
def test_trains_predicts_checkpoints_and_exports(make, tmp_path):
    model = model_around(make)
    before = [v.numpy() for v in model.variables]
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    x = data(32)
    model.fit(x, x[:, :2], batch_size=8, verbose=0)
    changed = [
        np.any(b != v.numpy()) for b, v in zip(before, model.variables, strict=True)
    ]
    assert sum(changed) >= len(changed) - 1  # the first bias has no effect
    np.testing.assert_allclose(
        model.predict(x, verbose=0),
        np.concatenate([model(x[:5]), model(x[5:])]),
        atol=1e-5,
    )
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = model_around(make, rng=5, initializer_rng=7)
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    for one, two in zip(other.variables, model.variables, strict=True):
        np.testing.assert_array_equal(one, two)
    model.export(str(tmp_path / "model"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.serve(x[:7]), other(x[:7]), atol=1e-5)


def test_saved_model_in_a_process_without_flax_and_tfrl(tmp_path):
    model = model_around(linen_layer)
    model.export(str(tmp_path / "model"), verbose=False)
    np.save(tmp_path / "x.npy", data(7))
    files = [str(tmp_path / name) for name in ("model", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(files[2]), model(data(7)), atol=1e-5)


@EVERY
def test_draws_and_state_follow_training(make):
    layer = layers.AsKeras(make)
    x = data(6)
    still = layer(x)
    np.testing.assert_allclose(layer(x), still, atol=1e-6)
    assert np.any(layer(x, training=True) != layer(x, training=True))
    assert np.any(np.abs(layer(x) - still) > 1e-3)
    again = layers.AsKeras(make, rng=layer.rng.numpy())
    again(x)
    again.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        again(x, training=True), layer(x, training=True), atol=1e-6
    )


@EVERY
def test_gradients_are_those_of_differences(make):
    layer = layers.AsKeras(make)
    x = tf.constant(data(4))
    layer(x)
    weight = next(w for w in layer.trainable_weights if w.shape == (8, 2))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x) ** 2)
    gradients = tape.gradient(loss, [weight.value, x])
    direction = np.ones([8, 2], np.float32)

    def moved(step):
        weight.assign_add(step * direction)
        result = float(tf.reduce_sum(layer(x) ** 2))
        weight.assign_sub(step * direction)
        return result

    slope = (moved(1e-2) - moved(-1e-2)) / 2e-2
    np.testing.assert_allclose(tf.reduce_sum(gradients[0]), slope, rtol=1e-2)
    assert np.any(gradients[1] != 0)


def test_compiled_by_xla_and_in_mixed_precision():
    model = model_around(nnx_layer, dtype="mixed_bfloat16")
    model.compile("sgd", "mse", jit_compile=True)
    x = data(16)
    losses = model.fit(x, x[:, :2], batch_size=8, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert {w.dtype for w in model.trainable_weights} == {"float32"}


def test_replicas_keep_one_state():
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = model_around(linen_layer)
        model.compile("sgd", "mse", jit_compile=False)
    x = data(16)
    model.fit(x, x[:, :2], batch_size=8, verbose=0)
    for variable in model.variables:
        one, two = strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(one, two)


def test_unknown_sizes_and_nested_arguments():
    layer = layers.AsKeras(
        layers.from_jax(
            lambda inputs: jax.numpy.ones(inputs["a"].shape[-1]),
            lambda params, inputs: (inputs["a"] * params).sum(1) + inputs["b"],
        )
    )
    call = tf.function(
        layer,
        input_signature=[
            {"a": tf.TensorSpec([None, None, 3]), "b": tf.TensorSpec([None, 1])}
        ],
    )
    layer({"a": tf.ones([2, 4, 3]), "b": tf.zeros([2, 1])})
    got = call({"a": tf.ones([5, 4, 3]), "b": tf.ones([5, 1])})
    np.testing.assert_allclose(got, np.full([5, 3], 5.0))


def test_haiku_pairs_of_every_form():
    hk = pytest.importorskip("haiku")
    x = data(4)
    with_rng = hk.transform(lambda x: hk.Linear(2)(x))
    forms = (with_rng, hk.without_apply_rng(with_rng))
    outputs = [layers.AsKeras(layers.from_haiku(form))(x) for form in forms]
    np.testing.assert_allclose(*outputs)
    stateful = hk.transform_with_state(lambda x: hk.Linear(2)(x))
    again = layers.AsKeras(layers.from_haiku(hk.without_apply_rng(stateful)))(x)
    np.testing.assert_allclose(again, outputs[0])


def test_plain_modules_are_refused_with_the_adapter_to_use():
    from flax import linen, nnx

    with pytest.raises(TypeError, match="without `pure_fn`; pass `tfrl.layers.from_fl"):
        layers.AsKeras(linen.Dense(2))
    with pytest.raises(TypeError, match="or `from_nnx` for an nnx.Module"):
        layers.AsKeras(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    hk = pytest.importorskip("haiku")
    with pytest.raises(TypeError, match="pass `tfrl.layers.from_haiku"):
        layers.AsKeras(hk.transform(lambda x: x))
    with pytest.raises(TypeError, match="of a typed key of JAX take jax.random.key_da"):
        layers.AsKeras(linen_layer, rng=jax.random.key(0))
