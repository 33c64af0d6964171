"""Streams of batches against weights written out, and against a queue."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import compile
from tfrl.stats import moment_streams

RULES = [
    ("exponential", 0.1),
    ("exponential", 1.0),
    ("adaptive", 0.3),
    ("adaptive", 1.0),
    ("adaptive", 1.5),
    ("adaptive", 8.0),
    ("window", 3),
]
EVERY_RULE = pytest.mark.parametrize(
    ("rule", "setting"), RULES, ids=[f"{rule} {setting}" for rule, setting in RULES]
)


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


def followed(batches, rule, setting, jit_compile=None):
    """Moments after each batch."""
    stream = moment_streams.start_moment_stream([[2]], rule, setting)
    advance = moment_streams.advance_moment_stream
    if jit_compile is not None:
        advance = tf.function(advance, jit_compile=jit_compile)
    found = []
    for batch in batches:
        stream = advance(stream, [tf.constant(batch)], rule, setting)
        found.append(stream.moments[0])
    assert int(stream.count) == len(batches)
    return found


@EVERY_RULE
def test_moments_are_those_of_the_weights(rule, setting):
    rng = np.random.default_rng(0)
    batches = [1e6 + 3 * rng.normal(size=(n, 2)) for n in (4, 1, 6, 2, 3, 5)]
    for length, found in enumerate(followed(batches, rule, setting), start=1):
        weights = batch_weights(rule, setting, length)
        mean, variance = expected_moments(batches[:length], weights)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize(
    ("rule", "setting"), [("exponential", 0.1), ("adaptive", 8.0), ("window", 2)]
)
def test_float32_in_a_graph_is_as_good(rule, setting, jit_compile):
    rng = np.random.default_rng(1)
    batches = (1e6 + rng.normal(size=(5, 8, 2))).astype(np.float32)
    found = followed(batches, rule, setting, jit_compile)[-1]
    weights = batch_weights(rule, setting, 5)
    mean, variance = expected_moments(batches, weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5)


@pytest.mark.parametrize("with_variance", [True, False])
def test_window_equals_a_queue(with_variance):
    rng = np.random.default_rng(2)
    stream = moment_streams.start_moment_stream([[]], "window", 4, with_variance)
    queue = collections.deque(maxlen=4)
    # Wildly different scales: a running sum would never recover from 1e12.
    for scale in (1e12, 1e-3, 1.0, 5.0, 1e3, 1e-3, 1e-3, 1e-3, 1e-3):
        queue.append(scale * rng.normal(size=3))
        stream = moment_streams.advance_moment_stream(
            stream, [tf.constant(queue[-1])], "window", 4
        )
        (found,) = stream.moments
        np.testing.assert_allclose(found.mean, np.mean(queue), rtol=1e-9)
        if with_variance:
            np.testing.assert_allclose(found.variance, np.var(queue), rtol=1e-9)


def test_adaptive_weights_grow_like_a_power_of_age():
    ages = tf.eye(400, dtype=tf.float64)  # batch t is 1 in element t alone
    for speed in (0.5, 2.5, 8.0):
        stream = moment_streams.start_moment_stream([[400]], "adaptive", speed, False)
        for row in tf.unstack(ages):
            stream = moment_streams.advance_moment_stream(
                stream, [row], "adaptive", speed
            )
        weights = stream.moments[0].mean.numpy()
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-9)
        power = np.log(weights[399] / weights[200]) / np.log(400 / 201)
        np.testing.assert_allclose(power, speed - 1, atol=0.1)


def test_a_batch_without_rows_changes_nothing():
    for rule, setting in (("exponential", 0.5), ("window", 2)):
        stream = moment_streams.start_moment_stream([[2]], rule, setting)
        for rows in (np.ones([3, 2]), np.zeros([0, 2])):
            before = stream
            stream = moment_streams.advance_moment_stream(
                stream, [tf.constant(rows)], rule, setting
            )
        tf.nest.map_structure(np.testing.assert_array_equal, stream, before)


def test_several_values_share_one_clock():
    stream = moment_streams.start_moment_stream([[], [2]], "exponential", 0.5)
    values = [tf.constant([1.0, 3.0]), tf.constant([[[5.0, 6.0]]])]
    stream = moment_streams.advance_moment_stream(stream, values, "exponential", 0.5)
    assert (int(stream.count), float(stream.mass)) == (1, 0.5)
    assert float(stream.moments[0].mean) == 2.0
    np.testing.assert_array_equal(stream.moments[1].mean, [5.0, 6.0])


def test_no_gradient_flows_through():
    values = tf.constant([1.0, 2.0])
    stream = moment_streams.start_moment_stream([[]], "exponential", 0.5)
    with tf.GradientTape() as tape:
        tape.watch(values)
        stream = moment_streams.advance_moment_stream(
            stream, [values], "exponential", 0.5
        )
    assert tape.gradient(stream.moments[0].mean, values) is None


def test_settings_and_sizes_cause_no_traces():
    stream = moment_streams.start_moment_stream([[2]], "adaptive", 1.0)
    counts = set()
    for size in (2, 3, 4):
        stream = moment_streams.advance_moment_stream(
            stream, [tf.ones([size, 2])], "adaptive", 0.5 * size
        )
        counts.add(compile.trace_count(moment_streams._compiled_advance))
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("rule", "setting", "match"),
    [
        (
            "mean",
            1.0,
            r"`rule` expected one of \['exponential', 'adaptive', 'window'\]",
        ),
        ("exponential", 0.0, "`update_rate` expected numbers > 0; got 0.0"),
        ("exponential", 1.5, r"`update_rate` expected numbers in \[0, 1\]; got 1.5"),
        ("adaptive", -1.0, "`speed` expected numbers > 0"),
        ("adaptive", np.inf, "`speed` expected finite"),
        ("window", 0, "`window_size` expected numbers > 0"),
        ("window", 2.5, "`window_size` expected an integer; got 2.5"),
    ],
)
def test_bad_settings(rule, setting, match):
    with pytest.raises(ValueError, match=f"`start_moment_stream`: {match}"):
        moment_streams.start_moment_stream([[]], rule, setting)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ([1, 2], TypeError, "`values` expected a floating-point dtype; got int32"),
        ([1.0, 2.0], ValueError, r"expected shape \[..., \*\[3\]\]; got \[2\]"),
        (1.0, ValueError, r"expected shape \[..., \*\[3\]\]; got \[\]"),
    ],
    ids=["integers", "shape", "rank"],
)
def test_bad_values(value, error, match):
    stream = moment_streams.start_moment_stream([[3]], "adaptive", 1.0)
    with pytest.raises(error, match=match):
        moment_streams.advance_moment_stream(
            stream, [tf.constant(value)], "adaptive", 1.0
        )


def test_moments_of_a_stream_normalize():
    stream = moment_streams.start_moment_stream([[]], "adaptive", 1.0)
    values = tf.constant([1.0, 3.0])
    stream = moment_streams.advance_moment_stream(stream, [values], "adaptive", 1.0)
    got = stream.normalize([values])[0]
    np.testing.assert_allclose(got, [-1.0, 1.0], rtol=1e-6)


@EVERY_RULE
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e200])
def test_batches_that_are_not_finite_change_nothing(rule, setting, bad):
    start = moment_streams.start_moment_stream([[2], []], rule, setting)
    good = [tf.constant([[1.0, 2.0], [3.0, 6.0]], tf.float64), tf.constant([4.0])]
    spoiled = [tf.constant([[1.0, 2.0], [bad, 6.0]], tf.float64), tf.constant([4.0])]
    advance = moment_streams.advance_moment_stream
    once = advance(start, good, rule, setting)
    for before in (start, once):
        for jit in (None, False, True):
            run = advance if jit is None else tf.function(advance, jit_compile=jit)
            after = run(before, spoiled, rule, setting)
            for one, two in zip(*map(tf.nest.flatten, (after, before)), strict=True):
                np.testing.assert_array_equal(one, two)


def test_moments_to_normalize_with():
    start = moment_streams.start_moment_stream([[2]], "adaptive", 1.0)
    (known,) = start.to_normalize()
    assert known.mean.numpy().tolist() == [0.0, 0.0]
    assert known.variance.numpy().tolist() == [1.0, 1.0]
    batch = [tf.constant([[1.0, 2.0], [3.0, 2.0]])]
    after = moment_streams.advance_moment_stream(start, batch, "adaptive", 1.0)
    (known,) = after.to_normalize()
    assert known.mean.numpy().tolist() == [2.0, 2.0]
    assert known.variance.numpy().tolist() == [1.0, 0.0]


def test_weights_say_what_counts():
    settings = {"rule": "adaptive", "setting": 1.0}
    start = moment_streams.start_moment_stream([[2]], **settings)
    rows = np.array([[1.0, 2.0], [3.0, 5.0], [np.nan, 9.0]], np.float32)
    stream = moment_streams.advance_moment_stream(
        start, [rows], **settings, weights=np.array([3.0, 1.0, 0.0])
    )
    np.testing.assert_allclose(stream.moments[0].mean, [1.5, 2.75])
    np.testing.assert_allclose(stream.moments[0].variance, [0.75, 27 / 16])
    same = moment_streams.advance_moment_stream(
        stream, [rows], **settings, weights=np.zeros(3, bool)
    )
    assert int(same.count) == 1
    with pytest.raises(ValueError, match="`weights` expected the batch shape"):
        moment_streams.advance_moment_stream(
            start, [rows], **settings, weights=np.ones(2)
        )


@pytest.mark.parametrize(
    ("error", "name", "changed"),
    [
        (TypeError, "stream", {"stream": None}),
        (TypeError, "values", {"values": None}),
        (TypeError, "values", {"values": [None]}),
        (ValueError, "values", {"values": []}),
        (ValueError, "rule", {"rule": "other"}),
        (TypeError, "setting", {"setting": "a"}),
    ],
)
def test_bad_arguments_are_named(error, name, changed):
    given = {"rule": "adaptive", "setting": 1.0}
    given["stream"] = moment_streams.start_moment_stream([[2]], **given)
    given["values"] = [tf.ones([3, 2])]
    with pytest.raises(error, match=f"`advance_moment_stream`: `{name}` expected"):
        moment_streams.advance_moment_stream(**{**given, **changed})


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        ([[1]], TypeError, "`values` expected a floating-point dtype"),
        ([tf.zeros([2, 3])], ValueError, r"`values` expected shape \[..., \*\[2\]\]"),
        ([], ValueError, "`values` expected a list of 1"),
    ],
    ids=["integers", "shape", "number"],
)
def test_what_cannot_be_normalized(values, error, match):
    stream = moment_streams.start_moment_stream([[2]], "adaptive", 1.0)
    with pytest.raises(error, match=f"`MomentStream.normalize`: {match}"):
        stream.normalize(values)
