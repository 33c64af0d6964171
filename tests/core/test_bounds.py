"""Tests of tfrl.core.bounds."""

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import bounds, specs

BUILD = {"spec": lambda content: specs.BoundedTensorSpec(**content)}
CASES = [
    case
    for name in ("clip_to_spec", "scale_to_spec", "spec_means_and_magnitudes")
    for case in golden_io.load("alf/spec_utils", BUILD, name)
]


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_golden(case, graph):
    function = getattr(bounds, case["symbol"].split(".")[-1])
    *values, spec = case["args"]

    def call(*tensors):
        return function(*tensors, spec)

    call = tf.function(call) if graph else call
    found = tf.nest.flatten(call(*map(tf.constant, values)))
    expected = tf.nest.flatten(case["out"])
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == two.dtype
        # The recorded means of uniform bounds are scalars.
        np.testing.assert_allclose(
            one, np.broadcast_to(two, one.shape), rtol=1e-5, atol=1e-6
        )


SPEC = specs.BoundedTensorSpec([2], tf.float32, [-1.0, 0.0], [1.0, 4.0])


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_dtype_of_the_value_is_kept(dtype):
    value = tf.constant([[-2.0, 0.5]], dtype)
    assert bounds.clip_to_spec(value, SPEC).dtype == dtype
    np.testing.assert_array_equal(bounds.clip_to_spec(value, SPEC), [[-1.0, 0.5]])
    np.testing.assert_array_equal(bounds.scale_to_spec(value, SPEC), [[-2.0, 3.0]])
    assert bounds.scale_to_spec(value, SPEC).dtype == dtype


def test_scale_maps_the_ends_onto_the_bounds():
    ends = bounds.scale_to_spec([[-1.0, -1.0], [1.0, 1.0]], SPEC)
    np.testing.assert_allclose(ends, [SPEC.minimum, SPEC.maximum], rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "mean", "magnitude"),
    [
        (0, 3, 1, 1),
        (-3, 0, -1, 1),
        (-3, -1, -2, 1),
        (2**62, 2**63 - 1, 3 * 2**61 - 1, 2**61 - 1),
        (-(2**63), 2**63 - 1, 0, 2**63 - 1),
    ],
)
def test_integer_means_are_truncated_without_overflow(low, high, mean, magnitude):
    spec = specs.BoundedTensorSpec([2], tf.int64, low, high)
    found = bounds.spec_means_and_magnitudes(spec)
    assert [part.dtype for part in found] == [tf.int64, tf.int64]
    assert [part.numpy().tolist() for part in found] == [[mean] * 2, [magnitude] * 2]


def test_float_means_do_not_overflow():
    spec = specs.BoundedTensorSpec([], tf.float32, 1e38, 3e38)
    mean, magnitude = bounds.spec_means_and_magnitudes(spec)
    np.testing.assert_allclose(mean, 2e38, rtol=1e-6)
    np.testing.assert_allclose(magnitude, 1e38, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec_dtype", "low", "high", "dtype", "expected"),
    [
        (tf.int64, -5, 2**40, tf.int32, [-5, 100]),
        (tf.int32, -5, 300, tf.uint8, [0, 100]),
        (tf.float32, -np.inf, np.inf, tf.float32, [-100.0, 100.0]),
    ],
)
def test_clip_to_spec_across_dtypes(spec_dtype, low, high, dtype, expected):
    spec = specs.BoundedTensorSpec([], spec_dtype, low, high)
    value = tf.constant([0 if dtype == tf.uint8 else -100, 100], dtype)
    np.testing.assert_array_equal(bounds.clip_to_spec(value, spec), expected)


def test_gradients():
    value = tf.Variable([[-3.0, 1.0]])
    with tf.GradientTape(persistent=True) as tape:
        clipped = bounds.clip_to_spec(value, SPEC)
        scaled = bounds.scale_to_spec(value, SPEC)
    np.testing.assert_array_equal(tape.gradient(clipped, value), [[0.0, 1.0]])
    np.testing.assert_array_equal(tape.gradient(scaled, value), [[1.0, 2.0]])


@pytest.mark.parametrize("function", [bounds.clip_to_spec, bounds.scale_to_spec])
@pytest.mark.parametrize("shape", [[3], [2, 1], [], [2, 3]])
def test_wrong_trailing_shape(function, shape):
    with pytest.raises(ValueError, match=r"expected a shape ending in \[2\]"):
        function(tf.zeros(shape), SPEC)


def test_unknown_dimensions_pass_at_trace_time():
    clip = tf.function(
        lambda x: bounds.clip_to_spec(x, SPEC), input_signature=[tf.TensorSpec(None)]
    )
    np.testing.assert_array_equal(clip([[9.0, 9.0]]), [[1.0, 4.0]])


def test_errors():
    with pytest.raises(TypeError, match="`spec` expected a BoundedTensorSpec"):
        bounds.clip_to_spec([0.0, 0.0], tf.TensorSpec([2]))
    with pytest.raises(TypeError, match="`spec` expected a BoundedTensorSpec"):
        bounds.spec_means_and_magnitudes(tf.TensorSpec([2]))
    with pytest.raises(TypeError, match="`tensor` expected a floating-point dtype"):
        bounds.scale_to_spec([0, 1], SPEC)
    with pytest.raises(TypeError, match="`value` expected a floating-point dtype"):
        bounds.clip_to_spec([0, 1], SPEC)
    with pytest.raises(ValueError, match="`(spec.)?maximum` expected finite numbers"):
        bounds.scale_to_spec([0.0, 1.0], SPEC.replace(maximum=np.inf))
