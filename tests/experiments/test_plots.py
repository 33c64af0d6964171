"""Tests of `tfrl plot` for folders of runs of different lengths."""

import pytest

from tfrl import command
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
