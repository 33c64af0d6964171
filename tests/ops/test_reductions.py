"""Reverse sums and products, covariance and explained variance."""

import golden_calls
import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import ops
from tfrl.core import compile
from tfrl.ops import reductions

CASES = golden_calls.load(
    "alf/tensor_utils",
    ["cov", "explained_variance", "reverse_cumprod", "reverse_cumsum"],
)
RECORDED = [case for case in CASES if case["kind"] == "call"]
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


def test_recordings_are_there():
    assert [len(CASES), len(RECORDED)] == [18, 16]


@pytest.mark.parametrize("mode", golden_calls.MODES)
@pytest.mark.parametrize("case", RECORDED, ids=golden_io.ids(RECORDED))
def test_equals_the_recording(case, mode):
    if mode == "graph" and "[1,D]" in (case.get("note") or ""):
        mode = "eager"  # that there is one row must be known
    golden_calls.check(case, getattr(ops, case["symbol"].rsplit(".", 1)[-1]), mode)


def test_covariance_refuses_what_the_recording_refuses():
    (case,) = [c for c in CASES if c["kind"] == "raises" and "cov" in c["symbol"]]
    with pytest.raises(ValueError, match="`data` expected at least 2 observations"):
        ops.cov(*case["args"], **case["kwargs"])


def test_masks_work_along_every_axis_where_the_recording_refuses():
    (case,) = [c for c in CASES if c["kind"] == "raises" and "expl" in c["symbol"]]
    expected = slow_explained_variance(*(np.asarray(a) for a in case["args"][:3]), 1)
    np.testing.assert_allclose(
        ops.explained_variance(*case["args"]), expected, rtol=1e-5, atol=1e-6
    )


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
        *[(dim, masked, None) for dim in (None, 0, 1, -1) for masked in (False, True)],
        (None, True, True),
        (1, True, True),
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


def test_gradients_of_explained_variance():
    rng = np.random.default_rng(9)
    y, ypred = map(tf.constant, rng.normal(size=(2, 4, 3)))
    valid = rng.random([4, 3]) > 0.3

    def total(ypred, y):
        return tf.reduce_sum(ops.explained_variance(ypred, y, valid, dim=0))

    pairs = tf.test.compute_gradient(total, [ypred, y], delta=1e-6)
    for got, expected in zip(*pairs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


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


def test_one_trace_for_all_sizes():
    for size in (3, 4, 5):
        ops.explained_variance(tf.range(size * 1.0), tf.range(size * 1.0))
        ops.cov(tf.random.stateless_uniform([size, 2], [0, 0]))
    before = compile.trace_count(reductions._explained_variance)
    ops.explained_variance(tf.range(6.0), tf.range(6.0))
    assert compile.trace_count(reductions._explained_variance) == before


def test_arguments_are_checked():
    x = tf.zeros([3, 2])
    for function in (ops.reverse_cumsum, ops.reverse_cumprod):
        with pytest.raises(ValueError, match=r"`dim` expected an int in \[-2, 1\]"):
            function(x, 2)
    with pytest.raises(TypeError, match="`data` expected a floating-point dtype"):
        ops.cov([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="`data` expected rank of at least 1"):
        ops.cov(1.0)
    with pytest.raises(ValueError, match="`data` expected rank of at most 3"):
        ops.cov(tf.zeros([2, 2, 2, 2]))
    with pytest.raises(ValueError, match="`data` expected at least 2 observations"):
        ops.cov([1.0])
    explained = ops.explained_variance
    with pytest.raises(ValueError, match="`y` expected the shape of `ypred`"):
        explained(x, tf.zeros([3]))
    with pytest.raises(ValueError, match="`valid_mask` expected the shape of `ypred`"):
        explained(x, x, [True, False, True])
    with pytest.raises(TypeError, match="`y` expected dtype float32"):
        explained(x, tf.zeros([3, 2], tf.float64))
    with pytest.raises(TypeError, match="`ypred` expected a floating-point dtype"):
        explained([1, 2], [1, 2])
    with pytest.raises(ValueError, match="`dim` expected an int"):
        explained(x, x, dim=2)


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
