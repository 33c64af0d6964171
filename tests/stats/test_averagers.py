"""Averagers by hand; `test_recordings` and `test_running` say more."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats


def test_average_outer_dims_by_hand():
    values = tf.constant([[[1.0, 2.0]], [[3.0, 6.0]]])
    average = stats.average_outer_dims(values, tf.TensorSpec([2]))
    np.testing.assert_allclose(average, [2.0, 4.0])
    whole = stats.average_outer_dims(values, tf.TensorSpec([2, 1, 2]))
    np.testing.assert_array_equal(whole, values)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_average_outer_dims_keeps_the_dtype(dtype):
    values = tf.fill([3000], tf.constant(100.0, dtype))
    average = stats.average_outer_dims(values, tf.TensorSpec([]))
    assert average.dtype == dtype
    assert float(average) == 100.0, "float16 sums overflow"


def test_average_outer_dims_has_the_gradient_of_a_mean():
    values = tf.constant([[1.0], [5.0]])
    with tf.GradientTape() as tape:
        tape.watch(values)
        average = stats.average_outer_dims(values, tf.TensorSpec([1]))
    np.testing.assert_allclose(tape.gradient(average, values), [[0.5], [0.5]])


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ([1, 2], TypeError, "`tensor` expected a floating-point dtype"),
        ([1.0], ValueError, r"`tensor` expected shape \[..., \*\[2\]\]; got \[1\]"),
        (1.0, ValueError, r"`tensor` expected shape \[..., \*\[2\]\]; got \[\]"),
    ],
    ids=["integers", "shape", "rank"],
)
def test_average_outer_dims_refuses(value, error, match):
    with pytest.raises(error, match=match):
        stats.average_outer_dims(value, tf.TensorSpec([2]))


def test_nothing_averages_to_zero():
    for averager in (
        stats.ScalarEMAverager(0.1),
        stats.ScalarAdaptiveAverager(),
        stats.ScalarWindowAverager(2),
    ):
        assert float(averager.get()) == 0.0


def test_exponential_average_by_hand():
    averager = stats.ScalarEMAverager(0.5)
    assert float(averager.average(4.0)) == 4.0
    np.testing.assert_allclose(averager.average(1.0), 2.0)  # (4 + 2 * 1) / 3
    np.testing.assert_allclose(
        averager.average(tf.constant([1.0, 15.0])), (4 + 2 + 4 * 8) / 7
    )


def test_update_rate_may_be_a_variable():
    rate = tf.Variable(0.5)
    averager = stats.ScalarEMAverager(rate)
    averager.update(4.0)
    rate.assign(0.25)
    # Sum 2 and mass 1/2 become 1.5 + 0.25 and 5/8.
    np.testing.assert_allclose(averager.average(1.0), 1.75 / 0.625)
    assert any(variable is rate for variable in averager.variables)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 3.7])
def test_any_speed_starts_at_the_first_value_and_stays_among_the_values(speed):
    averager = stats.ScalarAdaptiveAverager(speed=speed)
    assert float(averager.average(5.0)) == 5.0
    for value in (-1.0, 3.0, 7.0, 2.0):
        assert -1.0 <= float(averager.average(value)) <= 7.0


def test_speed_one_is_the_plain_average():
    values = np.random.default_rng(0).normal(size=20)
    averager = stats.ScalarAdaptiveAverager(speed=1, dtype=tf.float64)
    for value in values:
        averager.update(value)
    np.testing.assert_allclose(averager.get(), values.mean(), rtol=1e-12)


def test_window_equals_a_queue_of_batch_means():
    averager = stats.WindowAverager(tf.TensorSpec([2], tf.float64), window_size=3)
    queue = collections.deque(maxlen=3)
    rng = np.random.default_rng(1)
    for rows in (1, 4, 2, 5, 3, 1, 2):
        batch = (
            1e9 * rng.normal(size=(rows, 2))
            if rows == 4
            else rng.normal(size=(rows, 2))
        )
        queue.append(batch.mean(0))
        np.testing.assert_allclose(
            averager.average(batch), np.mean(queue, 0), rtol=1e-12
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_have_the_dtype_of_the_spec(dtype):
    averager = stats.ScalarEMAverager(1e-3, dtype=tf.as_dtype(dtype))
    for _ in range(50):
        average = averager.average(tf.constant([1.0, 3.0], dtype))
    assert average.dtype == dtype
    np.testing.assert_allclose(tf.cast(average, tf.float64), 2.0, rtol=1e-6)


def test_a_python_float_has_the_precision_of_the_spec():
    averager = stats.ScalarEMAverager(0.1, dtype=tf.float64)
    assert float(averager.average(0.1)) == 0.1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: stats.ScalarEMAverager(0.0), "`ScalarEMAverager`: `update_rate`"),
        (
            lambda: stats.EMAverager(tf.TensorSpec([]), 2.0),
            "`EMAverager`: `update_rate`",
        ),
        (
            lambda: stats.ScalarAdaptiveAverager(0.0),
            "`ScalarAdaptiveAverager`: `speed`",
        ),
        (
            lambda: stats.ScalarWindowAverager(0),
            "`ScalarWindowAverager`: `window_size`",
        ),
    ],
    ids=["rate 0", "rate 2", "speed 0", "window 0"],
)
def test_bad_settings(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "make",
    [
        lambda spec: stats.EMAverager(spec, 0.3),
        stats.AdaptiveAverager,
        lambda spec: stats.WindowAverager(spec, 2),
    ],
    ids=["exponential", "adaptive", "window"],
)
def test_a_batch_that_is_not_finite_is_passed_over(make, bad):
    spec = {"a": tf.TensorSpec([]), "b": tf.TensorSpec([2])}
    averager, other = make(spec), make(spec)
    averager.update({"a": bad, "b": tf.ones([2])})
    np.testing.assert_array_equal(averager.get()["b"], [0.0, 0.0])
    for value in (1.0, 2.0, 5.0):
        good = {"a": value, "b": tf.constant([value, -value])}
        right = other.average(good)
        for got in (averager.average(good), averager.average({**good, "a": bad})):
            np.testing.assert_allclose(got["a"], right["a"], rtol=1e-6)
            np.testing.assert_allclose(got["b"], right["b"], rtol=1e-6)
