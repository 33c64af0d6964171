"""Schedules one after the other: by hand, in a configuration, kept by a run."""

import json
import math

import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import schedules
from tfrl.configuring import configs
from tfrl.training import _kept_arguments, configurables

RISE = schedules.LinearScheduler("iterations", [(0, 0.0), (4, 1.0)])
FALL = schedules.PolynomialScheduler("iterations", 1.0, 0.0, 0.5, 10)
JOINED = schedules.JoinedScheduler("iterations", [(0, RISE), (4, 1), (6, FALL)])
WARM = schedules.WarmUpScheduler("iterations", 4, FALL, 0.2)
# Progress and what is then in effect.
BY_HAND = {
    "joined": (
        JOINED,
        {
            -8: 0.0,
            0: 0.0,
            1: 0.25,
            4: 1.0,
            5.5: 1.0,
            6: 1.0,
            8: math.sqrt(0.8),
            16: 0,
            99: 0,
        },
    ),
    "warm-up": (
        WARM,
        {-8: 0.2, 0: 0.2, 1: 0.4, 2: 0.6, 4: 1.0, 6: math.sqrt(0.8), 14: 0.0, 99: 0.0},
    ),
}
every = pytest.mark.parametrize(("schedule", "values"), BY_HAND.values(), ids=BY_HAND)


@every
def test_by_hand(schedule, values):
    progress, expected = [*values], [*values.values()]
    found = [schedule(each) for each in progress]
    assert {type(value) for value in found} == {float}
    np.testing.assert_allclose(found, expected, atol=1e-12)
    wide = tf.constant(progress, tf.float64)
    for call in (schedule, tf.function(schedule, jit_compile=True)):
        np.testing.assert_allclose(call(wide), expected, atol=1e-12)
    with schedules.progress_context(schedules.Progress(iterations=progress[2])):
        assert schedule() == pytest.approx(expected[2])


@every
def test_no_gradient_is_lost_where_another_is_in_effect(schedule, values):
    progress = tf.constant([0.5, 5.0, 8.0, 50.0])
    with tf.GradientTape() as tape:
        tape.watch(progress)
        value = schedule(progress)
    assert np.all(np.isfinite(tape.gradient(value, progress)))


@every
def test_comes_back_as_it_was(schedule, values):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(schedule)))
    assert keras.saving.deserialize_keras_object(config) == schedule
    kept = _kept_arguments.kept(schedule)
    assert _kept_arguments.made(json.loads(json.dumps(kept))) == schedule
    assert hash(schedule)


def test_optimizers_take_and_save_it():
    optimizer = keras.optimizers.SGD(WARM)
    again = keras.optimizers.SGD.from_config(optimizer.get_config())
    assert float(again.learning_rate) == pytest.approx(0.2)


def test_gin_builds_schedules_of_schedules(request):
    request.addfinalizer(configs.clear)
    made = configs.register(configurables.CONFIGURABLES)
    configs.parse(
        bindings=[
            "WarmUpScheduler.progress_type = 'iterations'",
            "WarmUpScheduler.period = 4",
            "WarmUpScheduler.schedule = @PolynomialScheduler()",
            "WarmUpScheduler.initial_value = 0.2",
            "PolynomialScheduler.progress_type = 'iterations'",
            "PolynomialScheduler.initial_value = 1.0",
            "PolynomialScheduler.final_value = 0.0",
            "PolynomialScheduler.power = 0.5",
            "PolynomialScheduler.duration = 10",
            "JoinedScheduler.progress_type = 'iterations'",
            "JoinedScheduler.schedules = [(0, 0.5), (6, @PolynomialScheduler())]",
            "CosineScheduler.final_value = 0.5",
            "OneCycleScheduler.rise = 0.25",
        ]
    )
    assert made["WarmUpScheduler"]() == WARM
    joined = schedules.JoinedScheduler("iterations", [(0, 0.5), (6, FALL)])
    assert made["JoinedScheduler"]() == joined
    assert made["CosineScheduler"]("percent", 1.0, 1.0).final_value == 0.5
    assert made["OneCycleScheduler"]("percent", 1.0, 1.0).rise == 0.25
    configs.check_all_used()


OTHER = schedules.CosineScheduler("percent", 1.0, 1.0)


@refusals.table(
    (
        schedules.JoinedScheduler,
        bad(ValueError, "progress_type", "steps", [(0, 1.0)]),
        bad(TypeError, "schedules", "iterations", []),
        bad(TypeError, "schedules", "iterations", RISE),
        bad(TypeError, "schedules", "iterations", [(0, "a")]),
        bad(TypeError, "schedules", "iterations", [(0, 1.0, 2.0)]),
        bad(ValueError, "schedules", "iterations", [(1, 1.0)]),
        bad(ValueError, "schedules", "iterations", [(0, 1.0), (0, 2.0)]),
        bad(ValueError, "schedules", "iterations", [(0, 1.0), (5, OTHER)]),
        bad(ValueError, "schedules", "iterations", [(0, math.inf)]),
    ),
    (
        schedules.WarmUpScheduler,
        bad(ValueError, "period", "iterations", 0, 1.0),
        bad(TypeError, "schedule", "iterations", 5, tf.exp),
        bad(ValueError, "schedule", "iterations", 5, OTHER),
        bad(TypeError, "initial_value", "iterations", 5, 1.0, None),
    ),
)
def test_errors(row):
    row()
