"""Modules of JAX: saved, cloned, of any pytree, with second derivatives."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import exporting, layers

for _package in ("jax", "flax", "haiku", "equinox"):
    pytest.importorskip(_package)
import jax  # noqa: E402
import jax_layers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = np.random.default_rng(0).normal(size=[6, 3]).astype(np.float32)
CASES = {
    "linen": lambda: layers.from_flax(jax_layers.linen_network, "train"),
    "linen made here": lambda: layers.from_flax(
        jax_layers.Network(units=4, last=jax_layers.linen.Dense(2, False)), "train"
    ),
    "linen nested": lambda: layers.from_flax(jax_layers.linen_nested, "train"),
    "linen's own": lambda: layers.from_flax(jax_layers.linen.Dense(2)),
    "nnx": lambda: layers.from_nnx(jax_layers.nnx_network),
    "haiku": lambda: layers.from_haiku(jax_layers.haiku_network),
    "jax": lambda: layers.from_jax(jax_layers.init, jax_layers.apply),
    "equinox": lambda: layers.from_jax(
        jax_layers.init_equinox, jax_layers.apply_equinox
    ),
    "state": lambda: layers.from_jax(jax_layers.init_counter, jax_layers.apply_counter),
}
ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import jax_layers, keras, numpy as np
import tfrl.layers
for name in sys.argv[3:]:
    model = keras.models.load_model(f"{sys.argv[2]}/{name}.keras")
    x = np.load(f"{sys.argv[2]}/x.npy")
    np.save(f"{sys.argv[2]}/{name}.npy", model.predict(x, verbose=0))
"""


def model_around(layer):
    return keras.Sequential([keras.Input([3]), layers.AsKeras(layer)])


@pytest.mark.parametrize("kind", CASES)
def test_saved_and_cloned(tmp_path, kind):
    model = model_around(CASES[kind]())
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(X, X[:, :2], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    right = model.predict(X, verbose=0)
    for other in (loaded, copy):
        np.testing.assert_allclose(other.predict(X, verbose=0), right, atol=1e-6)
    loaded.fit(X, X[:, :2], verbose=0)


def test_exported(tmp_path):
    model = model_around(CASES["jax"]())
    exporting.export_model(model, tmp_path / "exported")
    assert exporting.verify(tmp_path / "exported") == {"serving_default": 0.0}


def test_loaded_in_another_process(tmp_path):
    models = {}
    for kind in ("linen", "equinox"):
        models[kind] = model_around(CASES[kind]())
        models[kind].save(tmp_path / f"{kind}.keras")
    np.save(tmp_path / "x.npy", X)
    folder = jax_layers.__file__.rpartition("/")[0]
    command = [sys.executable, "-c", ELSEWHERE, folder, str(tmp_path), *models]
    subprocess.run(command, check=True)
    for kind, model in models.items():
        found = np.load(tmp_path / f"{kind}.npy")
        np.testing.assert_allclose(found, model.predict(X, verbose=0), atol=1e-6)


def test_what_cannot_be_named_is_refused(tmp_path):
    module = jax_layers.nnx.Linear(3, 2, rngs=jax_layers.nnx.Rngs(0))
    for layer, name in (
        (layers.from_nnx(module), "from_nnx"),
        (layers.from_jax(lambda inputs: (), lambda inputs: inputs), "from_jax"),
    ):
        with pytest.warns(UserWarning, match=f"cloned: `{name}`: expected functions"):
            model = model_around(layer)
        message = f"`{name}`: expected .* with a name in a module, to be saved or"
        with pytest.raises(ValueError, match=message):
            model.save(tmp_path / "model.keras")
        with pytest.raises(ValueError, match=message):
            keras.models.clone_model(model)


@pytest.mark.parametrize("kind", CASES)
def test_nothing_is_said_of_what_can_be_named(kind, recwarn):
    layers.AsKeras(CASES[kind]())
    assert not [each for each in recwarn if "cloned" in str(each.message)]


def test_pytrees_compute_and_learn_as_in_jax():
    layer = layers.AsKeras(CASES["equinox"]())
    layer(X)
    assert len(layer.trainable_weights) == 6
    own = jax_layers.init_equinox(jax.random.key(0), X)
    leaves, structure = jax.tree.flatten(own)
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape")]

    def loss(weights):
        whole = list(leaves)
        for place, weight in zip(places, weights, strict=True):
            whole[place] = weight
        params = jax.tree.unflatten(structure, whole)
        return (jax_layers.apply_equinox(params, X) ** 2).sum()

    with tf.GradientTape() as tape:
        found = tf.reduce_sum(layer(X) ** 2)
    weights = [weight.numpy() for weight in layer.trainable_weights]
    np.testing.assert_allclose(found, loss(weights), rtol=1e-4)
    gradients = tape.gradient(found, [w.value for w in layer.trainable_weights])
    for one, two in zip(gradients, jax.grad(loss)(weights), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


def test_states_that_are_pytrees():
    layer = layers.AsKeras(CASES["state"]())
    first, second = layer(X), layer(X)
    np.testing.assert_allclose(second - first, np.full([6, 2], 2.0), rtol=1e-5)


def test_second_derivatives_are_those_of_jax():
    layer = layers.AsKeras(CASES["jax"]())
    x = tf.constant(X)
    layer(x)
    (weight,) = layer.trainable_weights

    def slope(kernel, x):
        return jax.grad(lambda x: jax_layers.apply({"kernel": kernel}, x).sum())(x)

    def roughness(kernel):
        return (slope(kernel, X) ** 2).sum()

    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            total = tf.reduce_sum(layer(x))
        gradient = inner.gradient(total, x)
        found = tf.reduce_sum(gradient**2)
    kernel = weight.numpy()
    np.testing.assert_allclose(gradient, slope(kernel, X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        outer.gradient(found, weight.value),
        jax.grad(roughness)(kernel),
        rtol=1e-4,
        atol=1e-5,
    )
