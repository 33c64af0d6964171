"""Moments of batches and of streams of them, against float64 arithmetic on all data."""

import collections
import functools

import modes
import numpy as np
import pytest
import tensorflow as tf

from tfrl.stats import moment_streams as moments

DTYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def whole(values, event_rank):
    """Mean and variance over the leading axes, in plain float64."""
    wide = np.asarray(values).astype(np.float64)
    axes = tuple(range(wide.ndim - event_rank))
    return wide.mean(axes), wide.var(axes)


def of_batch(values, mode="eager"):
    return modes.run(mode, lambda x: moments._batch_moments(x, 1), tf.constant(values))


def assert_moments(found, expected, rtol, atol=0.0):
    np.testing.assert_allclose(found.mean, expected[0], rtol=rtol, atol=atol)
    variance_atol = atol**2 if atol else 1e-12
    np.testing.assert_allclose(found.variance, expected[1], 1e-5, atol=variance_atol)


@DTYPES
@pytest.mark.parametrize(
    ("shape", "event_rank"), [((7,), 0), ((2, 3, 4), 1), ((4, 2, 3), 2)]
)
def test_batch_moments_equal_all_data_at_once(dtype, shape, event_rank):
    values = tf.cast(np.random.default_rng(0).normal(3.0, 2.0, shape), dtype)
    count, found = moments._batch_moments(values, event_rank)
    assert float(count) == values.shape[: len(shape) - event_rank].num_elements()
    assert found.mean.dtype == found.variance.dtype == tf.float64
    assert_moments(
        found, whole(values, event_rank), 1e-12 if dtype[-1] == "4" else 1e-5
    )
    _, alone = moments._batch_moments(values, event_rank, with_variance=False)
    np.testing.assert_array_equal(alone.mean, found.mean)
    assert alone.variance == ()


@pytest.mark.parametrize("rows", [64, 5000])
@pytest.mark.parametrize("mode", ["eager", slow("graph"), "xla"])
def test_great_offsets_leave_mean_and_variance_intact(mode, rows):
    noise = np.random.default_rng(1).normal(size=(rows, 2))
    values = (np.array([1e6, -3e7]) + noise).astype(np.float32)
    assert_moments(of_batch(values, mode)[1], whole(values, 1), 1e-12)


def test_a_first_row_far_from_the_others_costs_little():
    values = np.random.default_rng(2).normal(size=(256, 1)).astype(np.float32)
    values[0] = 1e7
    _, found = of_batch(values)
    mean, variance = whole(values, 1)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6 * np.sqrt(variance[0]))
    np.testing.assert_allclose(found.variance, variance, rtol=256 * 5e-7)


@pytest.mark.parametrize("size", [1e-38, 1e4, 1e30])
@pytest.mark.parametrize(
    ("mode", "repeats"),
    [("eager", 1), ("eager", 3000), slow("xla", 1), slow("xla", 3000)],
)
def test_extreme_values_give_finite_moments(mode, size, repeats):
    values = np.array([[size], [-size], [0.0], [size]] * repeats, np.float32)
    _, found = of_batch(values, mode)
    mean, variance = whole(values, 1)
    # Beyond float32's normal numbers there is nothing to be had but 0.
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-38)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5, atol=1e-70)


def test_values_of_no_weight_are_not_looked_at():
    values = tf.constant([[np.nan], [1.0], [np.inf], [4.0]])
    weights = tf.constant([0.0, 2.0, 0.0, 1.0])
    count, found = moments._batch_moments(values, 1, weights)
    assert float(count) == 3.0
    np.testing.assert_allclose([*found.mean, *found.variance], [2.0, 2.0], rtol=1e-6)
    for nothing in ((values, 1, 0.0 * weights), (tf.zeros([0, 1]), 1)):
        count, found = moments._batch_moments(*nothing)
        assert (float(count), *found.mean, *found.variance) == (0.0, 0.0, 0.0)


def test_gradients_are_those_of_the_definition():
    values = tf.constant(np.random.default_rng(3).normal(size=(5, 2)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(values)
        _, found = moments._batch_moments(values, 1)
    slope = tape.gradient(found.mean, values)
    np.testing.assert_allclose(slope, np.full((5, 2), 0.2), rtol=1e-12)
    slope = tape.gradient(found.variance, values)
    np.testing.assert_allclose(slope, 0.4 * (values - found.mean), rtol=1e-9)


def test_merged_moments_equal_all_data_at_once():
    rng = np.random.default_rng(4)
    parts = [1e6 + rng.normal(size=(n, 2)) for n in (3, 5, 1)]
    found = [moments.Moments(*map(tf.constant, whole(part, 1))) for part in parts]
    merged = moments.merge_moments(found[0], found[1], 5 / 8)
    merged = moments.merge_moments(merged, found[2], 1 / 9)
    mean, variance = whole(np.concatenate(parts), 1)
    np.testing.assert_allclose(merged.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(merged.variance, variance, rtol=1e-9)
    bare = moments.merge_moments(found[0]._replace(variance=()), found[1], 5 / 8)
    assert bare.variance == ()


def standardized(values, known, epsilon=1e-10, *limit, **options):
    epsilon = tf.constant(epsilon, tf.float64)
    return moments.standardize(values, *known, epsilon, *limit, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.0, 3.0]),
        ({"clip_value": 2.5}, [0.0, 2.5]),
        ({"unit_std": True}, [0.0, 6.0]),
        ({"zero_mean": False}, [2 / 8**0.5, 8 / 8**0.5]),
    ],
    ids=str,
)
def test_standardize_by_hand(options, expected):
    known = tf.constant([[2.0], [4.0]], tf.float64)
    got = standardized(tf.constant([[2.0], [8.0]]), known, 0.0, **options)
    np.testing.assert_allclose(np.ravel(got), expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["eager", slow("graph"), slow("xla")])
def test_standardize_is_as_exact_as_in_float64(mode):
    noise = np.random.default_rng(6).normal(size=(64, 3))
    values = (1e6 + 0.3 + noise).astype(np.float32)
    mean, variance = whole(values, 1)
    known = tf.constant(mean), tf.constant(variance)
    got = modes.run(mode, lambda x: standardized(x, known), tf.constant(values))
    expected = (values.astype(np.float64) - mean) / np.sqrt(variance + 1e-10)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@DTYPES
def test_standardize_keeps_the_dtype_and_sends_gradients_to_values_alone(dtype):
    known = tf.constant(1.0, tf.float64), tf.constant(4.0, tf.float64)
    values = tf.constant([3.0, 5.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch([values, *known])
        result = standardized(values, known)
    assert result.dtype == dtype
    slope, *others = tape.gradient(result, [values, *known])
    np.testing.assert_allclose(tf.cast(slope, tf.float64), [0.5, 0.5], rtol=1e-3)
    assert others == [None, None]


@pytest.mark.parametrize(
    ("dtype", "bad", "row"),
    [
        ("float32", np.nan, 0),
        ("float32", np.inf, 3),
        ("float64", np.nan, 3),
        ("float64", np.inf, 0),
    ],
)
def test_rows_do_not_spoil_each_other(dtype, bad, row):
    data = np.random.default_rng(0).normal(size=[9000, 2]).astype(dtype)
    _, known = of_batch(data)
    spoiled = data.copy()
    spoiled[row, 0] = bad
    right, got = (standardized(tf.constant(x), known).numpy() for x in (data, spoiled))
    others = np.delete(np.arange(9000), row)
    np.testing.assert_allclose(got[others], right[others], atol=1e-4)
    assert not np.isfinite(got[row, 0])


RULES = [
    ("exponential", 0.1),
    ("exponential", 1.0),
    ("adaptive", 0.3),
    ("adaptive", 1.0),
    ("adaptive", 1.5),
    ("adaptive", 8.0),
    ("window", 3),
]


def batch_weights(rule, setting, length):
    """How much each of `length` batches counts, oldest first, adding up to 1."""
    if rule == "window":
        weights = [float(length - t <= setting) for t in range(length)]
        return np.array(weights) / sum(weights)
    weights = []
    for t in range(length):
        rate = setting
        if rule == "adaptive":
            rate = setting / (max(int(setting), 1) + t)
        weights = [(1 - rate) * weight for weight in weights] + [rate]
    return np.array(weights) / sum(weights)


def expected_moments(batches, weights):
    """All values at once, each with its share of its batch's weight, in float64."""
    batches = [np.asarray(batch, np.float64) for batch in batches]
    mean = sum(w * batch.mean(0) for w, batch in zip(weights, batches, strict=True))
    squares = [((batch - mean) ** 2).mean(0) for batch in batches]
    return mean, sum(w * s for w, s in zip(weights, squares, strict=True))


@functools.cache
def advance_in(mode):
    return modes.in_mode(mode, moments.advance_moment_stream)


def followed(batches, rule, setting, mode="eager"):
    """Moments after each batch."""
    stream = moments.start_moment_stream([[2]], rule, setting)
    advance = advance_in(mode)
    found = []
    for batch in batches:
        stream = advance(stream, [tf.constant(batch)], rule, setting)
        found.append(stream.moments[0])
    assert int(stream.count) == len(batches)
    return found


@pytest.mark.parametrize(("rule", "setting"), RULES)
def test_moments_are_those_of_the_weights(rule, setting):
    rng = np.random.default_rng(0)
    batches = [1e6 + 3 * rng.normal(size=(n, 2)) for n in (4, 1, 6, 2, 3, 5)]
    for length, found in enumerate(followed(batches, rule, setting), start=1):
        weights = batch_weights(rule, setting, length)
        mean, variance = expected_moments(batches[:length], weights)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("rule", "setting", "mode"),
    [
        slow("exponential", 0.1, "graph"),
        slow("adaptive", 8.0, "graph"),
        slow("window", 2, "graph"),
        slow("exponential", 0.1, "xla"),
        ("adaptive", 8.0, "xla"),
        slow("window", 2, "xla"),
    ],
)
def test_float32_in_a_graph_is_as_good(rule, setting, mode):
    noise = np.random.default_rng(1).normal(size=(5, 8, 2))
    batches = (1e6 + noise).astype(np.float32)
    found = followed(batches, rule, setting, mode)[-1]
    expected = expected_moments(batches, batch_weights(rule, setting, 5))
    assert_moments(found, expected, 1e-12)


@pytest.mark.parametrize("with_variance", [True, False])
def test_window_equals_a_queue(with_variance):
    rng = np.random.default_rng(2)
    stream = moments.start_moment_stream([[]], "window", 4, with_variance)
    queue = collections.deque(maxlen=4)
    # Wildly different scales: a running sum would never recover from 1e12.
    for scale in (1e12, 1e-3, 1.0, 5.0, 1e3, 1e-3, 1e-3, 1e-3, 1e-3):
        queue.append(scale * rng.normal(size=3))
        last = [tf.constant(queue[-1])]
        stream = moments.advance_moment_stream(stream, last, "window", 4)
        (found,) = stream.moments
        np.testing.assert_allclose(found.mean, np.mean(queue), rtol=1e-9)
        if with_variance:
            np.testing.assert_allclose(found.variance, np.var(queue), rtol=1e-9)


@pytest.mark.parametrize("speed", [0.5, 2.5, 8.0])
def test_adaptive_weights_grow_like_a_power_of_age(speed):
    start = moments.start_moment_stream([[400]], "adaptive", speed, False)

    @tf.function
    def weights_of_ages():
        stream = start
        for row in tf.eye(400, dtype=tf.float64):  # batch t is 1 in element t alone
            stream = moments.advance_moment_stream(stream, [row], "adaptive", speed)
        return stream.moments[0].mean

    weights = weights_of_ages().numpy()
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-9)
    power = np.log(weights[399] / weights[200]) / np.log(400 / 201)
    np.testing.assert_allclose(power, speed - 1, atol=0.1)


def test_several_values_share_one_clock():
    stream = moments.start_moment_stream([[], [2]], "exponential", 0.5)
    values = [tf.constant([1.0, 3.0]), tf.constant([[[5.0, 6.0]]])]
    stream = moments.advance_moment_stream(stream, values, "exponential", 0.5)
    assert (int(stream.count), float(stream.mass)) == (1, 0.5)
    assert float(stream.moments[0].mean) == 2.0
    np.testing.assert_array_equal(stream.moments[1].mean, [5.0, 6.0])


def test_settings_and_sizes_cause_no_traces():
    stream, counts = moments.start_moment_stream([[2]], "adaptive", 1.0), set()
    for size in (2, 3, 4):
        values = [tf.ones([size, 2])]
        stream = moments.advance_moment_stream(stream, values, "adaptive", 0.5 * size)
        stream.normalize(values, 1e-3 / size, float(size))
        traced = (moments._compiled_advance, moments.standardize)
        counts.add(tuple(each.trace_count() for each in traced))
    assert len(counts) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e200, None])
@pytest.mark.parametrize(
    ("rule", "setting", "mode"),
    [
        ("exponential", 0.1, "eager"),
        ("adaptive", 0.3, "eager"),
        ("window", 3, "eager"),
        slow("exponential", 1.0, "graph"),
        slow("window", 3, "graph"),
        ("adaptive", 8.0, "xla"),
        slow("window", 3, "xla"),
    ],
)
def test_batches_that_are_not_finite_or_empty_change_nothing(rule, setting, mode, bad):
    start = moments.start_moment_stream([[2], []], rule, setting)
    good = [tf.constant([[1.0, 2.0], [3.0, 6.0]], tf.float64), tf.constant([4.0])]
    spoiled = [tf.constant([[1.0, 2.0], [bad or 0.0, 6.0]], tf.float64), good[1]]
    if bad is None:
        spoiled = [good[0], tf.zeros([0])]
    run = advance_in(mode)
    for before in (start, moments.advance_moment_stream(start, good, rule, setting)):
        after = run(before, spoiled, rule, setting)
        tf.nest.map_structure(np.testing.assert_array_equal, after, before)


def test_moments_to_normalize_with():
    start = moments.start_moment_stream([[2]], "adaptive", 1.0)
    (known,) = start.to_normalize()
    np.testing.assert_array_equal(known, [[0.0, 0.0], [1.0, 1.0]])
    batch = [tf.constant([[1.0, 2.0], [3.0, 2.0]])]
    after = moments.advance_moment_stream(start, batch, "adaptive", 1.0)
    np.testing.assert_array_equal(after.to_normalize()[0], [[2.0, 2.0], [1.0, 0.0]])
    got = after.normalize(batch)[0]
    np.testing.assert_allclose(got, [[-1.0, 0.0], [1.0, 0.0]], rtol=1e-6)


def test_weights_say_what_counts():
    settings = {"rule": "adaptive", "setting": 1.0}
    start = moments.start_moment_stream([[2]], **settings)
    rows = np.array([[1.0, 2.0], [3.0, 5.0], [np.nan, 9.0]], np.float32)
    stream = moments.advance_moment_stream(
        start, [rows], **settings, weights=np.array([3.0, 1.0, 0.0])
    )
    assert_moments(stream.moments[0], ([1.5, 2.75], [0.75, 27 / 16]), 1e-7)
    same = moments.advance_moment_stream(
        stream, [rows], **settings, weights=np.zeros(3, bool)
    )
    assert int(same.count) == 1


@pytest.mark.parametrize(
    ("rule", "setting", "match"),
    [
        ("mean", 1.0, r"`rule` expected .*'exponential', 'adaptive', 'window'"),
        ("exponential", 0.0, "`update_rate` .*got 0.0"),
        ("exponential", 1.5, "`update_rate` .*got 1.5"),
        ("adaptive", -1.0, "`speed`"),
        ("adaptive", np.inf, "`speed`"),
        ("window", 0, "`window_size`"),
        ("window", 2.5, "`window_size` .*got 2.5"),
    ],
)
def test_bad_settings(rule, setting, match):
    with pytest.raises(ValueError, match=f"`start_moment_stream`: {match}"):
        moments.start_moment_stream([[]], rule, setting)


@pytest.mark.parametrize(
    ("error", "name", "changed"),
    [
        (TypeError, "stream", {"stream": None}),
        (TypeError, "values", {"values": None}),
        (TypeError, "values", {"values": [None]}),
        (TypeError, "values", {"values": [[1, 2]]}),
        (ValueError, "values", {"values": []}),
        (ValueError, "values", {"values": [tf.ones([2, 3])]}),
        (ValueError, "values", {"values": [1.0]}),
        (ValueError, "rule", {"rule": "other"}),
        (TypeError, "setting", {"setting": "a"}),
        (ValueError, "weights", {"weights": np.ones(2)}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_arguments_are_named(error, name, changed):
    given = {"rule": "adaptive", "setting": 1.0}
    given["stream"] = moments.start_moment_stream([[2]], **given)
    given["values"] = [tf.ones([3, 2])]
    with pytest.raises(error, match=f"`advance_moment_stream`: `{name}` expected"):
        moments.advance_moment_stream(**{**given, **changed})
    if "values" in changed:
        with pytest.raises(error, match=f"`MomentStream.normalize`: `{name}` expected"):
            given["stream"].normalize(changed["values"])
