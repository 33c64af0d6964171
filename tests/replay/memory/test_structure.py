"""Nests taken apart and put together, against `tf.nest`."""

import collections
from typing import NamedTuple

import pytest
import tensorflow as tf

from tfrl.core import pytree
from tfrl.replay.memory import _structure


class Pair(NamedTuple):
    second: object
    first: object


class Node(pytree.PyTreeNode):
    a: object


NESTS = {
    "leaf": 1,
    "none": None,
    "empty": (),
    "list": [1, 2],
    "pair": Pair(1, 2),
    "dict": {"b": 1, "a": 2},
    "deep": ([1, {"z": (), "y": Pair(2, [3])}], 4, {"x": {"w": 5}}),
    "only empty ones": ((), {}, []),
}
# Of these there may be others that fit; only `tf.nest` knows.
OTHERS = {
    "ordered": collections.OrderedDict(b=1, a=2),
    "node": Node(a=1),
    "node inside": (Node(a=1), {"b": 2, "a": [3]}),
}


@pytest.mark.parametrize("nest", [*NESTS.values(), *OTHERS.values()], ids=str)
def test_packs_as_tf_does(nest):
    leaves = [10 * leaf for leaf in range(len(tf.nest.flatten(nest)))]
    found = _structure.structure_of(nest).pack(iter(leaves))
    tf.nest.assert_same_structure(found, nest)
    assert tf.nest.flatten(found) == leaves
    assert type(found) is (type(nest) if tf.nest.is_nested(nest) else int)
    if isinstance(nest, dict):
        assert list(found) == list(nest)


@pytest.mark.parametrize("nest", NESTS.values(), ids=str)
def test_splits_as_tf_does(nest):
    assert _structure.structure_of(nest).split(nest) == tf.nest.flatten(nest)


@pytest.mark.parametrize("nest", OTHERS.values(), ids=str)
def test_leaves_to_tf_what_is_seldom(nest):
    assert _structure.structure_of(nest).split(nest) is None


@pytest.mark.parametrize(
    "nest, other",
    [
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ((1, 2), Pair(1, 2)),
        (Pair(1, 2), (1, 2)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, collections.OrderedDict(a=1)),
        (({"a": 1}, 2), ({"b": 1}, 2)),
        (([1], 2), (1, 2)),
    ],
    ids=str,
)
def test_others_take_a_closer_look(nest, other):
    assert _structure.structure_of(nest).split(other) is None


def test_nests_in_place_of_leaves_are_not_opened():
    assert _structure.structure_of((1, 2)).split(([3, 4], 5)) == [[3, 4], 5]
