import functools
import math

import numpy as np
import pytest

from tfrl.agents import policy_gradient
from tfrl.environments import vector
from tfrl.summaries import run_log
from tfrl.training import _metrics, cadence, evaluation, trainer


def test_a_row_says_what_all_workers_met():
    played = evaluation.Evaluation(np.array([1.0, 3.0]), np.array([5, 7]))
    episodes = [([1.0, 2.0], [10, 20]), ([6.0], [30])]
    row = _metrics.row(4, 2.5, 100.0, episodes, {"loss": np.float32(0.5)})
    assert row | _metrics.judged(played) == {
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
    assert set(row) <= {*_metrics.COLUMNS}
    assert set(_metrics.judged(played)) <= {*_metrics.COLUMNS}
    row = _metrics.row(1, 0.0, 0.0, [([], [])], {})
    assert math.isnan(row["train/return_mean"]) and "eval/return_mean" not in row


def test_a_report_goes_on_where_it_was(tmp_path):
    row = _metrics.row(1, 0.0, 0.0, [([1.0], [1])], {})
    with _metrics.Report(tmp_path, run_log.RunLog.START, None) as report:
        report.say("nobody looks on")
        report.write(8, row, 8)
        position = report.position()
        report.write(16, row, 16)
    with _metrics.Report(tmp_path, position, None) as report:
        report.write(24, row, 24)
    steps = run_log.read_metrics(tmp_path / "metrics.csv")["env_steps"]
    assert steps.tolist() == [8, 24]


def test_other_workers_report_nothing(tmp_path):
    with _metrics.Report(None, run_log.RunLog.START, None) as report:
        report.write(8, _metrics.row(1, 0.0, 0.0, [([], [])], {}), 8)
        assert report.position() is None
    assert not list(tmp_path.iterdir())


def test_columns_grow_with_the_first_info(tmp_path):
    info = {"loss": 1.0, "q_values": np.float32(2.0)}
    row = _metrics.row(1, 0.0, 0.0, [([1.0], [1])], info)
    with _metrics.Report(tmp_path, run_log.RunLog.START, None) as report:
        report.expect(info)
        report.write(8, row, 8)
        position = report.position()
    with _metrics.Report(tmp_path, position, None) as report:
        report.expect(info)
        report.write(16, row, 16)
        with pytest.raises(
            ValueError, match=r"keys of the first one; got \['train/new"
        ):
            report.expect({**info, "new": 1.0})
    found = run_log.read_metrics(tmp_path / "metrics.csv")
    assert found["train/q_values"].tolist() == [2.0, 2.0]
    assert [*found] == ["env_steps", *_metrics.COLUMNS, "train/q_values"]


def test_an_update_informs_about_what_it_likes(tmp_path, monkeypatch):
    config = policy_gradient.PolicyGradient(hidden_units=(4,))
    make_envs = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
    with trainer.Trainer(
        tmp_path,
        n_epochs=2,
        agent=config,
        make_envs=make_envs,
        n_envs=2,
        n_steps=16,
        intervals=cadence.Intervals(log_epochs=1, eval_episodes=1),
    ) as running:
        update = type(running.agent).update

        def telling(self, trajectory):
            agent, info = update(self, trajectory)
            info.pop("parameters")
            return agent, {**info, "q_value": np.float32(0.5)}

        monkeypatch.setattr(type(running.agent), "update", telling)
        running.run(quiet=True)
    found = run_log.read_metrics(tmp_path / "metrics.csv")
    assert found["train/q_value"].tolist() == [0.5, 0.5]


def test_an_info_of_arrays_is_refused():
    with pytest.raises(TypeError, match=r"got shape \[3\] for 'q_values'; reduce it"):
        _metrics.row(1, 0.0, 0.0, [([], [])], {"q_values": np.zeros(3)})


def test_rows_that_are_gone_are_told(tmp_path):
    with _metrics.Report(tmp_path, run_log.RunLog.START, None) as report:
        position = report.position()
    (tmp_path / "metrics.csv").unlink()
    with (
        pytest.raises(ValueError, match="a file with 0 bytes"),
        _metrics.Report(tmp_path, position, None),
    ):
        pass
