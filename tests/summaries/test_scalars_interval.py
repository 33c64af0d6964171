"""Summaries recorded at an interval of steps."""

import event_files
import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.distribute import per_process
from tfrl.summaries import scalars

TABLE = golden_io.load("alf/common", symbol="run_under_record_context")


@pytest.mark.parametrize("kind", ["eager", "graph"])
def test_golden_interval(kind, tmp_path):
    [case] = TABLE
    for row in case["out"]["table"]:
        found = []
        step = tf.Variable(0, dtype=tf.int64)

        def ask():
            return tf.summary.should_record_summaries()

        ask = tf.function(ask) if kind == "graph" else ask

        def run(ask=ask, found=found, step=step):
            tf.summary.experimental.set_step(step)
            for _ in case["in"]["steps"]:
                if ask():
                    found.append(int(step))
                step.assign_add(1)
            return "done"

        given = row["interval"], 60, row["summarize_first_interval"]
        assert scalars.run_under_record_context(run, tmp_path, *given) == "done"
        assert found == list(row["recorded_steps"]), row
    tf.summary.experimental.set_step(None)


def test_points_land_at_their_steps_in_one_trace(tmp_path):
    step, traces = tf.Variable(0, dtype=tf.int64), []

    @tf.function
    def update(x):
        traces.append(1)
        scalars.add_mean_summary("loss", x)

    def run():
        tf.summary.experimental.set_step(step)
        for _ in range(10):
            update(tf.cast(tf.stack([step, step]), tf.float32))
            step.assign_add(1)

    scalars.run_under_record_context(run, tmp_path, 4, 60, False)
    tf.summary.experimental.set_step(None)
    found = event_files.points(tmp_path)
    assert [(at, float(x)) for at, x in found["loss"]] == [(0, 0), (4, 4), (8, 8)]
    assert event_files.plugins(tmp_path) == {"loss": "scalars"}
    assert len(traces) == 1


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(per_process.PerProcessContext, "ddp_rank", 1)
    run = tf.summary.should_record_summaries
    assert not scalars.run_under_record_context(run, tmp_path / "run", 1, 60)
    assert not (tmp_path / "run").exists()


def test_home_folder_and_closing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def run():
        tf.summary.experimental.set_step(0)
        scalars.add_mean_summary("a", tf.constant([2.0]))
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        scalars.run_under_record_context(run, "~/run", 1, 60)
    tf.summary.experimental.set_step(None)
    assert event_files.last(tmp_path / "run") == {"a": 2.0}
    assert not tf.summary.should_record_summaries()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"summary_interval": 0}, ValueError, "`summary_interval` expected an int of"),
        ({"summary_interval": 2.0}, TypeError, "`summary_interval` expected an int"),
        ({"flush_secs": 0}, ValueError, "`flush_secs` expected"),
        ({"flush_secs": np.inf}, ValueError, "`flush_secs` expected finite"),
        ({"summary_max_queue": 0}, ValueError, "`summary_max_queue` expected an int"),
    ],
    ids=["interval", "fraction", "flush", "never", "queue"],
)
def test_bad_intervals_make_no_folder(change, error, match, tmp_path):
    given = {"summary_dir": tmp_path / "x", "summary_interval": 1, "flush_secs": 1}
    with pytest.raises(error, match=match):
        scalars.run_under_record_context(lambda: None, **{**given, **change})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_folders_that_cannot_be_written_are_named(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        ValueError, match=f"`summary_dir` expected a .*got .*{name}; ch"
    ):
        scalars.run_under_record_context(lambda: None, tmp_path / name, 1, 60)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_step_is_named(tmp_path):
    def run():
        scalars.add_mean_summary("a", tf.constant([1.0]))

    with pytest.raises(ValueError, match="expected a step of the summaries; got none"):
        scalars.run_under_record_context(run, tmp_path, 1, 60)
