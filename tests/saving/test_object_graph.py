"""Tests of `tfrl.saving._object_graph`."""

import collections
import io
import json

import keras
import pytest

from tfrl.saving import _lz4_frame, _object_graph


def read(data):
    source = _lz4_frame.Unpacked(io.BytesIO(_lz4_frame.packed([data])), 10**8)
    assert source.read(len(_object_graph.MAGIC)).tobytes() == _object_graph.MAGIC
    return _object_graph.decode(source)


def written(value):
    return b"".join(bytes(part) for part in _object_graph.encode(value))


def copied(value):
    return read(written(value))


def decoded(root, nodes, rest=b""):
    text = json.dumps([root, nodes]).encode()
    return read(_object_graph.MAGIC + len(text).to_bytes(8, "little") + text + rest)


def test_the_bytes_are_as_documented():
    shared = [1, "a"]
    text = b'[[3],[["list",null,[1,"a"]],["bytes",2,[]],["tuple",null,[[0],[0],[1]]]'
    text += b',["dict",null,["k",[2]]]]]'
    expected = b"tfrl objects 1\n" + len(text).to_bytes(8, "little") + text + b"xy"
    assert written({"k": (shared, shared, b"xy")}) == expected


@pytest.mark.parametrize("value", [None, True, -3, 0.1, "text"])
def test_a_leaf_needs_no_node(value):
    assert copied(value) is value or copied(value) == value
    assert decoded(value, []) == value


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
        decoded([0], nodes)


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
    with pytest.raises(ValueError, match="at most 1000 tuples expected"):
        decoded([len(nodes)], [*nodes, ["set", None, [[len(nodes) - 1]]]])


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


@pytest.mark.parametrize(
    ("root", "nodes", "error"),
    [
        ([0], [], "which is no object before"),
        ([-1], [["list", None, []]], "refers to -1"),
        ([True], [["list", None, []]] * 2, "refers to True"),
        ([0, 0], [["list", None, []]], "too many values"),
        ([[0]], [["list", None, []]], "refers to"),
        ([0], [["list", None, "abc"]], "holds 'abc'"),
        ([0], [["eval", "1", []]], "unknown kind 'eval'"),
        ([0], [["tuple", None, [[0]]]], "which is no object before"),
        ([0], [["tuple", None, [[1]]], ["int", "0x1", []]], "no object before"),
        ([0], [["list", None]], "not enough values"),
        ([0], [["dict", None, [1]]], "zip"),
        ([1], [["list", None, []], ["dict", None, [[0], 2]]], "unhashable"),
        (1, 5, "must be an iterable|not iterable"),
        ({"a": 1}, [], r"its text holds \[\('a', 1\)\]"),
        (float("nan"), [], "its text holds 'NaN'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_texts_are_refused(root, nodes, error):
    with pytest.raises(Exception, match=error):
        decoded(root, nodes)


def test_more_or_less_bytes_are_refused():
    assert decoded([0], [["bytes", 2, []]], b"ab") == b"ab"
    with pytest.raises(ValueError, match="goes on after its end"):
        decoded([0], [["bytes", 2, []]], b"abc")
    with pytest.raises(ValueError, match="content ends early"):
        decoded([0], [["bytes", 2, []]], b"a")
    with pytest.raises(ValueError, match="content ends early"):
        read(_object_graph.MAGIC + (9).to_bytes(8, "little") + b"[1,[]]")
