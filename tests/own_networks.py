"""Networks of a user's own, to be made in other processes too."""

import keras


class Doubling(keras.layers.Layer):
    """A layer that Keras does not know by name."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(units, activation="gelu")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        return 2.0 * self.dense(inputs)


def actor_critic(observation_space, action_space):
    """From observations to parameters of the head and values."""
    seen = keras.Input(observation_space.shape)
    hidden = Doubling(8)(seen)
    parameters = keras.layers.Dense(int(action_space.n))(hidden)
    return keras.Model(seen, [parameters, keras.layers.Dense(1)(hidden)])
