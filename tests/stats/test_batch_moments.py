"""Moments of batches against float64 arithmetic on all data at once."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import compile
from tfrl.stats import _batch_moments as moments

MODES = pytest.mark.parametrize("mode", ["eager", "graph", "xla"])


def run(mode, function, *tensors):
    if mode == "eager":
        return function(*tensors)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    if mode == "graph":
        specs = [tf.TensorSpec([None] * len(s.shape), s.dtype) for s in specs]
    made = tf.function(function, jit_compile=mode == "xla", input_signature=specs)
    return made(*tensors)


def whole(values, event_rank):
    """Mean and variance over the leading axes, in plain float64."""
    wide = np.asarray(values).astype(np.float64)
    axes = tuple(range(wide.ndim - event_rank))
    return wide.mean(axes), wide.var(axes)


def standardized(values, known, epsilon=1e-10, *limit, **options):
    epsilon = tf.constant(epsilon, tf.float64)
    return moments.standardize(values, *known, epsilon, *limit, **options)


@MODES
def test_batch_moments_by_hand(mode):
    values = tf.constant([[1.0, 5.0], [3.0, 5.0], [8.0, 2.0]])
    count, found = run(mode, lambda x: moments.batch_moments(x, 1), values)
    assert float(count) == 3.0
    assert found.mean.dtype == found.variance.dtype == tf.float64
    np.testing.assert_allclose(found.mean, [4.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(found.variance, [26 / 3, 2.0], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "event_rank"),
    [((7,), 0), ((5, 3), 1), ((2, 3, 4), 1), ((4, 2, 3), 2), ((3,), 1), ((2, 3), 0)],
)
def test_batch_moments_equal_all_data_at_once(dtype, shape, event_rank):
    rng = np.random.default_rng(0)
    values = tf.cast(rng.normal(3.0, 2.0, shape), dtype)
    count, found = moments.batch_moments(values, event_rank)
    mean, variance = whole(values, event_rank)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert float(count) == values.shape[: len(shape) - event_rank].num_elements()
    np.testing.assert_allclose(found.mean, mean, rtol=tolerance)
    np.testing.assert_allclose(found.variance, variance, rtol=tolerance, atol=1e-12)
    _, alone = moments.batch_moments(values, event_rank, with_variance=False)
    np.testing.assert_array_equal(alone.mean, found.mean)
    assert alone.variance == ()


@MODES
@pytest.mark.parametrize("rows", [64, 5000])
def test_great_offsets_leave_mean_and_variance_intact(mode, rows):
    rng = np.random.default_rng(1)
    values = (np.array([1e6, -3e7]) + rng.normal(size=(rows, 2))).astype(np.float32)
    function = lambda x: moments.batch_moments(x, 1)  # noqa: E731
    _, found = run(mode, function, tf.constant(values))
    mean, variance = whole(values, 1)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5)


def test_a_first_row_far_from_the_others_costs_little():
    values = np.random.default_rng(2).normal(size=(256, 1)).astype(np.float32)
    values[0] = 1e7
    _, found = moments.batch_moments(tf.constant(values), 1)
    mean, variance = whole(values, 1)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6 * np.sqrt(variance[0]))
    np.testing.assert_allclose(found.variance, variance, rtol=256 * 5e-7)


@MODES
@pytest.mark.parametrize("repeats", [1, 3000], ids=["small", "large"])
@pytest.mark.parametrize("size", [1e-38, 1e4, 1e30])
def test_extreme_values_give_finite_moments(mode, size, repeats):
    values = np.array([[size], [-size], [0.0], [size]] * repeats, np.float32)
    function = lambda x: moments.batch_moments(x, 1)  # noqa: E731
    _, found = run(mode, function, tf.constant(values))
    mean, variance = whole(values, 1)
    # Beyond float32's normal numbers there is nothing to be had but 0.
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-38)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5, atol=1e-70)


def test_values_of_no_weight_are_not_looked_at():
    values = tf.constant([[np.nan], [1.0], [np.inf], [4.0]])
    weights = tf.constant([0.0, 2.0, 0.0, 1.0])
    count, found = moments.batch_moments(values, 1, weights)
    assert float(count) == 3.0
    np.testing.assert_allclose(found.mean, [2.0], rtol=1e-6)
    np.testing.assert_allclose(found.variance, [2.0], rtol=1e-6)
    count, found = moments.batch_moments(values, 1, 0.0 * weights)
    assert (float(count), *found.mean, *found.variance) == (0.0, 0.0, 0.0)


def test_an_empty_batch_has_zero_moments():
    count, found = moments.batch_moments(tf.zeros([0, 2]), 1)
    assert float(count) == 0.0
    np.testing.assert_array_equal(found, np.zeros([2, 2]))


def test_gradients_are_those_of_the_definition():
    values = tf.constant(np.random.default_rng(3).normal(size=(5, 2)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(values)
        _, found = moments.batch_moments(values, 1)
    np.testing.assert_allclose(
        tape.gradient(found.mean, values), np.full((5, 2), 0.2), rtol=1e-12
    )
    np.testing.assert_allclose(
        tape.gradient(found.variance, values), 0.4 * (values - found.mean), rtol=1e-9
    )


def test_merged_and_pooled_moments_equal_all_data_at_once():
    rng = np.random.default_rng(4)
    parts = [1e6 + rng.normal(size=(n, 2)) for n in (3, 5, 1)]
    found = [moments.Moments(*map(tf.constant, whole(part, 1))) for part in parts]
    mean, variance = whole(np.concatenate(parts), 1)
    merged = moments.merge_moments(found[0], found[1], 5 / 8)
    merged = moments.merge_moments(merged, found[2], 1 / 9)
    stacked = moments.Moments(
        *(tf.stack(column) for column in zip(*found, strict=True))
    )
    pooled = moments.pool_moments(stacked, tf.constant([3.0, 5.0, 1.0]))
    for got in (merged, pooled):
        np.testing.assert_allclose(got.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(got.variance, variance, rtol=1e-9)
    bare = moments.merge_moments(found[0]._replace(variance=()), found[1], 5 / 8)
    assert bare.variance == ()
    nothing = moments.pool_moments(stacked, tf.zeros([3]))
    np.testing.assert_array_equal(nothing, np.zeros([2, 2]))


@pytest.mark.parametrize("sizes", [(2, 3), (4, 0)], ids=["uneven", "one empty"])
@pytest.mark.parametrize("with_variance", [True, False])
def test_replicas_pool_to_the_global_batch(sizes, with_variance):
    # The default way of reducing leaves a thread pool to the garbage collector.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    rng = np.random.default_rng(5)
    local = [(1e6 + rng.normal(size=(n, 2))).astype(np.float32) for n in sizes]
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(local[context.replica_id_in_sync_group])
    )

    def pool(values):
        batch = moments.batch_moments(values, 1, with_variance=with_variance)
        return moments.pool_over_replicas([batch])[0]

    found = strategy.experimental_local_results(strategy.run(pool, (values,)))
    mean, variance = whole(np.concatenate(local), 1)
    assert len(found) == 2
    for count, got in found:
        assert float(count) == sum(sizes)
        np.testing.assert_allclose(got.mean, mean, rtol=1e-12)
        if with_variance:
            np.testing.assert_allclose(got.variance, variance, rtol=1e-5)


def test_standardize_by_hand():
    known = moments.Moments(
        tf.constant([2.0], tf.float64), tf.constant([4.0], tf.float64)
    )
    values = tf.constant([[2.0], [8.0]])

    def made(**options):
        return standardized(values, known, 0.0, **options).numpy().ravel()

    np.testing.assert_allclose(made(), [0.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(made(clip_value=2.5), [0.0, 2.5], rtol=1e-6)
    np.testing.assert_allclose(made(unit_std=True), [0.0, 6.0], rtol=1e-6)
    expected = [2 / 8**0.5, 8 / 8**0.5]
    np.testing.assert_allclose(made(zero_mean=False), expected, rtol=1e-6)


@MODES
def test_standardize_is_as_exact_as_in_float64(mode):
    rng = np.random.default_rng(6)
    values = (1e6 + 0.3 + rng.normal(size=(64, 3))).astype(np.float32)
    wide = values.astype(np.float64)
    known = moments.Moments(tf.constant(wide.mean(0)), tf.constant(wide.var(0)))
    got = run(mode, lambda x: standardized(x, known), tf.constant(values))
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-10)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_standardize_keeps_the_dtype_and_sends_gradients_to_values_alone(dtype):
    mean, variance = tf.constant(1.0, tf.float64), tf.constant(4.0, tf.float64)
    values = tf.constant([3.0, 5.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch([values, mean, variance])
        result = standardized(values, moments.Moments(mean, variance))
    assert result.dtype == dtype
    slope, *others = tape.gradient(result, [values, mean, variance])
    np.testing.assert_allclose(tf.cast(slope, tf.float64), [0.5, 0.5], rtol=1e-3)
    assert others == [None, None]


def test_numbers_cause_no_traces():
    known = moments.Moments(tf.zeros([2], tf.float64), tf.ones([2], tf.float64))
    standardized(tf.zeros([3, 2]), known, 1e-3, 1.0)
    before = compile.trace_count(moments.standardize)
    for size in (1, 4):
        standardized(tf.zeros([size, 2]), known, 1e-4 * size, 2 * size)
    assert compile.trace_count(moments.standardize) == before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 3])
def test_rows_do_not_spoil_each_other(dtype, bad, row):
    data = np.random.default_rng(0).normal(size=[9000, 2]).astype(dtype)
    _, known = moments.batch_moments(tf.constant(data), 1)
    spoiled = data.copy()
    spoiled[row, 0] = bad
    right = standardized(tf.constant(data), known)
    got = standardized(tf.constant(spoiled), known).numpy()
    others = np.delete(np.arange(9000), row)
    np.testing.assert_allclose(got[others], right.numpy()[others], atol=1e-4)
    assert not np.isfinite(got[row, 0])
