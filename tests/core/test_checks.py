"""Tests of tfrl.core.checks."""

import decimal

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import checks


def as_recorded(case):
    """The recorded tensors are tensors; `except_np` cases speak of numpy."""
    arguments = case["inputs"]["args"]
    if case["id"] == "check_array_np_except":
        return arguments
    return [tf.constant(a) if isinstance(a, np.ndarray) else a for a in arguments]


ARRAY_CASES = golden_io.load("coax/array", symbol="check_array")


@pytest.mark.parametrize("case", ARRAY_CASES, ids=golden_io.ids(ARRAY_CASES))
def test_check_array_golden(case):
    arguments, expected = as_recorded(case), case["outputs"]["result"]
    if isinstance(expected, golden_io.Raised):
        with pytest.raises(TypeError, match="`check_array`: "):
            checks.check_array(*arguments, **case["kwargs"])
    else:
        assert checks.check_array(*arguments, **case["kwargs"]) is None


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"ndim": 1}, r"rank 1; got shape \[2, 3\]"),
        ({"ndim": (0, 1)}, r"rank \(0, 1\)"),
        ({"ndim_min": 3}, "rank of at least 3"),
        ({"ndim_max": 1}, "rank of at most 1"),
        ({"dtype": tf.float64}, "got float32"),
        ({"dtype": (np.int32, "int64")}, "got float32"),
        ({"shape": (3, 2)}, r"shape \[3, 2\]; got shape \[2, 3\]"),
        ({"shape": [2, 3]}, "`shape` expected a tuple"),
        ({"axis": 1, "axis_size": 4}, "size 4 along axis 1"),
        ({"axis": -1, "axis_size": (1, 2)}, r"size \(1, 2\) along axis -1"),
        ({"axis": 2, "axis_size": 3}, "size 3 along axis 2"),
    ],
)
def test_check_array_raises(kwargs, match):
    with pytest.raises(TypeError, match=match):
        checks.check_array(tf.zeros([2, 3]), **kwargs)


def test_check_array_passes():
    for array in (tf.zeros([2, 3]), tf.Variable(tf.zeros([2, 3]))):
        checks.check_array(
            array,
            ndim=[1, 2],
            ndim_min=2,
            ndim_max=2,
            dtype=(tf.float32, tf.int32),
            shape=tf.TensorShape([2, 3]),
            axis=-1,
            axis_size=(3, 4),
        )


@pytest.mark.parametrize("value", [np.zeros(2), [1.0], 1.0, None])
def test_check_array_wants_tensors(value):
    with pytest.raises(TypeError, match="expected a tensor; got"):
        checks.check_array(value)


SCALAR_CASES = [
    case
    for case in golden_io.load("coax/array", symbol="isscalar")
    if not isinstance(case["inputs"]["args"][0], golden_io.Marked)
]


@pytest.mark.parametrize("case", SCALAR_CASES, ids=golden_io.ids(SCALAR_CASES))
def test_isscalar_golden(case):
    (value,) = case["inputs"]["args"]
    assert checks.isscalar(value) is case["outputs"]["result"]
    if isinstance(value, np.ndarray):
        assert checks.isscalar(tf.constant(value)) is case["outputs"]["result"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (1j, True),
        (decimal.Decimal(1), True),
        (np.bool_(False), True),
        (np.ones([1, 1, 1]), True),
        (tf.Variable(1.0), True),
        (keras.Variable([1.0]), True),
        ("a", False),
        (b"a", False),
        (np.array("a"), False),
        (np.str_("a"), False),
        (np.datetime64("2020-01-01"), False),
        (tf.constant("a"), False),
        (np.zeros(0), False),
        (None, False),
        (tf.TensorSpec([1]), False),
        (np.ones(1, tf.bfloat16.as_numpy_dtype), True),
        ([1], False),
        ({}, False),
    ],
)
def test_isscalar(value, expected):
    assert checks.isscalar(value) is expected


def test_isscalar_in_graph():
    seen = []
    spec = [tf.TensorSpec([1]), tf.TensorSpec([None]), tf.TensorSpec(None)]

    @tf.function(input_signature=spec)
    def trace(one, some, unknown):
        seen.extend(checks.isscalar(x) for x in (one, some, unknown))

    trace(tf.ones(1), tf.ones(1), tf.ones(1))
    assert seen == [True, False, False]


@pytest.mark.parametrize(
    "case", golden_io.load("alf/common", symbol="check_numerics"), ids=lambda c: c["id"]
)
def test_check_numerics_golden(case):
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="`check_numerics`: `nested` expected"):
            checks.check_numerics(*case["args"])
    else:
        assert checks.check_numerics(*case["args"]) is None


def test_check_numerics_names_the_leaf():
    nest = {"a": tf.ones([2]), "b": [tf.constant([[1.0, np.nan, -np.inf]]), None]}
    with pytest.raises(ValueError, match=r"2 of 3 not finite in leaf 1 .*\[1, 3\]"):
        checks.check_numerics(nest)


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
    checks.check_numerics(nest)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_check_numerics_in_graph(value):
    @tf.function
    def checked(x):
        checks.check_numerics({"x": x})
        return x + 1.0

    assert float(checked(tf.constant(1.0))) == 2.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="`check_numerics`"):
        checked(tf.constant(value))


def test_check_numerics_of_complex_numbers():
    with pytest.raises(ValueError, match="1 of 2 not finite"):
        checks.check_numerics(np.array([1j, complex(0, np.inf)]))


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
