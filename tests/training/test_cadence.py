"""When a run reports, and what: rows, columns, what callbacks are told."""

import csv
import dataclasses
import math
import types
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.plugins.hparams import plugin_data_pb2
from tiny_agents import TinyAgent, build

from tfrl._internal import event_files
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, evaluation

ROW = cadence.row(1, 0.0, 0.0, [([1.0], [1])], {})
START = run_log.RunLog.START


def test_some_intervals_may_be_none():
    assert cadence.Intervals(eval_epochs=None).eval_epochs is None
    with pytest.raises(ValueError, match="`Intervals`: `log_epochs` expected an int"):
        cadence.Intervals(log_epochs=0)
    with pytest.raises(TypeError, match="`Intervals`: `eval_episodes` expected an int"):
        cadence.Intervals(eval_episodes=1.5)
    with pytest.raises(ValueError, match="got 0; take 1, and limit what has no end"):
        cadence.Intervals(eval_episodes=0)
    numbers = {*dataclasses.asdict(cadence.Intervals())} - {"eval_epochs"}
    for name in numbers:
        with pytest.raises(TypeError, match=f"`Intervals`: `{name}` expected an int"):
            cadence.Intervals(**{name: None})


def test_a_row_says_what_all_workers_met():
    played = evaluation.Evaluation(np.array([1.0, 3.0]), np.array([5, 7]))
    episodes = [([1.0, 2.0], [10, 20]), ([6.0], [30])]
    row = cadence.row(4, 2.5, 100.0, episodes, {"loss": np.float32(0.5)})
    assert row | cadence.judged(played) == {
        "epoch": 4,
        "seconds": 2.5,
        "env_steps_per_second": 100.0,
        "train/return_mean": 3.0,
        "train/length_mean": 20.0,
        "eval/return_mean": 2.0,
        "eval/return_std": 1.0,
        "eval/length_mean": 6.0,
        "train/loss": 0.5,
    }
    row = cadence.row(1, 0.0, 0.0, [([], [])], {})
    several = played._replace(agents=("a", "b"))
    added = cadence.judged(several).items() - cadence.judged(played).items()
    assert dict(added) == {"eval/return_mean/a": 1.0, "eval/return_mean/b": 3.0}
    telling = played._replace(successes=np.array([True, False]))
    added = cadence.judged(telling).items() - cadence.judged(played).items()
    assert dict(added) == {"eval/success_rate": 0.5}
    assert math.isnan(row["train/return_mean"]) and "eval/return_mean" not in row


@pytest.mark.parametrize(
    "value",
    [2, np.float32(2.0), np.array(2), tf.constant(2), tf.Variable(2.0)]
    + [tf.constant(2.0, tf.bfloat16)],
    ids=["int", "float32", "array", "tensor", "variable", "bfloat16"],
)
def test_scalars_of_all_kinds(value):
    row = cadence.row(1, 0.0, 0.0, [([], [])], {"parameters": value})
    assert row["train/parameters"] == 2.0 and type(row["train/parameters"]) is float


@pytest.mark.parametrize(
    "value",
    [np.zeros(3), tf.zeros([1]), [1, [2]], "3", tf.constant("3"), None, {}, 1j],
    ids=["array", "tensor", "ragged", "text", "text_tensor", "none", "dict", "complex"],
)
def test_an_info_of_what_is_no_scalar_is_refused(tmp_path, value):
    message = r"info holds scalars; got .* of shape \[.*\] for 'q_values'"
    with cadence.Report(tmp_path, START, None) as report:
        with pytest.raises(TypeError, match=message):
            report.expect({"loss": 1.0, "q_values": value})
    assert not list(tmp_path.iterdir())


def test_a_nested_info_is_to_be_flattened():
    message = "for 'losses'; flatten the dictionary"
    with pytest.raises(TypeError, match=message):
        cadence.row(1, 0.0, 0.0, [([], [])], {"losses": {"policy": 1.0}})


def test_an_info_does_not_hide_what_the_trainer_knows():
    with pytest.raises(ValueError, match=r"trainer's own; got \['return_mean'\]"):
        cadence.row(1, 0.0, 0.0, [([], [])], {"return_mean": 1.0, "loss": 1.0})


def write(report, step, info):
    report.expect(info)
    report.write(step, cadence.row(1, 0.0, 0.0, [([1.0], [1])], info), step)


def read(folder):
    return run_log.read_metrics(folder / "metrics.csv")


def test_what_nobody_looks_on_at_is_a_warning(tmp_path):
    report = cadence.Report(tmp_path, START, None)
    with pytest.warns(UserWarning, match="^`Trainer.run`: one$") as told:
        report.say(None, "one", hint="two")
    assert len(told) == 1
    # Workers but the chief leave it to that.
    cadence.Report(None, START, None).say("one")


def test_who_looks_on_is_told_and_not_warned(tmp_path):
    told = []
    bar: Any = types.SimpleNamespace(say=told.append)
    report = cadence.Report(tmp_path, START, bar)
    report.say("one", None, "two", hint="three")
    report.say(None, "two", hint="three")
    assert told == ["one", "two", "three", "two"]


def test_new_names_widen_the_file(tmp_path):
    """An agent that learns later informs about nothing at first."""
    with cadence.Report(tmp_path, START, None) as report:
        write(report, 8, {})
        first = report.position()
        # Not every epoch has a row.
        report.expect({"q": 1.0})
        write(report, 16, {"loss": 1.0})
        second = report.position()
    for position, steps in ((second, [8, 16, 24]), (first, [8, 24])):
        with cadence.Report(tmp_path, position, None) as report:
            write(report, 24, {"entropy": 5.0, "loss": 6.0})
        found, names = read(tmp_path), ["train/q", "train/loss", "train/entropy"]
        assert [*found] == ["env_steps", *cadence.COLUMNS, *names]
        assert found["env_steps"].tolist() == steps
        assert [found[name][-1] for name in names[1:]] == [6.0, 5.0]
        assert np.isnan(found["train/loss"][0]) and np.isnan(found["train/q"]).all()
    assert (tmp_path / "metrics.csv").read_text().endswith(",,6.0,5.0\n")


def test_a_row_that_waited_for_its_evaluation_has_its_columns(tmp_path):
    with cadence.Report(tmp_path, START, None) as report:
        report.write(8, {**ROW, "train/loss": 1.0, "eval/return_mean": 2.0}, 8)
        report.write(16, {**ROW, "train/late": 2.0}, 16)
    assert [*read(tmp_path)][-2:] == ["train/loss", "train/late"]


def test_other_workers_report_nothing(tmp_path):
    with cadence.Report(None, START, None) as report:
        report.write(8, ROW, 8)
        assert report.position() is None
    assert not list(tmp_path.iterdir())


def test_rows_that_are_gone_are_told(tmp_path):
    with cadence.Report(tmp_path, START, None) as report:
        position = report.position()
    (tmp_path / "metrics.csv").unlink()
    with (
        pytest.raises(ValueError, match="no such file"),
        cadence.Report(tmp_path, position, None),
    ):
        pass


def test_an_update_informs_about_what_it_likes(tmp_path, monkeypatch):
    """Of nothing at first, of more later, of again more in a resumed run."""
    infos = iter([{}, {"loss": 1.0}, {"q": np.float32(2), "loss": 3.0}, {"late": 4}])
    monkeypatch.setattr(TinyAgent, "update", lambda self, _: (self, next(infos)))
    for resume in (False, True):
        with build(tmp_path, 4 if resume else 2, resume=resume) as running:
            running.run(quiet=True)
    found, nan = read(tmp_path), np.nan
    assert [*found][-3:] == ["train/loss", "train/q", "train/late"]
    np.testing.assert_array_equal(found["train/loss"], [nan, 1.0, 3.0, nan])
    np.testing.assert_array_equal(found["train/q"], [nan, nan, 2.0, nan])
    np.testing.assert_array_equal(found["train/late"], [nan, nan, nan, 4.0])


class Told(keras.callbacks.Callback):
    """Keeps what it is told; ends the run after an epoch."""

    def __init__(self, last=None):
        super().__init__()
        self.calls, self.last = [], last

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(("begins", epoch))

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(("ends", epoch, sorted(logs or ())))
        if epoch == self.last:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        self.calls.append("end")


def test_callbacks_are_told_and_may_end_the_run(tmp_path):
    told, intervals = Told(last=3), cadence.Intervals(2, 4, 1, 6)
    with build(tmp_path, callbacks=[told], intervals=intervals) as running:
        assert told.model is running
        running.run(quiet=True)
    assert running.epoch == 4 and checkpoints.latest_step(tmp_path) == 4 * 32
    calls = told.calls
    assert calls[0] == "begin" and calls[-1] == "end"
    assert calls[1:3] == [("begins", 0), ("ends", 0, [])]
    assert "train/loss" in calls[4][2] and "eval/return_mean" not in calls[4][2]
    assert calls[8][:2] == ("ends", 3) and "eval/return_mean" in calls[8][2]


@pytest.mark.parametrize("log_epochs", [2, 5])
def test_a_run_that_a_callback_ends_is_evaluated_at_its_end(tmp_path, log_epochs):
    intervals = cadence.Intervals(log_epochs, 4, 1, 6)
    with build(tmp_path, callbacks=[Told(last=5)], intervals=intervals) as running:
        played = running.run(quiet=True)
        assert running.epoch == 6
        np.testing.assert_array_equal(played.returns, running.evaluate().returns)
    with open(tmp_path / "metrics.csv") as rows:
        judged = [row for row in csv.DictReader(rows) if row["eval/return_mean"]]
    ends = [(int(row["env_steps"]), float(row["epoch"])) for row in judged]
    assert ends == [(4 * 32, 4.0), (6 * 32, 6.0)]
    assert float(judged[-1]["eval/return_mean"]) == played.returns.mean()
    # Who resumes it goes on, without a second row of that evaluation.
    with build(tmp_path, intervals=intervals, resume=True, n_epochs=8) as running:
        running.run(quiet=True)
    with open(tmp_path / "metrics.csv") as rows:
        judged = [row for row in csv.DictReader(rows) if row["eval/return_mean"]]
    assert [int(row["env_steps"]) for row in judged] == [4 * 32, 6 * 32, 8 * 32]


def test_callbacks_of_keras(tmp_path):
    stop = keras.callbacks.EarlyStopping("epoch", mode="min", patience=2)
    kept = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)
    with build(tmp_path / "run", callbacks=[stop, kept]) as running:
        running.run(quiet=True)
    # The number of the epoch never falls.
    assert running.epoch == 3


class Judged(keras.callbacks.Callback):
    """Replaces what evaluations found by returns of its own."""

    def __init__(self, returns):
        super().__init__()
        self.returns = iter(returns)

    def on_epoch_end(self, epoch, logs=None):
        if "eval/return_mean" in logs:
            logs["eval/return_mean"] = next(self.returns)


def test_keras_stops_a_run_that_gets_no_better(tmp_path):
    every = cadence.Intervals(1, eval_epochs=2, eval_episodes=1)
    stop = keras.callbacks.EarlyStopping("eval/return_mean", patience=2, mode="max")
    calls = [Judged([1.0, 3.0, 2.0, 3.0, 9.0]), stop]
    options = {"n_epochs": 20, "intervals": every, "callbacks": calls}
    with build(tmp_path, **options) as trainer:
        played = trainer.run(quiet=True)
    # No better than the second of four evaluations.
    assert (trainer.epoch, stop.stopped_epoch, stop.best) == (8, 7, 3.0)
    assert played is not None and checkpoints.latest_step(tmp_path) is not None


def test_what_is_in_no_row_cannot_be_monitored(tmp_path):
    stop = keras.callbacks.EarlyStopping("eval/return", mode="max")
    with build(tmp_path, n_epochs=2, callbacks=[stop]) as trainer:
        with pytest.warns(UserWarning, match="`eval/return` which is not available"):
            trainer.run(quiet=True)


def test_hyperparameters_are_shown_once_by_tensorboard(tmp_path):
    for n_epochs in (2, 4):
        resume = n_epochs == 4
        with build(tmp_path, n_epochs=n_epochs, resume=resume) as trainer:
            trainer.run(quiet=True)
    found = [
        plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for path in sorted(tmp_path.glob("*tfevents*"))
        for event in event_files.read_events(path)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]
    (shown,) = (each.session_start_info for each in found)
    assert shown.hparams["agent"].string_value == "Tiny"
    assert shown.hparams["agent.rate"].number_value == 0.1
    assert shown.hparams["make_envs.env_id"].string_value == "CartPole-v1"
    assert "seed" not in shown.hparams and shown.group_name
