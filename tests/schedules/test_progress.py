"""The record of how far training has come."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import schedules


def test_is_zero_until_somebody_sets_it():
    assert schedules.current_progress() == schedules.Progress(0.0, 0, 0, 0)


def test_contexts_nest_and_restore():
    outer, inner = schedules.Progress(iterations=1), schedules.Progress(env_steps=2)
    with schedules.progress_context(outer):
        with pytest.raises(KeyError), schedules.progress_context(inner):
            assert schedules.current_progress() is inner
            raise KeyError
        assert schedules.current_progress() is outer
    assert schedules.current_progress() == schedules.Progress()


def test_other_threads_start_with_zeros():
    seen = []
    with schedules.progress_context(schedules.Progress(iterations=1)):
        thread = threading.Thread(
            target=lambda: seen.append(schedules.current_progress())
        )
        thread.start()
        thread.join()
    assert seen == [schedules.Progress()]


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable], ids=["tf", "keras"])
def test_variables_are_read_when_a_function_runs(make):
    steps = make(0.0)
    halve = schedules.LinearScheduler("iterations", [(0, 1.0), (10, 0.0)])
    with schedules.progress_context(schedules.Progress(iterations=steps)):
        function = tf.function(lambda: halve(), autograph=False)
        values = []
        for step in (0.0, 5.0, 20.0, 5.0):
            steps.assign(step)
            values.append(float(function()))
    np.testing.assert_allclose(values, [1.0, 0.5, 0.0, 0.5])
    assert function.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: schedules.Progress(percent=1.5),
            ValueError,
            r"`percent` .*\[0, 1.0\]",
        ),
        (lambda: schedules.Progress(env_steps=-1), ValueError, "`env_steps` expected"),
        (
            lambda: schedules.progress_context(0.5).__enter__(),
            TypeError,
            "`progress_context`: `progress` expected a `Progress`; got 0.5",
        ),
    ],
    ids=["percent", "negative", "number"],
)
def test_mistakes_are_told(call, error, message):
    with pytest.raises(error, match=message):
        call()
