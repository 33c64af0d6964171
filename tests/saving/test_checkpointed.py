"""Tests of `tfrl.saving._checkpointed`."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl.core import pytree
from tfrl.saving import _checkpointed, _keras_names, _layer_paths


def names(item):
    return list(_checkpointed.Parts("test", {"x": item}).paths)


def dense(name=None):
    layer = keras.layers.Dense(1, name=name)
    layer.build((None, 1))
    return layer


def test_names_do_not_depend_on_layers_made_before():
    def made():
        layers = [keras.Input([1]), *(keras.layers.Dense(1) for _ in range(12))]
        return keras.Sequential(layers)

    first = names(made())
    assert first[:4] == ["x.dense.kernel", "x.dense.bias"] + [
        "x.dense_1.kernel",
        "x.dense_1.bias",
    ]
    assert len(set(first)) == 24
    assert names(made()) == first


def test_nodes_keep_the_order_of_layers_whose_numbers_get_longer():
    class Counted(keras.layers.Dense):
        pass

    def node():
        model = keras.Sequential([keras.Input([1]), Counted(1), Counted(1)])
        state = agents.TrainState.create(model)
        values = [
            tf.zeros(x.shape) + float(k // 2) for k, x in enumerate(model.weights)
        ]
        return state.replace(params=dict(zip(state.params, values, strict=True)))

    for _ in range(7):
        Counted(1)
    nodes = [node(), node()]
    assert "counted_9" in str(nodes[1].params) and "counted_10" in str(nodes[1].params)
    expected = {"x.params.counted.kernel": 0.0, "x.params.counted_1.kernel": 1.0}
    for each in nodes:
        found = _checkpointed.Parts("test", {"x": each})
        assert list(found.immutable) == ["x"]
        values = {k: x for k, x in found.arrays.items() if "kernel" in k}
        assert {k: float(v[0, 0]) for k, v in values.items()} == expected
        names_before, _ = _keras_names.of_parts(found)
        old = [names_before[name].split(".")[3] for name in expected]
        assert old == ["counted", "counted_1"]


def test_names_given_by_hand_stay():
    model = keras.Sequential([keras.Input([1]), dense("fc_2"), dense("fc_7")])
    assert names(model)[::2] == ["x.fc_2.kernel", "x.fc_7.kernel"]


def test_layers_of_one_name_are_told_apart():
    class Pair(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = [dense("same"), dense("same")]
            self.built = True

    assert len(set(names(Pair()))) == 4


def test_what_keras_does_not_know_of_is_found_in_layers():
    class Mixed(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self._scale = tf.Variable(1.0)
            self._parts = {"a": [tf.random.Generator.from_seed(1)]}
            self.module = tf.Module()
            self.module.w = tf.Variable(1.0)
            self.built = True

    assert names(Mixed()) == ["x._scale", "x._parts.a.0.state", "x.module.w"]


def test_random_state_in_layers_is_found():
    layer = keras.Sequential([keras.Input([1]), keras.layers.Dropout(0.5)])
    assert len(names(layer)) == 1


def test_an_optimizer_of_a_compiled_model_is_found():
    model = keras.Sequential([keras.Input([1]), dense("fc")])
    model.compile("sgd", loss="mse")
    model.fit(np.ones([2, 1]), np.ones([2, 1]), verbose=0)
    found = names(model)
    own = [name for name in found if _checkpointed.special_kind(name) is None]
    assert own == ["x.fc.kernel", "x.fc.bias"]
    assert len(found) - len(own) == len(model.optimizer.variables)


def test_variables_reached_twice_are_saved_once():
    scale = tf.Variable(1.0)
    assert names({"a": scale, "b": [scale]}) == ["x.a"]


def test_objects_of_any_class_are_searched():
    class Holder:
        def __init__(self):
            self.layer = dense("fc")
            self.self = self
            self.queue = collections.deque([tf.Variable(1.0)])
            self.rng = np.random.default_rng(0)
            self.module, self.kind = np, Holder

    assert names(Holder()) == ["x.layer.kernel", "x.layer.bias", "x.queue.0", "x.rng"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("agent.optimizer.0", "optimizer"),
        ("agent._optimizers.0.m", "optimizer"),
        ("agent.actor_optimizer.0", "optimizer"),
        ("agent.state.opt_state.1", "optimizer"),
        ("agent._replay_buffer", "replay_buffer"),
        ("agent._data_transformers.0.mean", "data_transformer"),
        ("agent.optimizers_scale", None),
        ("agent.net.kernel", None),
    ],
)
def test_special_kinds(name, kind):
    assert _checkpointed.special_kind(name) == kind


def test_equal_names_are_an_error():
    node = {"a": {"b": tf.constant(1.0)}, "a/b": tf.constant(2.0)}
    with pytest.raises(ValueError, match=r"two of 'x\.a\.b'"):
        names(node)
    with pytest.raises(ValueError, match=r"two of 'x\.a\.b'"):
        names({"a": {"b": tf.Variable(1.0)}, "a.b": tf.Variable(2.0)})


def test_arrays_among_variables_are_not_lost_in_silence():
    class Node(pytree.PyTreeNode):
        w: tf.Tensor

    with pytest.raises(TypeError, match=r"`x\.node` expected nothing immutable"):
        names({"node": Node(tf.ones([1])), "v": tf.Variable(1.0)})
    with pytest.raises(TypeError, match=r"`x\.t` expected nothing immutable"):
        names({"t": tf.ones([1]), "v": tf.Variable(1.0)})


def test_parts_of_several_items():
    rng = np.random.default_rng(0)
    parts = _checkpointed.Parts(
        "test", {"a": tf.Variable(1.0), "opt": keras.optimizers.SGD(), "r": rng}
    )
    assert list(parts.paths)[0] == "a" and parts.generators == {"r": rng}
    assert set(parts.kinds.values()) == {"optimizer"}


class Pair(pytree.PyTreeNode):
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
    node = Pair(state, {key: tf.zeros(1)})
    found = names(node)
    assert len(found) == len(tf.nest.flatten(node)) == len(set(found))
    assert {"x.state.params.dense.kernel", "x.state.params.fc.bias"} <= set(found)
    assert any("opt_state" in name and "fc.kernel" in name for name in found)
    # Outside of the node that holds the layer a key is a key.
    assert f"x.other.{key.replace('/', '.')}" in found


def test_disabled_layers_in_tuples_of_keras_objects():
    class Held(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.held = (dense(), {"a": dense()})
            self.built = True

    layer = Held()
    assert len(names(layer)) == 4
    setattr(layer.held[1]["a"], _layer_paths.SWITCH, False)
    assert names(layer) == ["x.held.0.kernel", "x.held.0.bias"]
    assert not _layer_paths.is_enabled(layer.held[1]["a"])


def test_parts_of_objects():
    point = collections.namedtuple("point", "x y")(1, 2)
    assert list(_checkpointed.parts_of(point)) == [("x", 1), ("y", 2)]
    assert list(_checkpointed.parts_of(np)) == list(_checkpointed.parts_of(3)) == []


def test_a_name_of_one_item_is_not_one_in_another():
    items = {"a": {"b": tf.Variable(1.0)}, "a.b": tf.Variable(2.0)}
    with pytest.raises(ValueError, match=r"two of 'a\.b'"):
        _checkpointed.Parts("test", items)
