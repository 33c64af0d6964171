"""Tests of tfrl.ops.squashing."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad

from tfrl import ops

INTERVALS = [(-1.0, 2.0), (0.0, 1e4), (-300.0, -299.0)]
BOUNDS = {"softlower": 1, "softupper": 1, "softclip": 2, "softclip_tf": 2}


def softplus(d, s):
    return s * np.logaddexp(0.0, d / s)


def oracle(name, x, low, high, s):
    """The defining formulas in float64; they cancel for large |x|."""
    if name == "softlower":
        return low + softplus(x - low, s)
    if name == "softupper":
        return high - softplus(high - x, s)
    if name == "softclip":
        return low + softplus(x - low, s) - softplus(x - high, s)
    upper = oracle("softupper", oracle("softlower", x, low, high, s), low, high, s)
    least = oracle("softupper", low, low, high, s)
    return (upper - high) / (high - least) * (high - low) + high


def call(name, x, low, high, s):
    bounds = {"softlower": [low], "softupper": [high]}.get(name, [low, high])
    return getattr(ops, name)(x, *bounds, hinge_softness=s)


def derivatives(name, x, low, high, s):
    """The result, its slopes in all arguments and its curvature in x."""
    tensors = [tf.convert_to_tensor(each, x.dtype) for each in (x, low, high, s)]
    with tf.GradientTape() as outer:
        outer.watch(tensors)
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = call(name, *tensors)
        slopes = tape.gradient(y, tensors, unconnected_gradients="zero")
    curvatures = outer.gradient(slopes[0], tensors, unconnected_gradients="zero")
    return y, slopes, curvatures


@pytest.mark.parametrize("interval", INTERVALS, ids=str)
@pytest.mark.parametrize("softness", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("name", BOUNDS)
def test_values(name, softness, interval):
    low, high = interval
    x = np.linspace(low - 20 * softness, high + 20 * softness, 301)
    expected = oracle(name, x, low, high, softness)
    scale = max(abs(low), abs(high), softness)
    got = call(name, x, low, high, softness)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13 * scale)
    got = call(name, x.astype(np.float32), low, high, softness)
    expected = oracle(name, x.astype(np.float32).astype(float), low, high, softness)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=2e-7 * scale)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["softclip", "softclip_tf", *slow("softlower", "softupper")]
)
def test_slopes(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=50) * 4
    low, high = rng.normal(size=50) - 2, rng.normal(size=50) + 3
    s = rng.uniform(0.3, 5.0, size=50)
    arguments = [x, low, high, s]
    _, slopes, curvatures = derivatives(name, *arguments)
    step = 1e-5
    for index, slope in enumerate(slopes):
        steps = [step * (index == other) for other in range(4)]
        there = [a + d for a, d in zip(arguments, steps, strict=True)]
        back = [a - d for a, d in zip(arguments, steps, strict=True)]
        difference = oracle(name, *there) - oracle(name, *back)
        np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-6, atol=1e-9)
        gap = derivatives(name, *there)[1][0] - derivatives(name, *back)[1][0]
        expected = gap / (2 * step)
        np.testing.assert_allclose(curvatures[index], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    [
        # Its exponents reach as far as those of float32, its digits the least far.
        "bfloat16",
        *slow("float16", "float32", "float64"),
    ],
)
@pytest.mark.parametrize(
    "name", ["softclip", "softclip_tf", *slow("softlower", "softupper")]
)
def test_far_out(name, dtype):
    x = [-np.inf, -1e30, -6e4, -1e-38, 0.0, 1.0, 6e4, 1e30, np.inf]
    x, softness = np.meshgrid(np.array(x), [1e-3, 0.1, 5.0])
    x, softness = (tf.cast(each.ravel(), dtype) for each in (x, softness))
    low, high = -tf.ones_like(x), 2 * tf.ones_like(x)
    y, slopes, curvatures = derivatives(name, x, low, high, softness)
    assert y.dtype == x.dtype
    for derivative in (*slopes, *curvatures):
        assert np.isfinite(derivative.numpy().astype(float)).all()
    y, slope, x = (each.numpy().astype(float) for each in (y, slopes[0], x))
    least, most = np.where(name == "softupper", -np.inf, -1.0), np.inf
    most = most if name == "softlower" else 2.0
    far = np.abs(x) > 1e3
    np.testing.assert_array_equal(y[far], np.clip(x, least, most)[far])
    left, right = float(name == "softupper"), float(name == "softlower")
    np.testing.assert_allclose(slope[far], np.where(x < 0, left, right)[far])


@pytest.mark.parametrize(
    "name", ["softclip", pytest.param("softclip_tf", marks=pytest.mark.slow)]
)
def test_slopes_keep_their_digits_in_the_tails(name):
    x, ones = np.float32([-61.0, -41.0, 42.0, 62.0]), np.ones(4, np.float32)
    _, slopes, curvatures = derivatives(name, x, -ones, 2 * ones, ones)
    ones = np.ones(4)
    exact = derivatives(name, x.astype(float), -ones, 2 * ones, ones)
    np.testing.assert_allclose(slopes[0], exact[1][0], rtol=1e-5)
    np.testing.assert_allclose(curvatures[0], exact[2][0], rtol=1e-5)
    assert (slopes[0].numpy() > 0).all()


def test_worked_values():
    np.testing.assert_allclose(ops.softlower(0.0, 0.0), np.log(2), rtol=1e-6)
    np.testing.assert_allclose(ops.softupper(0.0, 0.0), -np.log(2), rtol=1e-6)
    assert ops.softclip(3.0, 1.0, 5.0, 7.0) == 3.0
    # Halfway stays in one, moves in the other.
    np.testing.assert_allclose(ops.softclip_tf(0.0, -1.0, 1.0), -0.02903744, rtol=1e-5)


def test_softclip_is_symmetric():
    x = np.linspace(-9, 9, 41)
    np.testing.assert_allclose(
        ops.softclip(-x, -2.0, 2.0, 0.7), -ops.softclip(x, -2.0, 2.0, 0.7), atol=1e-15
    )


def test_infinite_bounds_are_none():
    x = tf.constant([-3.0, 0.5, 1e30])
    np.testing.assert_array_equal(ops.softclip(x, -np.inf, np.inf), x)
    mixed = ops.softclip(x, [-np.inf, 0.0, -np.inf], [0.0, np.inf, np.inf])
    expected = [ops.softupper(-3.0, 0.0), ops.softlower(0.5, 0.0), 1e30]
    np.testing.assert_allclose(mixed, expected, rtol=1e-6)


def test_bounds_broadcast():
    low = np.array([[-1.0], [-2.0]], np.float64)
    got = ops.softclip(tf.zeros([3]), low, 2.0)  # numpy numbers take the dtype of x
    assert got.shape == (2, 3)
    assert got.dtype == tf.float32
    np.testing.assert_allclose(got[1], 0.0, atol=1e-7)
    with tf.GradientTape() as tape:
        variable = tf.Variable(-1.0)
        y = ops.softlower(tf.zeros([3]), variable)
    expected = 3 / (1 + np.exp(1))
    np.testing.assert_allclose(tape.gradient(y, variable), expected, rtol=1e-6)


def test_normalize_min_max():
    x = np.random.default_rng(2).normal(size=(3, 2, 4))
    low = x.min(axis=(1, 2), keepdims=True)
    high = x.max(axis=(1, 2), keepdims=True)
    expected = (x - low) / (high - low + 1e-10)
    np.testing.assert_allclose(ops.normalize_min_max(x), expected, rtol=1e-12)
    for dtype in ("float16", "bfloat16", "float32"):
        got = ops.normalize_min_max(tf.cast(x, dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(got.numpy().astype(float), expected, atol=1e-2)
    for shape in ((0, 3), (2, 0), (2, 0, 3)):
        assert ops.normalize_min_max(tf.zeros(shape)).shape == shape


def test_gradients_of_equal_numbers_can_be_kept_out():
    x = tf.constant([[2.0, 2.0, 2.0], [0.0, 1.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        spread = tf.reduce_min(x, -1, True) < tf.reduce_max(x, -1, True)
        total = tf.reduce_sum(tf.where(spread, ops.normalize_min_max(x), 0.0))
    np.testing.assert_array_equal(
        tape.gradient(total, x), [[0] * 3, [-3 / 16, 1 / 4, -1 / 16]]
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_normalize_min_max_of_equal_numbers(dtype):
    x = tf.cast([[2, 2], [0, 0]], dtype)
    in_graph = tf.function(ops.normalize_min_max)
    for function in (ops.normalize_min_max, in_graph):
        np.testing.assert_array_equal(function(x), [[0, 0], [0, 0]])


@refusals.table(
    *(
        (
            function,
            bad(ValueError, "hinge_softness", [1.0], *bounds, 0.0),
            bad(ValueError, "hinge_softness", [1.0], *bounds, np.nan),
            bad(ValueError, "hinge_softness", [1.0], *bounds, tf.Variable(-1.0)),
            bad(TypeError, "x", [1, 2], *bounds),
            bad(TypeError, last, [1.0], *bounds[:-1], tf.ones([], "float64")),
        )
        for function, bounds, last in (
            (ops.softlower, [1.0], "low"),
            (ops.softupper, [1.0], "high"),
            (ops.softclip, [0.0, 1.0], "high"),
            (ops.softclip_tf, [0.0, 1.0], "high"),
        )
    ),
    (ops.softclip, bad(ValueError, "high", [1.0], 2.0, 1.0)),
    (
        ops.softclip_tf,
        bad(ValueError, "high", [1.0], 2.0, 1.0),
        bad(ValueError, "low", [1.0], -np.inf, 1.0),
    ),
    (ops.normalize_min_max, bad(ValueError, "x", 1.0)),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("function", [ops.softclip, ops.softclip_tf])
def test_bounds_are_checked_while_tracing(function):
    with pytest.raises(ValueError, match="`high` expected"):
        tf.function(lambda: function([1.0], 1.0, 1.0), autograph=False)()


def test_bounds_without_values_pass():
    function = tf.function(ops.softclip, autograph=False)
    low = tf.Variable(-1.0)
    got = function(tf.constant([0.0]), low, tf.constant(1.0), tf.constant(0.5))
    np.testing.assert_allclose(got, [0.0], atol=1e-7)
