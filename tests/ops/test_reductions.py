"""Reverse sums and products, covariance and explained variance."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import ops

DTYPES = [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-12)]


def slow_explained_variance(ypred, y, valid, dim):
    """One column after the other, from the definition."""
    if dim is None:
        columns = [(ypred.ravel(), y.ravel(), valid.ravel())]
        shape = ()
    else:
        moved = [np.moveaxis(a, dim, 0) for a in (ypred, y, valid)]
        shape = moved[0].shape[1:]
        columns = list(zip(*(a.reshape(len(a), -1).T for a in moved), strict=True))
    results = []
    for prediction, target, kept in columns:
        prediction, target = prediction[kept], target[kept]
        varies = len(target) and np.var(target) > 0
        residual = target - prediction
        results.append(1 - np.var(residual) / np.var(target) if varies else 0.0)
    return np.reshape(results, shape)


def test_hand_worked_sums_and_products():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sums = [[9.0, 12.0], [8.0, 10.0], [5.0, 6.0]]
    np.testing.assert_array_equal(ops.reverse_cumsum(x, 0), sums)
    products = [[15.0, 48.0], [15.0, 24.0], [5.0, 6.0]]
    np.testing.assert_array_equal(ops.reverse_cumprod(x, -2), products)
    np.testing.assert_array_equal(
        ops.reverse_cumprod(tf.constant([2, 0, 3]), 0), [0, 0, 3]
    )
    assert ops.reverse_cumprod(tf.zeros([0, 2]), 0).shape == [0, 2]
    assert ops.reverse_cumsum(tf.zeros([2, 0]), 1).shape == [2, 0]


@pytest.mark.parametrize(("dim", "xla"), [(0, None), (1, None), (2, None), (1, True)])
def test_sums_and_products_of_unknown_sizes(dim, xla):
    x = np.random.default_rng(dim).normal(size=[3, 4, 5])
    spec = tf.TensorSpec([None] * 3, tf.float64)

    @tf.function(input_signature=[spec], jit_compile=xla)
    def both(x):
        return ops.reverse_cumsum(x, dim), ops.reverse_cumprod(x, dim)

    sums, products = both(x)
    flipped = np.flip(x, dim)
    np.testing.assert_allclose(sums, np.flip(np.cumsum(flipped, dim), dim), rtol=1e-12)
    expected = np.flip(np.cumprod(flipped, dim), dim)
    np.testing.assert_allclose(products, expected, rtol=1e-12)


@pytest.mark.parametrize("zeros", [0, 1, 2, 4])
def test_gradient_of_products_is_right_at_zeros(zeros):
    rng = np.random.default_rng(zeros)
    x, weights = rng.normal(size=(2, 4))
    x[rng.permutation(4)[:zeros]] = 0.0
    # The derivative of a product in one factor is the product of the others.
    expected = np.zeros(4)
    for start in range(4):
        for place in range(start, 4):
            others = [x[i] for i in range(start, 4) if i != place]
            expected[place] += weights[start] * np.prod(others)
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(weights * ops.reverse_cumprod(x, 0))
    np.testing.assert_allclose(tape.gradient(loss, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_second_gradient_of_products():
    x = tf.constant([0.0, 2.0, 0.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            first = ops.reverse_cumprod(x, 0)[0]
        slope = inner.gradient(first, x)[0]  # x[1] * x[2]
    np.testing.assert_array_equal(outer.gradient(slope, x), [0.0, 0.0, 2.0])


def test_products_return_from_beyond_the_range():
    x = tf.constant([1e-37, 0.0, 1e-30, 1e-37, 1e30, 1e30, 1.0], tf.float32)
    expected = [0.0, 0.0, 1e-7, 1e23, np.inf, 1e30, 1.0]
    np.testing.assert_allclose(ops.reverse_cumprod(x, 0), expected, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_dtype_stays(dtype, tolerance):
    x = np.random.default_rng(3).normal(size=[6, 3])
    given = tf.cast(x, dtype)
    x = np.asarray(tf.cast(given, tf.float64))
    expected = {
        "reverse_cumsum": (np.cumsum(x[::-1], 0)[::-1], (0,)),
        "reverse_cumprod": (np.cumprod(x[::-1], 0)[::-1], (0,)),
        "cov": (np.cov(x, rowvar=False), ()),
        "explained_variance": (1 - np.var(x - x[::-1]) / np.var(x), (given[::-1],)),
    }
    for name, (wanted, rest) in expected.items():
        given_first = rest[0] if name == "explained_variance" else given
        rest = (given,) if name == "explained_variance" else rest
        got = getattr(ops, name)(given_first, *rest)
        assert got.dtype == dtype, name
        close = {"rtol": tolerance, "atol": tolerance}
        np.testing.assert_allclose(np.float64(got), wanted, **close, err_msg=name)


def test_bfloat16_sums_do_not_stall():
    # 256 + 1 is 256 in bfloat16.
    sums = ops.reverse_cumsum(tf.ones([1000], tf.bfloat16), 0)
    assert float(sums[0]) == 1000.0


@pytest.mark.parametrize(
    ("shape", "rowvar"),
    [
        *[(shape, False) for shape in [(7, 3), (3, 7), (2, 2), (5, 1), (1, 5), (9,)]],
        *[(shape, True) for shape in [(7, 3), (3, 7), (2, 2), (1, 5), (9,)]],
    ],
)
def test_covariance_equals_numpy(shape, rowvar):
    data = np.random.default_rng(5).normal(size=shape)
    oracle = np.cov(data, rowvar=rowvar or shape == (1, 5))
    np.testing.assert_allclose(ops.cov(data, rowvar), oracle, rtol=1e-12)


def test_covariance_of_batches_and_of_unknown_sizes():
    data = np.random.default_rng(6).normal(size=[4, 6, 3])
    oracle = np.stack([np.cov(each, rowvar=False) for each in data])
    for rank, given, wanted in ((3, data, oracle), (2, data[0], oracle[0])):
        spec = tf.TensorSpec([None] * rank, tf.float64)
        graph = tf.function(ops.cov, input_signature=[spec])
        np.testing.assert_allclose(graph(given), wanted, rtol=1e-12)
    assert ops.cov(data[:, :, :1]).shape == [4, 1, 1]


def test_covariance_does_not_feel_an_offset():
    data = np.random.default_rng(7).integers(0, 5, size=[50, 2]).astype(np.float32)
    shifted = ops.cov(data + np.float32(1e6))
    np.testing.assert_allclose(shifted, np.cov(data, rowvar=False), rtol=1e-5)
    for constant in (0.1, 1e-38, 1e30):
        np.testing.assert_array_equal(
            ops.cov(tf.fill([7, 2], constant)), np.zeros([2, 2])
        )


def test_hand_worked_explained_variance():
    y = tf.constant([1.0, 2.0, 3.0, 100.0])
    valid = [True, True, True, False]
    for prediction, expected in (
        ([1.0, 2.0, 3.0, 0.0], 1.0),
        ([5.0, 6.0, 7.0, 0.0], 1.0),
        ([2.0, 2.0, 2.0, 0.0], 0.0),
        ([3.0, 2.0, 1.0, 0.0], -3.0),
    ):
        assert float(ops.explained_variance(prediction, y, valid)) == expected


@pytest.mark.parametrize(
    ("dim", "masked", "xla"),
    [
        *[(dim, True, None) for dim in (None, 0, -1)],
        (1, True, True),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                *[(dim, False, None) for dim in (None, 0, 1, -1)],
                *((1, True, None), (None, True, True)),
            )
        ),
    ],
)
def test_explained_variance_equals_the_definition(dim, masked, xla):
    rng = np.random.default_rng(8)
    ypred, y = rng.normal(size=(2, 5, 4, 5))
    valid = rng.random([5, 4, 5]) > 0.4
    valid[:, 0, 0] = valid[1, :, 1] = valid[2, 3, :] = False
    y[:, 1, 2] = 3.0
    if not masked:
        valid[...] = True
    mask = (valid * 2,) if masked else ()

    @tf.function(jit_compile=xla, reduce_retracing=True)
    def explained(*tensors):
        return ops.explained_variance(*tensors, dim=dim)

    # What is not valid is not looked at.
    given = np.where(valid, ypred, np.nan), np.where(valid, y, np.inf), *mask
    expected = slow_explained_variance(ypred, y, valid, dim)
    tight = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(explained(*given), expected, **tight)
    np.testing.assert_allclose(
        ops.explained_variance(*given, dim=dim), expected, **tight
    )


@pytest.mark.parametrize(
    ("y", "ypred", "expected"),
    [
        ([1e30, -1e30, 3e30], [1e30, -1e30, 3e30], 1.0),
        ([1e30, -1e30, 0.0], [1e4, -1e4, 0.0], 0.0),
        ([1e-25, -1e-25, 0.0], [0.0, 0.0, 0.0], 0.0),
        ([0.1, 0.1, 0.1], [1e30, 2.0, -1e30], 0.0),
        ([1e30, 1e30, 1e30], [1e30, 2.0, 1e30], 0.0),
        ([1e30, 0.0, 0.0], [0.0, 1e30, 0.0], -2.0),
    ],
)
def test_extremes_stay_finite(y, ypred, expected):
    y, ypred = tf.constant(y), tf.constant(ypred)
    with tf.GradientTape() as tape:
        tape.watch([y, ypred])
        got = ops.explained_variance(ypred, y)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    for gradient in tape.gradient(got, [y, ypred]):
        assert np.all(np.isfinite(gradient))


X = tf.zeros([3, 2])


@refusals.table(
    (ops.reverse_cumsum, bad(ValueError, "dim", X, 2)),
    (ops.reverse_cumprod, bad(ValueError, "dim", X, 2)),
    (
        ops.cov,
        bad(TypeError, "data", [[1, 2], [3, 4]]),
        bad(ValueError, "data", 1.0),
        bad(ValueError, "data", tf.zeros([2, 2, 2, 2])),
        bad(ValueError, "data", [1.0]),
    ),
    (
        ops.explained_variance,
        bad(ValueError, "y", X, tf.zeros([3])),
        bad(ValueError, "valid_mask", X, X, [True, False, True]),
        bad(TypeError, "y", X, tf.zeros([3, 2], tf.float64)),
        bad(TypeError, "ypred", [1, 2], [1, 2]),
        bad(ValueError, "dim", X, X, dim=2),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("jit_compile", [None, True])
def test_covariance_of_one_row_of_unknown_size_is_that_of_one_variable(jit_compile):
    data = np.random.default_rng(8).normal(size=[1, 6])
    graph = tf.function(
        ops.cov,
        input_signature=[tf.TensorSpec([None, None], tf.float64)],
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(graph(data), [[ops.cov(data)]], rtol=1e-12)
    np.testing.assert_allclose(graph(data.T), [[ops.cov(data)]], rtol=1e-12)
