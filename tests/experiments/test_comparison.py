"""Tests of `tfrl.experiments.comparison`: means, intervals, and `tfrl compare`."""

import functools
import json

import numpy as np
import pytest

from tfrl import command, summaries
from tfrl._internal import sealed_folder
from tfrl.agents import A2C, SelfPlay
from tfrl.environments import (
    MatrixGame,
    ParallelEnvVector,
    compiled,
    make_atari,
    make_vec,
)
from tfrl.experiments import _run_folders, comparison
from tfrl.saving import typed_json
from tfrl.summaries import run_log
from tfrl.training import _kept_arguments


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


def test_what_is_not_done_or_not_counted_is_named(folders, capsys):
    folder = folders[1]
    states = {0: "done", 1: "failed", 2: "interrupted", 3: "failed", 5: "waiting"}
    kept = {str(seed): {"status": status} for seed, status in states.items()}
    (folder / "seeds.json").write_text(json.dumps({"train": [], "seeds": kept}))
    names = "eval/return_mean", "eval/length_mean"
    for seed, last in ((1, np.nan), (6, np.inf), (7, 2.0)):
        (folder / f"seed_{seed}" / "metrics.csv").unlink(missing_ok=True)
        with run_log.RunLog(folder / f"seed_{seed}", names) as log:
            log.write(10, dict.fromkeys(names, 4.0))
            log.write(20, {names[0]: last, names[1]: 1.0})
            log.write(30, {})
    (folder / "seed_3").mkdir()
    (folder / "seed_3" / "metrics.csv").touch()
    (folder / "seed_4").mkdir()
    (found,) = comparison.compare([folder]).scores
    assert found.returns == (3.0, 4.0, 5.0, 4.0, 2.0)
    assert found.env_steps == (100, 10, 100, 10, 20)
    notes = [
        "1: failed: its evaluation after 20 steps is nan, counted by that after 10 "
        "steps",
        "2: interrupted: counted by its evaluation after 100 steps",
        "3: failed: without an evaluation, not counted",
        "6: its evaluation after 20 steps is inf, counted by that after 10 steps",
        "4: without metrics.csv, not counted",
        "5: waiting: without metrics.csv, not counted",
    ]
    assert found.notes == tuple(f"{folder}/seed_{note}" for note in notes)
    assert command.main(["compare", str(folder)]) == 0
    assert set(found.notes) <= {*capsys.readouterr().out.splitlines()}
    assert command.main(["compare", str(folder), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)["scores"]
    assert score["notes"] == [*found.notes]
    (alone,) = comparison.compare([folder / "seed_2"]).scores
    assert "seed_2: interrupted" in alone.notes[0]
    assert comparison.compare([folders[0]]).scores[0].notes == ()


def record(folder, make_envs, environment=(), **arguments):
    """What a run keeps of the environments of a program, beside its `metrics.csv`."""
    arguments["make_envs"] = _kept_arguments.kept(make_envs)
    run = {"arguments": arguments, "environment": [*environment]}
    kept = json.loads(typed_json.to_json({"run": run}))
    (folder / "run.json").write_bytes(sealed_folder.sealed(kept))
    (folder / "config.gin").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("make_envs", "name"),
    [
        (functools.partial(make_vec, "Acrobot-v1"), "Acrobot-v1"),
        (functools.partial(make_vec, "my_module:Mine-v0"), "Mine-v0"),
        (functools.partial(make_vec, "ALE/Pong-v5"), "ALE/Pong-v5"),
        (functools.partial(make_atari, game="Pong"), "ALE/Pong-v5"),
        (
            functools.partial(compiled.make_compiled, compiled.Catch),
            "tfrl.environments.compiled:Catch",
        ),
        (
            functools.partial(compiled.make_compiled, env_id="brax/ant"),
            "brax/ant",
        ),
        (
            functools.partial(ParallelEnvVector, MatrixGame, own_spaces=True),
            "tfrl.environments:MatrixGame",
        ),
    ],
)
def test_runs_of_programs_tell_their_environments(folders, capsys, make_envs, name):
    run = folders[1] / "seed_1"
    record(run, make_envs)
    assert _run_folders.environment_of(run) == name
    for command_name in ("compare", "plot"):
        assert command.main([command_name, *map(str, folders)]) == 2
        assert f"got 'CartPole-v1' of {folders[1]}" in capsys.readouterr().err


def test_an_environment_that_is_not_told_is_no_other_one(folders):
    run = folders[1] / "seed_1"
    record(run, lambda n_envs: make_vec("CartPole-v1", n_envs))
    assert _run_folders.environment_of(run) is None
    comparison.compare(folders)
    registered = {"id": "Level-v0", "entry_point": "levels:Level"}
    record(folders[1] / "seed_2", make_vec, ["levels", registered])
    assert _run_folders.environment_of(folders[1] / "seed_2") == "Level-v0"
    (run / "run.json").write_text("{")
    for unknown in ("@Catch()", "%ENV", "\\\n    'CartPole-v1'"):
        (run / "config.gin").write_text(f"make_compiled.env_id = {unknown}\n")
        assert _run_folders.environment_of(run) is None
    (run / "config.gin").write_text("make_atari.game = 'Pong'  # the game\n")
    assert _run_folders.environment_of(run) == "ALE/Pong-v5"


def test_what_makes_folders_unlike_is_told(folders, tmp_path, capsys):
    third = runs(tmp_path / "third", [3.0, 4.0])
    shorter = runs(tmp_path / "shorter", [1.0])
    with run_log.RunLog(shorter / "seed_1", ["eval/return_mean"]) as log:
        log.write(94, {"eval/return_mean": 1.0})
    (shorter / "seed_0" / "metrics.csv").unlink()
    alike = functools.partial(make_vec, "CartPole-v1", vectorization="sync")
    other = functools.partial(make_vec, "CartPole-v1", env_kwargs={"sutton": True})
    for folder, make_envs in zip(folders, (alike, other), strict=True):
        record(folder / "seed_0", make_envs)
    record(folders[1] / "seed_1", functools.partial(alike, max_episode_steps=7))
    names = [str(folder) for folder in (*folders, third, shorter)]
    assert comparison.compare(names[:1]).notes == ()
    assert comparison.compare([names[0], names[2]]).notes == ()
    notes = (
        f"`make_envs` differs in `max_episode_steps`: None in {names[0]}, {names[1]}; "
        f"7 in {names[1]}",
        f"`make_envs` differs in `env_kwargs`: None in {names[0]}, {names[1]}; "
        f"{{'sutton': True}} in {names[1]}",
        "the last evaluations are after different numbers of steps: "
        f"100 in {names[0]}, 100 in {names[1]}, 94 in {names[3]}",
    )
    given = [*names[:2], names[3]]
    found = comparison.compare(given)
    assert found.notes == notes and len(found.improvements) == 3
    assert command.main(["compare", *given]) == 0
    assert {*notes} <= {*capsys.readouterr().out.splitlines()}
    assert command.main(["compare", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [*notes]


def test_it_is_told_that_returns_of_self_play_are_of_both_sides(folders, tmp_path):
    third = runs(tmp_path / "third", [0.0])
    record(folders[0] / "seed_1", functools.partial(make_vec, "CartPole-v1"))
    assert comparison.compare([*folders, third]).notes == ()
    agent = _kept_arguments.kept(SelfPlay(A2C()))
    record(folders[0] / "seed_1", make_vec, agent=agent)
    config = third / "seed_0" / "config.gin"
    config.write_text(config.read_text() + "Trainer.agent = @SelfPlay()\n")
    (note,) = comparison.compare([*folders, third]).notes
    assert f"winners and losers, in {folders[0]}, {third}: " in note
    assert comparison.compare(folders[1:]).notes == ()


@pytest.mark.slow
def test_folders_of_runs_are_drawn_as_curves(folders, capsys):
    names = [str(folder) for folder in folders]
    assert command.main(["plot", names[0]]) == 0
    assert (folders[0] / "mean_curve.png").read_bytes().startswith(b"\x89PNG")
    assert command.main(["plot", *names, f"--output={names[1]}/both.png"]) == 0
    assert (folders[1] / "both.png").is_file()
