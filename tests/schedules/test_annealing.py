"""Curves between two values, by their formulas, as numbers and as tensors."""

import math

import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import schedules

PROGRESS = [0.0, 1.0, 2.5, 3.0, 7.0, 9.9, 10.0, 13.0, 1e9]


def cosine(progress):
    left = min(progress / 10.0, 1.0)
    return 0.2 + (2.0 - 0.2) * (1 + math.cos(math.pi * left)) / 2


def polynomial(progress):
    left = 1 - min(max((progress - 3.0) / 7.0, 0.0), 1.0)
    return 0.2 + (2.0 - 0.2) * left**1.5


def one_cycle(progress):
    first, last = 2.0 / 4.0, 2.0 / 4.0 / 5.0
    if progress < 2.5:
        return first + (2.0 - first) * (1 - math.cos(math.pi * progress / 2.5)) / 2
    left = min((progress - 2.5) / 7.5, 1.0)
    return last + (2.0 - last) * (1 + math.cos(math.pi * left)) / 2


EXAMPLES = {
    "cosine": (schedules.CosineScheduler("iterations", 2.0, 10, 0.2), cosine),
    "polynomial": (
        schedules.PolynomialScheduler("iterations", 2.0, 0.2, 1.5, 7, 3),
        polynomial,
    ),
    "one cycle": (
        schedules.OneCycleScheduler("iterations", 2.0, 10, 0.25, 4.0, 5.0),
        one_cycle,
    ),
}
every = pytest.mark.parametrize(
    ("schedule", "formula"), EXAMPLES.values(), ids=EXAMPLES
)


@every
def test_equals_its_formula(schedule, formula):
    expected = [formula(each) for each in PROGRESS]
    values = [schedule(each) for each in PROGRESS]
    assert {type(value) for value in values} == {float}
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-15)
    wide = tf.constant(PROGRESS, tf.float64)
    for call in (schedule, tf.function(schedule, jit_compile=True)):
        np.testing.assert_allclose(call(wide), expected, rtol=1e-12, atol=1e-15)
    steps = tf.constant([0, 3, 7, 10])
    expected = [formula(int(each)) for each in steps]
    np.testing.assert_allclose(schedule(steps), expected, rtol=1e-6)


@every
def test_reads_the_current_progress_and_comes_back_from_its_config(schedule, formula):
    with schedules.progress_context(schedules.Progress(iterations=7)):
        assert schedule() == pytest.approx(formula(7))
    assert type(schedule).from_config(schedule.get_config()) == schedule
    assert hash(schedule)


def test_ends_are_met_exactly():
    schedule = schedules.CosineScheduler("percent", 0.3, 1.0)
    assert (schedule(0.0), schedule(1.0)) == (0.3, 0.0)
    cycle = schedules.OneCycleScheduler("percent", 1.0, 1.0)
    assert cycle(0.0) == pytest.approx(1 / 25)
    assert cycle(0.3) == 1.0
    assert cycle(1.0) == pytest.approx(1 / 25e4)


@refusals.table(
    (
        schedules.CosineScheduler,
        bad(ValueError, "progress_type", "steps", 1.0, 10),
        bad(ValueError, "duration", "iterations", 1.0, 0),
        bad(TypeError, "initial_value", "iterations", "a", 10),
        bad(ValueError, "final_value", "iterations", 1.0, 10, math.nan),
    ),
    (
        schedules.PolynomialScheduler,
        bad(ValueError, "power", "iterations", 1.0, 0.0, 0.0, 10),
        bad(ValueError, "duration", "iterations", 1.0, 0.0, 1.0, -1),
        bad(ValueError, "start", "iterations", 1.0, 0.0, 1.0, 10, -1),
    ),
    (
        schedules.OneCycleScheduler,
        bad(ValueError, "rise", "iterations", 1.0, 10, 1.0),
        bad(ValueError, "rise", "iterations", 1.0, 10, 0.0),
        bad(ValueError, "initial_divisor", "iterations", 1.0, 10, 0.5, 0.0),
        bad(TypeError, "peak_value", "iterations", None, 10),
    ),
)
def test_errors(row):
    row()
