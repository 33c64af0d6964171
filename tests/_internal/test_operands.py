"""How arguments that belong together are converted, checked and aligned."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import operands, precision


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_and_lists_take_the_dtype_of_the_leader(dtype):
    leader = operands.leading("f", "x", tf.zeros([2, 3], dtype))
    assert leader.dtype == dtype
    for value in (1, 0.5, [1, 2], np.ones([]), tf.zeros([2, 3], dtype)):
        assert operands.alike("f", "y", value, "x", leader).dtype == dtype
        assert operands.aligned("f", "y", value, "x", leader).shape.rank == 2
    assert precision.number(0.3, leader.dtype).dtype == dtype


def test_lists_are_float32_and_float64_numbers_exact():
    assert operands.leading("f", "x", [1.0]).dtype == tf.float32
    assert float(precision.number(0.3, tf.float64)) == 0.3
    assert float(precision.number(tf.constant(0.5), tf.float64)) == 0.5


def test_axes_are_added_behind():
    column = operands.aligned("f", "y", [1, 2], "x", tf.zeros([2, 3, 4]))
    np.testing.assert_array_equal(column, np.array([1.0, 2.0]).reshape(2, 1, 1))


def test_unknown_sizes_pass_and_unknown_ranks_do_not():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None, None])])
    def sized(short, long):
        return operands.aligned("f", "y", short, "x", long) + long

    np.testing.assert_array_equal(sized([1.0, 2.0], [[1.0], [2.0]]), [[2.0], [4.0]])

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def unranked(x):
        return operands.leading("f", "x", x)

    with pytest.raises(ValueError, match="`f`: `x` expected a known rank"):
        unranked(1.0)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: operands.leading("f", "x", [1, 2]),
            TypeError,
            "`f`: `x` expected a floating-point dtype; got int32",
        ),
        (
            lambda: operands.leading("f", "x", [1.0], axes=2),
            ValueError,
            r"`f`: `x` expected rank of at least 2; got shape \[1\]",
        ),
        (
            lambda: operands.alike("f", "y", tf.zeros(2, tf.int32), "x", tf.zeros(2)),
            TypeError,
            "`f`: `y` expected dtype float32, which `x` has; got int32",
        ),
        (
            lambda: operands.aligned("f", "y", tf.zeros([3]), "x", tf.zeros([2, 3])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2, 3\] or its first axes; got \[3\]",
        ),
        (
            lambda: operands.aligned("f", "y", tf.zeros([2, 1]), "x", tf.zeros([2])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2\] or its first axes; got \[2, 1\]",
        ),
        (
            lambda: operands.equal("f", "y", tf.zeros([2]), "x", tf.zeros([2, 3])),
            ValueError,
            r"`f`: `y` expected the shape of `x` \[2, 3\]; got \[2\]",
        ),
    ],
    ids=["integers", "rank", "dtype", "other-axis", "extra-axis", "unequal"],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_ranked_wants_a_known_rank():
    assert operands.ranked("op", "x", [1.0, 2.0], at_least=1).shape == [2]
    with pytest.raises(ValueError, match=r"`op`: `x` expected rank of at least 2; got"):
        operands.ranked("op", "x", [1.0], at_least=2)
    graph = tf.function(lambda x: operands.ranked("op", "x", x))
    with pytest.raises(ValueError, match="`op`: `x` expected a known rank; got"):
        graph.get_concrete_function(tf.TensorSpec(None))


@pytest.mark.parametrize(("given", "expected"), [(0, 0), (-1, 2), (-3, 0), (2, 2)])
def test_axis_counts_from_the_front(given, expected):
    assert operands.axis("op", "dim", given, tf.zeros([1, 1, 1])) == expected
    assert operands.axis("op", "dim", np.int64(given), tf.zeros([1, 1, 1])) == expected


@pytest.mark.parametrize("axis", [3, -4])
def test_axis_must_exist(axis):
    with pytest.raises(ValueError, match=r"`op`: `dim` expected an int in \[-3, 2\]"):
        operands.axis("op", "dim", axis, tf.zeros([1, 1, 1]))


def test_floating_dtype():
    for dtype in ("bfloat16", np.float64, tf.float16):
        assert operands.floating_dtype("op", dtype) == dtype
    with pytest.raises(
        TypeError, match="`op`: `dtype` expected a floating-point dtype"
    ):
        operands.floating_dtype("op", tf.int32)


def test_unknown_sizes_fit_and_known_ones_are_checked():
    @tf.function(
        input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None, None])]
    )
    def shape(values, rewards):
        rewards = operands.beginning("f", "rewards", rewards, "values", values, 1)
        return tf.shape(rewards)

    np.testing.assert_array_equal(shape(tf.ones([5, 2]), tf.ones([5, 2])), [5, 2])
    match = r"`f`: `rewards` expected the shape of `values`"
    with pytest.raises(ValueError, match=match):
        operands.beginning("f", "rewards", [1.0], "values", tf.ones([5, 2]))
    with pytest.raises(ValueError, match=match):
        operands.beginning("f", "rewards", 1.0, "values", tf.ones([5, 2]), 1)


@pytest.mark.parametrize(
    ("array", "leader"), [([0.5], tf.constant([1])), ([1.0], tf.constant([1.0]))]
)
def test_arrays_of_another_dtype_are_refused_as_tensors_are(array, leader):
    expected = f"`f`: `y` expected dtype {leader.dtype.name}, which `x` has; got float6"
    with pytest.raises(TypeError, match=expected):
        operands.alike("f", "y", np.array(array), "x", leader)
