"""Files that want to do harm, or that were harmed, given to `tfrl.saving.load`."""

import dataclasses
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import cloudpickle
import keras
import lz4.frame
import numpy as np
import pytest
import tensorflow as tf

from tfrl.saving import serialization

MAGIC = b"tfrl objects 1\n"
# Multiples of it have the same hash.
SAME = sys.hash_info.modulus
NAMES = ["a.lz4", "a.pkl.lz4", "a.pkl", "a.npy", "a.json"]


class Harm:
    """Would be seen if anybody unpickled it."""

    def __reduce__(self):
        return exec, ("import sys; sys.harm_was_done = True",)


@keras.saving.register_keras_serializable(package="hostile_tests")
class Watched:
    made = 0

    def __init__(self, value):
        self.value = value

    def get_config(self):
        return {"value": self.value}

    @classmethod
    def from_config(cls, config):
        Watched.made += 1
        return cls(**config)


def frame(content):
    return lz4.frame.compress(content)


def objects(root, nodes, rest=b""):
    text = json.dumps([root, nodes]).encode()
    return frame(MAGIC + struct.pack("<Q", len(text)) + text + rest)


def text(data):
    return frame(MAGIC + struct.pack("<Q", len(data)) + data)


def saved(save, *args, **kwargs):
    file = io.BytesIO()
    save(file, *args, **kwargs)
    return file.getvalue()


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../a", content)
    return file.getvalue()


def bomb(kind, size):
    """Declares `size` zeros, and brings them along."""
    head = MAGIC
    body = json.dumps([[0], [[kind, size if kind == "bytes" else ["|u1", [size]], []]]])
    parts = [head, struct.pack("<Q", len(body)), body.encode()]
    return lz4.frame.compress(b"".join(parts) + bytes(size))


HOSTILE = {
    **{f"pickle_{p}": pickle.dumps(Harm(), p) for p in range(6)},
    **{f"packed_pickle_{p}": frame(pickle.dumps(Harm(), p)) for p in range(6)},
    "packed_by_others": lz4.frame.compress(cloudpickle.dumps(Harm())),
    "pickle_behind_magic": frame(MAGIC + pickle.dumps(Harm())),
    "pickle_as_length": frame(MAGIC + pickle.dumps(Harm(), 0)[:8]),
    "npy_objects": saved(np.save, np.array([Harm()]), allow_pickle=True),
    "packed_npy_objects": frame(saved(np.save, np.array([Harm()]), allow_pickle=True)),
    "npz_objects": saved(np.savez, a=np.array([Harm()])),
    "zip": zipped(b"x"),
    "empty": b"",
    "text": b"hello",
    "magic_alone": b"\x04\x22\x4d\x18",
    "empty_frame": frame(b""),
    "legacy_frame": b"\x02\x21\x4c\x18" + bytes(20),
    "skippable_frame": b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"abcd",
    "other_content": frame(b"something else entirely"),
    "other_version": frame(b"tfrl objects 2\n" + bytes(20)),
    "no_length": frame(MAGIC),
    "huge_length": frame(MAGIC + b"\xff" * 8),
    "long_length": frame(MAGIC + struct.pack("<Q", 2**24) + b"[]"),
    "no_json": text(b"\x80\x05abc"),
    "no_utf8": text(b'["\xff\xfe", []]'),
    "deep_json": text(b"[" * 10**6),
    "deep_object": text(b'{"a":' * 10**5),
    "json_object": text(b'[{"__reduce__": "os.system"}, []]'),
    "json_nan": text(b"[NaN, []]"),
    "json_digits": text(b"[" + b"9" * 10**5 + b", []]"),
    "json_scalar": text(b"7"),
    "nodes_no_list": text(b"[[0], 3]"),
    "nodes_of_text": text(b'[[0], "abc"]'),
    "node_of_four": objects([0], [["list", None, [], 1]]),
    "kind_no_text": objects([0], [[["list"], None, []]]),
    "kind_unknown": objects([0], [["reduce", "os.system", ["true"]]]),
    "items_text": objects([0], [["list", None, "os"]]),
    "forward": objects([0], [["tuple", None, [[1]]], ["tuple", None, [[0]]]]),
    "itself": objects([0], [["tuple", None, [[0]]]]),
    "far": objects([10**9], [["list", None, []]]),
    "negative": objects([-1], [["list", None, []]]),
    "float_number": objects([0.0], [["list", None, []]]),
    "long_int": objects([0], [["int", "0x" + "z" * 10, []]]),
    "bad_float": objects([0], [["float", "__import__('os')", []]]),
    "array_of_objects": objects([0], [["array", ["|O", [1]], []]], bytes(8)),
    "array_of_hidden_objects": objects([0], [["array", [[["a", "|O"]], [1]], []]]),
    "array_of_text_objects": objects([0], [["array", ["f4,O", [1]], []]], bytes(12)),
    "array_of_strings": objects([0], [["array", ["string", [1]], []]], bytes(8)),
    "array_of_resources": objects([0], [["tensor", ["resource", [1]], []]], bytes(8)),
    "array_of_variants": objects([0], [["tensor", ["variant", [1]], []]], bytes(8)),
    "array_of_code": objects([0], [["array", ["__import__('os')", [1]], []]]),
    "array_negative": objects([0], [["array", ["<f4", [-1, -1]], []]], bytes(4)),
    "array_huge": objects([0], [["array", ["<f4", [2**62]], []]], bytes(4)),
    "array_overflow": objects([0], [["array", ["<f4", [2**32, 2**32]], []]]),
    "array_of_nothing": objects([0], [["array", ["<f4", [0, 2**63]], []]]),
    "array_wide": objects([0], [["array", ["|V2147483647", [9]], []]]),
    "array_of_no_width": objects([0], [["array", ["|V0", [2**60]], []]]),
    "array_many_axes": objects([0], [["array", ["|u1", [1] * 100], []]], b"a"),
    "array_no_ints": objects([0], [["array", ["|u1", [1.0]], []]], b"a"),
    "array_deep_dtype": text(b'[[0],[["array",[' + b"[" * 900 + b"]" * 900),
    "array_short": objects([0], [["array", ["<f4", [2]], []]], bytes(7)),
    "array_long": objects([0], [["array", ["<f4", [2]], []]], bytes(9)),
    "bools": objects([0], [["array", ["|b1", [2]], []]], b"\x01\x02"),
    "bools_in_fields": objects([0], [["array", [[["a", "?"]], [1]], []]], b"\2"),
    "characters_in_fields": objects(
        [0], [["array", [[["a", [["b", "<U1"]]]], [2]], []]], b"\xff" * 8
    ),
    "bounds_doubled": objects(
        [41],
        [
            ["list", None, [1, 1]],
            *[["list", None, [[i], [i]]] for i in range(40)],
            ["bounded_spec", [[2], "float32", None], [[40], [40]]],
        ],
    ),
    "characters": objects([0], [["array", ["<U1", [1]], []]], b"\xff" * 4),
    "bytes_negative": objects([0], [["bytes", -1, []]]),
    "bytes_huge": objects([0], [["bytes", 2**62, []]]),
    "tensor_wrong": objects([0], [["tensor", ["os.system", []], []]]),
    "tensor_of_text": objects([0], [["text_tensor", [10**12], ["a"]]]),
    "tensor_of_ints": objects([0], [["text_tensor", [1], [1]]]),
    "shape": objects([0], [["shape", ["x"], []]]),
    "spec": objects([0], [["spec", [[1], "float99", None], []]]),
    "bounded_huge": objects(
        [0], [["bounded_spec", [[10**12], "float32", None], [0, 1]]]
    ),
    "bounded_negative": objects(
        [0],
        [
            ["bounded_spec", [[-(10**12)], "float32", None], [0, 1]],
            ["bytes", 10**12, []],
        ],
    ),
    "range": objects([0], [["range", None, ["a"]]]),
    "set_of_lists": objects([0], [["set", None, [[1]]], ["list", None, []]]),
    "dict_odd": objects([0], [["dict", None, [1, 2, 3]]]),
    "deque_negative": objects([0], [["deque", -1, []]]),
    "named_module": objects([0], [["named", "os", []]]),
    "named_function": objects([0], [["named", "os.system", []]]),
    "named_own": objects([0], [["named", "tfrl.saving.load", []]]),
    "named_private": objects([0], [["named", "tfrl.core.arrays.sys", []]]),
    "named_op": objects([0], [["named", "tfrl.ops.square", []]]),
    "named_keras": objects([0], [["named", "keras.layers.Lambda", []]]),
    "named_nothing": objects([0], [["named", "", []]]),
    "config_of_record": objects(
        [1], [["dict", None, []], ["config", "tfrl.core.TimeStep", [[0]]]]
    ),
    "config_of_module": objects([0], [["config", "subprocess.Popen", ["true"]]]),
    "config_of_lambda": objects([0], [["config", "Lambda", [[1]]], ["dict", None, []]]),
    "config_nested": objects(
        [2],
        [
            ["dict", None, ["class_name", "Lambda", "module", "os"]],
            ["dict", None, ["value", [0]]],
            ["config", "hostile_tests>Watched", [[1]]],
        ],
    ),
    "config_completed_later": objects(
        [0],
        [
            ["config", "hostile_tests>Watched", [[1]]],
            ["dict", None, ["value", [2]]],
            ["dict", None, ["class_name", "Lambda", "module", "os"]],
        ],
    ),
    "config_no_dict": objects([0], [["config", "hostile_tests>Watched", [1]]]),
    "enum_of_class": objects(
        [0], [["enum", ["hostile_tests>Watched", "__init__"], []]]
    ),
    "enum_method": objects([0], [["enum", ["tfrl.core.StepType", "__class__"], []]]),
    "record_of_class": objects(
        [0], [["record", ["hostile_tests>Watched", ["value"]], [1]]]
    ),
    "record_fields": objects(
        [0], [["record", ["tfrl.core.ShapeDtype", ["shape", "__class__"]], [1, 2]]]
    ),
    "record_values": objects(
        [0], [["record", ["tfrl.core.ShapeDtype", ["shape", "dtype"]], [1]]]
    ),
    "record_tuple": objects(
        [0], [["record", ["tfrl.core.LossInfo", ["loss", "extra"]], [1, 2]]]
    ),
    "tuple_record": objects(
        [0], [["named_tuple", ["tfrl.core.ShapeDtype", ["shape", "dtype"]], [1, 2]]]
    ),
}


@pytest.fixture
def watch(monkeypatch):
    """Returns whether anything of a file ran."""
    monkeypatch.setattr(sys, "harm_was_done", False, raising=False)
    monkeypatch.setattr(Watched, "made", 0)
    return lambda: sys.harm_was_done or Watched.made > 0


def test_they_are_many():
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_and_run_nothing(case, tmp_path, watch):
    for name in NAMES if "pickle" in case else NAMES[:1]:
        path = tmp_path / name
        path.write_bytes(HOSTILE[case])
        with pytest.raises(ValueError, match=rf"`load`: `filepath`.*{name}', .+; "):
            serialization.load(path)
    with pytest.raises(ValueError, match="`loads`: `s` expected what `dumps` wrote"):
        serialization.loads(HOSTILE[case])
    assert not watch()


def test_the_harm_would_be_seen(watch):
    pickle.loads(HOSTILE["pickle_5"])
    assert watch()
    sys.harm_was_done = False
    serialization.loads(serialization.dumps(Watched(1)))
    assert watch()


def peak_of(data):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="`loads`: `s` expected"):
            serialization.loads(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", [case for case in HOSTILE if "huge" in case])
def test_declared_sizes_take_no_memory(case):
    assert peak_of(HOSTILE[case]) < 2**24


@pytest.mark.parametrize("kind", ["bytes", "array"])
def test_bombs_take_no_memory(kind):
    data = bomb(kind, 2**28)
    with pytest.raises(ValueError, match="more than `max_bytes` 10000000"):
        serialization.loads(data, max_bytes=10**7)
    tracemalloc.start()
    with pytest.raises(ValueError):
        serialization.loads(data, max_bytes=10**7)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_bombs_of_text_take_no_memory():
    # 34 MB of lists would be 700 MB of Python objects.
    body = b"[[0],[" + b"[]," * (34 * 2**20 // 3) + b"[]]]"
    assert peak_of(text(body)) < 2**24


@pytest.mark.slow
def test_bombs_of_sets_take_little_memory():
    one = b'["set",null,[1,2,3,4,5]],'
    body = b"[[0],[" + one * (31 * 2**20 // len(one)) + one[:-1] + b"]]"
    tracemalloc.start()
    try:
        serialization.loads(text(body))
    except ValueError as error:
        assert "`max_bytes`" in str(error)
    assert tracemalloc.get_traced_memory()[1] < 2**30
    tracemalloc.stop()


SAMPLE = {
    "weights": [np.arange(6.0).reshape(2, 3), np.float32(1.5)],
    "noise": os.urandom(200),
    "steps": {(1, "a"): {2, 3}, None: 2**70},
}


def test_every_flipped_bit_is_refused():
    data = serialization.dumps(SAMPLE)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="`loads`: `s` expected"):
            serialization.loads(bytes(damaged))


def test_every_truncation_is_refused():
    data = serialization.dumps(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="`loads`: `s` expected"):
            serialization.loads(data[:length])


def test_damage_behind_the_checksums_does_not_escape():
    content = bytearray(lz4.frame.decompress(serialization.dumps(SAMPLE)))
    random = np.random.default_rng(0)
    for _ in range(600):
        damaged = bytearray(content)
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        try:
            serialization.loads(frame(bytes(damaged)))
        except ValueError as error:
            assert "`loads`: `s` expected" in str(error)


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


def last(nodes):
    return objects([len(nodes) - 1], nodes)


def keyed(kind, nodes, further=()):
    return last([*nodes, [kind, None, [[len(nodes) - 1], *further]]])


SLOW_TO_HASH = {
    "set": keyed("set", doubled("tuple", 60)),
    "frozenset": keyed("frozenset", doubled("tuple", 60)),
    "dict": keyed("dict", doubled("tuple", 60), [1]),
    "ordered_dict": keyed("ordered_dict", doubled("tuple", 60), [1]),
    "frozensets": keyed("set", doubled("frozenset", 60)),
    "many": last([*doubled("tuple", 24), *[["set", None, [[24]]] for _ in range(8)]]),
    "deep": keyed("set", in_each_other(3, 990)),
    "often": last(
        [
            ["tuple", None, [0] * 10**5],
            *[["set", None, [[0]]] for _ in range(1000)],
        ]
    ),
}


@pytest.mark.parametrize("case", SLOW_TO_HASH)
def test_keys_that_take_too_long_are_refused(case):
    with pytest.raises(ValueError, match="items of sets expected|at most 1000 tuples"):
        serialization.loads(SLOW_TO_HASH[case])


@pytest.mark.slow
def test_hashes_end_no_process(tmp_path):
    files = {**SLOW_TO_HASH, "deepest": keyed("set", in_each_other(150, 990))}
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
    assert len(serialization.loads(serialization.dumps([key]))[0]) == 2
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
    assert serialization.loads(serialization.dumps(value)) == value
