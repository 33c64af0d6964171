"""Tests of tfrl.core.shapes."""

import collections
import copy
import pickle

import golden_io
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad, zeros

from tfrl.core import shapes

Pair = collections.namedtuple("Pair", "a b")
sd = shapes.ShapeDtype
ONE, TWO, THREE = sd((1,)), sd((2,), np.int32), sd((3,), np.bool_)


class Duck:
    shape = (1, 2)
    dtype = "int8"


def recorded(name):
    (case,) = [c for c in golden_io.load("trax/shapes") if c["id"] == name]
    return case["outputs"]["result"]


def described(value):
    """Returns a signature as (shape, dtype name), in the containers it has."""
    if isinstance(value, dict) and "shape_type" in value:
        name = value["dtype"].removeprefix("<class '").removesuffix("'>")
        return value["shape"], name.split(".")[-1]
    if isinstance(value, sd):
        return value.shape, value.dtype.name
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    return type(value)(described(part) for part in value)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("ShapeDtype_tuple", lambda: sd((2, 3))),
        ("ShapeDtype_tensorshape", lambda: sd(tf.TensorShape([2, None]))),
        ("ShapeDtype_empty", lambda: sd(())),
        ("ShapeDtype_tf_bf16", lambda: sd((2,), tf.bfloat16)),
        ("ShapeDtype_np_f64", lambda: sd((2,), np.float64)),
        ("ShapeDtype_str", lambda: sd((2,), "float32")),
        ("ShapeDtype_tf_bool", lambda: sd((2,), tf.bool)),
        ("replace_dtype", lambda: sd((2, 3)).replace(dtype=np.float64)),
        ("signature_np_int", lambda: shapes.signature(np.zeros(2, np.int64))),
        ("signature_tf_bf16", lambda: shapes.signature(tf.zeros(2, tf.bfloat16))),
        (
            "signature_tf_spec",
            lambda: shapes.signature(tf.TensorSpec([None, 3], tf.int32)),
        ),
        ("signature_npscalar", lambda: shapes.signature(np.float32(1))),
        ("signature_list", lambda: shapes.signature([np.ones(2), np.ones(3)])),
        ("signature_empty_list", lambda: shapes.signature([])),
        (
            "signature_dict",
            lambda: shapes.signature({"b": np.ones(2), "a": (np.ones(1),)}),
        ),
        ("signature_keras_tensor", lambda: shapes.signature(keras.Input((3,)))),
        (
            "signature_sparse",
            lambda: shapes.signature(
                tf.SparseTensor([[0, 0]], tf.constant([1.0], tf.float64), [2, 2])
            ),
        ),
        (
            "signature_namedtuple",
            lambda: shapes.signature(Pair(np.ones(1), np.ones(2))),
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_shapes_golden(name, made):
    assert described(made()) == described(recorded(name))


def test_shape_dtype_is_canonical():
    made = sd([np.int64(2), None], tf.float32)
    assert made.shape == (2, None)
    assert type(made.shape) is tuple and type(made.shape[0]) is int
    assert isinstance(made.dtype, np.dtype)
    assert made.as_tuple() == ((2, None), np.dtype("float32"))
    assert len(made) == 1
    assert repr(made) == "ShapeDtype{shape:(2, None), dtype:float32}"


@pytest.mark.parametrize("dtype", [np.float32, "float32", tf.float32, np.dtype("f4")])
def test_shape_dtype_equality_and_hash_ignore_how_dtype_was_written(dtype):
    assert sd((2,), dtype) == sd([2])
    assert {sd((2,), dtype): 1}[sd([2])] == 1


@pytest.mark.parametrize("other", [sd((3,)), sd((2,), np.int32), ((2,), "f4"), None])
def test_shape_dtype_unequal(other):
    assert sd((2,)) != other


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_shape_dtype_copies(clone):
    assert clone(sd((2, None), tf.bfloat16)) == sd((2, None), tf.bfloat16)


def test_shape_dtype_is_immutable():
    with pytest.raises(AttributeError):
        sd((2,)).shape = (3,)
    with pytest.raises((AttributeError, TypeError)):
        sd((2,)).foo = 1


def test_replace():
    assert sd((2,), np.int32).replace(shape=[4]) == sd((4,), np.int32)


def test_signature_of_objects_with_shape_and_dtype():
    assert shapes.signature(Duck()) == sd((1, 2), np.int8)
    assert shapes.signature(tf.Variable([1.0])) == sd((1,))
    assert shapes.signature(keras.Variable([1.0])) == sd((1,))
    ordered = shapes.signature(collections.OrderedDict(z=np.ones(1), a=np.ones(2)))
    assert type(ordered) is dict and list(ordered) == ["z", "a"]


def test_signature_in_graph():
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def trace(x):
        seen.append(shapes.signature((x,)))
        return x

    trace(tf.zeros([2, 3]))
    assert seen == [(sd((None, 3)),)]


@pytest.mark.parametrize(
    ("sigs", "expected"),
    [
        ((), ()),
        (((), ()), ()),
        ((ONE, (TWO, THREE, ONE), (), TWO), (ONE, TWO, THREE, ONE, TWO)),
        (((ONE,),), ONE),
        (((), ONE, ()), ONE),
        (((ONE, (TWO, THREE)), ONE), (ONE, (TWO, THREE), ONE)),
        (({"a": ONE}, TWO), ({"a": ONE}, TWO)),
        (([ONE], TWO), ([ONE], TWO)),
    ],
)
def test_splice_signatures(sigs, expected):
    assert shapes.splice_signatures(*sigs) == expected


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros([2, 3]), (2, 3)),
        (np.zeros([2, 3]), [2, 3]),
        (np.zeros([2, 3]), tf.TensorShape([2, 3])),
        (tf.zeros([2, 3]), (2, 3)),
        (sd((None, 3)), (None, 3)),
        (np.float32(1), ()),
    ],
)
def test_assert_shape_equals_passes(array, shape):
    assert shapes.assert_shape_equals(array, shape) is None


def test_assert_same_shape():
    shapes.assert_same_shape(tf.zeros([2, 3]), np.zeros([2, 3]))
    shapes.assert_same_shape(sd((2,)), np.zeros(2))


@refusals.table(
    (
        shapes.assert_shape_equals,
        bad(ValueError, "array", zeros(2, 3), (3, 2)),
        bad(ValueError, "array", tf.zeros([2, 3]), (2,)),
        bad(ValueError, "array", sd((None, 3)), (2, 3)),
        bad(TypeError, "array", 1.0, ()),
        bad(TypeError, "shape", zeros(2), 2),
    ),
    (
        shapes.assert_same_shape,
        bad(ValueError, "array2", zeros(2, 3), zeros(3, 2)),
        bad(TypeError, "array2", zeros(2), 3.0),
    ),
    (
        sd,
        bad(TypeError, "shape", np.array([2, 3])),
        bad(TypeError, "shape", None),
        bad(TypeError, "shape", (2, 1.5)),
        bad(ValueError, "shape", (2, -1)),
        bad(ValueError, "shape", tf.TensorShape(None)),
        bad(TypeError, "dtype", (2,), "whatever"),
    ),
    (sd((2,)).replace, bad(ValueError, "kwargs", rank=1)),
    (
        shapes.signature,
        *(bad(TypeError, "obj", leaf) for leaf in (1.0, "text", None, [object()])),
    ),
)
def test_refusals(row):
    row()
