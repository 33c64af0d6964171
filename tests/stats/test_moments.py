"""Tests of `tfrl.stats.moments`."""

import functools

import hypothesis
import modes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from tfrl.stats import moments

FLOATS = strategies.floats(-1e3, 1e3, width=32)


@strategies.composite
def batches(draw):
    """Batches `[b, 2]` with weights `[b]`, of which some are 0."""
    some = strategies.sampled_from([0.0, 0.5, 1.0, 3.0])
    found = []
    for n in draw(strategies.lists(strategies.integers(1, 5), min_size=1, max_size=4)):
        values = draw(strategies.lists(FLOATS, min_size=2 * n, max_size=2 * n))
        weights = draw(strategies.lists(some, min_size=n, max_size=n))
        found.append((np.array(values).reshape(n, 2), np.array(weights)))
    return found


def whole(values, weights):
    """Mean and variance over all rows at once, in plain float64."""
    if weights.sum() == 0.0:
        return np.zeros(2), np.ones(2)
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.average((values - mean) ** 2, axis=0, weights=weights)


@hypothesis.settings(max_examples=40)
@hypothesis.given(batches())
def test_merged_batches_equal_all_data_at_once(found):
    merged = moments.RunningMoments.create([2])
    for values, weights in found:
        merged = merged.update(tf.constant(values), tf.constant(weights))
    weights = np.concatenate([w for _, w in found])
    mean, variance = whole(np.concatenate([v for v, _ in found]), weights)
    np.testing.assert_allclose(merged.count, weights.sum(), rtol=1e-12)
    np.testing.assert_allclose(merged.mean, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.variance, variance, rtol=1e-9, atol=1e-9)


def test_by_hand():
    start = moments.RunningMoments.create([])
    merged = start.update([1.0, 3.0]).update([5.0, 7.0], [1.0, 0.0])
    assert (float(merged.count), float(merged.mean)) == (3.0, 3.0)
    np.testing.assert_allclose(merged.variance, 8.0 / 3.0, rtol=1e-15)
    assert float(start.count) == 0.0, "the old record must stay as it was"


def test_great_offset_leaves_the_variance_intact():
    rng = np.random.default_rng(0)
    data = (1e6 + rng.standard_normal((50, 16, 3))).astype(np.float32)
    merged = moments.RunningMoments.create([3])
    for batch in data:
        merged = merged.update(tf.constant(batch))
    wide = data.astype(np.float64).reshape(-1, 3)
    np.testing.assert_allclose(merged.mean, wide.mean(0), rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(merged.variance), wide.std(0), atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_values_that_are_not_finite_or_have_no_weight_do_not_count(bad, mode):
    update, start = update_in(mode), moments.RunningMoments.create([2])
    values = tf.constant([[1.0, 2.0], [0.0, bad], [3.0, 6.0]], tf.float64)
    for weights in ([1.0, 1.0, 1.0], [1.0, 0.0, 1.0]):
        merged = update(start, values, tf.constant(weights))
        right = start.update([[1.0, 2.0], [3.0, 6.0]])
        for one, two in zip(*map(tf.nest.flatten, (merged, right)), strict=True):
            np.testing.assert_allclose(one, two)
    bad_row, one = values[1:2], tf.ones([1])
    for same in (update(merged, bad_row, one), update(merged, values[:1], 0.0 * one)):
        for one_leaf, two in zip(*map(tf.nest.flatten, (same, merged)), strict=True):
            np.testing.assert_array_equal(one_leaf, two)
    seen = update(start, bad_row, one)
    np.testing.assert_allclose(seen.normalize(values)[0], [1, 2])


@functools.cache
def update_in(mode):
    def update(start, values, weights):
        values, weights = map(tf.ensure_shape, (values, weights), ([None, 2], [None]))
        return start.update(values, weights)

    return modes.in_mode(mode, update)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float16", "float16"), ("float64", "float64"), ("int64", "float32")],
)
def test_normalize(dtype, expected):
    merged = moments.RunningMoments.create([1]).update([[0.0], [4.0]])
    values = tf.constant([[2], [4], [100]], dtype)
    normalized = merged.normalize(values, clip=5.0)
    assert normalized.dtype == expected
    np.testing.assert_allclose(normalized, [[0.0], [1.0], [5.0]], atol=1e-3)
    unbounded = merged.normalize(values, clip=None)
    np.testing.assert_allclose(unbounded, [[0.0], [1.0], [49.0]], atol=1e-3)


@pytest.mark.parametrize(
    ("values", "weights", "match"),
    [
        (np.zeros(3), None, r"`values` expected shape \[..., \*\[3\]\]; got \[3\]"),
        (np.zeros((2, 4)), None, r"`values` expected"),
        (np.zeros((2, 3)), np.zeros(3), r"`weights` expected .*\(2,\); got \(3,\)"),
        (np.zeros((2, 3)), np.zeros((2, 1)), r"`weights` expected"),
        (np.zeros((2, 3)), [1.0, np.nan], "`weights` expected"),
        (np.zeros((2, 3)), [2.0, -1.0], "`weights` expected"),
    ],
)
def test_update_rejects_shapes_and_weights(values, weights, match):
    with pytest.raises(ValueError, match=f"`RunningMoments.update`: {match}"):
        moments.RunningMoments.create([3]).update(values, weights)


def scaled_slowly(rewards, ended, valid, gamma, clip, epsilon):
    """Step by step, one environment after the other, keeping every return."""
    returns, left = [], []
    for n in range(rewards.shape[1]):
        running = 0.0
        for t in range(rewards.shape[0]):
            if not valid[t, n]:
                continue
            running = gamma * running + rewards[t, n]
            returns.append(running)
            if ended[t, n]:
                running = 0.0
        left.append(running)
    spread = np.sqrt(np.var(returns) + epsilon)
    return np.clip(rewards / spread, -clip, clip), np.array(left)


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
def test_return_scale_equals_a_plain_loop(mode):
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=(40, 3))
    ended = rng.random((40, 3)) < 0.15
    valid = rng.random((40, 3)) < 0.8
    scale = moments.ReturnScale.create(3)

    def scaled_by(scale, *arrays):
        return scale(*arrays, gamma=0.9, clip=1.5, epsilon=1e-4)

    call = modes.in_mode(mode, scaled_by)
    for part in (slice(0, 20), slice(20, 40)):
        arrays = [tf.constant(array[part]) for array in (rewards, ended, valid)]
        scale, scaled = call(scale, *arrays)
    expected, left = scaled_slowly(rewards, ended, valid, 0.9, 1.5, 1e-4)
    assert (np.abs(expected) == 1.5).any()
    np.testing.assert_allclose(scaled, expected[20:], rtol=1e-9)
    np.testing.assert_allclose(scale.running_returns, left, rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("end", [False, True], ids=["within", "at the end"])
def test_return_scale_passes_over_rewards_that_are_not_finite(bad, end):
    rewards = np.array([[1.0, 1.0], [bad, 2.0], [4.0, 3.0]])
    ended = np.zeros((3, 2), bool)
    ended[1, 0] = end
    valid = np.ones((3, 2), bool)
    scale, scaled = moments.ReturnScale.create(2)(
        rewards, ended, valid, gamma=0.5, clip=None
    )
    seen = [1.0, 1.0, 2.5, 4.25, 4.0 if end else 4.5]
    np.testing.assert_allclose(scale.moments.count, 5.0)
    np.testing.assert_allclose(scale.moments.variance, np.var(seen))
    np.testing.assert_allclose(scale.running_returns, [seen[-1], 4.25])
    np.testing.assert_allclose(scaled[2], [4.0, 3.0] / np.std(seen), rtol=1e-6)
    np.testing.assert_array_equal(scaled[1, 0], bad)
    _, scaled = scale(rewards[:1], ended[:1], valid[:1], gamma=0.5, clip=0.1)
    assert np.isfinite(scaled).all()


def test_return_scale_keeps_float32_and_widens_integers():
    flags = np.array([[False], [False]])
    for dtype in (np.float32, np.int32):
        rewards = np.array([[1], [2]], dtype)
        _, scaled = moments.ReturnScale.create(1)(rewards, flags, ~flags, gamma=1.0)
        assert scaled.dtype == tf.float32
        np.testing.assert_allclose(scaled, [[1.0], [2.0]], rtol=1e-6)


def test_return_scale_of_invalid_rows_alone_learns_nothing():
    flags = np.ones((2, 1), bool)
    scale = moments.ReturnScale.create(1)
    scale = scale.replace(running_returns=tf.constant([3.0], tf.float64))
    after, scaled = scale(np.full((2, 1), 0.5), flags, ~flags, gamma=0.9)
    assert float(after.moments.count) == 0.0
    np.testing.assert_array_equal(after.running_returns, [3.0])
    np.testing.assert_allclose(scaled, [[0.5], [0.5]], rtol=1e-7)


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        ([(2, 3)] * 3, r"`ReturnScale`: `rewards` expected shape \[None, 2\]"),
        ([(2,)] * 3, r"`ReturnScale`: `rewards` expected shape"),
        ([(4, 2), (3, 2), (4, 2)], r"`ended` expected the shape of `rewards`"),
        ([(4, 2), (4, 2), (4, 1)], r"`valid` expected the shape of `rewards`"),
    ],
)
def test_return_scale_rejects_shapes(shapes, match):
    rewards, ended, valid = (np.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match=match):
        moments.ReturnScale.create(2)(rewards, ended > 0, valid > 0, gamma=0.9)


def test_after_a_reset_nothing_was_seen():
    seen = moments.RunningMoments.create([2]).update(np.ones((3, 2)))
    scale = moments.ReturnScale.create(2)
    row = tf.constant([[True, False]])
    scale, _ = scale(tf.ones([1, 2]), row, ~row, gamma=0.9)
    for used, fresh in (
        (seen, moments.RunningMoments.create([2])),
        (scale, moments.ReturnScale.create(2)),
    ):
        pairs = zip(*map(tf.nest.flatten, (used.reset(), fresh)), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)
