"""Tests of `tfrl.distributions._squash`."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.distributions import _squash

BOUNDS = {
    "unit": (-1.0, 1.0),
    "from 0": (0.0, 5.0),
    "far away": (1000.0, 1001.0),
    "wide": (-3e30, 1e30),
    "narrow": (-1e-6, 2e-6),
}
EVERY_BOUNDS = pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


def constants(bounds, dtype):
    return [tf.constant(bound, dtype) for bound in bounds]


@EVERY_BOUNDS
@DTYPES
def test_squash_is_a_scaled_tanh_within_the_bounds(bounds, dtype):
    low, high = constants(bounds, dtype)
    raw = np.concatenate([np.linspace(-30, 30, 601), [-1e30, 1e30]]).astype(dtype)
    actions = _squash.squash(tf.constant(raw), low, high)
    centre, half = np.mean(bounds), np.diff(bounds)[0] / 2
    expected = centre + half * np.tanh(raw.astype(np.float64))
    precision = np.finfo(dtype).eps
    atol = 4 * precision * max(map(abs, bounds))
    np.testing.assert_allclose(actions, expected, atol=atol, rtol=0)
    assert np.all((actions >= low) & (actions <= high))


@EVERY_BOUNDS
@DTYPES
def test_unsquash_undoes_squash(bounds, dtype):
    low, high = constants(bounds, dtype)
    raw = np.linspace(-6, 6, 241).astype(dtype)
    back = _squash.unsquash(_squash.squash(tf.constant(raw), low, high), low, high)
    # What one rounding of the action moves the raw action by.
    slope = (high - low) / 2 * (1 - np.tanh(raw) ** 2)
    step = np.finfo(dtype).eps * np.abs(bounds).max() / slope.numpy()
    assert np.all(np.abs(back - raw) <= np.minimum(4 * step, 30) + 1e-6)


@DTYPES
def test_unsquash_at_and_beyond_the_bounds(dtype):
    low, high = constants((-1.0, 3.0), dtype)
    actions = tf.constant([-9.0, -1.0, 3.0, 1e30], dtype)
    with tf.GradientTape() as tape:
        tape.watch(actions)
        raw = _squash.unsquash(actions, low, high)
    # atanh of the largest number below 1.
    last = np.arctanh(np.nextafter(np.ones([], dtype), 0).astype(np.longdouble))
    np.testing.assert_allclose(raw, [-last, -last, last, last], rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(raw, actions), [0.0] * 4)


def test_what_tanh_cannot_tell_from_a_bound_is_constant():
    low, high = constants((0.0, 1e-6), "float32")
    actions = tf.constant([1e-18, 2e-14, 1e-13, 5e-7, np.nan])
    with tf.GradientTape() as tape:
        tape.watch(actions)
        raw = _squash.unsquash(actions, low, high)
    gradient = tape.gradient(raw, actions)
    assert float(raw[0]) == float(raw[1]) < float(raw[2])
    np.testing.assert_array_equal(gradient[:2], 0.0)
    np.testing.assert_allclose(gradient[2:4], [0.5e13, 2e6], rtol=1e-5)
    assert np.isnan(raw[4])


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_slopes(jit):
    low, high = constants((-2.0, 6.0), "float64")
    raw = tf.constant([-3.0, -0.4, 0.0, 1.0, 2.5], tf.float64)

    @tf.function(jit_compile=jit)
    def slopes(raw):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(raw)
            actions = _squash.squash(raw, low, high)
            back = _squash.unsquash(actions, low, high)
            log_slopes = _squash.log_slope(raw)
        return (
            tape.gradient(actions, raw),
            tape.gradient(back, actions),
            log_slopes,
            tape.gradient(log_slopes, raw),
        )

    forward, backward, log_slopes, of_log_slopes = slopes(raw)
    expected = 4.0 / np.cosh(raw) ** 2
    np.testing.assert_allclose(forward, expected, rtol=1e-12)
    np.testing.assert_allclose(backward, 1.0 / expected, rtol=1e-10)
    np.testing.assert_allclose(log_slopes, np.log(expected / 4.0), atol=1e-14)
    np.testing.assert_allclose(of_log_slopes, -2.0 * np.tanh(raw), atol=1e-14)


def test_log_slope_in_the_tails():
    raw = tf.constant([-1e30, -100.0, 100.0, 1e30])
    log_slopes = _squash.log_slope(raw)
    expected = np.log(4.0) - 2.0 * np.abs(raw.numpy().astype(np.float64))
    np.testing.assert_allclose(log_slopes, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    low, high = constants((-1.0, 1.0), dtype)
    raw = _squash.unsquash(tf.constant([-1.0, 0.0, 1.0], dtype), low, high)
    assert raw.dtype.name == dtype
    assert np.isfinite(tf.cast(raw, tf.float32)).all()
