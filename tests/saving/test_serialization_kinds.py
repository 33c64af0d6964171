"""Which objects `tfrl.saving.dumps` writes, and `loads` brings back."""

import collections
import dataclasses
import enum
import functools
import math
import struct
from typing import NamedTuple

import hypothesis
import keras
import lz4.frame
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from saving.nests import plain_arrays, same

from tfrl.core import pytree, records, shapes, specs
from tfrl.saving import serialization
from tfrl.schedules import schedulers


def copied(value):
    return serialization.loads(serialization.dumps(value))


hashable = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**100), 2**100),
        st.floats(allow_nan=False),
        st.text(max_size=90),
        st.binary(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)
nests = st.recursive(
    st.one_of(hashable, st.floats(), st.complex_numbers(), plain_arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(collections.deque),
        st.sets(hashable, max_size=3),
        st.dictionaries(hashable, inner, max_size=3),
        st.dictionaries(hashable, inner, max_size=3).map(collections.OrderedDict),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@hypothesis.given(nests)
@hypothesis.settings(max_examples=60)
def test_every_nest_comes_back(nest):
    assert same(copied(nest), nest)


MARKED_NAN = struct.unpack(">d", bytes.fromhex("fff8000000001234"))[0]
VALUES = {
    "nans": [math.nan, -math.nan, MARKED_NAN, complex(MARKED_NAN, -math.nan)],
    "bytearray": bytearray(b"ab"),
    "no_bytes": [b"", bytearray()],
    "slice": slice(None, 3, (1, 2)),
    "range": range(2, 9, 3),
    "deque": collections.deque([1, 2], maxlen=2),
    "large_int": -(10**5000),
    "long_text": "\ud800é" * 500,
    "halves": ["\ud83d\ude00", "a" * 90 + "\ud83d\ude00\ud83d\ude00", "\ude00\ud83d"],
    "bytes_with_end": np.bytes_(b"ab\0\0"),
    "no_width": np.zeros(3, [("a", "S0"), ("b", "i4")])["a"],
    "signs": [-0.0, -math.inf, math.nan, complex(-0.0, math.nan)],
    "keys": {1: "int", "1": "str", None: 0, (1, frozenset({2})): "tuple", 1.5: b""},
    "no_elements": np.zeros((0, 3), np.int8),
    "structured": np.array(
        [(1, 2.5, [1, 2], "é")],
        [("a", "<i2"), ("b", ">f8"), ("c", "u1", (2,)), ("d", "<U2")],
    ),
    "aligned": np.zeros(2, np.dtype([("a", "i1"), ("b", [("c", "f8")])], align=True)),
    "void": np.zeros(2, [("a", "f4")])[1],
    "bfloat16": tf.constant([1.5, -2.0], tf.bfloat16).numpy(),
    "bfloat16_scalar": tf.constant(1.5, tf.bfloat16).numpy(),
    "text_scalar": np.str_("é"),
    "time": np.datetime64("2020-01-01T00:00", "m"),
    "dtypes": [np.dtype(">f4"), np.dtype([("a", "f4")]), tf.float32, tf.bfloat16],
    "scalar_types": [np.float32, np.bool_, np.int64],
    "tensors": [tf.constant([[1.5, -0.0]], tf.float16), tf.constant(True)],
    "bfloat16_tensor": tf.constant([1.5], tf.bfloat16),
    "quantized": tf.constant(np.arange(3), tf.uint16),
    "complex_tensor": tf.constant(1 + 2j),
    "text_tensor": tf.constant([["a", "é"], ["", "b"]]),
    "text_tensor_scalar": tf.constant("ab"),
    "text_tensor_empty": tf.zeros([0, 2], tf.string),
    "shapes": [tf.TensorShape(None), tf.TensorShape([None, 3]), tf.TensorShape([])],
    "spec": tf.TensorSpec([None, 2], tf.int32, "x"),
    "bounded_spec": specs.BoundedTensorSpec([None, 2], tf.float32, [0, -1], 2.0, "a"),
    "bounded_image": specs.BoundedTensorSpec([4, 4], tf.uint8, 0, 255),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_awkward_values_come_back(value):
    copy = copied(value)
    if isinstance(value, list) and isinstance(value[0], tf.TensorShape):
        assert [repr(shape) for shape in copy] == [repr(shape) for shape in value]
    else:
        assert same(copy, value)
    if isinstance(value, collections.deque):
        assert copy.maxlen == value.maxlen


def test_arrays_are_new_writable_and_in_c_order():
    array = np.arange(6).reshape(2, 3).T
    copy = copied(array)
    copy[0] = 9
    assert array[0, 0] == 0
    assert copy.flags.c_contiguous and copy.flags.owndata is not None


class MyList(list):
    """A class of its own."""


@pytest.mark.parametrize(
    "value",
    [
        object(),
        MyList(),
        np.array([None]),
        np.zeros(1, [("a", object)]),
        np.zeros(1, [(("title", "a"), "i4")]),
        np.dtype({"names": ["a", "b"], "formats": ["i4"] * 2, "offsets": [0, 2]}),
        np.zeros(1, (np.record, [("a", "i4")])),
        np.ma.zeros(2),
        tf.Variable(1.0),
        tf.sparse.from_dense([1.0]),
        np.random.default_rng(0),
        print,
        len,
        int,
        collections.defaultdict(list),
        lambda: 1,
        iter([]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_kinds_are_refused(value):
    with pytest.raises(TypeError, match=r"`dumps`: `obj` expected .*`obj\[0\]`"):
        serialization.dumps([value])


def test_tensors_of_graphs_are_refused():
    @tf.function(autograph=False)
    def write(x):
        serialization.dumps({"x": x})

    with pytest.raises(TypeError, match=r"`obj\['x'\]`: a tensor of a graph"):
        write(tf.constant(1.0))


class Pair(NamedTuple):
    """Known inside of `known()` only."""

    x: object
    y: object = 0


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Counted:
    items: list
    count: int = dataclasses.field(init=False)
    made = 0

    def __post_init__(self):
        Counted.made += 1
        self.count = len(self.items)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: object


class Node(pytree.PyTreeNode):
    weights: object
    factor: float = pytree.nonpytree_field(default=2.0)

    @functools.cached_property
    def doubled(self):
        return self.factor * 2


def known(*classes):
    return keras.saving.custom_object_scope({cls.__name__: cls for cls in classes})


@keras.saving.register_keras_serializable(package="admitted_tests")
class Configured:
    def __init__(self, value):
        self.value = value

    def get_config(self):
        return {"value": self.value}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="admitted_tests")
def double(x):
    return 2 * x


def test_records_of_the_house_come_back():
    step = records.TimeStep(
        step_types=records.StepType.MID,
        rewards=np.ones(2),
        discounts=tf.ones([2]),
        observations={"a": 1},
    )
    copy = copied(step)
    assert type(copy) is records.TimeStep
    assert copy.step_types is records.StepType.MID
    assert copy.observations == {"a": 1} and copy.discounts.shape == [2]
    spec = shapes.ShapeDtype((2, None), np.int8)
    assert copied(spec) == spec
    assert b"tfrl.core.ShapeDtype" in lz4.frame.decompress(serialization.dumps(spec))


def test_your_own_records_come_back_where_keras_knows_them():
    values = [Pair(1, [2]), Slotted((3,)), Node(np.ones(2)), Colour.BLUE]
    with known(Pair, Slotted, Node, Colour):
        pair, slotted, node, colour = copied(values)
    assert pair == Pair(1, [2]) and type(pair) is Pair
    assert slotted == Slotted((3,))
    assert (node.factor, node.weights.tolist()) == (2.0, [1.0, 1.0])
    assert colour is Colour.BLUE


def test_records_come_back_without_their_constructor():
    with known(Counted):
        value = Counted([1, 2])
        before = Counted.made
        assert copied(value) == value
    assert Counted.made == before


def test_a_record_that_contains_itself_is_refused():
    value = Counted([])
    value.items = (1, {"self": value})
    with (
        known(Counted),
        pytest.raises(TypeError, match=r"items\[1\]` is of dict and is"),
    ):
        serialization.dumps(value)


def test_records_are_keys():
    with known(Slotted, Pair):
        copy = copied({Slotted(Pair(1, 2)): {Slotted(3)}})
    assert copy == {Slotted(Pair(1, 2)): {Slotted(3)}}


def test_what_is_cached_is_left_out():
    node = Node(1)
    assert node.doubled == 4.0
    with known(Node):
        assert copied(node).doubled == 4.0


def test_registered_objects_come_back_by_their_configuration():
    copy = copied(Configured({"a": [np.float32(2)], 3: Configured(None)}))
    assert copy.value["a"] == [2.0] and copy.value[3].value is None
    schedule = schedulers.LinearScheduler("iterations", [(0, 1.0), (10, 0.0)])
    assert copied(schedule) == schedule


def test_registered_classes_and_functions_come_back():
    assert copied([double, Configured]) == [double, Configured]


class Derived(Configured):
    pass


class Grown(dict):
    pass


Grown = dataclasses.dataclass(Grown)


def remember(record):
    record.extra = 3
    return record


CASES = {
    "unregistered": (Pair(1), (), "is of Pair"),
    "derived": (Derived(1), (), "is of Derived"),
    "layer": (keras.layers.Dense(1), ("Dense",), "has variables"),
    "built_on_dict": (Grown(), (Grown,), "not safe"),
    "extra": (remember(Counted([])), (Counted,), r"has \['extra'\] beside its fields"),
    "flags": (Colour.RED | Colour.BLUE, (Colour,), "is of Colour"),
    "nested_keras": (
        Configured(keras.saving.serialize_keras_object(keras.losses.Huber())),
        (),
        "holds another Keras object",
    ),
    "no_dict": (Configured, (), "no dict"),
}


@pytest.mark.parametrize("case", CASES)
def test_others_are_refused(case, monkeypatch):
    value, classes, message = CASES[case]
    if case == "layer":
        classes = [keras.layers.Dense]
    if case == "no_dict":
        monkeypatch.setattr(Configured, "get_config", lambda self: [1])
        value = Configured(1)
    with known(*classes), pytest.raises(TypeError, match=message):
        serialization.dumps(value)


def test_a_class_that_is_not_known_here_is_named():
    with known(Pair):
        data = serialization.dumps(Pair(1))
    with pytest.raises(ValueError, match="'Pair' is not registered"):
        serialization.loads(data)


def test_a_class_that_changed_is_named():
    with known(Pair):
        data = serialization.dumps(Pair(1))

    class Changed(NamedTuple):
        x: int

    with keras.saving.custom_object_scope({"Pair": Changed}):
        with pytest.raises(ValueError, match=r"had the fields \['x', 'y'\] and now"):
            serialization.loads(data)
