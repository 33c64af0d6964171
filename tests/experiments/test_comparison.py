"""Tests of `tfrl.experiments.comparison`: means, intervals, and `tfrl compare`."""

import json

import numpy as np
import pytest

from tfrl import command, summaries
from tfrl.experiments import comparison
from tfrl.summaries import run_log


def runs(folder, returns, environment="CartPole-v1"):
    for seed, value in enumerate(returns):
        run = folder / f"seed_{seed}"
        with run_log.RunLog(run, ["train/return_mean", "eval/return_mean"]) as log:
            log.write(50, {"train/return_mean": value / 2})
            if value is not None:
                log.write(100, {"eval/return_mean": value, "train/return_mean": value})
        (run / "config.gin").write_text(f"make_vec.env_id = '{environment}'\n")
    return folder


@pytest.fixture
def folders(tmp_path):
    one = runs(tmp_path / "one", np.arange(12.0))
    return one, runs(tmp_path / "other", [3.0, 4.0, 5.0])


def test_folders_are_compared(folders):
    found = comparison.compare(folders, seed=3)
    one, other = found.scores
    assert one.returns == tuple(range(12)) and set(one.env_steps) == {100}
    assert one.middle == 5.5 and one.low < 5.5 < one.high
    expected = summaries.interquartile_mean(np.arange(12.0)[:, None], seed=3)
    assert (one.middle, one.low, one.high) == tuple(map(float, expected))
    (pair,) = found.improvements
    assert (pair.better, pair.than) == (one.name, other.name)
    wins = np.sign(np.arange(12.0)[:, None] - [3.0, 4.0, 5.0])
    assert pair.probability == pytest.approx((wins.mean() + 1) / 2)
    assert pair.low < pair.probability < pair.high
    assert found == comparison.compare(folders, seed=3)


def test_the_command_shows_it(folders, capsys):
    names = [str(folder) for folder in folders]
    assert command.main(["compare", *names]) == 0
    out = capsys.readouterr().out
    assert "5.5" in out and f"{names[0]} > {names[1]}" in out
    assert command.main(["compare", *names, "--json", "--resamples=50"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"][1]["returns"] == [3.0, 4.0, 5.0]
    assert found["improvements"][0]["better"] == names[0]
    assert "one seed" not in out


def test_of_one_run_there_is_no_interval(folders, capsys):
    names = [f"{folders[0]}/seed_4", f"{folders[0]}/seed_5", str(folders[1])]
    found = comparison.compare(names)
    assert [each.low is None for each in found.scores] == [True, True, False]
    assert [(x.low, x.high) for x in found.improvements] == [(None, None)] * 3
    assert found.scores[0].middle == 4.0
    assert command.main(["compare", *names[:2]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[1:] == ["1", "100", "4.0", "-", "4.0", "4.0", "4.0"]
    assert lines[5].split()[-2:] == ["0.00", "-"]
    assert lines[-1].startswith("-: one seed tells nothing about spread")
    assert command.main(["compare", names[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"][0]["low"] is None


def test_what_cannot_be_compared_is_one_line(folders, tmp_path, capsys):
    one = str(folders[0])
    runs(tmp_path / "acrobot", [1.0], "Acrobot-v1")
    (tmp_path / "new").mkdir()
    with run_log.RunLog(tmp_path / "new", ["train/loss"]) as log:
        log.write(5, {"train/loss": 1.0})
    for argv, words in (
        ([one, one], "`folders` expected different ones"),
        ([one, f"{tmp_path}/acrobot"], "runs of one environment; got 'CartPole-v1'"),
        ([one, f"{tmp_path}/absent"], "which is none"),
        ([f"{tmp_path}/new"], "expected runs that were evaluated"),
        ([one, "--resamples=0"], "`resamples`"),
    ):
        assert command.main(["compare", *argv]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tfrl compare: error: `compare`: ") and words in line


@pytest.mark.slow
def test_folders_of_runs_are_drawn_as_curves(folders, capsys):
    names = [str(folder) for folder in folders]
    assert command.main(["plot", names[0]]) == 0
    assert (folders[0] / "mean_curve.png").read_bytes().startswith(b"\x89PNG")
    assert command.main(["plot", *names, f"--output={names[1]}/both.png"]) == 0
    assert (folders[1] / "both.png").is_file()
