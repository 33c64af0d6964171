"""Lean Keras layers: their variables, seeds and moving averages."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow
from modes import in_mode, run, same

from tfrl.ops import lean_function

modes = pytest.mark.parametrize("mode", ["eager", "graph", *slow("xla")])
X = tf.constant(np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32))


def layers():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.layers.Dense(6, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=3),
            keras.layers.Dense(2),
        ]
    )


@pytest.mark.slow
@modes
def test_layers_with_dropout_and_moving_averages(mode):
    plain, leaned = layers(), layers()
    plain.build([None, 4])

    def step(model, func, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = func(x, training=True)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, [x, *(v.value for v in weights(model))])

    def weights(model):
        return model.trainable_variables

    # The first call of the lean one also makes the variables.
    if mode == "xla":
        leaned.build([None, 4])
    plainly = in_mode(mode, functools.partial(step, plain, plain))
    leanly = in_mode(mode, functools.partial(step, leaned, lean_function(leaned)))
    for _ in range(2):
        same(leanly(X), plainly(X), rtol=1e-4, atol=1e-5)
    # Seeds and moving averages moved on once a step, not twice.
    for a, b in zip(leaned.variables, plain.variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_layer_is_not_changed():
    layer = keras.layers.Dense(2)
    lean = lean_function(layer)
    assert lean.__wrapped__ is layer
    assert not hasattr(lean, "units")
    before = set(vars(layer))
    lean(X)
    built = keras.layers.Dense(2)
    built(X)
    assert set(vars(layer)) - before == set(vars(built)) - before


class Block(keras.Model):
    def __init__(self, lean):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Dense(3, activation="tanh")])
        self.call_inner = lean_function(self.inner) if lean else self.inner
        self.head = keras.layers.Dense(1)

    def call(self, x):
        return self.head(self.call_inner(x))


@modes
def test_inside_a_stateless_call(mode):
    def step(lean, model, params, x):
        with tf.GradientTape() as tape:
            tape.watch(params)
            y, _ = model.stateless_call(params, [], x)
            loss = tf.reduce_sum(y**2)
        return loss, tape.gradient(loss, params)

    results = []
    for lean in (True, False):
        model = Block(lean)
        model(X)
        rng = np.random.default_rng(2)
        params = [
            tf.constant(rng.normal(size=v.shape).astype(np.float32))
            for v in model.trainable_variables
        ]
        results.append(run(mode, functools.partial(step, lean, model), params, X))
    same(*results, rtol=1e-5, atol=1e-6)


@modes
def test_integers_alone_inside_a_stateless_call(mode):
    layer = keras.layers.Embedding(3, 2)
    layer.build()

    class Embedded(keras.Model):
        def call(self, ids):
            return lean_function(layer)(ids)

    model = Embedded()
    model.layer = layer
    model(tf.constant([0]))
    table = tf.constant([[5.0, 6.0], [7.0, 8.0], [9.0, 10.0]])

    def step(table, ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            y, _ = model.stateless_call([table], [], ids)
            loss = tf.reduce_sum(y**2)
        return y, tf.convert_to_tensor(tape.gradient(loss, table))

    y, slope = run(mode, step, table, tf.constant([2, 0]))
    np.testing.assert_allclose(y, [[9, 10], [5, 6]])
    np.testing.assert_allclose(slope, [[10, 12], [0, 0], [18, 20]])


@pytest.mark.slow
def test_inside_fit():
    keras.utils.set_random_seed(0)
    losses = []
    weights = None
    for lean in (True, False):
        model = Block(lean)
        model(X)
        weights = model.get_weights() if weights is None else weights
        model.set_weights(weights)
        model.compile("sgd", "mse", jit_compile=False)
        targets = np.ones([5, 1], np.float32)
        losses.append(model.fit(X, targets, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)
