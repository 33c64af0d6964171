"""Tests of `tfrl.training.checkpointing._nest_paths`."""

import keras
import tensorflow as tf

from tfrl import agents
from tfrl.core import pytree
from tfrl.training.checkpointing import _layer_paths, _nest_paths


class Node(pytree.PyTreeNode):
    state: agents.TrainState
    other: dict


def test_keys_of_a_node_stand_for_places_in_its_layer():
    for _ in range(3):
        keras.layers.Dense(1)
    layers = [keras.layers.Dense(1), keras.layers.Dense(1, name="fc")]
    state = agents.TrainState.create(
        keras.Sequential([keras.Input([1]), *layers]), tx=agents.sgd(0.1, momentum=0.9)
    )
    (key, *_) = state.params
    node = Node(state, {key: tf.zeros(1)})
    paths = _nest_paths.leaf_paths((_layer_paths.Step("x"),), node)
    found = [_layer_paths.joined(path) for path in paths]
    assert len(found) == len(tf.nest.flatten(node)) == len(set(found))
    assert {"x.state.params.dense.kernel", "x.state.params.fc.bias"} <= set(found)
    assert any("opt_state" in name and "fc.kernel" in name for name in found)
    # Outside of the node that holds the layer a key is a key.
    assert f"x.other.{key.replace('/', '.')}" in found
