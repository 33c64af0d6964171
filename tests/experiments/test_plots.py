"""Tests of `tfrl plot` for folders of runs of different lengths."""

import json

import pytest

from tfrl import command
from tfrl.experiments import _plots
from tfrl.summaries import run_log

NAMES = ["train/return_mean", "eval/return_mean"]


def run(folder, *rows):
    with run_log.RunLog(folder, NAMES) as log:
        for step, row in enumerate(rows, 1):
            log.write(step, dict(zip(NAMES, row, strict=True)))


@pytest.mark.filterwarnings("ignore")
def test_a_run_without_rows_is_named_and_left_out(tmp_path, capsys):
    folder = tmp_path / "runs"
    run(folder / "seed_0", (1.0, 2.0), (3.0, 4.0))
    run(folder / "seed_1")
    run(folder / "seed_2", (1.0, 2.0))
    (folder / "seed_3").mkdir()
    run(folder / "seed_4", (1.0, 2.0), (3.0, 4.0))
    (folder / "seed_5").mkdir()
    (folder / "seed_5" / "metrics.csv").touch()
    assert command.main(["plot", str(folder)]) == 0
    assert (folder / "mean_curve.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    told = "without two rows that have train/return_mean, not drawn"
    assert lines[:-1] == [f"{folder}/seed_{i}: {told}" for i in (1, 2, 5, 3)]


@pytest.mark.filterwarnings("ignore")
def test_evaluations_are_drawn_where_nothing_is_played(tmp_path, capsys):
    nan = float("nan")
    run(tmp_path / "seed_0", (nan, 2.0), (nan, 4.0))
    run(tmp_path / "seed_1", (nan, nan))
    assert command.main(["plot", str(tmp_path)]) == 0
    told = f"{tmp_path}/seed_1: without two rows that have eval/return_mean, not drawn"
    assert told in capsys.readouterr().out


def test_runs_of_which_none_has_rows_are_an_error(tmp_path, capsys):
    run(tmp_path / "seed_0")
    run(tmp_path / "seed_1")
    assert command.main(["plot", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tfrl plot: error: `plot`: RUN expected runs with scalars")


def test_runs_of_other_agents_are_curves_of_their_own(tmp_path, capsys):
    for name, gamma in {"a": 0.9, "b": 0.9, "c": 0.99}.items():
        run(tmp_path / name, (1.0, 2.0), (3.0, 4.0))
        record = {"arguments": {"agent": {"=call": "tfrl.agents:PPO", "gamma": gamma}}}
        text = json.dumps({"manifest": {"run": record}})
        (tmp_path / name / "run.json").write_text(text)
    folders = [tmp_path / name for name in "abc"]
    found = _plots._of_agents(folders)
    name = f"{folders[0]}: mean of 2 runs"
    assert found == {name: folders[:2], str(folders[2]): folders[2:]}
    assert _plots._of_agents(folders[:2]) == {"mean of 2 runs": folders[:2]}
    assert command.main(["plot", *map(str, folders)]) == 0
    assert "the learning curve is in" in capsys.readouterr().out
