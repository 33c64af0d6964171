"""Small layers that keep their weights outside, as `tfrl.layers.AsKeras` takes them."""

import keras
import numpy as np
import tensorflow as tf

from tfrl import core


class Affine:
    """x W + b, from a key of any form."""

    def __init__(self, units, activation=tf.identity):
        self.units, self.activation = units, activation

    def init(self, signature, rng):
        shape = [signature.shape[-1], self.units]
        kernel = tf.random.stateless_normal(shape, core.new_seed(rng))
        return (kernel / np.sqrt(shape[0]), np.zeros([self.units], np.float32)), ()

    def pure_fn(self, x, weights, state, rng):
        kernel, bias = weights
        return self.activation(tf.matmul(x, kernel) + bias), state


class Dropout:
    """Drops half of what it is trained on; counts its calls in int32."""

    def init(self, signature, rng):
        return (), {"calls": np.int32(0), "rate": np.float32(0.5)}

    def pure_fn(self, x, weights, state, rng, training):
        state = {"calls": state["calls"] + 1, "rate": state["rate"]}
        if not training:
            return x, state
        drawn = tf.random.stateless_uniform(
            tf.shape(x), core.new_seed(rng), dtype=state["rate"].dtype
        )
        kept = tf.cast(drawn >= state["rate"], x.dtype)
        return x * kept / tf.cast(1.0 - state["rate"], x.dtype), state


class Means:
    """Subtracts the moving means of what it sees, kept in its own precision."""

    def __init__(self, rate=0.5):
        self.rate = rate

    def init(self, signature, rng):
        return (), (np.zeros(signature.shape[-1:], np.float32),)

    def pure_fn(self, x, weights, state, rng):
        (mean,) = state
        seen = tf.reduce_mean(tf.cast(x, mean.dtype), axis=0)
        mean += tf.cast(self.rate, mean.dtype) * (seen - mean)
        return x - tf.cast(mean, x.dtype), (mean,)


class Chain:
    """Layers one after the other. The last place stands for the first layer again."""

    shared = {"again": ()}

    def __init__(self, *parts, repeat_first=False):
        self.parts = parts
        self.repeat_first = repeat_first

    def _keys(self, rng):
        return core.split_seed(rng, len(self.parts))

    def init(self, signature, rng):
        weights, state = [], []
        for part, key in zip(self.parts, self._keys(rng), strict=True):
            part_weights, part_state = part.init(signature, key)
            weights.append(part_weights)
            state.append(part_state)
            width = getattr(part, "units", signature.shape[-1])
            signature = signature.replace(shape=(*signature.shape[:-1], width))
        last = (self.shared,) if self.repeat_first else ()
        return (*weights, *last), (*state, *last)

    def pure_fn(self, x, weights, state, rng, training):
        new_state = []
        for i, (part, key) in enumerate(zip(self.parts, self._keys(rng), strict=True)):
            flag = {"training": training} if isinstance(part, Dropout) else {}
            x, after = part.pure_fn(x, weights[i], state[i], key, **flag)
            new_state.append(after)
        if self.repeat_first:
            x, _ = self.parts[0].pure_fn(x, weights[0], state[0], rng)
            new_state.append(self.shared)
        return x, tuple(new_state)


class Mix:
    """{"a": [B, n], "b": (int [B],)} -> (a + emb[b], {"a": a W})."""

    def init(self, signature, rng):
        one, two = core.split_seed(rng, 2)
        width = signature["a"].shape[-1]
        weights = {
            "table": tf.random.stateless_normal([7, width], one),
            "kernel": [tf.random.stateless_normal([width, 2], two)],
        }
        assert signature["b"][0].dtype == np.int32
        return weights, ()

    def pure_fn(self, x, weights, state, rng):
        rows = tf.gather(weights["table"], x["b"][0])
        return (x["a"] + rows, {"a": tf.matmul(x["a"], weights["kernel"][0])}), state


def network():
    """[B, n] -> [B, 2], with everything a layer may have."""
    return Chain(Affine(8, tf.nn.relu), Means(), Dropout(), Affine(2))


@keras.saving.register_keras_serializable("foreign_layers")
def registered_network():
    return network()


@keras.saving.register_keras_serializable("foreign_layers")
def registered_mix():
    return Mix()


@keras.saving.register_keras_serializable("foreign_layers")
def add_seven(key):
    return key + 7
