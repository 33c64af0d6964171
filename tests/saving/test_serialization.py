"""Tests of `tfrl.saving.serialization`."""

import collections
import json
import os
import pathlib
import pickle
import struct
import threading

import cloudpickle
import golden_io
import keras
import lz4.frame
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl.saving import serialization


def copied(value):
    return serialization.loads(serialization.dumps(value))


def written(value):
    return lz4.frame.decompress(serialization.dumps(value))


def objects(root, nodes, rest=b""):
    text = json.dumps([root, nodes]).encode()
    head = b"tfrl objects 1\n" + struct.pack("<Q", len(text))
    return lz4.frame.compress(head + text + rest)


GOLDEN = [
    case
    for case in golden_io.load("coax/misc")
    if case["symbol"] in ("coax.utils.dumps", "coax.utils.loads")
]


@pytest.mark.parametrize("case", GOLDEN, ids=golden_io.ids(GOLDEN))
def test_golden(case):
    if case["symbol"].endswith("dumps"):
        data = serialization.dumps(case["inputs"]["obj"])
        assert data[:4] == case["outputs"]["magic"]
        assert serialization.loads(data) == case["outputs"]["roundtrip"]
    else:
        assert isinstance(case["outputs"]["result"], golden_io.Raised)
        with pytest.raises(ValueError, match="it begins with b'abc'"):
            serialization.loads(*case["inputs"]["args"])


def test_golden_is_complete():
    assert len(GOLDEN) == 2


@pytest.mark.parametrize("trusted", [False, True])
def test_references_are_kept_within_one_object(trusted, tmp_path):
    a = [13]
    b = {"a": a}
    if trusted:
        b["function"] = lambda x: x
    serialization.dump((a, b), tmp_path / "ab.pkl.lz4", trusted=trusted)
    a_new, b_new = serialization.load(tmp_path / "ab.pkl.lz4", trusted=trusted)
    b_new["a"].append(7)
    assert a_new == b_new["a"] == [13, 7]
    serialization.dump(a, tmp_path / "a.pkl.lz4")
    assert serialization.load(tmp_path / "a.pkl.lz4") == [13]


def test_what_is_safe_is_written_safe_even_if_trusted():
    data = serialization.dumps([1, np.ones(2)], trusted=True)
    assert data == serialization.dumps([1, np.ones(2)])
    assert serialization.loads(data, trusted=True)[1].tolist() == [1, 1]


def test_the_rest_needs_trust_on_both_sides():
    with pytest.raises(TypeError, match=r"`obj\['f'\]` is of function.*trusted=True"):
        serialization.dumps({"f": lambda x: x + 1})
    data = serialization.dumps({"f": lambda x: x + 1}, trusted=True)
    with pytest.raises(ValueError, match="got bytes, which is a pickle.*trusted=True"):
        serialization.loads(data)
    assert serialization.loads(data, trusted=True)["f"](1) == 2


def test_frames_of_pickles_by_others_need_trust(tmp_path):
    path = tmp_path / "old.pkl.lz4"
    path.write_bytes(lz4.frame.compress(cloudpickle.dumps({"a": [1, 2]})))
    with pytest.raises(ValueError, match="old.pkl.lz4', which is a pickle"):
        serialization.load(path)
    assert serialization.load(path, trusted=True) == {"a": [1, 2]}


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_a_trusted_model_comes_back_with_its_weights():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    copy = serialization.loads(serialization.dumps(model, trusted=True), trusted=True)
    np.testing.assert_array_equal(copy.get_weights()[0], model.get_weights()[0])


def test_what_cannot_be_pickled_is_said():
    with pytest.raises(TypeError, match="`dumps`: `obj` expected something that can"):
        serialization.dumps([threading.Lock()], trusted=True)


def test_trusted_pickles_that_fail_name_the_file(tmp_path):
    path = tmp_path / "broken"
    path.write_bytes(lz4.frame.compress(b"\x80\x05cno_such_module\nname\n."))
    with pytest.raises(ValueError, match="broken', in which.*No module named 'no_su"):
        serialization.load(path, trusted=True)


def test_files_are_written_into_new_folders(tmp_path):
    path = tmp_path / "new" / "folder" / "a.lz4"
    serialization.dump({"x": tf.constant([1, 2])}, str(path))
    assert serialization.load(str(path))["x"].numpy().tolist() == [1, 2]
    assert [entry.name for entry in path.parent.iterdir()] == ["a.lz4"]


@pytest.mark.parametrize("step", ["write_bytes", "rename"])
def test_a_failed_dump_leaves_the_old_content(step, tmp_path, monkeypatch):
    path = tmp_path / "a.lz4"
    serialization.dump("old", path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    target = pathlib.Path if step == "write_bytes" else os
    monkeypatch.setattr(target, step, fail)
    with pytest.raises(OSError, match="`dump`: `filepath`.*No space left.*a.lz4"):
        serialization.dump("new", path)
    monkeypatch.undo()
    assert serialization.load(path) == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.lz4"]


def test_an_object_of_another_kind_leaves_the_old_content(tmp_path):
    serialization.dump("old", tmp_path / "a.lz4")
    with pytest.raises(TypeError, match="`dump`: `obj` expected data and registered"):
        serialization.dump([print, object()], tmp_path / "a.lz4")
    assert serialization.load(tmp_path / "a.lz4") == "old"


def test_objects_of_a_shape_that_cannot_be_read_are_not_written(tmp_path):
    value = ()
    for _ in range(2000):
        value = (value,)
    with pytest.raises(ValueError, match="`dump`: in `obj` at most 1000 tuples"):
        serialization.dump(value, tmp_path / "a.lz4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["folder", "pipe"])
def test_what_is_no_file_is_refused(name, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ValueError, match=rf"`load`: `filepath`.*{name}', which is none"
    ):
        serialization.load(tmp_path / name)


def test_a_missing_file_and_an_unwritable_path_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing.lz4"):
        serialization.load(tmp_path / "missing.lz4")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="`dump`: `filepath` expected.*file/a.lz4"):
        serialization.dump(1, tmp_path / "file" / "a.lz4")


def test_memory_is_limited_by_default_and_on_demand():
    data = serialization.dumps(np.zeros(10**6))
    assert serialization.loads(data, max_bytes=10**7).sum() == 0
    with pytest.raises(ValueError, match="800.* bytes of memory.*`max_bytes` 1000000"):
        serialization.loads(data, max_bytes=10**6)
    with pytest.raises(ValueError, match="more than `max_bytes` 1000000"):
        serialization.loads(
            serialization.dumps([b"", pickle, "a" * 10**7][::2]), max_bytes=10**6
        )
    trusted = serialization.dumps([print, bytes(10**6)], trusted=True)
    with pytest.raises(ValueError, match="more than `max_bytes` 100000"):
        serialization.loads(trusted, trusted=True, max_bytes=10**5)


DATA, NO_BOOLS = serialization.dumps(1), ("no", "False", 1, None)
NO_FILES = ["", ".", "/", "a\0b", "gs://bucket/a"]


@refusals.table(
    (
        serialization.loads,
        *[bad(TypeError, "s", wrong) for wrong in ("text", None, 3)],
        *[bad(TypeError, "trusted", DATA, trusted=wrong) for wrong in NO_BOOLS],
        bad(TypeError, "max_bytes", DATA, max_bytes=1.5),
        bad(ValueError, "max_bytes", DATA, max_bytes=-1),
    ),
    (
        serialization.dumps,
        *[bad(TypeError, "trusted", print, trusted=wrong) for wrong in NO_BOOLS],
    ),
    (
        serialization.dump,
        *[bad(TypeError, "filepath", [1], wrong) for wrong in (3, None, b"a")],
        *[bad(ValueError, "filepath", [1], wrong) for wrong in NO_FILES],
    ),
    (
        serialization.load,
        *[bad(TypeError, "filepath", wrong) for wrong in (3, None, b"a")],
        *[bad(ValueError, "filepath", wrong) for wrong in NO_FILES],
    ),
)
def test_refusals(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row()
    assert not list(tmp_path.iterdir())


def test_any_memory_of_bytes_is_read():
    apart = bytes(x for byte in serialization.dumps([1]) for x in (byte, 0))
    assert serialization.loads(memoryview(apart)[::2]) == [1]
    assert serialization.loads(bytearray(DATA)) == 1


@keras.saving.register_keras_serializable(package="serialization_tests")
class Failing:
    def get_config(self):
        raise RuntimeError("no configuration today")

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Untellable:
    def __repr__(self):
        raise RuntimeError("no words")


def test_what_an_object_raises_is_told_with_its_place():
    with pytest.raises(TypeError, match=r"`obj\['a'\]`: no configuration today"):
        serialization.dumps({"a": Failing()})
    data = serialization.dumps({"a": Failing()}, trusted=True)
    assert type(serialization.loads(data, trusted=True)["a"]) is Failing
    key = ()
    for _ in range(900):
        key = (key,)
    with pytest.raises(TypeError, match=r"`obj\[\(+\.\.\..* is of builtin"):
        serialization.dumps({key: print})
    with pytest.raises(TypeError, match=r"`obj\[\(<Untellable.* is of Untellable"):
        serialization.dumps({(Untellable(),): 1})


def test_more_or_less_bytes_are_refused():
    assert serialization.loads(objects([0], [["bytes", 2, []]], b"ab")) == b"ab"
    with pytest.raises(ValueError, match="goes on after its end"):
        serialization.loads(objects([0], [["bytes", 2, []]], b"abc"))
    with pytest.raises(ValueError, match="content ends early"):
        serialization.loads(objects([0], [["bytes", 2, []]], b"a"))


def test_frames_have_checksums_of_blocks_and_of_the_whole():
    array = np.arange(700_000.0)
    data = serialization.dumps([array, b"end"])
    info = lz4.frame.get_frame_info(data)
    assert info["content_checksum"] and info["block_checksum"]
    first, end = serialization.loads(data)
    np.testing.assert_array_equal(first, array)
    assert end == b"end"
    for more in (b"a", serialization.dumps(1), bytes(2**21)):
        with pytest.raises(ValueError, match="goes on after its end|LZ4F|ended before"):
            serialization.loads(data + more)


def test_the_bytes_are_as_documented():
    shared = [1, "a"]
    text = b'[[3],[["list",null,[1,"a"]],["bytes",2,[]],["tuple",null,[[0],[0],[1]]]'
    text += b',["dict",null,["k",[2]]]]]'
    expected = b"tfrl objects 1\n" + len(text).to_bytes(8, "little") + text + b"xy"
    assert written({"k": (shared, shared, b"xy")}) == expected


def test_shared_objects_stay_shared():
    inner, key = [1], (1, 2)
    first, second, mapping = copied((inner, {"a": inner}, {key: key}))
    assert second["a"] is first
    ((copied_key, copied_value),) = mapping.items()
    assert copied_key is copied_value
    one, two = copied([[1], [1]])
    assert one is not two


def loops():
    itself, mapping, queue, inner = [1], {}, collections.deque(maxlen=3), []
    itself.append(itself)
    mapping["self"] = [1, queue]
    queue.append(mapping)
    outer = (inner, 5)
    inner.append(outer)
    linked = Linked([])
    linked.link.append(linked)
    return [
        (itself, r"`obj` is of list and is inside of itself"),
        ([0, mapping], r"`obj\[1\]\['self'\]\[1\]` is of deque and is inside of"),
        (outer, r"`obj\[0\]` is of list and is inside of itself"),
        (linked, r"`obj.config\['link'\]` is of list and is inside"),
    ]


@pytest.mark.parametrize("case", range(4))
def test_what_contains_itself_is_refused_with_its_place(case):
    value, message = loops()[case]
    with pytest.raises(TypeError, match=message):
        written(value)


@pytest.mark.parametrize(
    "nodes",
    [
        [["list", None, [1, [0]]]],
        [["tuple", None, [[1], 5]], ["list", None, [[0]]]],
        [["dict", None, ["self", [1]]], ["deque", 3, [[0]]]],
    ],
)
def test_what_earlier_versions_wrote_of_loops_is_refused(nodes):
    with pytest.raises(ValueError, match="one that contains itself cannot be read"):
        serialization.loads(objects([0], nodes))


def test_depth_costs_nothing():
    value = []
    for _ in range(20_000):
        value = [value]
    copy, depth = copied(value), 0
    while copy:
        copy, depth = copy[0], depth + 1
    assert depth == 20_000


@pytest.mark.parametrize("wrap", [lambda x: (x,), slice], ids=["tuple", "slice"])
def test_what_cannot_change_is_at_most_1000_deep(wrap):
    value = 1
    for _ in range(1000):
        value = wrap(value)
    copy, depth = copied([value])[0], 0
    while copy != 1:
        copy, depth = copy[0] if isinstance(copy, tuple) else copy.stop, depth + 1
    assert depth == 1000
    with pytest.raises(ValueError, match="at most 1000 tuples expected in each"):
        written(wrap(value))


def test_no_depth_ends_the_process():
    nodes = [["tuple", None, []], *[["tuple", None, [[i]]] for i in range(10**5)]]
    nodes.append(["set", None, [[len(nodes) - 1]]])
    with pytest.raises(ValueError, match="at most 1000 tuples expected"):
        serialization.loads(objects([len(nodes) - 1], nodes))


@keras.saving.register_keras_serializable(package="graph_tests")
class Linked:
    """Has a configuration."""

    def __init__(self, link):
        self.link = link

    def get_config(self):
        return {"link": self.link}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_configurations_share_and_nest():
    shared = [1]
    first, second = copied([Linked(Linked(shared)), shared])
    assert first.link.link is second


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {2j: object()}]}, r"`obj\['a'\]\[1\]\[2j\]` is of object"),
        ({(1, print): 2}, r"`obj\[\(1, <built-in.*\]\[1\]` is of builtin"),
        (Linked({"x": print}), r"`obj\.config\['link'\]\['x'\]` is of"),
        ({frozenset([print])}, r"`obj\.set\.frozenset` is of"),
    ],
    ids=["nested", "key", "config", "set"],
)
def test_errors_name_the_place(value, place):
    with pytest.raises(TypeError, match=place):
        written(value)


def test_deep_places_are_shortened():
    value = print
    for _ in range(1000):
        value = [value]
    with pytest.raises(TypeError, match=r"`obj\.\.\.(\[0\]){12}` is of builtin"):
        written(value)
