"""PopArt against its equations, and what a network says before and after."""

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad, zeros

from tfrl import stats


def test_moments_are_those_of_the_equations():
    rng = np.random.default_rng(0)
    scale = stats.PopArt.create([2])
    mean, square = np.zeros(2), np.ones(2)
    for _ in range(20):
        targets = rng.normal([3.0, -50.0], [2.0, 0.1], size=(4, 3, 2))
        scale = scale.update(targets, 0.3)
        mean = 0.7 * mean + 0.3 * targets.mean((0, 1))
        square = 0.7 * square + 0.3 * (targets**2).mean((0, 1))
        np.testing.assert_allclose(scale.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(scale.std, np.sqrt(square - mean**2), rtol=1e-6)
        values = rng.normal(size=(5, 2))
        expected = (values - mean) / np.sqrt(square - mean**2)
        np.testing.assert_allclose(scale.normalize(values), expected, rtol=1e-6)
        back = scale.denormalize(scale.normalize(values))
        np.testing.assert_allclose(back, values, rtol=1e-9)


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_are_preserved(shape, dtype):
    rng = np.random.default_rng(1)
    kernel = tf.constant(rng.normal(size=(4, 3)), dtype)
    bias, features = tf.constant(rng.normal(size=3), dtype), rng.normal(size=(6, 4))
    features = tf.constant(features, dtype)

    @tf.function(jit_compile=True)
    def step(scale, kernel, bias, targets):
        after = scale.update(targets, 0.5)
        return after, *after.preserved(kernel, bias, scale)

    scale = stats.PopArt.create(shape)
    expected = scale.denormalize(features @ kernel + bias)
    for size in (1.0, 1e3, 1e-2):
        targets = tf.constant(size * rng.normal(2.0, size=(8, *shape)))
        scale, kernel, bias = step(scale, kernel, bias, targets)
        assert kernel.dtype == bias.dtype == dtype
        found = scale.denormalize(features @ kernel + bias)
        error = 1e-3 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)


def test_the_deviation_has_bounds():
    scale = stats.PopArt.create([2], low=0.5, high=10.0)
    scale = scale.update([[1.0, 1e5], [1.0, -1e5]], 1.0)
    np.testing.assert_array_equal(scale.std, [0.5, 10.0])
    np.testing.assert_array_equal(scale.normalize([[2.0, 5.0]]), [[2.0, 0.5]])


def test_large_offsets_leave_the_deviation():
    rng = np.random.default_rng(2)
    scale = stats.PopArt.create()
    for _ in range(100):
        scale = scale.update(1e9 + rng.normal(size=500), 0.5)
    assert float(scale.std) == pytest.approx(1.0, abs=0.1)


def test_what_is_no_target_does_not_count():
    scale = stats.PopArt.create().update([1.0, 5.0], 0.5)
    given = scale.update([np.nan, np.inf, 3.0, 9.0, 100.0], 0.5, [1, 1, 1, 1, 0])
    expected = scale.update([3.0, 9.0], 0.5)
    np.testing.assert_allclose(given.mean, expected.mean)
    np.testing.assert_allclose(given.variance, expected.variance)
    for nothing in ([np.nan], np.zeros([0])):
        same = scale.update(nothing, 0.5)
        np.testing.assert_array_equal(same.mean, scale.mean)
        np.testing.assert_array_equal(same.variance, scale.variance)


def test_rows_count_as_a_whole():
    scale = stats.PopArt.create([2]).update([[np.nan, 5.0], [1.0, 3.0]], 1.0)
    np.testing.assert_array_equal(scale.mean, [1.0, 3.0])


def test_no_gradient_flows_into_the_scale():
    targets = tf.constant([1.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(targets)
        mean = stats.PopArt.create().update(targets, 0.5).mean
    assert tape.gradient(mean, targets) is None


WIDE = stats.PopArt.create([3])


@refusals.table(
    (
        stats.PopArt.create,
        bad(ValueError, "shape", [-1]),
        bad(ValueError, "low", [], 0.0),
        bad(ValueError, "high", [], 1.0, 0.5),
    ),
    (
        WIDE.update,
        bad(ValueError, "targets", zeros(3), 0.5),
        bad(ValueError, "targets", zeros(4, 2), 0.5),
        bad(ValueError, "rate", zeros(4, 3), 1.5),
        bad(ValueError, "weights", zeros(4, 3), 0.5, zeros(3)),
        bad(ValueError, "weights", zeros(2, 3), 0.5, [-1.0, 2.0]),
        bad(ValueError, "weights", zeros(2, 3), 0.5, [np.nan, 1.0]),
        bad(ValueError, "weights", zeros(2, 3), 0.5, [np.inf, 1.0]),
    ),
    (WIDE.normalize, bad(ValueError, "values", zeros(4, 2))),
    (WIDE.denormalize, bad(TypeError, "values", [1, 2, 3])),
    (
        WIDE.preserved,
        bad(ValueError, "kernel", zeros(4, 2), zeros(3), WIDE),
        bad(ValueError, "bias", zeros(4, 3), zeros(2), WIDE),
        bad(ValueError, "before", zeros(4, 3), zeros(3), stats.PopArt.create()),
        bad(TypeError, "before", zeros(4, 3), zeros(3), None),
        bad(ValueError, "bias", zeros(3), zeros(4, 3), WIDE),
    ),
    (
        stats.PopArt.create().preserved,
        bad(ValueError, "kernel", zeros(4, 2), zeros(3), stats.PopArt.create()),
    ),
)
def test_errors(row):
    row()
