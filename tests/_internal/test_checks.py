"""Tests of `tfrl._internal.checks` and `arguments`."""

import pathlib
import re

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import arrays, records


@pytest.mark.parametrize(
    "case", golden_io.load("alf/common", symbol="check_numerics"), ids=lambda c: c["id"]
)
def test_check_numerics_golden(case):
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="`check_numerics`: `nested` expected"):
            arrays.check_numerics(*case["args"])
    else:
        assert arrays.check_numerics(*case["args"]) is None


def test_check_numerics_names_the_leaf():
    bad = tf.constant([[1.0, np.nan, -np.inf]])
    nest = {"a": tf.ones([2]), "b": [bad, None]}
    told = re.escape("2 of 3 not finite in nested['b'][0] (shape [1, 3], float32)")
    with pytest.raises(ValueError, match=told):
        arrays.check_numerics(nest)
    rows = records.Transition({"image": bad}, tf.zeros([1]), (), (), ())
    told = re.escape("not finite in nested.observations['image'] ")
    with pytest.raises(ValueError, match=told):
        arrays.check_numerics(rows)
    with pytest.raises(ValueError, match=r"not finite in nested \("):
        arrays.check_numerics(tf.RaggedTensor.from_row_lengths([1.0, np.inf], [2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`check_numerics`: neste"):
        tf.function(lambda x: arrays.check_numerics({"x": x}))(bad)


@pytest.mark.parametrize(
    "nest",
    [
        (),
        None,
        [None, 1, True, "text"],
        tf.constant([1, 2]),
        np.array([1 + 2j]),
        tf.ragged.constant([[1.0], []]),
        tf.Variable([1.0]),
        keras.Variable([1.0]),
    ],
    ids=str,
)
def test_check_numerics_passes(nest):
    arrays.check_numerics(nest)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_check_numerics_in_graph(value):
    @tf.function
    def checked(x):
        arrays.check_numerics({"x": x})
        return x + 1.0

    assert float(checked(tf.constant(1.0))) == 2.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="`check_numerics`"):
        checked(tf.constant(value))


def test_check_numerics_of_complex_numbers():
    with pytest.raises(ValueError, match="1 of 2 not finite"):
        arrays.check_numerics(np.array([1j, complex(0, np.inf)]))


def traced(check, *specs):
    """Runs `check` on symbolic tensors of the given specs."""
    tf.function(check).get_concrete_function(*specs)


def test_check_same_shape():
    checks.check_same_shape(
        "f", a=np.zeros([2, 3]), b=tf.zeros([2, 3]), c=[[0] * 3] * 2
    )
    checks.check_same_shape("f", a=1.0, b=np.float32(2))
    checks.check_same_shape("f", a=np.zeros(3))
    match = r"^`f`: `c` expected the shape of `a` \[2, 3\]; got \[2, 3, 1\]; "
    with pytest.raises(ValueError, match=match):
        checks.check_same_shape(
            "f", a=np.zeros([2, 3]), b=tf.zeros([2, 3]), c=tf.zeros([2, 3, 1])
        )


def test_check_same_shape_at_trace_time():
    def check(a, b):
        checks.check_same_shape("f", a=a, b=b)

    spec = tf.TensorSpec
    traced(check, spec([None, 3]), spec([2, None]))
    traced(check, spec(None), spec([2, 3]))
    with pytest.raises(ValueError, match=r"`a` \[None, 3\]; got \[None, 4\]"):
        traced(check, spec([None, 3]), spec([None, 4]))


def test_check_rank():
    checks.check_rank("f", "x", np.zeros([2, 3]), exact=2, at_least=1)
    checks.check_rank("f", "x", 1.0, exact=0)
    with pytest.raises(
        ValueError, match=r"`f`: `x` expected rank 1; got shape \[2, 3\]"
    ):
        checks.check_rank("f", "x", tf.zeros([2, 3]), exact=1)
    with pytest.raises(ValueError, match=r"rank of at least 1; got shape \[\]"):
        checks.check_rank("f", "x", 0.0, at_least=1)
    traced(lambda x: checks.check_rank("f", "x", x, exact=3), tf.TensorSpec(None))


def test_check_known_shape():
    checks.check_known_shape("f", "x", np.zeros([2, 0]))
    checks.check_known_shape("f", "x", tf.TensorSpec([]))
    with pytest.raises(ValueError, match=r"known dimensions; got shape \[None, 2\]"):
        checks.check_known_shape("f", "x", tf.TensorSpec([None, 2]))
    with pytest.raises(ValueError, match="got shape of unknown rank"):
        checks.check_known_shape("f", "x", tf.TensorSpec(None))


@pytest.mark.parametrize("value", [0.5, [0.5], np.float64(1), tf.zeros(2, tf.bfloat16)])
def test_check_floating_passes(value):
    checks.check_floating("f", "x", value)


@pytest.mark.parametrize("value", [1, [True], np.int64(1), tf.zeros(2, tf.int32), "a"])
def test_check_floating_raises(value):
    with pytest.raises(TypeError, match="`f`: `x` expected a floating-point dtype"):
        checks.check_floating("f", "x", value)


@pytest.mark.parametrize(
    "value",
    [1, 0.1, [1, 2], np.inf, tf.constant([0.5]), True, tf.constant(0.5, tf.bfloat16)],
)
def test_check_positive_passes(value):
    checks.check_positive("f", "x", value)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, [1, 0], tf.constant([0.5, -1.0])])
def test_check_positive_raises(value):
    with pytest.raises(ValueError, match="`f`: `x` expected numbers > 0; got"):
        checks.check_positive("f", "x", value)


def test_check_finite():
    checks.check_finite("f", "x", [0.0, -1e30])
    checks.check_finite("f", "x", tf.constant(3, tf.int64))
    checks.check_finite("f", "x", tf.ones(2, tf.bfloat16))
    for value in (np.nan, [1.0, -np.inf], tf.constant([np.inf])):
        with pytest.raises(ValueError, match="`f`: `x` expected finite numbers; got"):
            checks.check_finite("f", "x", value)


@pytest.mark.parametrize("value", [0, 1, 0.5, [0.0, 1.0], tf.constant(0.25)])
def test_check_within_passes(value):
    checks.check_within("f", "x", value, 0, 1)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, [0.5, 2.0]])
def test_check_within_raises(value):
    with pytest.raises(ValueError, match=r"`f`: `x` expected numbers in \[0, 1\]; got"):
        checks.check_within("f", "x", value, 0, 1)


@pytest.mark.parametrize("value", ["1", None, [None]])
def test_number_checks_want_numbers(value):
    with pytest.raises(TypeError, match="`f`: `x` expected numbers; got"):
        checks.check_positive("f", "x", value)
    with pytest.raises(TypeError, match="`f`: `x` expected numbers; got"):
        checks.check_within("f", "x", value, 0, 1)


def test_number_checks_let_symbolic_tensors_pass():
    traced(lambda x: checks.check_positive("f", "x", x), tf.TensorSpec([2]))
    traced(lambda x: checks.check_within("f", "x", x, 0, 1), tf.TensorSpec([2]))


def test_check_one_of():
    checks.check_one_of("f", "mode", "a", ("a", "b"))
    with pytest.raises(ValueError, match=r"`f`: `mode` expected one of \['a', 'b'\]"):
        checks.check_one_of("f", "mode", "c", ("a", "b"))
    for wrong in ({}, np.ones(2), tf.ones(2), None):
        with pytest.raises(ValueError, match="`f`: `mode` expected one of"):
            checks.check_one_of("f", "mode", wrong, {"a", "b"})


def test_arrays_are_told_in_one_line():
    with pytest.raises(ValueError) as raised:
        checks.check_positive("f", "x", np.zeros([30, 30]))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.parametrize("value", [1.0, True, "1", None])
def test_whole_numbers_are_integers(value):
    with pytest.raises(TypeError, match="`op`: `n` expected an int of at least 0; got"):
        checks.check_whole_number("op", "n", value, low=0)


def test_whole_numbers_have_bounds():
    found = checks.check_whole_number("op", "n", np.int32(2), low=2, high=2)
    assert type(found) is int and found == 2
    for value in (1, 3):
        with pytest.raises(ValueError, match=r"expected an int in \[2, 2\]; got"):
            checks.check_whole_number("op", "n", value, low=2, high=2)


@pytest.mark.parametrize("wrong", [None, object(), {}, "text", tf.constant("text")])
def test_what_is_no_tensor_is_named(wrong):
    with pytest.raises(TypeError, match="`f`: `x` expected a tensor, an array or numb"):
        checks.as_tensor("f", "x", wrong)


def test_tensors_of_what_there_are_tensors_of():
    assert checks.as_tensor("f", "x", 1, dtype_hint=tf.float64).dtype == tf.float64
    assert checks.as_tensor("f", "x", "text", numeric=False).dtype == tf.string
    tensor = tf.constant([1.0])
    assert checks.as_tensor("f", "x", tensor) is tensor
    np.testing.assert_array_equal(checks.as_tensor("f", "x", keras.Variable([2.0])), 2)
    with pytest.raises(ValueError, match="`f`: `x` expected a tensor"):
        checks.as_tensor("f", "x", [[1.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match="of float32; got EagerTensor of float64"):
        checks.as_tensor("f", "x", tf.zeros([], tf.float64), tf.float32)


def test_check_one_shape():
    for shape in ((None, 3), [4, 3], (), tf.TensorShape([None, 2])):
        checks.check_one_shape("f", "x", shape)
    for shape in (None, {"a": (None, 3)}, [(4, 3), (4, 3)]):
        with pytest.raises(TypeError, match="`f`: `x` expected one tensor; got"):
            checks.check_one_shape("f", "x", shape)


def test_check_whole_numbers():
    found = checks.check_whole_numbers("op", "n", np.array([2, 3]), low=1)
    assert found == (2, 3) and type(found[0]) is int
    for wrong in (4, "ab", None, [1.5], [True]):
        with pytest.raises(TypeError, match="`op`: `n` expected"):
            checks.check_whole_numbers("op", "n", wrong)
    with pytest.raises(ValueError, match="`op`: `n` expected an int of at least 1"):
        checks.check_whole_numbers("op", "n", (2, 0), low=1)


def test_paths():
    for path in ("run", pathlib.Path("run")):
        assert checks.as_path("save", "folder", path) == pathlib.Path("run")
    for wrong in (None, 3, b"run", ["run"]):
        with pytest.raises(TypeError, match="`save`: `folder` expected a path; got"):
            checks.as_path("save", "folder", wrong)


def test_eager():
    checks.check_eager("save")
    with pytest.raises(ValueError, match="`save`: expected to be called outside"):
        tf.function(lambda: checks.check_eager("save"))()


def test_texts():
    for right in ([], ("a",), {"a"}, ["a", "b"]):
        checks.check_texts("load", "names", right)
    for wrong in ("a", None, [3], iter("a"), {"a": 1}):
        with pytest.raises(TypeError, match="`load`: `names` expected a list of texts"):
            checks.check_texts("load", "names", wrong)
