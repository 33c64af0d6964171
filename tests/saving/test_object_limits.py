"""Tests of what loading refuses as too deep, or too much to hash."""

import dataclasses
import json
import struct
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tfrl.saving import _lz4_frame, _object_graph, serialization

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
    "many": objects(
        [*doubled("tuple", 24), *[["set", None, [[24]]] for _ in range(8)]]
    ),
    "deep": keyed("set", in_each_other(3, 990)),
    "often": objects(
        [
            ["tuple", None, [0] * 10**5],
            *[["set", None, [[0]]] for _ in range(1000)],
        ]
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_keys_that_take_too_long_are_refused(case):
    with pytest.raises(ValueError, match="items of sets expected|at most 1000 tuples"):
        serialization.loads(HOSTILE[case])


@pytest.mark.slow
def test_hashes_end_no_process(tmp_path):
    files = {**HOSTILE, "deepest": keyed("set", in_each_other(150, 990))}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    program = """
import faulthandler, pathlib, sys
from tfrl.saving import serialization
faulthandler.dump_traceback_later(60, exit=True)
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        serialization.load(path)
    except ValueError as error:
        if "of sets expected" in str(error) or "1000 tuples" in str(error):
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
    known = keras.saving.custom_object_scope({"Named": Named})
    with known, pytest.raises(ValueError, match="`dumps`: in `obj` .*quick to hash"):
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
