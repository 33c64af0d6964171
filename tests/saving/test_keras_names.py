"""Tests of `tfrl.saving._keras_names`."""

import keras
import pytest
import tensorflow as tf

from tfrl.saving import _checkpointed, _keras_names


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
    assert _keras_names.renumbered(names) == expected


def test_classes_of_users():
    class MyOddLayer(keras.layers.Layer):
        pass

    name = MyOddLayer().name
    assert name.startswith("my_odd_layer")
    assert _keras_names.renumbered([f"{name}_9"]) == ["my_odd_layer"]


def test_names_of_parts_and_what_they_lost():
    layers = [keras.layers.Dense(1, name=f"dense_{k}") for k in (7_001, 7_003)]
    layers += [keras.layers.Dense(1, name="head_2")]
    for layer in layers:
        layer.build((None, 1))
    model = keras.Sequential([keras.Input([1]), *layers])
    parts = _checkpointed.Parts("test", {"a": {"b": [tf.Variable(1.0), model]}})
    old, lost = _keras_names.of_parts(parts)
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
    assert _keras_names.matched(here, there) == {"y": "b.dense.w"}
