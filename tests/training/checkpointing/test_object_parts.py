"""Tests of `tfrl.training.checkpointing._object_parts`."""

import collections

import keras
import numpy as np

from tfrl.training.checkpointing import _object_parts


def test_parts():
    point = collections.namedtuple("point", "x y")(1, 2)
    assert list(_object_parts.parts(point)) == [("x", 1), ("y", 2)]
    assert list(_object_parts.parts(np)) == list(_object_parts.parts(3)) == []


def test_disabled_layers_in_tuples_of_keras_objects():
    class Held(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.held = (keras.layers.Dense(1), {"a": keras.layers.Dense(1)})

    layer = Held()
    off = layer.held[1]["a"]
    _object_parts.enable(off, False)
    assert _object_parts.disabled_layers(layer) == [off]
    assert not _object_parts.is_enabled(off)
