import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import policy_gradient
from tfrl.environments import vector
from tfrl.summaries import run_log
from tfrl.training import cadence, evaluation, experience, trainer


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
    assert set(row) - {*cadence.COLUMNS} == {"train/loss"}
    assert set(cadence.judged(played)) <= {*cadence.COLUMNS}
    row = cadence.row(1, 0.0, 0.0, [([], [])], {})
    assert math.isnan(row["train/return_mean"]) and "eval/return_mean" not in row


def test_a_report_goes_on_where_it_was(tmp_path):
    row = cadence.row(1, 0.0, 0.0, [([1.0], [1])], {})
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        report.say("nobody looks on")
        report.write(8, row, 8)
        position = report.position()
        report.write(16, row, 16)
    with cadence.Report(tmp_path, position, None) as report:
        report.write(24, row, 24)
    steps = run_log.read_metrics(tmp_path / "metrics.csv")["env_steps"]
    assert steps.tolist() == [8, 24]


def test_other_workers_report_nothing(tmp_path):
    with cadence.Report(None, run_log.RunLog.START, None) as report:
        report.write(8, cadence.row(1, 0.0, 0.0, [([], [])], {}), 8)
        assert report.position() is None
    assert not list(tmp_path.iterdir())


def write(report, step, info):
    report.expect(info)
    report.write(step, cadence.row(1, 0.0, 0.0, [([1.0], [1])], info), step)


def test_columns_are_those_of_the_infos(tmp_path):
    assert not [name for name in cadence.COLUMNS if "loss" in name]
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        write(report, 8, {"z": 1.0, "loss": np.float32(2.0)})
        write(report, 16, {"loss": 3.0})
    found = run_log.read_metrics(tmp_path / "metrics.csv")
    assert [*found] == ["env_steps", *cadence.COLUMNS, "train/z", "train/loss"]
    np.testing.assert_array_equal(found["train/z"], [1.0, np.nan])
    assert (tmp_path / "metrics.csv").read_text().endswith(",,3.0\n")


def test_new_names_widen_the_file(tmp_path):
    """An agent that learns later informs about nothing at first."""
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        write(report, 8, {})
        first = report.position()
        # Not every epoch has a row.
        report.expect({"q": 1.0})
        write(report, 16, {"loss": 1.0})
        second = report.position()
    for position, steps in ((second, [8, 16, 24]), (first, [8, 24])):
        with cadence.Report(tmp_path, position, None) as report:
            write(report, 24, {"entropy": 5.0, "loss": 6.0})
        found = run_log.read_metrics(tmp_path / "metrics.csv")
        names = ["train/q", "train/loss", "train/entropy"]
        assert [*found] == ["env_steps", *cadence.COLUMNS, *names]
        assert found["env_steps"].tolist() == steps
        assert [found[name][-1] for name in names[1:]] == [6.0, 5.0]
        assert np.isnan(found["train/loss"][0]) and np.isnan(found["train/q"]).all()


def test_a_row_that_waited_for_its_evaluation_has_its_columns(tmp_path):
    row = cadence.row(1, 0.0, 0.0, [([1.0], [1])], {"loss": 1.0})
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        report.write(8, {**row, "eval/return_mean": 2.0}, 8)
        report.write(16, {**row, "train/late": 2.0}, 16)
    found = run_log.read_metrics(tmp_path / "metrics.csv")
    assert [*found][-2:] == ["train/loss", "train/late"]


def test_an_update_informs_about_what_it_likes(tmp_path, monkeypatch):
    """Of nothing at first, of more later, of again more in a resumed run."""
    infos = [{}, {"loss": 1.0}, {"q": np.float32(2.0), "loss": 3.0}, {"late": 4}]

    def run(infos, resume):
        with trainer.Trainer(
            tmp_path,
            n_epochs=4 if resume else 2,
            resume=resume,
            agent=policy_gradient.PolicyGradient(hidden_units=(4,)),
            make_envs=functools.partial(
                vector.make_vec, "CartPole-v1", vectorization="sync"
            ),
            n_envs=2,
            experience=experience.Trajectories(16),
            intervals=cadence.Intervals(log_epochs=1, eval_episodes=1),
        ) as running:
            told = iter(infos)
            monkeypatch.setattr(
                type(running.agent), "update", lambda self, *_, **__: (self, next(told))
            )
            running.run(quiet=True)

    run(infos[:2], resume=False)
    run(infos[2:], resume=True)
    found = run_log.read_metrics(tmp_path / "metrics.csv")
    nan = np.nan
    assert [*found][-3:] == ["train/loss", "train/q", "train/late"]
    np.testing.assert_array_equal(found["train/loss"], [nan, 1.0, 3.0, nan])
    np.testing.assert_array_equal(found["train/q"], [nan, nan, 2.0, nan])
    np.testing.assert_array_equal(found["train/late"], [nan, nan, nan, 4.0])


@pytest.mark.parametrize(
    "value",
    [np.zeros(3), tf.zeros([1]), [1, [2]], "3", tf.constant("3"), None, {}, 1j],
    ids=["array", "tensor", "ragged", "text", "text_tensor", "none", "dict", "complex"],
)
def test_an_info_of_what_is_no_scalar_is_refused(tmp_path, value):
    info = {"loss": 1.0, "q_values": value}
    message = r"info holds scalars; got .* of shape \[.*\] for 'q_values'; reduce it"
    with pytest.raises(TypeError, match=message):
        cadence.row(1, 0.0, 0.0, [([], [])], info)
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        with pytest.raises(TypeError, match=message):
            report.expect(info)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value",
    [2, np.float32(2.0), np.array(2), tf.constant(2), tf.Variable(2.0)]
    + [tf.constant(2.0, tf.bfloat16)],
    ids=["int", "float32", "array", "tensor", "variable", "bfloat16"],
)
def test_scalars_of_all_kinds(value):
    row = cadence.row(1, 0.0, 0.0, [([], [])], {"parameters": value})
    assert row["train/parameters"] == 2.0 and type(row["train/parameters"]) is float


def test_an_info_does_not_hide_what_the_trainer_knows():
    with pytest.raises(ValueError, match=r"trainer's own; got \['return_mean'\]; re"):
        cadence.row(1, 0.0, 0.0, [([], [])], {"return_mean": 1.0, "loss": 1.0})


def test_rows_that_are_gone_are_told(tmp_path):
    with cadence.Report(tmp_path, run_log.RunLog.START, None) as report:
        position = report.position()
    (tmp_path / "metrics.csv").unlink()
    with (
        pytest.raises(ValueError, match="0 bytes"),
        cadence.Report(tmp_path, position, None),
    ):
        pass
