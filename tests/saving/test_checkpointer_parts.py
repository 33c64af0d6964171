"""The names of the parts of objects, by which `tfrl.saving.checkpointer` knows them."""

import collections
import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl.core import pytree
from tfrl.saving import _checkpointed, _layer_paths

Step = _layer_paths.Step


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
        names_before, _ = _layer_paths.of_parts(found)
        old = [names_before[name].split(".")[3] for name in expected]
        assert old == ["counted", "counted_1"]


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
    assert _layer_paths.special_kind(name) == kind


def test_equal_names_of_arrays_are_told_apart():
    node = {"a": {"b": tf.constant(1.0)}, "a/b": tf.constant(2.0)}
    assert names(node) == ["x.a.b", "x.a.b:1"]


def test_equal_names_are_an_error():
    with pytest.raises(ValueError, match=r"two of 'x\.a\.b'"):
        names({"a": {"b": tf.Variable(1.0)}, "a.b": tf.Variable(2.0)})
    items = {"a": {"b": tf.Variable(1.0)}, "a.b": tf.Variable(2.0)}
    with pytest.raises(ValueError, match=r"two of 'a\.b'"):
        _checkpointed.Parts("test", items)


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


def variable_names(item):
    paths = _layer_paths.variable_paths(item)
    return [_layer_paths.joined(paths[id(each)]) for each in item.variables]


def built(layer, shape=(None, 2)):
    layer.build(shape)
    return layer


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Step("a"), Step("a"), True),
        (Step("a"), Step("b"), False),
        (
            Step("a", "x_1", False),
            Step("a", "x_7", False),
            True,
        ),
        (
            Step("a", "x_1", True),
            Step("a", "x_7", False),
            True,
        ),
        (
            Step("a", "x_1", True),
            Step("a", "x_7", True),
            False,
        ),
        (
            Step("0", "x", False, 0),
            Step("0", "x_3", False, 0),
            True,
        ),
        (
            Step("0", "x", False, 0),
            Step("1", "x", False, 1),
            False,
        ),
        (
            Step("x", "x", True, 0),
            Step("3", "x", False, 3),
            True,
        ),
        (
            Step("x", "x", True, 0),
            Step("x", "x_2", False, 1),
            False,
        ),
        (
            Step("x", "x", True, 1),
            Step("1", "x_2", False, 1),
            True,
        ),
        (
            Step("x", "x", True, 1),
            Step("y", "y", True, 1),
            False,
        ),
    ],
)
def test_steps_of_two_processes(one, other, expected):
    assert one.is_same(other) is other.is_same(one) is expected


def test_layers_of_models_are_ranked_by_class_and_place():
    layers = [keras.layers.Dense(1) for _ in range(3)]
    fc = keras.layers.Dense(1, name="fc")
    model = keras.Sequential([keras.Input([1]), layers[2], fc, layers[0], layers[1]])
    found = variable_names(model)[::2]
    assert found == ["dense.kernel", "fc.kernel", "dense_1.kernel", "dense_2.kernel"]


def test_a_rank_is_not_the_name_of_another_layer():
    class Odd(keras.layers.Dense):
        pass

    layers = [Odd(1, name="odd"), Odd(1, name="odd_1")]
    assert all(map(_layer_paths.is_given, layers))
    layers = [Odd(1), layers[0], Odd(1), layers[1], Odd(1)]
    found = variable_names(keras.Sequential([keras.Input([1]), *layers]))
    assert [name.split(".")[0] for name in found[::2]] == [
        "odd_2",
        "odd",
        "odd_3",
        "odd_1",
        "odd_4",
    ]


def test_keras_own_layers_name_their_parts_themselves():
    made = keras.layers.Bidirectional(keras.layers.LSTM(1, name="lstm_7"))
    found = variable_names(built(made, (None, 3, 2)))
    assert found[0] == "forward_layer.cell.kernel"
    paths = _layer_paths.variable_paths(made)
    assert not any(step.given for path in paths.values() for step in path)


def test_weights_without_a_name_are_known_by_their_attribute():
    class Weights(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = self.add_weight(), self.add_weight(name="w")
            self.many = [self.add_weight(name="v") for _ in range(2)]
            self.built = True

    keras.Variable(1.0)
    assert variable_names(Weights()) == ["first", "w", "v", "v:1"]


def test_what_is_certain_about_a_name():
    class Guess(keras.layers.Layer):
        pass

    before = [Guess(name=name) for name in ("guess", "guess_1", "other", "guess_x")]
    assert all(map(_layer_paths.is_given, before))
    made = [Guess() for _ in range(4)]
    assert not any(map(_layer_paths.is_given, made))
    assert all(map(_layer_paths.is_given, before))
    assert _layer_paths.is_given(Guess(name="guess_100"))
    assert not _layer_paths.is_given(Guess(name=made[-1].name))


def test_nothing_is_kept_alive():
    class Kept(keras.layers.Layer):
        pass

    gc.freeze()
    count = len(_layer_paths._told)
    layer = Kept()
    _layer_paths.is_given(layer)
    assert len(_layer_paths._told) == count + 1
    del layer
    gc.collect()
    gc.unfreeze()
    assert len(_layer_paths._told) == count


def test_matching():
    def path(token, layer, given=False):
        index = int(layer.partition("_")[2] or 0)
        return (Step(token, layer, given, index), Step("w"))

    def matched(here, there):
        names = [{_layer_paths.joined(p): p for p in side} for side in (here, there)]
        return _layer_paths.matched(*names)

    automatic = [path("0", "x"), path("1", "x_1")]
    assert matched([path("0", "x_1"), path("1", "x_2")], automatic) == {
        "0.w": "0.w",
        "1.w": "1.w",
    }
    assert matched([path("0", "x_1")], automatic) == {}
    assert matched([path("0", "x_5")], automatic) == {"0.w": "0.w"}
    assert matched([path("x_1", "x_1", True)], automatic) == {"x_1.w": "1.w"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.dense_10.b", "a.dense_7.b"], ["a.dense_1.b", "a.dense.b"]),
        (["a.dense.b", "a.dense_1.b"], ["a.dense.b", "a.dense_1.b"]),
        (["a.dense_3.b", "c.dense_4.b"], ["a.dense.b", "c.dense.b"]),
        (["a.layer_3.b", "a.3.b"], ["a.layer.b", "a.3.b"]),
        (["mine_3", "dense_x", ""], ["mine_3", "dense_x", ""]),
        (["seed_generator_6.state"], ["seed_generator.state"]),
        ([], []),
    ],
    ids=["order", "first", "apart", "base", "own", "seeds", "none"],
)
def test_renumbered(names, expected):
    assert _layer_paths.renumbered(names) == expected
    assert _layer_paths.renumbered(["mine_3.b"], ["mine"]) == ["mine.b"]


def test_names_of_parts_and_what_they_lost():
    layers = [keras.layers.Dense(1, name=f"dense_{k}") for k in (7_001, 7_003)]
    layers += [keras.layers.Dense(1, name="head_2")]
    for layer in layers:
        layer.build((None, 1))
    model = keras.Sequential([keras.Input([1]), *layers])
    parts = _checkpointed.Parts("test", {"a": {"b": [tf.Variable(1.0), model]}})
    old, lost = _layer_paths.of_parts(parts)
    assert list(old.values()) == [
        *("a.b.1.dense.kernel", "a.b.1.dense.bias"),
        *("a.b.1.dense_1.kernel", "a.b.1.dense_1.bias"),
        *("a.b.1.head_2.kernel", "a.b.1.head_2.bias", "a.b.0"),
    ] or list(old.values())[:1] == ["a.b.0"]
    assert set(lost.values()) == {"dense_7001", "dense_7003"}
    assert {name.split(".")[3] for name in lost} == {"dense_7001", "dense_7003"}


def test_matched_names_are_not_those_of_more_or_fewer_layers():
    there = ["a.dense.w", "a.dense_1.w", "b.dense.w"]
    here = {"x": "a.dense.w", "y": "b.dense.w", "z": "c.w"}
    assert _layer_paths.matched_of_old(here, there) == {"y": "b.dense.w"}
