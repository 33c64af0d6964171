"""Norms, clipping, scaling and diagnostics of gradients."""

import functools

import golden_calls
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import ops

SCALED = golden_calls.load("alf/tensor_utils", ["scale_gradient"])
DTYPES = ["float16", "bfloat16", "float32", "float64"]
NAN, INF = np.nan, np.inf


def test_scales_gradients_as_recorded():
    scaled, value = SCALED
    x = scaled["in"]["x"]
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = 2.0 * x
        o = ops.scale_gradient(z, scaled["in"]["scale"], scaled["in"]["clone_input"])
        loss = tf.reduce_sum(o**2) + tf.reduce_sum(z**3)
    golden_calls.compare(scaled, tape.gradient(loss, x), scaled["out"]["grad"])
    golden_calls.check(value, ops.scale_gradient)


def test_global_norm_by_hand():
    nest = {"a": tf.constant([[3.0]]), "b": (None, tf.constant([0.0, 4.0]))}
    assert float(ops.global_norm(nest)) == 5.0
    assert float(ops.global_norm([])) == 0.0
    assert float(ops.global_norm([tf.zeros([0, 2]), tf.constant(2.0)])) == 2.0
    mixed = [tf.ones([2], tf.float16), tf.ones([2], tf.bfloat16)]
    assert ops.global_norm(mixed).dtype == tf.float32
    assert ops.global_norm([*mixed, tf.ones([], tf.float64)]).dtype == tf.float64


@pytest.mark.parametrize("limit", [0.1, 1.0, 1e6])
@pytest.mark.parametrize("function", ["clip_by_global_norm", "clip_by_norms"])
def test_equals_numpy(function, limit):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ([], [3], [4, 5], [0])]
    norms = [np.sqrt(np.sum(array**2)) for array in arrays]
    if function == "clip_by_global_norm":
        norms = [np.sqrt(np.sum(np.square(norms)))] * 4
    expected = [
        array * min(1.0, limit / norm) if norm else array
        for array, norm in zip(arrays, norms, strict=True)
    ]
    got = getattr(ops, function)([*arrays, None], limit)
    if function == "clip_by_global_norm":
        got, norm = got
        np.testing.assert_allclose(norm, norms[0], rtol=1e-12)
    assert got.pop() is None
    for array, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-12)


# Entries, and what they are when clipped together to length 1.
EXTREMES = {
    "zero": ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "nan": ([NAN, 3.0, 0.0], [NAN, 3.0, 0.0]),
    "infinite": ([INF, 3.0, 0.0], [NAN, 0.0, 0.0]),
    "huge": ([3e30, -4e30, 0.0], [0.6, -0.8, 0.0]),
    "largest": ([3e38, 0.0, 0.0], [1.0, 0.0, 0.0]),
    "tiny": ([3e-30, -4e-30, 0.0], [3e-30, -4e-30, 0.0]),
    "mixed": ([4e-30, 3e-10, 4.0], [1e-30, 0.75e-10, 1.0]),
}


@functools.cache
def clip_in_graph(jit):
    @tf.function(jit_compile=jit, input_signature=[tf.TensorSpec([None])])
    def clip(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            clipped, norm = ops.clip_by_global_norm([x], 1.0)
        return clipped[0], norm, tape.gradient(norm, x), ops.clip_by_norms(x, 1.0)

    return clip


@pytest.mark.parametrize(("entries", "expected"), EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("jit", [None, True], ids=["graph", "xla"])
def test_extreme_entries(entries, expected, jit):
    clipped, norm, slope, alone = clip_in_graph(jit)(tf.constant(entries))
    np.testing.assert_allclose(clipped, expected, rtol=1e-6)
    np.testing.assert_allclose(alone, expected, rtol=1e-6)
    length = np.sqrt(np.sum(np.square(entries)))
    np.testing.assert_allclose(norm, length, rtol=1e-6)
    if np.isfinite(length):
        direction = np.array(entries) / max(length, 1e-300)
        np.testing.assert_allclose(slope, direction, rtol=1e-5, atol=1e-35)


@pytest.mark.parametrize("dtype", DTYPES)
def test_keeps_the_dtype(dtype):
    # The norm of float16 is beyond its range, the clipped values are not.
    entries = tf.cast(tf.fill([50], 1e4), dtype)
    clipped, norm = ops.clip_by_global_norm([entries], 7.0)
    assert clipped[0].dtype == norm.dtype == dtype
    np.testing.assert_allclose(tf.cast(clipped[0], tf.float64), 7 / 50**0.5, rtol=1e-2)
    assert ops.clip_by_norms(entries, 7.0).dtype == dtype
    assert ops.scale_gradient(entries, 2.0).dtype == dtype
    for told in (ops.get_grads_diagnostics, ops.get_magnitude_quantiles):
        assert {value.dtype for value in told([entries]).values()} == {norm.dtype}


def test_limits_keep_their_digits():
    clipped, _ = ops.clip_by_global_norm([np.array([2.0])], 0.1)
    assert float(clipped[0][0]) == 0.1


def test_use_norm_is_taken_and_returned():
    norm = tf.constant(4.0)
    (clipped,), returned = ops.clip_by_global_norm([tf.ones([2])], 1.0, use_norm=norm)
    assert returned is norm
    np.testing.assert_allclose(clipped, [0.25, 0.25])


def test_in_place_assigns_variables_only():
    weight, offset = tf.Variable([3.0, 4.0]), keras.Variable([0.0])
    array = np.float32([0.0])
    nest = {"w": weight, "o": offset, "t": tf.zeros([1]), "n": None, "a": array}
    ops.clip_by_global_norm(nest, 1.0)
    assert weight.numpy().tolist() == [3.0, 4.0]
    clipped, _ = ops.clip_by_global_norm(nest, 1.0, in_place=True)
    np.testing.assert_allclose(weight, [0.6, 0.8])
    np.testing.assert_allclose(clipped["w"], [0.6, 0.8])
    ops.clip_by_norms([weight], 0.5, in_place=True)
    np.testing.assert_allclose(weight, [0.3, 0.4])


def test_slices_become_dense():
    table = tf.Variable(tf.ones([3, 1]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 1, 2]))
    (clipped,), norm = ops.clip_by_global_norm([tape.gradient(loss, table)], 1.0)
    np.testing.assert_allclose(norm, 5**0.5, rtol=1e-6)
    np.testing.assert_allclose(clipped, [[0], [2 / 5**0.5], [1 / 5**0.5]], rtol=1e-6)


def test_variables_as_numbers_in_a_graph():
    limit, scale, x = tf.Variable(1.0), tf.Variable(-2.0), tf.Variable([3.0, 4.0])

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(ops.scale_gradient(x, scale))
        clipped, _ = ops.clip_by_global_norm([x], limit, use_norm=limit * 10.0)
        return tape.gradient(loss, x), clipped[0]

    slope, clipped = step()
    np.testing.assert_allclose(slope, [-2.0, -2.0])
    np.testing.assert_allclose(clipped, [0.3, 0.4])
    limit.assign(5.0)
    np.testing.assert_allclose(step()[1], [0.3, 0.4])


@pytest.mark.parametrize("count", [1, 2, 5, 1001])
def test_quantiles_equal_numpy(count):
    entries = np.random.default_rng(count).normal(size=count).astype(np.float32)
    halves = {"a": tf.constant(entries[: count // 2]), "b": [entries[count // 2 :]]}
    expected = np.quantile(np.abs(entries), [0.0, 0.25, 0.5, 0.75, 1.0])
    got = ops.get_magnitude_quantiles(halves, key_prefix="w/")
    assert list(got) == ["w/min", "w/p25", "w/p50", "w/p75", "w/max"]
    np.testing.assert_allclose(list(got.values()), expected, rtol=1e-6)


def test_quantiles_of_extreme_entries():
    def told(*entries):
        return list(ops.get_magnitude_quantiles([tf.constant(entries)]).values())

    np.testing.assert_array_equal(told(1.0, NAN, 2.0), [NAN] * 5)
    np.testing.assert_array_equal(told(1.0, -INF, INF), [1.0, INF, INF, INF, INF])
    np.testing.assert_allclose(told(0.0, 1e38), [0, 0.25e38, 0.5e38, 0.75e38, 1e38])


def test_diagnostics_of_each_tensor():
    grads = {"w": tf.constant([3.0, -4.0]), "b": None}
    got = ops.get_grads_diagnostics(grads, "g_", keep_tree_structure=True)
    assert got["b"] is None
    assert {k: float(v) for k, v in got["w"].items()} == {"g_max": 4.0, "g_norm": 5.0}
    spoiled = ops.get_grads_diagnostics([tf.constant([1.0, NAN])])
    np.testing.assert_array_equal(list(spoiled.values()), [NAN, NAN])


def test_scaled_gradients_of_higher_order_and_in_xla():
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = ops.scale_gradient(x, 0.5) ** 3
            first = inner.gradient(y, x)
        return first, outer.gradient(first, x)

    for call in (second, tf.function(second, jit_compile=True)):
        # 0.5 * 3 x^2, and half of that slope again.
        np.testing.assert_allclose(call(tf.constant(2.0)), [6.0, 3.0])


ONE = [tf.ones([2])]


@refusals.table(
    (
        ops.global_norm,
        bad(TypeError, "tensors", ONE[0]),
        bad(TypeError, "tensors", [None]),
    ),
    (
        ops.clip_by_norms,
        bad(TypeError, "tensors", [tf.constant([1])], 1.0),
        bad(ValueError, "clip_norm", ONE, [1.0]),
    ),
    (
        ops.clip_by_global_norm,
        bad(ValueError, "clip_norm", ONE, -1.0),
        bad(ValueError, "use_norm", ONE, 1.0, use_norm=[1.0]),
    ),
    (
        ops.scale_gradient,
        bad(ValueError, "scale", ONE[0], ONE[0]),
        bad(TypeError, "scale", ONE[0], "2"),
        bad(TypeError, "tensor", tf.constant(1), 2.0),
    ),
    (ops.get_grads_diagnostics, bad(ValueError, "grads", {})),
    (ops.get_magnitude_quantiles, bad(ValueError, "pytree", [tf.zeros([0])])),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("jit_compile", [None, True])
def test_clip_gradient_changes_nothing_but_the_gradient(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def run(x, weights):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.clip_gradient(x, -0.5, 2.0)
            total = tf.reduce_sum(weights * y)
        return y, tape.gradient(total, x)

    x, weights = tf.constant([1.0, 2.0, 3.0]), tf.constant([-3.0, 0.25, 9.0])
    y, gradient = run(x, weights)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(gradient, [-0.5, 0.25, 2.0])


@refusals.table(
    (
        ops.clip_gradient,
        bad(TypeError, "tensor", [1, 2], -1.0, 1.0),
        bad(ValueError, "low", [1.0], [0.0, 1.0], 1.0),
        bad(ValueError, "low", [1.0], 1.0, -1.0),
        bad(ValueError, "low", [1.0], np.nan, 1.0),
    ),
)
def test_errors_of_clip_gradient(row):
    row()
