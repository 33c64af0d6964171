"""Tests of tfrl.ops.math."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from modes import both_ways
from refusals import bad

from tfrl import ops


def gradient(function, *arguments):
    tensors = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    return [slope.numpy() for slope in tape.gradient(y, tensors)]


def test_square():
    assert ops.square(tf.constant([-3, 2], tf.int64)).numpy().tolist() == [9, 4]
    np.testing.assert_allclose(gradient(ops.square, [3.0, -1.0])[0], [6.0, -2.0])


def test_clipped_exp():
    x = np.array([-30.0, -20.0, 0.0, 2.0, 3.0, np.inf, -np.inf])
    expected = np.exp(np.clip(x, -20, 2))
    np.testing.assert_allclose(ops.clipped_exp(x), expected, rtol=1e-12)
    inside = [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(gradient(ops.clipped_exp, x)[0], expected * inside)
    assert ops.clipped_exp(tf.constant([1.0], tf.bfloat16)).dtype == tf.bfloat16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_clipped_logit(dtype):
    x = tf.cast([0.0, 0.125, 0.5, 0.875, 1.0], dtype)
    got = ops.clipped_logit(x)
    assert got.dtype == x.dtype
    far = np.log(1e15)
    expected = [-far, -np.log(7), 0.0, np.log(7), far]
    rtol = {"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 1e-6)
    np.testing.assert_allclose(got.numpy().astype(float), expected, rtol=rtol)


def test_clipped_logit_of_impossible_probabilities():
    x = tf.constant([-np.inf, -1.0, 2.0, np.inf])
    far = np.float32(np.log(1e3))
    np.testing.assert_allclose(ops.clipped_logit(x, 1e-3), [-far, -far, far, far])
    slopes = gradient(ops.clipped_logit, [0.0, 1.0, 0.25, 3.0])[0]
    np.testing.assert_allclose(slopes, [1.0, 1.0, 4 + 4 / 3, 0.0], rtol=1e-6)
    assert np.isnan(ops.clipped_logit([np.nan]))


def test_binary_neg_entropy():
    p = np.array([0.0, 1e-300, 1e-9, 0.25, 0.5, 1 - 1e-9, 1.0])
    q = 1 - p[1:-1]
    inner = p[1:-1] * np.log(p[1:-1]) + q * np.log1p(-p[1:-1])
    np.testing.assert_allclose(ops.binary_neg_entropy(p), [0, *inner, 0], rtol=1e-12)
    slopes = gradient(ops.binary_neg_entropy, p)[0]
    np.testing.assert_allclose(slopes[1:-1], np.log(p[1:-1]) - np.log1p(-p[1:-1]))
    assert slopes[[0, -1]].tolist() == [-np.inf, np.inf]


def test_binary_neg_entropy_that_does_not_count_has_no_gradient():
    slopes = gradient(lambda p: ops.binary_neg_entropy(p) * [0.0, 1.0], [0.0, 0.5])
    np.testing.assert_allclose(slopes[0], [0.0, 0.0], atol=1e-7)


def test_binary_neg_entropy_keeps_small_probabilities():
    got = ops.binary_neg_entropy(np.float32(1e-7))
    np.testing.assert_allclose(got, 1e-7 * (np.log(1e-7) - 1), rtol=1e-6)


@pytest.mark.parametrize("absent", [None, ()], ids=["none", "empty"])
def test_add_ignore_empty(absent):
    x = tf.constant([1.0, 2.0])
    assert ops.add_ignore_empty(x, absent) is x
    assert ops.add_ignore_empty(absent, x) is x
    assert ops.add_ignore_empty(x, 1.0).numpy().tolist() == [2.0, 3.0]
    assert ops.add_ignore_empty(None, ()) is None


MANY = {
    "add_n": (ops.add_n, np.add),
    "mul_n": (ops.mul_n, np.multiply),
    "max_n": (ops.max_n, np.maximum),
    "min_n": (ops.min_n, np.minimum),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("name", MANY)
def test_several_broadcast(name, dtype):
    function, oracle = MANY[name]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape in [(2, 1, 3), (4, 1)]]
    got = function(iter([*arrays, 2]))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, oracle(oracle(*arrays), 2))


def test_several_by_xla_of_unknown_sizes():
    arrays = [tf.ones([2, 3]), 2.0 * tf.ones([3]), tf.constant(3.0)]
    specs = [tf.TensorSpec([None] * array.shape.rank) for array in arrays]
    every = tf.function(
        lambda *xs: [function(xs) for function, _ in MANY.values()],
        input_signature=specs,
        jit_compile=True,
    )
    for got, expected in zip(every(*arrays), [6.0, 6.0, 3.0, 1.0], strict=True):
        np.testing.assert_array_equal(got, np.full([2, 3], expected))


@pytest.mark.parametrize("name", ["max_n", "min_n"])
def test_equals_share_the_gradient(name):
    function = MANY[name][0]
    slopes = gradient(lambda *xs: function(xs), [1.0, 5.0], [1.0, 5.0], 5.0)
    ahead = {"max_n": ([0, 1 / 3], 1 + 1 / 3), "min_n": ([0.5, 1 / 3], 1 / 3)}[name]
    for slope in slopes[:2]:
        np.testing.assert_allclose(slope, ahead[0], rtol=1e-6)
    np.testing.assert_allclose(slopes[2], ahead[1], rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_nan_wins(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def both(inputs):
        return ops.max_n(inputs), ops.min_n(inputs)

    assert np.isnan(both(tf.unstack([[np.nan, 1.0], [0.0, np.nan]]))).all()


def test_mul_n_has_gradients_at_zeros():
    slopes = gradient(lambda *xs: ops.mul_n(xs), 0.0, 2.0, 3.0)
    assert slopes == [6.0, 0.0, 0.0]


@pytest.mark.parametrize("dim", range(5))
def test_sum_to_leftmost(dim):
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    got = ops.sum_to_leftmost(x, dim)
    expected = x.sum(axis=tuple(range(dim, 3))) if dim < 3 else x
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_sum_to_leftmost_counts_far_in_narrow_dtypes():
    ones = tf.ones([2, 1000], tf.bfloat16)
    assert ops.sum_to_leftmost(ones, 1).numpy().tolist() == [1000.0, 1000.0]


@pytest.mark.parametrize(
    "dim", [None, (), 1, -1, (0, 2), [0, -1]], ids=lambda dim: f"dim {dim}"
)
def test_weighted_reduce_mean(dim):
    rng = np.random.default_rng(2)
    x = {"a": rng.normal(size=(2, 3, 4)), "b": rng.integers(0, 9, (2, 3, 4))}
    weight = rng.random((2, 3, 4))
    got = ops.weighted_reduce_mean(x, weight, dim)
    axis = None if dim in (None, ()) else tuple(dim) if isinstance(dim, list) else dim
    for name, tol in (("a", 1e-12), ("b", 1e-6)):
        expected = (x[name] * weight).sum(axis) / weight.sum(axis)
        np.testing.assert_allclose(got[name], expected, rtol=tol)
    assert (got["a"].dtype, got["b"].dtype) == (tf.float64, tf.float32)


def test_weighted_reduce_mean_at_the_edges():
    x = np.float32([1e30, 1e30])
    np.testing.assert_allclose(ops.weighted_reduce_mean(x, [1e30, 1e30]), 1e30)
    assert ops.weighted_reduce_mean(x, [False, False]) == 0.0
    half = tf.constant([1.0, 2.0], tf.float16)
    got = ops.weighted_reduce_mean(half, tf.zeros([2], tf.float16))
    assert got.dtype == tf.float16
    assert got == 0.0
    slopes = gradient(ops.weighted_reduce_mean, [1.0, 4.0], [1.0, 3.0])
    np.testing.assert_allclose(slopes[0], [0.25, 0.75])
    np.testing.assert_allclose(slopes[1], [-2.25 / 4, 0.75 / 4])


def mean_and_slopes(*given):
    with tf.GradientTape() as tape:
        tape.watch(given)
        mean = ops.weighted_reduce_mean(*given)
    return mean, tape.gradient(mean, given)


@both_ways(mean_and_slopes)
def test_what_has_no_weight_is_not_looked_at(run):
    weight = tf.constant([1.0, 0.0, 3.0, 0.0, 0.0])
    mean, (to_x, to_weight) = run(tf.constant([1.0, np.nan, 4.0, np.inf, 2.0]), weight)
    np.testing.assert_allclose(mean, 3.25)
    np.testing.assert_allclose(to_x, [0.25, 0.0, 0.75, 0.0, 0.0])
    # What may gain weight, were it finite: (x - mean) / 4.
    np.testing.assert_allclose(
        to_weight.numpy()[[0, 2, 4]], [-2.25 / 4, 0.75 / 4, -1.25 / 4]
    )
    assert np.isfinite(to_weight).all()
    mean, _ = run(tf.constant([1.0, np.nan, np.inf]), tf.constant([1.0, 1.0, 0.0]))
    assert np.isnan(mean)


@refusals.table(
    (ops.clipped_exp, bad(TypeError, "value", [1])),
    (ops.clipped_logit, bad(ValueError, "epsilon", [0.5], 0.0)),
    (ops.binary_neg_entropy, bad(TypeError, "p", [1])),
    (ops.mul_n, bad(ValueError, "inputs", [])),
    (ops.add_n, bad(TypeError, "inputs", [np.float32([1]), tf.zeros([1], tf.float64)])),
    (ops.sum_to_leftmost, bad(ValueError, "dim", [1.0], -1)),
    (
        ops.weighted_reduce_mean,
        bad(ValueError, "x", tf.ones([2, 3]), tf.ones([2, 1])),
        bad(ValueError, "dim", tf.ones([2]), tf.ones([2]), 1),
    ),
)
def test_refusals(row):
    row()
