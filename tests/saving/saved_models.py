"""Models of which `format_1` holds checkpoints, as an earlier version wrote them.

python tests/saving/saved_models.py FOLDER
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from tfrl import agents
from tfrl.saving import checkpointer


class Critic(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.net = keras.layers.Dense(2)

    def build(self, shape):
        self.net.build(shape)
        self.built = True

    def call(self, x):
        return self.net(x)


class Branch(Critic):
    """One that is never given a name."""


class Mixed(keras.Model):
    """Layers in attributes, lists and dictionaries, and weights of its own."""

    def __init__(self):
        super().__init__()
        self.encoder, self._hidden = keras.layers.Dense(3), keras.layers.Dense(3)
        self.critics = [Branch(), Branch()]
        self.heads = {"a": keras.layers.Dense(3), "b": [keras.layers.Dense(3)]}
        self.log_alpha = self.add_weight(shape=(), name="log_alpha")
        self.inner = functional()

    def build(self, _):
        layers = [self.encoder, self._hidden, *self.critics, self.heads["a"]]
        for layer in [*layers, *self.heads["b"]]:
            layer.build((None, 3))
        self.built = True


def functional():
    inputs = keras.Input([3])
    hidden = keras.layers.Dense(3)(inputs)
    head = keras.layers.Dense(3, name="head_2")(hidden)
    layers = [keras.layers.Dense(3), keras.layers.Dropout(0.1)]
    return keras.Model(inputs, [keras.Sequential(layers)(head), Branch()(hidden)])


def sequential(*names):
    return keras.Sequential([keras.Input([3]), *[Critic(name=name) for name in names]])


def made():
    """Returns items of many kinds, with automatic names."""
    mixed = Mixed()
    mixed.build(None)
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(mixed.trainable_variables)
    state = agents.TrainState.create(functional(), tx=agents.adam(1e-3))
    cells = [keras.layers.LSTMCell(1), keras.layers.GRUCell(1)]
    rnn = keras.layers.RNN(cells)
    rnn.build((None, 4, 3))
    return {
        "mixed": mixed,
        "optimizer": optimizer,
        "parts": [rnn, keras.metrics.Mean(), keras.random.SeedGenerator(1)],
        "state": state,
    }


def arrays(items):
    """Returns all variables of items, or what stands in their place."""
    mixed, (rnn, mean, seeds) = items["mixed"], items["parts"]
    return [
        *mixed.variables,
        *items["optimizer"].variables,
        *rnn.variables,
        *mean.variables,
        seeds.state,
        *tf.nest.flatten(items["state"]),
    ]


def filled(items):
    """Gives every array another value."""
    for k, variable in enumerate(arrays(items)):
        if isinstance(variable, keras.Variable):
            variable.assign(np.full(variable.shape, k))
    flat = tf.nest.flatten(items["state"])
    new = [tf.cast(tf.fill(x.shape, 200 + k), x.dtype) for k, x in enumerate(flat)]
    return {**items, "state": tf.nest.pack_sequence_as(items["state"], new)}


def check(items):
    """Compares items with what `filled` makes of new ones."""
    pairs = zip(arrays(items), arrays(filled(made())), strict=True)
    for k, (one, other) in enumerate(pairs):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=k)


if __name__ == "__main__":
    items = filled(made())
    folder = sys.argv[1]
    manager = checkpointer.Checkpointer(f"{folder}/many", **items)
    manager.save(1, state=items["state"])
    numbered = sequential("critic_1", "critic_2")
    checkpointer.Checkpointer(f"{folder}/numbered", net=numbered).save(1)
    named = sequential("critic", "target")
    checkpointer.Checkpointer(f"{folder}/named", net=named).save(1)
