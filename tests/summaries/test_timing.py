"""Tests of summaries of time, by a clock that moves when told so."""

import contextlib

import event_files
import golden_io
import pytest
import tensorflow as tf

from tfrl.summaries import scalars, timing


class Clock:
    """Time that passes only when told so, and only on devices that are waited for."""

    def __init__(self):
        self.now = self.pending = 0.0
        self.waits = 0

    def perf_counter(self):
        return self.now

    def sync_devices(self):
        self.now += self.pending
        self.pending = 0.0
        self.waits += 1


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(tf.test.experimental, "sync_devices", clock.sync_devices)
    monkeypatch.setattr(timing, "_INTERVALS", {})
    return clock


@contextlib.contextmanager
def counting(directory):
    step = tf.Variable(0, dtype=tf.int64)
    with event_files.writing(directory, step=step):
        yield step


def points(directory, tag="time/a"):
    found = event_files.points(directory).get(tag, [])
    return [(at, float(seconds)) for at, seconds in found]


def test_seconds_per_step_is_the_definition_recorded():
    [case] = golden_io.load("alf/summary_utils_doc", symbol="record_time")
    assert "total_time/(counter delta)" in case["note"]


def test_seconds_per_step_of_each_interval(clock, tmp_path):
    with counting(tmp_path) as step, tf.summary.record_if(lambda: step % 4 == 0):
        for i in range(9):
            with timing.record_time("time/a"):
                clock.now += i
            clock.now += 100
            step.assign_add(1)
    # Measured at steps 0 to 4: 0 + 1 + 2 + 3 + 4 seconds; at 5 to 8: 5 + 6 + 7 + 8.
    assert points(tmp_path) == [(4, 10 / 4), (8, 26 / 4)]


def test_a_step_counted_inside(clock, tmp_path):
    with counting(tmp_path) as step:
        for _ in range(2):
            with timing.record_time("time/a"):
                clock.now += 3
                step.assign_add(1)
    assert points(tmp_path) == [(1, 3.0), (2, 3.0)]


def test_work_of_devices_counts_where_it_was_started(clock, tmp_path):
    with counting(tmp_path) as step:
        clock.pending = 50.0
        with timing.record_time("time/a"):
            clock.pending = 2.0
            step.assign_add(1)
    assert points(tmp_path) == [(1, 2.0)]


def test_places_count_for_themselves(clock, tmp_path):
    with counting(tmp_path) as step:
        for _ in range(2):
            with timing.record_time("time/a"):
                clock.now += 1
                step.assign_add(1)
            with timing.record_time("time/a"):
                clock.now += 5
    assert points(tmp_path) == [(1, 1.0), (2, 1.0), (2, 10.0)]


def test_decorator_and_recursion(clock, tmp_path):
    @timing.record_time("time/a")
    def descend(depth):
        """Goes down."""
        clock.now += 1
        if depth:
            descend(depth - 1)

    with counting(tmp_path) as step:
        descend(1)
        step.assign_add(1)
        descend(0)
    assert descend.__doc__ == "Goes down."
    assert points(tmp_path) == [(1, 1.0 + 2.0 + 1.0)]


def test_one_object_measures_again_and_again(clock, tmp_path):
    watch = timing.record_time("time/a")
    with counting(tmp_path) as step:
        for _ in range(2):
            with watch:
                clock.now += 1
                with watch:
                    clock.now += 2
            step.assign_add(1)
        with watch:
            pass
    assert points(tmp_path) == [(1, 2 + 3 + 2), (2, 1 + 2)]


def test_exceptions_pass_and_do_not_count(clock, tmp_path):
    with counting(tmp_path) as step:
        for seconds in (7, 2):
            with (
                contextlib.suppress(ZeroDivisionError),
                timing.record_time("time/a"),
            ):
                clock.now += seconds
                step.assign_add(1)
                1 / (seconds - 7)
    assert points(tmp_path) == [(2, 1.0)]


def test_another_run_starts_anew(clock, tmp_path):
    for run in ("one", "two"):
        with counting(tmp_path / run) as step:
            for _ in range(3):
                with timing.record_time("time/a"):
                    clock.now += 1
                step.assign_add(1)
    assert points(tmp_path / "two") == points(tmp_path / "one") == [(1, 2.0), (2, 1.0)]


def test_without_a_writer_nothing_is_waited_for(clock):
    with timing.record_time("time/a"):
        clock.now += 1
    assert not clock.waits
    assert not timing._INTERVALS


def test_errors(tmp_path):
    @tf.function(autograph=False)
    def traced():
        with timing.record_time("time/a"):
            return tf.constant(0)

    with event_files.writing(tmp_path):
        with pytest.raises(ValueError, match="outside of a tf.function; got 'time/a'"):
            traced()
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), pytest.raises(ValueError, match="expected a step"):
        with timing.record_time("time/a"):
            pass


def test_real_time(tmp_path):
    def run():
        step = tf.Variable(0, dtype=tf.int64)
        tf.summary.experimental.set_step(step)
        for _ in range(3):
            with timing.record_time("time/a"):
                tf.random.normal([10, 10])
            step.assign_add(1)

    scalars.run_under_record_context(run, tmp_path, 1, 60)
    tf.summary.experimental.set_step(None)
    assert [at for at, _ in points(tmp_path)] == [1, 2]
    assert all(seconds > 0 for _, seconds in points(tmp_path))
