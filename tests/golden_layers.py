"""Recorded training of layers: three steps of gradient descent on `AsKeras`.

Each step calls the layer, takes the gradients of sum(outputs * cotangents) and
subtracts `lr` times those of the weights; keys go on as `next_key` says.
"""

import golden_io
import numpy as np
import tensorflow as tf

from tfrl import core

CASES = golden_io.load("trax/layers", build={"sig": lambda x: core.ShapeDtype(*x)})


def next_key(key):
    """The key that the recordings go on with: child 0 of int64 `key`.

    It is put together from signed halves, so half of all keys have 32 bits alone.
    """
    seed = tf.bitcast(tf.cast(key, tf.int64), tf.int32)
    (child,) = tf.unstack(tf.random.experimental.stateless_split(seed, 1))
    low, high = tf.unstack(tf.cast(child, tf.int64))
    return tf.bitwise.bitwise_or(tf.bitwise.left_shift(high, np.int64(32)), low)


def dtype_of_inputs(case):
    """What the option `dtype` must be for a case; None where it may be left out."""
    kinds = {
        leaf.dtype.name for leaf in tf.nest.flatten(case["inputs"]["input_signature"])
    }
    return None if kinds == {"float32"} else kinds.pop()


def assert_trains_as_recorded(layer, case, compiled):
    """Trains a fresh `AsKeras` and compares all there is."""
    given, steps = case["inputs"], case["outputs"]["steps"]
    tolerance = case["tol"]

    def close(got, want, **options):
        tf.nest.assert_same_structure(got, want)
        for one, two in zip(*map(tf.nest.flatten, (got, want)), strict=True):
            np.testing.assert_allclose(one, two, **(options or tolerance))

    def step(x, cotangents):
        floats = [leaf for leaf in tf.nest.flatten(x) if leaf.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs = layer(x)
            pairs = zip(tf.nest.flatten(outputs), cotangents, strict=True)
            loss = tf.add_n([tf.reduce_sum(y * c) for y, c in pairs])
        sources = [weight.value for weight in layer.trainable_weights], floats
        gradients = tf.nest.map_structure(
            tf.convert_to_tensor, tape.gradient(loss, sources)
        )
        for weight, gradient in zip(layer.trainable_weights, gradients[0], strict=True):
            weight.assign_sub(case["kwargs"]["lr"] * gradient)
        return outputs, gradients

    if compiled:
        step = tf.function(step)
    inputs = tf.nest.map_structure(tf.constant, [each["inputs"] for each in steps])
    layer.build(tf.nest.map_structure(lambda x: tuple(x.shape), inputs[0]))
    weights = tf.nest.flatten(given["weights0"])
    close(layer.trainable_weights, weights, rtol=0, atol=0)
    assert int(layer.rng) == given["rng0"]
    close(_state(layer), tf.nest.flatten(given["state0"]), rtol=0, atol=0)
    for x, want in zip(inputs, steps, strict=True):
        assert int(layer.rng) == want["rng"]
        outputs, gradients = step(x, want["cotangents"])
        close(outputs, want["outputs"])
        close(gradients[0], want["grad_weights_flat"])
        close(gradients[1], want["grad_inputs_flat"])
        close(_state(layer), tf.nest.flatten(want["new_state"]))
    close(layer.trainable_weights, tf.nest.flatten(given["final_weights"]))
    assert int(layer.rng) == given["final_rng"]


def _state(layer):
    return layer.non_trainable_weights[:-1]
