"""Tests of `tfrl._internal.named_arrays`."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import named_arrays
from tfrl.core import pytree


class Pair(NamedTuple):
    first: object
    second: object


class Net(pytree.PyTreeNode):
    width: int = pytree.nonpytree_field()
    weights: object = None
    twice: object = None


def test_names_follow_the_nest_and_its_order():
    nest = {
        "z": [tf.zeros(1), Pair(np.ones(2), None)],
        "a": Net(width=3, weights=tf.zeros(3), twice={"k": np.int64(4)}),
        "empty": ((), [], {}),
    }
    leaves = named_arrays.name_arrays(nest)
    assert list(leaves) == [
        "state/a/weights",
        "state/a/twice/k",
        "state/z/0",
        "state/z/1/first",
        "state/z/1/second",
    ]
    assert all(
        mine is yours
        for mine, yours in zip(leaves.values(), tf.nest.flatten(nest), strict=True)
    )


def test_one_object_in_two_places_gets_two_names():
    shared = tf.zeros(1)
    node = Net(width=1, weights=shared, twice=shared)
    assert list(named_arrays.name_arrays(node)) == ["state/weights", "state/twice"]


def test_slashes_and_tildes_in_keys_make_no_twins():
    nest = {"a/b": np.ones(1), "a": {"b": np.ones(1)}, "a~1b": np.ones(1)}
    assert sorted(named_arrays.name_arrays(nest)) == [
        "state/a/b",
        "state/a~01b",
        "state/a~1b",
    ]


def test_places_are_spelled_as_python_reaches_them():
    nest = {"b": Net(3, Pair(1, [2, None])), 7: ()}
    with pytest.raises(TypeError, match="`nest` expected keys that can be sorted"):
        list(named_arrays.spelled("nest", nest))
    del nest[7]
    found = dict(named_arrays.spelled("nest", nest))
    assert found == {place: eval(place, {"nest": nest}) for place in found}
    assert [*found][:2] == ["nest['b'].weights.first", "nest['b'].weights.second[0]"]
    assert list(named_arrays.spelled("nest", 5)) == [("nest", 5)]


def test_a_lone_array_is_a_nest():
    assert list(named_arrays.name_arrays(tf.zeros(1))) == ["state"]


def test_facts_tell_dtype_and_shape():
    variable = tf.Variable(tf.zeros([2], tf.bfloat16))
    leaves = named_arrays.name_arrays(
        (variable, tf.TensorSpec([3, 1], tf.bool), np.uint8(3), None)
    )
    assert list(named_arrays.describe_arrays(leaves).values()) == [
        ["bfloat16", [2]],
        ["bool", [3, 1]],
        ["uint8", []],
        None,
    ]


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (3, "int"),
        (0.5, "float"),
        ("text", "str"),
        (np.array(["text"]), "ndarray"),
        (np.array([None]), "ndarray"),
        (np.zeros(1, "M8[s]"), "ndarray"),
        (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor"),
        (tf.sparse.eye(2), "SparseTensor"),
        (tf.TensorSpec([None, 2]), "TensorSpec"),
        (tf.TensorSpec(None), "TensorSpec"),
        (object(), "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_leaves_are_refused_by_name(leaf, kind):
    with pytest.raises(TypeError, match=f"`state` expected.*got {kind}.*at state/a/0;"):
        named_arrays.name_arrays({"a": [leaf]})


def test_a_nest_read_in_another_way_is_refused(monkeypatch):
    monkeypatch.setattr(tf.nest, "flatten", lambda nest: [])
    with pytest.raises(TypeError, match="flattens otherwise"):
        named_arrays.name_arrays((np.zeros(1),))


DTYPES = [
    *(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)),
    *("bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_by_bit(tmp_path, dtype):
    values = np.array([[0, 1, 3], [1, 0, 7]]).astype(tf.as_dtype(dtype).as_numpy_dtype)
    leaves = named_arrays.name_arrays(
        [values, tf.constant(values), tf.Variable(values)]
    )
    prefix = str(tmp_path / "state")
    named_arrays.write_arrays(prefix, leaves)
    back = list(named_arrays.read_arrays(prefix, leaves).values())
    assert isinstance(back[0], np.ndarray) and back[0].dtype == values.dtype
    assert back[1].dtype == back[2].dtype == tf.as_dtype(dtype)
    for array in (back[0], back[1].numpy(), back[2].numpy()):
        assert array.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        np.float32([np.nan, -np.inf, -0.0, 1e-45]),
        np.zeros((0, 3)),
        tf.constant([b"\xff\x00", b""]),
        np.array([1.0, 2.0], ">f4"),
        np.arange(6).reshape(2, 3).T,
        np.int64(-(2**63)),
    ],
    ids=["extremes", "empty", "bytes", "big-endian", "transposed", "scalar"],
)
def test_awkward_values_come_back(tmp_path, value):
    leaves = named_arrays.name_arrays(value)
    prefix = str(tmp_path / "state")
    named_arrays.write_arrays(prefix, leaves)
    back = named_arrays.read_arrays(prefix, leaves)["state"]
    if tf.is_tensor(value):
        np.testing.assert_array_equal(back.numpy(), value.numpy())
    else:
        assert type(back) is type(value)
        np.testing.assert_array_equal(back, value)
        np.testing.assert_array_equal(np.signbit(back), np.signbit(value))


def test_nothing_and_none_come_back(tmp_path):
    for nest in ((), (None,)):
        leaves = named_arrays.name_arrays(nest)
        named_arrays.write_arrays(str(tmp_path / "state"), leaves)
        assert named_arrays.read_arrays(str(tmp_path / "state"), leaves) == leaves


def test_the_file_is_a_tensorflow_checkpoint(tmp_path):
    prefix = str(tmp_path / "state")
    named_arrays.write_arrays(prefix, named_arrays.name_arrays({"w": tf.ones([2])}))
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(reader.get_tensor("state/w"), [1.0, 1.0])


def test_the_kind_of_array_is_the_readers_choice(tmp_path):
    prefix = str(tmp_path / "state")
    named_arrays.write_arrays(prefix, named_arrays.name_arrays(tf.constant(1.5)))
    for leaf in (
        np.zeros((), "f4"),
        np.float32(0),
        tf.TensorSpec([]),
        tf.constant(0.0),
    ):
        back = named_arrays.read_arrays(prefix, named_arrays.name_arrays(leaf))["state"]
        assert back == 1.5
        if isinstance(leaf, np.ndarray | np.generic):
            assert type(back) is type(leaf)
        else:
            assert tf.is_tensor(back)


def test_differences_name_the_first_entries_and_count_the_rest():
    saved = {c: ["float32", [2]] for c in "abcde"}
    wanted = {c: ["float32", [3]] for c in "abcd"} | {"f": None}
    text = named_arrays.array_differences(saved, wanted)
    assert text == (
        "a is float32 [2] on disk but float32 [3] here; "
        "b is float32 [2] on disk but float32 [3] here; "
        "c is float32 [2] on disk but float32 [3] here; and 3 more"
    )
    assert named_arrays.array_differences({"a": None}, {"b": None}) == (
        "a is None on disk but missing here; b is missing on disk but None here"
    )
    assert named_arrays.array_differences(saved, dict(saved)) == ""


def test_disk_errors_name_the_place(tmp_path):
    leaves = named_arrays.name_arrays(tf.ones([2]))
    with pytest.raises(OSError, match="`write_arrays`: `prefix` expected a place"):
        named_arrays.write_arrays(str(tmp_path / "no" / "such" / "state"), leaves)
    with pytest.raises(OSError, match="`read_arrays`: `prefix` expected a TensorFlow"):
        named_arrays.read_arrays(str(tmp_path / "state"), leaves)
