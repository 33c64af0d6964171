"""Tests of `tfrl.agents._compiler_choice`."""

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl.agents import _compiler_choice, ppo, train_state


class Inside(keras.layers.Layer):
    """A layer of layers that are in containers."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = {"first": [parts[0]], "others": list(parts[1:])}

    def call(self, inputs):
        for part in (*self.parts["first"], *self.parts["others"]):
            inputs = part(inputs)
        return inputs


def state_of(model):
    return train_state.TrainState.create(model)


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def convolutional():
    layers = keras.layers.Conv2D(2, 2), keras.layers.Flatten(), keras.layers.Dense(1)
    model = Inside(*layers)
    model(np.zeros((1, 4, 4, 1), np.float32))
    return model


def test_xla_is_for_all_but_convolutions_on_a_cpu(monkeypatch):
    image = state_of(convolutional())
    space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    agent = ppo.PPO(minibatch_size=8).create(space, gym.spaces.Discrete(2))
    function = train_state.TrainState.create(tf.multiply, tf.constant(1.0))
    assert _compiler_choice.by_xla(state_of(dense()), {"x": 1.0})
    assert _compiler_choice.by_xla(function)
    assert not _compiler_choice.by_xla(image)
    assert not _compiler_choice.by_xla(1, {"nest": [(image,)]})
    assert not _compiler_choice.by_xla(agent, 3)
    with tf.distribute.OneDeviceStrategy("CPU:1").scope():
        assert not _compiler_choice.by_xla(image)
    gpu = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    devices = [*tf.config.list_logical_devices(), gpu]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert _compiler_choice.by_xla(image)
