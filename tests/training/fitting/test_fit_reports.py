"""What a loss reports, under names and in means."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.training.fitting import _fit_losses

ONES = tf.ones([2])
Pair = collections.namedtuple("Pair", "first second")
Told = collections.namedtuple("Told", "priorities scale")


def results(reports):
    return {metric.name: float(metric.result()) for metric in reports.active()}


def update(reports, extra, weights=ONES, phase=_fit_losses.TRAINING):
    reports.update(phase, extra, weights, tf.reduce_sum(weights))


def test_names_and_means():
    reports = _fit_losses.Reports()
    assert reports.active() == []
    extra = {
        "a": Pair(tf.constant([1.0, 3.0]), [2, {"deep": True}]),
        "none": None,
        "empty": (),
    }
    for _ in range(2):
        update(reports, extra)
    assert results(reports) == {
        "a_first": 2.0,
        "a_second_0": 2.0,
        "a_second_1_deep": 1.0,
    }


def test_weights_of_elements_and_of_batches():
    reports = _fit_losses.Reports()
    update(reports, {"x": tf.constant([1.0, 3.0]), "n": 1.0}, tf.constant([3.0, 1.0]))
    update(reports, {"x": tf.constant([5.0, 5.0]), "n": 5.0}, tf.constant([0.0, 0.0]))
    assert results(reports) == {"x": 1.5, "n": 1.0}


def test_axes_beyond_the_weights_are_averaged():
    reports = _fit_losses.Reports()
    values = tf.constant([[1.0, 3.0], [5.0, 7.0]])
    update(reports, {"x": values}, tf.constant([1.0, 3.0]))
    np.testing.assert_allclose(results(reports)["x"], (2.0 + 3 * 6.0) / 4)
    reports = _fit_losses.Reports()
    update(reports, {"x": tf.constant([2.0, 6.0])}, tf.ones([2, 3]))
    assert results(reports) == {"x": 4.0}


def test_phases_are_apart():
    reports = _fit_losses.Reports()
    update(reports, {"a": 1.0})
    update(reports, {"b": 2.0}, phase=_fit_losses.TESTING)
    assert results(reports) == {"a": 1.0}
    reports.phase = _fit_losses.TESTING
    assert results(reports) == {"b": 2.0}


def test_made_inside_compiled_functions():
    reports = _fit_losses.Reports({"y": keras.metrics.Sum("total")})

    @tf.function(jit_compile=True)
    def step(x):
        update(reports, {"x": x, "y": x})

    step(tf.constant([1.0, 2.0]))
    step(tf.constant([3.0, 4.0]))
    assert results(reports) == {"x": 2.5, "total": 10.0}


def test_bad_reports():
    reports = _fit_losses.Reports()
    with pytest.raises(ValueError, match=r"other names than \['loss'\]; got 'loss'"):
        update(reports, {"loss": 1.0})
    update(reports, {"a": 1.0})
    with pytest.raises(ValueError, match=r"the same at every call; got \['b'\] after"):
        update(reports, {"b": 1.0})
    named = _fit_losses.Reports({"a": keras.metrics.Mean("x")})
    with pytest.raises(ValueError, match=r"other names than \['loss', 'x'\]; got 'x'"):
        update(named, {"a": 1.0, "x": 1.0})
    with pytest.raises(ValueError, match="`metrics` expected different names"):
        _fit_losses.Reports({"a": "mae", "b": "mae"})


def test_what_replays_are_told_is_no_news():
    extra = Told(tf.constant([1.0, 3.0]), tf.constant(2.0))
    reports = _fit_losses.Reports()
    update(reports, extra)
    assert results(reports) == {"scale": 2.0}
    asked = _fit_losses.Reports({"priorities": keras.metrics.Mean("mean")})
    update(asked, extra)
    assert results(asked) == {"scale": 2.0, "mean": 2.0}
    named = _fit_losses.Reports()
    update(named, {"td": extra})
    assert results(named) == {"td_priorities": 2.0, "td_scale": 2.0}
    others = _fit_losses.Reports()
    update(others, Pair(tf.constant([1.0, 3.0]), tf.constant(2.0)))
    assert results(others) == {"first": 2.0, "second": 2.0}
