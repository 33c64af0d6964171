"""`AsKeras` on recorded layers: it hands over, keeps and trains what was recorded."""

import golden_io
import golden_layers
import numpy as np
import pytest
import tensorflow as tf

from tfrl import layers

SPLITS = golden_io.load("trax/rng")


class Recorded:
    """A layer that does at each step of a recording what was done there.

    The key says which step it is. Outputs have the recorded gradients; they are wrong
    where weights, state or inputs are others than recorded.
    """

    def __init__(self, case):
        self.given, steps = case["inputs"], case["outputs"]["steps"]
        self.keys = [step["rng"] for step in steps]
        self.states = [self.given["state0"], *(step["new_state"] for step in steps)]
        self.weights_then = [tf.nest.flatten(self.given["weights0"])]
        for step in steps:
            pairs = zip(self.weights_then[-1], step["grad_weights_flat"], strict=True)
            lr = case["kwargs"]["lr"]
            self.weights_then.append([weight - lr * grad for weight, grad in pairs])
        self.stacked = {
            key: tf.nest.map_structure(lambda *x: np.stack(x), *(s[key] for s in steps))
            for key in steps[0]
        }

    def init(self, signature, rng):
        assert tf.nest.map_structure(lambda leaf: leaf.as_tuple(), signature) == (
            tf.nest.map_structure(
                lambda leaf: leaf.as_tuple(), self.given["input_signature"]
            )
        )
        assert rng == self.given["init_rng"]
        return self.given["weights0"], self.given["state0"]

    def pure_fn(self, x, weights, state, rng):
        index = tf.argmax(tf.equal(rng, self.keys))

        def at_step(nest):
            return tf.nest.map_structure(lambda leaf: tf.gather(leaf, index), nest)

        def recorded(nests):
            if not tf.nest.flatten(nests[0]):
                return nests[0]
            return at_step(tf.nest.map_structure(lambda *x: np.stack(x), *nests))

        wrong = sum(
            tf.reduce_sum(tf.abs(tf.cast(got - want, tf.float32)))
            for nest, expected in (
                (weights, recorded(self.weights_then)),
                (state, recorded(self.states[:-1])),
                (x, at_step(self.stacked["inputs"])),
            )
            for got, want in zip(*map(tf.nest.flatten, (nest, expected)), strict=True)
        )
        floats = [leaf for leaf in tf.nest.flatten(x) if leaf.dtype.is_floating]
        sources = [*tf.nest.flatten(weights), *floats]
        gradients = at_step(
            self.stacked["grad_weights_flat"] + self.stacked["grad_inputs_flat"]
        )
        nothing = sum(
            tf.reduce_sum(gradient * (source - tf.stop_gradient(source)))
            for gradient, source in zip(gradients, sources, strict=True)
        )
        outputs = at_step(self.stacked["outputs"])
        first, *rest = tf.nest.flatten(outputs)
        cotangents = at_step(self.stacked["cotangents"][0])
        first += cotangents * nothing / tf.reduce_sum(cotangents**2)
        first += tf.stop_gradient(tf.where(wrong < 1e-4, 0.0, wrong))
        outputs = tf.nest.pack_sequence_as(outputs, [first, *rest])
        return outputs, recorded(self.states[1:])


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param(False, id="eager"),
        # The same calls, traced.
        pytest.param(True, id="graph", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "case", golden_layers.CASES, ids=golden_io.ids(golden_layers.CASES)
)
def test_trains_as_recorded(case, compiled):
    layer = layers.AsKeras(
        Recorded(case),
        initializer_rng=case["inputs"]["init_rng"],
        rng=case["inputs"]["rng0"],
        rng_updater=golden_layers.next_key,
        dtype=golden_layers.dtype_of_inputs(case),
    )
    golden_layers.assert_trains_as_recorded(layer, case, compiled)


@pytest.mark.parametrize("case", SPLITS, ids=golden_io.ids(SPLITS))
def test_recorded_keys(case):
    key, *chain = case["outputs"]["chain_split1"]
    assert key == case["inputs"]["seed"]
    for want in chain:
        key = golden_layers.next_key(key)
        assert int(key) == want
