"""Tests of `tfrl.losses._operands`."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.losses import _operands


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_no_tensor_takes_the_dtype_of_the_leader(dtype):
    leader = _operands.leading("f", "x", tf.zeros([2, 3], dtype))
    assert leader.dtype == dtype
    for value in (1, 0.5, [1, 2], np.ones(2), tf.zeros([2, 3], dtype)):
        assert _operands.alike("f", "y", value, "x", leader).dtype == dtype
        assert _operands.aligned("f", "y", value, "x", leader).shape.rank == 2
    assert _operands.number(0.3, leader.dtype).dtype == dtype


def test_lists_are_float32_and_float64_numbers_exact():
    assert _operands.leading("f", "x", [1.0]).dtype == tf.float32
    assert float(_operands.number(0.3, tf.float64)) == 0.3
    assert float(_operands.number(tf.constant(0.5), tf.float64)) == 0.5


def test_axes_are_added_behind():
    column = _operands.aligned("f", "y", [1, 2], "x", tf.zeros([2, 3, 4]))
    np.testing.assert_array_equal(column, np.array([1.0, 2.0]).reshape(2, 1, 1))


def test_unknown_sizes_pass_and_unknown_ranks_do_not():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None, None])])
    def sized(short, long):
        return _operands.aligned("f", "y", short, "x", long) + long

    np.testing.assert_array_equal(sized([1.0, 2.0], [[1.0], [2.0]]), [[2.0], [4.0]])

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def unranked(x):
        return _operands.leading("f", "x", x)

    with pytest.raises(ValueError, match="`f`: `x` expected a known rank"):
        unranked(1.0)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: _operands.leading("f", "x", [1, 2]),
            TypeError,
            "`f`: `x` expected a floating-point dtype; got int32",
        ),
        (
            lambda: _operands.leading("f", "x", [1.0], axes=2),
            ValueError,
            r"`f`: `x` expected rank of at least 2; got shape \[1\]",
        ),
        (
            lambda: _operands.alike("f", "y", tf.zeros(2, tf.int32), "x", tf.zeros(2)),
            TypeError,
            "`f`: `y` expected dtype float32, which `x` has; got int32",
        ),
        (
            lambda: _operands.aligned("f", "y", tf.zeros([3]), "x", tf.zeros([2, 3])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2, 3\] or its first axes; got \[3\]",
        ),
        (
            lambda: _operands.aligned("f", "y", tf.zeros([2, 1]), "x", tf.zeros([2])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2\] or its first axes; got \[2, 1\]",
        ),
        (
            lambda: _operands.equal("f", "y", tf.zeros([2]), "x", tf.zeros([2, 3])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2, 3\]; got \[2\]",
        ),
    ],
    ids=["integers", "rank", "dtype", "other-axis", "extra-axis", "unequal"],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
