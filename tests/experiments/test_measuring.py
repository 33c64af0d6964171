"""Tests of `tfrl.experiments.measuring`."""

import json

import numpy as np
import pytest

from tfrl import command
from tfrl.experiments import measuring, zoo
from tfrl.summaries import run_log


def run(folder, returns, name="train/return_mean"):
    with run_log.RunLog(folder, [*{name, "eval/return_mean"}]) as log:
        for index, value in enumerate(returns):
            log.write(100 * index, {name: value})
        log.write(100 * len(returns), {"eval/return_mean": returns[-1]})


def test_the_lines_of_a_header_are_what_a_header_is(tmp_path):
    for seed in range(2):
        run(tmp_path / f"seed_{seed}", np.arange(100.0) - seed)
    record = {"status": "done", "exit": 0, "cpu_seconds": 1234.4}
    kept = {"train": [], "seeds": {"0": record, "1": {**record, "status": "failed"}}}
    (tmp_path / "seeds.json").write_text(json.dumps(kept))
    lines = measuring.measured_header([tmp_path])
    assert "# Steps: 10,000\n# Measured: 99.0, 98.0\n# CPU time: 1234 s\n" in lines
    assert "# Curve: 10% 9.5 (9.0 to 10.0), 25%" in lines
    steps, rest = lines.split("\n", 1)
    path = tmp_path / "a.gin"
    path.write_text(
        "# Title.\n#\n# Agent: A\n# Environment: E\n# Source: own.\n"
        "# Command: tfrl train configs/a.gin --seeds 0-1\n"
        f"{steps}\n# Expected: mean >= 1, worst seed >= 1\n{rest}\n"
    )
    found = zoo.read_entry(path)
    assert found.measured == (99.0, 98.0)
    assert [point.share for point in found.curve] == [*measuring.SHARES]


def test_a_run_that_plays_nothing_shows_its_evaluations(tmp_path):
    run(tmp_path, np.arange(10.0), "eval/return_mean")
    table = run_log.read_metrics(tmp_path / "metrics.csv")
    assert measuring.curve_of([table], 1000, [0.5])[0].mean == 5.0
    lines = measuring.measured_header([tmp_path], total_env_steps=1000, cpu_seconds=2)
    assert "# CPU time: 2 s" in lines


def test_shares_are_of_the_steps_that_were_asked_for(tmp_path):
    run(tmp_path, np.arange(10.0))  # of 1,000 steps
    (tmp_path / "config.gin").write_text("Trainer.total_env_steps = 950\n")
    lines = measuring.measured_header([tmp_path])
    assert "# Steps: 950\n" in lines and " 25% 2.0 (2.0 to 2.0), 50% 4.0" in lines


def test_a_run_is_over_when_its_epochs_are(tmp_path):
    with run_log.RunLog(tmp_path, ["epoch", "eval/return_mean"]) as log:
        log.write(995, {"epoch": 10.0, "eval/return_mean": 7.0})
    (tmp_path / "config.gin").write_text("Trainer.total_env_steps = 1_000\n")
    with pytest.raises(ValueError, match=r"of 1,000 steps that are over; got .* 995;"):
        measuring.measured_header([tmp_path])
    numbers = {"n_envs": 4, "n_steps": 25, "seed": 0}
    text = json.dumps({"manifest": {"run": {"numbers": numbers}}})
    (tmp_path / "run.json").write_text(text)  # of 1,000 steps 5 were resets
    assert "# Measured: 7.0\n" in measuring.measured_header([tmp_path])


def test_runs_that_are_not_over_have_no_header(tmp_path, capsys):
    for seed, n_rows in enumerate([10, 7, 0]):
        folder = tmp_path / f"seed_{seed}"
        if n_rows:
            run(folder, np.arange(float(n_rows)))
        else:
            run_log.RunLog(folder, ["eval/return_mean"]).close()
    told = f"runs of 1,000 steps that are over; got {tmp_path}/seed_1 after 700, "
    for text in ("", "Trainer.total_env_steps = 1_000\n"):
        (tmp_path / "seed_0" / "config.gin").write_text(text)
        assert command.main(["zoo", "--measured", str(tmp_path)]) == 2
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert line.startswith("tfrl zoo: error: `measured_header`: `folders` ")
        assert f"{told}{tmp_path}/seed_2 after 0; train on" in line
        assert not printed.out


def test_a_share_before_the_first_return_is_left_out():
    row = {"env_steps": np.array([50.0]), "train/return_mean": np.array([1.0])}
    assert [p.share for p in measuring.curve_of([row], 100)] == [0.5, 1.0]
    with pytest.raises(ValueError, match="which is none"):
        measuring.measured_header(["absent"])
