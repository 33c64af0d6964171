"""Tests of `tfrl.training.checkpointing._keras_names`."""

import keras
import pytest

from tfrl.training.checkpointing import _keras_names


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


def test_lost_numbers():
    lost = _keras_names.lost
    assert lost("a.dense_3.b_2", "a.dense.b_2", {"dense_3", "b_2"}) == ["dense_3"]
    assert lost("a.dense_3", "a.dense", {"dense"}) == []


def test_matched_names_are_not_those_of_more_or_fewer_layers():
    there = ["a.dense.w", "a.dense_1.w", "b.dense.w"]
    here = {"x": "a.dense.w", "y": "b.dense.w", "z": "c.w"}
    assert _keras_names.matched(here, there) == {"y": "b.dense.w"}
