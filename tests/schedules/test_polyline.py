"""Lines through points: numbers and tensors alike."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import compile
from tfrl.schedules import schedulers

POINTS = {
    "one": [(3, 2.0)],
    "line": [(0, 1.0), (10, 0.0)],
    "jump": [(0, 1.0), (10, 0.5), (10, 0.1), (20, 0.3)],
    "leading-jump": [(-5, 1.0), (-5, 2.0), (-5, 3.0), (5, 0.0)],
    "last-jump": [(0, 1.0), (7, 1.0), (7, 4.0)],
    "far": [(1e15, -1.0), (2e15, 1e6)],
}


@dataclasses.dataclass(frozen=True)
class Line(schedulers.Scheduler):
    points: list
    progress_type: str = "iterations"

    def _points(self):
        return self.points


def slow(points, time):
    """Looks at one pair of neighbours after the other."""
    value = points[0][1]
    for (t0, v0), (t1, v1) in zip(points, points[1:], strict=False):
        if t0 <= time < t1:
            return v0 + (v1 - v0) * (time - t0) / (t1 - t0)
        if time >= t1:
            value = v1
    return value


def times_of(points):
    ends = [time for time, _ in points]
    between = [(a + b) / 2 for a, b in zip(ends, ends[1:], strict=False)]
    near = [time + step for time in ends for step in (-1, 1)]
    return [*ends, *between, *near, -1e30, 1e30, -np.inf, np.inf]


@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_equals_a_slow_loop(points):
    line, times = Line(points).value_at, times_of(points)
    expected = [slow(points, time) for time in times]
    np.testing.assert_allclose([line(time) for time in times], expected, rtol=1e-12)
    tensor = tf.reshape(tf.constant(times, tf.float64), [-1, 1])
    got = line(tensor)
    assert got.shape == tensor.shape
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-12)


def test_one_trace_serves_all_lines():
    traces = compile.trace_count(schedulers._interpolated)
    for points in POINTS.values():
        Line(points)(tf.constant(1.0, tf.float64))
        Line(points)(tf.constant(2.0, tf.float64))
    assert compile.trace_count(schedulers._interpolated) <= traces + 1


def test_slope_is_the_gradient():
    line, x = Line(POINTS["jump"]), tf.constant([-1.0, 5.0, 15.0, 30.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = line(x)
    np.testing.assert_allclose(tape.gradient(y, x), [0.0, -0.05, 0.02, 0.0], rtol=1e-5)
