"""Rows in memory: recorded calls, indices, nests and dtypes."""

import collections
from types import SimpleNamespace
from typing import NamedTuple

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree, shapes
from tfrl.replay.memory.numpy_storage import NumpyStorage

CASES = {case["id"]: case for case in golden_io.load("numpy_storage/numpy_storage")}


def array_spec(shape, dtype):
    return SimpleNamespace(shape=shape, dtype=np.dtype(dtype))


def recorded_spec(spec):
    if isinstance(spec, dict):
        return {key: recorded_spec(part) for key, part in spec.items()}
    return array_spec(*spec)


PAIR = {"a": array_spec((2,), np.float32), "b": array_spec((), np.int32)}


def pair(a, b):
    return {"a": np.asarray(a), "b": np.asarray(b)}


@pytest.mark.parametrize("name", ["script_single", "script_dict", "script_str"])
def test_recorded_script(name):
    case = CASES[name]
    storage = NumpyStorage(recorded_spec(case["inputs"]["spec"]), **case["kwargs"])
    for step in case["outputs"]["script"]:
        method = getattr(storage, step["op"])
        if isinstance(step["result"], golden_io.Raised):
            with pytest.raises(IndexError):
                method(*step["args"])
        elif step["result"] is None:
            assert method(*step["args"]) is None
        else:
            got = tf.nest.flatten(method(*step["args"]))
            for leaf, expected in zip(got, step["result"]["flat"], strict=True):
                np.testing.assert_array_equal(leaf, expected, strict=True)
    for idx, key in ((slice(0, 2), "slice_get_is_view"), (0, "int_get_is_view")):
        memory = tf.nest.flatten(storage.get(slice(None)))[0]
        leaf = tf.nest.flatten(storage.get(idx))[0]
        assert np.shares_memory(leaf, memory) == case["outputs"][key]


def test_recorded_set():
    recorded = CASES["set_semantics"]["outputs"]
    storage = NumpyStorage(PAIR, **CASES["set_semantics"]["kwargs"])

    def after(name, rows):
        # Rows as recorded; what was recorded of values that are refused is left out.
        got = tf.nest.flatten(storage.get(rows))
        for leaf, expected in zip(got, recorded[name], strict=True):
            np.testing.assert_array_equal(leaf, expected)

    storage.set(slice(None), pair([1, 2], 3))
    after("after_broadcast", slice(None))
    storage.set(0, {"a": tf.constant([9.0, 9.0]), "b": tf.constant(4)})
    after("after_tf", 0)
    # Recorded as taken, and against what the documentation says of a nest: refused.
    for value in (
        {"a": np.ones(2)},  # set_missing_leaf
        (np.ones(2), np.array(1)),  # set_other_structure_same_leaves
        pair([1.0, 1.0], 2.5),  # set_float_into_int
    ):
        with pytest.raises((TypeError, ValueError), match="`value` expected"):
            storage.set(0, value)
    assert isinstance(recorded["set_extra_leaf"], golden_io.Raised)
    with pytest.raises(ValueError, match="expected the structure"):
        storage.set(0, {**pair([1, 2], 3), "c": np.array(1)})
    assert isinstance(recorded["set_badshape"], golden_io.Raised)
    with pytest.raises(ValueError, match=r"expected shape \[2\] in leaf 0"):
        storage.set(0, pair([1, 2, 3], 3))
    assert isinstance(recorded["set_2d_array_scalar_overflow"], golden_io.Raised)
    with pytest.raises(ValueError, match="in the range of int32"):
        storage.set(0, pair([1, 2], 2**40))
    after("after_tf", 0)


def test_recorded_construction():
    recorded = CASES["ctor_errors"]["outputs"]
    two = array_spec((2,), np.float32)
    with pytest.raises(ValueError, match="nest of specs with `shape` and `dtype`"):
        NumpyStorage({"a": two, "b": 3}, 5)  # mixed
    with pytest.raises(ValueError, match="`capacity` expected an int .*; got 0"):
        NumpyStorage(two, 0)  # recorded as raised by the first get
    with pytest.raises(ValueError, match="`capacity` expected an int .*; got -1"):
        NumpyStorage(two, -1)
    with pytest.raises(TypeError, match="`capacity` expected an int .*; got 2.5"):
        NumpyStorage(two, 2.5)
    with pytest.raises(ValueError, match="expected known dimensions"):
        NumpyStorage(array_spec((None, 2), np.float32), 5)
    assert repr(NumpyStorage({}, 5).get(0)) == recorded["empty"]
    raised = {key for key, x in recorded.items() if isinstance(x, golden_io.Raised)}
    # Recorded as refused, taken here: TensorFlow's own specs.
    NumpyStorage(tf.TensorSpec([2]), 5)
    assert raised - {"tensorspec"} == {
        *("mixed", "capacity0", "capacity_neg", "capacity_float", "unknown_dim")
    }


def test_recorded_module():
    recorded = CASES["module"]["outputs"]
    storage = NumpyStorage(PAIR, recorded["private"]["_capacity"])
    storage.set(0, pair([1, 2], 3))
    assert len(storage.variables) == recorded["variables"]
    assert len(storage.trainable_variables) == recorded["trainable"]
    assert len(storage.submodules) == recorded["submodules"]
    # Recorded as an AttributeError; documented as the name.
    assert storage.name == "numpy_storage"
    assert NumpyStorage(PAIR, 4, "rows").name == "rows"
    assert NumpyStorage(PAIR, 4, "rows").name_scope.name == "rows/"


class Step(NamedTuple):
    observation: object
    reward: object


class Node(pytree.PyTreeNode):
    a: object


def leaf(dtype="int32", shape=()):
    return SimpleNamespace(shape=shape, dtype=dtype)


NESTS = {
    "int32[]": leaf(),
    "U3[2]": leaf(np.dtype("U3"), [2]),
    "float32[]": leaf(np.dtype(">f4")),
    "bfloat16[]": leaf("bfloat16"),
    "M8[ms][]": leaf("datetime64[ms]"),
    "()": (),
    "[int32[], (U3[2],)]": [leaf(), (leaf(np.dtype("U3"), [2]),)],
    "{'a': int8[], 'b': int32[]}": {"b": leaf(), "a": leaf("int8")},
    "{'a': int8[]}": collections.OrderedDict(a=leaf("int8")),
    "Step(observation=int32[], reward={})": Step(leaf(), {}),
    "Node(int32[])": Node(a=leaf()),
    "(Node(int32[]), {'b': int8[]},)": (Node(a=leaf()), {"b": leaf("int8")}),
    "({}, [], {'x': {'w': Step(observation=int32[], reward=[int8[]])}},)": (
        *({}, []),
        {"x": {"w": Step(leaf(), [leaf("int8")])}},
    ),
}


@pytest.mark.parametrize("text", NESTS)
def test_nests(text):
    storage = NumpyStorage(NESTS[text], 3)
    assert storage.layout.contents == f"3 rows of {text}"
    values = [np.ones([2, *x.shape[1:]]).astype(x.dtype) for x in storage.arrays]
    storage.set([0, 2], tf.nest.pack_sequence_as(NESTS[text], values))
    found = storage.get([2])
    tf.nest.assert_same_structure(found, NESTS[text], check_types=True)
    for got, value in zip(tf.nest.flatten(found), values, strict=True):
        np.testing.assert_array_equal(got, value[:1], strict=True)
    if isinstance(found, dict):
        assert list(found) == list(NESTS[text])


@pytest.mark.parametrize(
    "spec, value",
    [
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ((1, 2), Step(1, 2)),
        (Step(1, 2), (1, 2)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        (({"a": 1}, 2), ({"b": 1}, 2)),
        (([1], 2), (1, 2)),
        ((1, 2), ([3, 4], 5)),
    ],
    ids=str,
)
def test_other_nests_are_refused(spec, value):
    storage = NumpyStorage(tf.nest.map_structure(lambda _: leaf(), spec), 3)
    with pytest.raises(ValueError, match="`value` expected the structure .*; got"):
        storage.set(0, tf.nest.map_structure(np.int32, value))


def test_dicts_of_either_kind_and_order():
    storage = NumpyStorage(PAIR, 3)
    storage.set(1, collections.OrderedDict(b=np.array(3), a=np.ones(2)))
    assert list(storage.get(1)) == ["a", "b"]
    with pytest.raises(TypeError, match="expected arrays; got <KerasTensor"):
        storage.set(1, {"a": tf.keras.Input([2]), "b": np.array(3)})


@pytest.mark.parametrize(
    "idx",
    [
        *(0, -3, np.int64(2), np.array(1), slice(None), slice(2, None, -1)),
        *([0, 2], [], np.array([[0, -1]]), np.array([0, 1], np.uint8)),
        *(np.array([True, False, True]), [False, True, False], tf.constant([1, 2])),
    ],
    ids=str,
)
def test_rows_are_those_of_numpy(idx):
    storage = NumpyStorage(tf.TensorSpec([2], tf.int32), 3)
    rows = np.arange(6, dtype=np.int32).reshape(3, 2)
    storage.set(slice(None), rows)
    plain = np.asarray(idx) if tf.is_tensor(idx) else idx
    if isinstance(idx, list) and not idx:
        plain = slice(0)
    expected = rows[plain]
    np.testing.assert_array_equal(storage.get(idx), expected, strict=True)
    assert (storage.capacity, storage.data_spec) == (3, tf.TensorSpec([2], tf.int32))
    out = np.empty_like(expected)
    assert storage.get(idx, out=out) is out
    np.testing.assert_array_equal(out, expected)
    storage.set(idx, expected + 10)
    rows[plain] += 10
    np.testing.assert_array_equal(storage.get(slice(None)), rows)


@pytest.mark.parametrize(
    "idx",
    [3, -4, [0, 3], np.array([-4]), 0.0, True, None, "x", (0, 1), ..., [True, False]],
    ids=str,
)
def test_bad_rows(idx):
    storage = NumpyStorage(tf.TensorSpec([2]), 3)
    with pytest.raises(IndexError, match="`NumpyStorage.get`: `idx` expected"):
        storage.get(idx)
    with pytest.raises(IndexError, match="`NumpyStorage.set`: `idx` expected"):
        storage.set(idx, np.ones(2))
    assert not storage.get(slice(None)).any()


def test_views_and_copies():
    storage = NumpyStorage({"x": tf.TensorSpec([2])}, 3)
    for idx in (0, slice(0, 2)):
        storage.get(idx)["x"][...] = 7
    assert storage.get([0, 1, 2])["x"].tolist() == [[7, 7], [7, 7], [0, 0]]
    for idx in ([0], np.array([True, False, False])):
        storage.get(idx)["x"][...] = 9
    assert storage.get(0)["x"].tolist() == [7, 7]


def test_arrays_are_all_rows_and_zeros_at_first():
    storage = NumpyStorage(PAIR, 3)
    first, second = storage.arrays
    assert not first.any() and not second.any()
    storage.set(2, pair([4.0, 5.0], 6))
    first[1] = 7
    assert first.tolist() == [[0, 0], [7, 7], [4, 5]]
    assert second.tolist() == [0, 0, 6]
    assert storage.get(1)["a"].tolist() == [7, 7]


def test_closing(tmp_path):
    with NumpyStorage(PAIR, 3) as storage:
        view = storage.get(0)
    storage.close()
    for call in (
        lambda: storage.get(0),
        lambda: storage.set(0, view),
        storage.flush,
        lambda: tf.train.Checkpoint(s=storage).write(tmp_path / "c"),
    ):
        with pytest.raises(ValueError, match="expected an open storage"):
            call()
    assert view["a"].tolist() == [0, 0]


def test_what_texts_are_stored_by_is_told():
    message = r"pass for example tfrl.core.ShapeDtype\(\(\), np.dtype\('S10'\)\)"
    with pytest.raises(ValueError, match=message):
        NumpyStorage(tf.TensorSpec([], tf.string), 3)
    storage = NumpyStorage(shapes.ShapeDtype((), np.dtype("S10")), 3)
    storage.set([0], np.array([b"abcdefghijkl"]))
    assert storage.get([0]).tolist() == [b"abcdefghij"], "cut, as by NumPy"
