"""Tests of `tfrl.training.serializing._object_costs`."""

import dataclasses
import json
import struct
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tfrl.core import specs
from tfrl.training.serializing import (
    _lz4_frame,
    _object_costs,
    _object_graph,
    serialization,
)

# Multiples of it have the same hash.
SAME = sys.hash_info.modulus


def copied(value):
    return serialization.loads(serialization.dumps(value))


def objects(nodes):
    text = json.dumps([[len(nodes) - 1], nodes]).encode()
    head = _object_graph.MAGIC + struct.pack("<Q", len(text))
    return _lz4_frame.packed([head, text])


def doubled(kind, times):
    """Objects that refer twice to the one before."""
    return [
        [kind, None, [1, 1]],
        *[[kind, None, [[i], [i]]] for i in range(times)],
    ]


def in_each_other(records, tuples):
    """Tuples in records in tuples."""
    nodes, record = [["tuple", None, [1]]], "tfrl.core.ShapeDtype"
    for _ in range(records):
        nodes += [["tuple", None, [[len(nodes) + i]]] for i in range(-1, tuples - 1)]
        nodes.append(["record", [record, ["shape", "dtype"]], [[len(nodes) - 1], 1]])
    return nodes


def keyed(kind, nodes, further=()):
    items = [[len(nodes) - 1], *further]
    return objects([*nodes, [kind, None, items]])


HOSTILE = {
    "set": keyed("set", doubled("tuple", 60)),
    "frozenset": keyed("frozenset", doubled("tuple", 60)),
    "dict": keyed("dict", doubled("tuple", 60), [1]),
    "ordered_dict": keyed("ordered_dict", doubled("tuple", 60), [1]),
    "frozensets": keyed("set", doubled("frozenset", 60)),
    "deep": keyed("set", in_each_other(3, 990)),
    "same_hash": objects([["set", None, [SAME * i for i in range(1, 60_001)]]]),
    "same_hash_keys": objects(
        [["dict", None, [x for i in range(1, 60_001) for x in (SAME * i, 0)]]]
    ),
    "same_hash_tuples": objects(
        [
            ["tuple", None, [0] * 10**5],
            *[["tuple", None, [[0], SAME * i]] for i in range(1, 300)],
            ["set", None, [[i] for i in range(1, 300)]],
        ]
    ),
    "often": objects(
        [
            ["tuple", None, [0] * 10**5],
            *[["set", None, [[0]]] for _ in range(1000)],
        ]
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_keys_that_take_too_long_are_refused(case):
    with pytest.raises(ValueError, match="keys and items of sets expected"):
        serialization.loads(HOSTILE[case])


@pytest.mark.slow
def test_hashes_end_no_process(tmp_path):
    files = {**HOSTILE, "deepest": keyed("set", in_each_other(150, 990))}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    program = """
import faulthandler, pathlib, sys
from tfrl.training.serializing import serialization
faulthandler.dump_traceback_later(60, exit=True)
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        serialization.load(path)
    except ValueError as error:
        if "keys and items of sets expected" in str(error):
            print(path.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True
    )
    assert done.stdout.split() == sorted(files), done.stderr[-500:]


def test_what_cannot_be_read_is_not_written():
    key = (1,)
    for _ in range(60):
        key = (key, key)
    assert len(copied([key])[0]) == 2
    with known(Named), pytest.raises(ValueError, match="`dumps`: in `obj` .*quick to"):
        serialization.dumps({Named("a", key)})


@dataclasses.dataclass(frozen=True)
class Named:
    """Compared by its name, whatever it holds."""

    name: str = "default"
    peers: object = None

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other.name


@dataclasses.dataclass(eq=False)
class Vertex:
    edges: set


def known(*classes):
    return keras.saving.custom_object_scope({cls.__name__: cls for cls in classes})


@pytest.mark.parametrize("kind", [set, dict])
def test_keys_that_contain_themselves_are_not_written(kind):
    # They were put into the wrong place when read, or could not be read at all.
    first = Named("a", kind())
    second = Named("b", {first} if kind is set else {first: 1})
    first.peers.update({second} if kind is set else {second: 2})
    with known(Named):
        with pytest.raises(ValueError, match="`dumps`: in `obj` keys.*themselves"):
            serialization.dumps(first)
        assert copied({Named("a", [1]): 2}) == {Named("a"): 2}


def test_what_is_hashed_by_identity_may_contain_itself():
    first, second = Vertex(set()), Vertex(set())
    first.edges.update({first, second, (second, 1)})
    second.edges.add((first, second))
    with known(Vertex):
        copy = copied(first)
    assert copy in copy.edges and len(copy.edges) == 3
    (other,) = (x for x in copy.edges if type(x) is Vertex and x is not copy)
    assert (other, 1) in copy.edges and (copy, other) in other.edges


@pytest.mark.parametrize(
    "value",
    [
        {tuple(range(100_000)): 1},
        {SAME * i for i in range(1, 500)},
        {-1, -2, 2**61 - 2},
        {(i, (i, i)): i for i in range(5000)},
        dict.fromkeys(range(20_000)),
        {frozenset({frozenset({1}), 2}): tf.TensorShape([1])},
    ],
    ids=["long", "same", "minus", "many", "plain", "sets"],
)
def test_ordinary_keys_come_back(value):
    assert copied(value) == value


def test_the_work_of_keys_is_counted_by_their_size():
    bounded = specs.BoundedTensorSpec([100, 100], tf.float32, 0, 1)
    values = [2**6400, tf.TensorShape([1] * 100), tf.TensorSpec([1] * 50), bounded, 1.5]
    assert [_object_costs._own_work(value) for value in values] == [
        100,
        100,
        50,
        10_000,
        0,
    ]
    costs = _object_costs.Costs()
    costs.begin("spec", "bounded_spec", bounded)
    costs.finish("spec", "bounded_spec", bounded, [], 0)
    with pytest.raises(ValueError, match="quick to hash"):
        for _ in range(10_000):
            costs.check_keys("set", ["spec"], [bounded])
