"""The search for hyper-parameters; trials themselves where Optuna is installed."""

import contextlib
import gc
import os
import pathlib
import re
import shlex
import subprocess
import sys

import gin
import keras
import numpy as np
import plain_graphs
import pytest

from tfrl import command
from tfrl._internal import durable
from tfrl.configuring import configs
from tfrl.experiments import tuning
from tfrl.training import evaluation

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = """
Tuning.config = "small.gin"
Tuning.parameters = {
    "PolicyGradient.learning_rate": ("log", 1e-5, 1.0),
    "PolicyGradient.hidden_units": ("choice", (4,), (8,)),
    "Trajectories.n_steps": ("int", 8, 9),
}
Tuning.n_trials = 4
Tuning.n_startup_trials = 1
"""
SMALL = """
train_rl.light_rl_trainer = @Trainer
Trainer.agent = @PolicyGradient()
Trainer.experience = @Trajectories()
Trajectories.n_steps = 16
Trainer.n_envs = 2
Trainer.total_env_steps = 64
Trainer.intervals = @Intervals()
Intervals.eval_epochs = 1
Intervals.eval_episodes = 1
Trainer.make_envs = @make_vec
make_vec.env_id = "CartPole-v1"
make_vec.max_episode_steps = 20
"""


def tune(folder, *flags, small=SMALL):
    (folder / "tune.gin").write_text(CONFIG)
    (folder / "small.gin").write_text(small)
    output = f"--output_dir={folder / 'runs'}"
    with plain_graphs.plain_graphs():
        return command.main(["tune", str(folder / "tune.gin"), output, *flags])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_search_goes_on_and_its_best_is_trained(tmp_path, capsys):
    pytest.importorskip("optuna")
    assert tune(tmp_path, "--config=Tuning.n_trials = 2") == 0
    assert re.search("best: return .*; train it: tfrl train", capsys.readouterr().out)
    assert tune(tmp_path) == 0
    out = capsys.readouterr().out
    assert "trial 0: " not in out and "trial 3: " in out and "trial 4: " not in out
    other = (
        CONFIG.partition("{")[2].partition("}")[0].replace("(4,), (8,)", "(8,), (4,)")
    )
    for line in (
        f"Tuning.parameters = {{{' '.join(other.split())}}}",
        "Tuning.parameters = {'PolicyGradient.gamma': ('float', 0.8, 0.99)}",
        "Tuning.bindings = ['Trainer.total_env_steps = 32']",
    ):
        assert tune(tmp_path, "--config=Tuning.n_trials = 9", f"--config={line}") == 2
        told = capsys.readouterr().err
        assert "`output_dir` expected a study of the same search; got" in told
    best = tmp_path / "runs" / "best.gin"
    text = best.read_text()
    assert (
        'include "../small.gin"' in text and "PolicyGradient.learning_rate = " in text
    )
    assert re.search(r"hidden_units = \([48],\)", text)
    with plain_graphs.plain_graphs():
        folder = f"--output_dir={tmp_path / 'best'}"
        assert command.main(["train", str(best), folder]) == 0
    configs.clear()
    # Nobody has to search to go on with the run of a trial.
    more = "--resume", tmp_path / "runs" / "trial_0000", "--override"
    steps = "--config=Trainer.total_env_steps = 128"
    asked = [sys.executable, "-m", "tfrl", *more, steps]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "128/128 steps" in ended.stdout


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "expected bindings by name, one at least; got none"),
        ({"PPO.gamma": ("float", 1.0)}, '"PPO.gamma"'),
        ({"PPO.gamma": ("float", 1.0, 0.5)}, "got ('float', 1.0, 0.5)"),
        ({"PPO.gamma": ("log", 0.0, 0.5)}, "low < high"),
        ({"PPO.n_epochs": ("int", 1, 2.5)}, "low < high"),
        ({"PPO.n_epochs": ("choice", 1)}, '("choice", ...)'),
        ({"PPO.n_epochs": ("about", 1, 2)}, "got ('about', 1, 2)"),
        ({"PPO.n_epochs": 3}, "got 3"),
    ],
)
def test_what_cannot_be_searched_is_refused(parameters, words):
    with pytest.raises(ValueError, match="`Tuning`: `parameters` expected") as error:
        tuning.Tuning("ppo.gin", parameters)
    assert words in str(error.value)


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command.main(["tune", "absent.gin"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tfrl tune: error: `tune`: expected the library optuna")
    monkeypatch.setitem(sys.modules, "optuna", object())
    for text, words in (
        ("Tuning.config = 'a.gin'", "`parameters` expected"),
        ("Tuning.confg = 'a.gin'", "did you mean `config`?"),
        ("Tuning.n_trials = 3", "`config` expected a gin file"),
        (CONFIG, "small.gin"),
    ):
        pathlib.Path("tune.gin").write_text(text)
        assert command.main(["tune", "tune.gin"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tfrl tune: error: `") and words in line
    assert [path.name for path in tmp_path.iterdir()] == ["tune.gin"]


def test_a_parameter_that_nobody_has_is_told_before_a_trial(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", object())
    (tmp_path / "tune.gin").write_text(CONFIG.replace("learning_rate", "learning_rat"))
    (tmp_path / "small.gin").write_text(SMALL)
    with pytest.raises(ValueError, match="learning_rat"):
        tuning.tune([tmp_path / "tune.gin"], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_search_of_the_zoo_is_one(capsys):
    configs.parse([ROOT / "configs" / "tune_ppo_cartpole.gin"])
    try:
        found = tuning._made()
    finally:
        configs.clear()
    configs.parse([ROOT / "configs" / found.config], found.bindings)
    configs.clear()
    assert found.n_trials == 20


class Returns:
    """Stands in for a run: each trains nothing and has the next of some returns."""

    def __init__(self, *ends, seen=lambda: None):
        self.ends, self.n_runs, self.seen = iter(ends), 0, seen

    def __call__(self, output_dir):
        del output_dir
        self.n_runs += 1
        self.seen()
        end = next(self.ends)
        if isinstance(end, BaseException):
            raise end
        return evaluation.Evaluation(np.array([end]), np.array([1]))


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Calls `tfrl tune` with trials that end as given; returns the exit code, runs."""
    pytest.importorskip("optuna")

    def call(*ends, folder=tmp_path, n_trials=3, small=SMALL):
        runs = Returns(*ends, seen=getattr(call, "seen", lambda: None))
        monkeypatch.setattr(tuning.rl_trainer, "train_rl", runs)
        asked = f"--config=Tuning.n_trials = {n_trials}"
        return tune(folder, asked, small=small), runs.n_runs

    gc.freeze()  # Each trial collects garbage, here of a whole process of tests.
    yield call
    gc.unfreeze()


UNFIT = ValueError("`PPO`: `minibatch_size` expected\na divisor")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_study_may_be_in_a_folder_of_any_name(searched, tmp_path):
    folder = tmp_path / "is it? 50%41#1"
    folder.mkdir()
    assert searched(1.0, 2.0, 3.0, folder=folder)[0] == 0
    assert (folder / "runs" / "study.db").stat().st_size
    assert [*tmp_path.iterdir()] == [folder]


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_fails_is_one_of_those_asked_for(searched, tmp_path, capsys):
    assert searched(UNFIT, float("nan"), 7.0) == (0, 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "trial 0: failed: `PPO`: `minibatch_size` expected a divisor"
    assert lines[3].startswith("trial 1: failed: ") and lines[3].endswith(" nan")
    assert lines[-1].startswith("best: return 7.0; train it: tfrl train ")
    assert "number 2" in (tmp_path / "runs" / "best.gin").read_text()
    # There are as many as asked for: none is made again.
    assert searched() == (0, 0)


@pytest.mark.filterwarnings("ignore")
def test_one_error_tells_that_every_trial_failed(searched, capsys):
    for ends in ([UNFIT] * 3, []):
        assert searched(*ends) == (2, len(ends))
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tfrl tune: error: `tune`: `config_files` expected")
        assert "none of 3" in line and "expected a divisor" in line


@pytest.mark.filterwarnings("ignore")
def test_other_errors_end_the_search_and_do_not_count(searched, capsys):
    with pytest.raises(ZeroDivisionError):
        searched(ZeroDivisionError())
    assert searched(ConnectionError("lost")) == (2, 1)
    assert searched(5.0, KeyboardInterrupt()) == (130, 2)
    capsys.readouterr()
    assert searched(6.0, 7.0) == (0, 2)
    # What was interrupted is made again.
    assert "trial 3: " not in capsys.readouterr().out


def studied(folder):
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{folder / 'runs' / 'study.db'}"
    return optuna.load_study(study_name="tfrl", storage=storage)


def states_of(study):
    return [each.state.name for each in study.get_trials()]


@pytest.mark.filterwarnings("ignore")
def test_what_is_tried_does_not_depend_on_the_process_that_asks(searched, tmp_path):
    one, several = tmp_path / "one", tmp_path / "several"
    one.mkdir()
    several.mkdir()
    searched(1.0, 2.0, 3.0, 4.0, folder=one, n_trials=4)
    for n_trials in (1, 2, 3, 4):
        searched(float(n_trials), folder=several, n_trials=n_trials)
    tried = [[x.params for x in studied(each).get_trials()] for each in (one, several)]
    assert tried[0] == tried[1]
    rates = {each["PolicyGradient.learning_rate"] for each in tried[0]}
    assert len(rates) == 4


@pytest.mark.filterwarnings("ignore")
def test_a_study_is_made_by_one_process_at_a_time(searched, tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    create = optuna.create_study

    def made(**options):
        with open(tmp_path / "runs" / ".lock", "rb+") as lock:
            with pytest.raises(BlockingIOError):
                durable.lock_file(lock.fileno(), wait=False)
        return create(**options)

    monkeypatch.setattr(optuna, "create_study", made)
    assert searched(1.0, n_trials=1) == (0, 1)


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_breaks_off_has_failed_and_does_not_count(searched, tmp_path):
    with pytest.raises(RuntimeError, match="diverged"):
        searched(RuntimeError("diverged"))
    with pytest.raises(SystemExit):
        searched(SystemExit(3))
    assert states_of(studied(tmp_path)) == ["FAIL", "FAIL"]
    assert searched(1.0, 2.0, 3.0) == (0, 3)


@contextlib.contextmanager
def held(monkeypatch, study, number, path, value=None):
    """Stands for a process that makes a trial, until somebody waits for its end.

    It returns `value`; None if it is killed.
    """

    def sleep(seconds):
        assert 0 < seconds < 1
        if value is not None:
            study.tell(number, value)
        alive.close()

    with open(path, "rb+") as alive:
        durable.lock_file(alive.fileno())
        monkeypatch.setattr(tuning.time, "sleep", sleep)
        yield


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_was_waited_for_and_was_killed_is_made_again(
    searched, tmp_path, monkeypatch, capsys
):
    assert searched(1.0, n_trials=1) == (0, 1)
    study = studied(tmp_path)
    study.enqueue_trial(study.get_trials()[0].params)
    study.ask().suggest_int("Trajectories.n_steps", 8, 9)
    run = tmp_path / "runs" / "trial_0001"
    run.mkdir()
    (run / "trial.lock").touch()
    with held(monkeypatch, study, 1, run / "trial.lock"):
        assert searched(2.0, n_trials=2) == (0, 1)
    assert "trial 1: its process is gone" in capsys.readouterr().out
    assert states_of(study) == ["COMPLETE", "FAIL", "COMPLETE"]


@pytest.mark.filterwarnings("ignore")
def test_an_edited_configuration_is_another_search(searched, tmp_path, capsys):
    base = tmp_path / "base.gin"
    base.write_text("Trainer.seed = 1\n")
    small = f'include "base.gin"{SMALL}'
    assert searched(1.0, n_trials=1, small=small) == (0, 1)
    assert searched(2.0, n_trials=2, small=small) == (0, 1)
    for text, edited in (("seed = 2", small), ("seed = 1", small + "PPO.gamma = 0.5")):
        base.write_text(f"Trainer.{text}\n")
        assert searched(n_trials=3, small=edited) == (2, 0)
        (line,) = capsys.readouterr().err.splitlines()
        assert "`output_dir` expected a study of the same search; got" in line
        assert "small.gin, or what it includes, before an edit; take" in line
    study = studied(tmp_path)
    known = study.user_attrs["search"]
    # Of a study of old nothing is known.
    study.set_user_attr("search", {k: x for k, x in known.items() if k != "digest"})
    base.write_text("Trainer.seed = 3\n")
    assert searched(3.0, n_trials=3, small=small) == (0, 1)
    base.write_text("Trainer.seed = 4\n")
    assert searched(n_trials=4, small=small) == (2, 0)


@pytest.mark.filterwarnings("ignore")
def test_the_callbacks_of_the_configuration_are_kept(searched, tmp_path):
    made = []

    class Kept(keras.callbacks.Callback):
        def __init__(self, size=1):
            super().__init__()
            self.size = size
            made.append(self)

    def keep():
        given = gin.query_parameter("Trainer.callbacks").scoped_configurable_fn()
        assert given[:-1] == made[-len(given) + 1 :]
        assert "import tfrl.experiments.tuning\n" in gin.config_str()
        return [*(each.size for each in given[:-1]), type(given[-1]).__name__]

    configs.register({"Kept": Kept}, module="tuned")
    kept, last = [], "_Reported"
    searched.seen = lambda: kept.append(keep())
    several = "Trainer.callbacks = [@Kept(), @other/Kept()]\nother/Kept.size = 2\n"
    macro = "KEPT = [@Kept()]\nTrainer.callbacks = %KEPT\n"
    for number, text in enumerate(("", several, macro)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert searched(1.0, 2.0, folder=folder, n_trials=2, small=SMALL + text)[0] == 0
    assert kept == [[last]] * 2 + [[1, 2, last]] * 2 + [[1, last]] * 2
    assert len(made) == 6
    assert "callbacks" not in (folder / "runs" / "best.gin").read_text()


@pytest.mark.filterwarnings("ignore")
def test_trials_of_processes_that_were_killed_are_made_again(
    searched, tmp_path, monkeypatch, capsys
):
    assert searched(1.0, n_trials=1) == (0, 1)
    study = studied(tmp_path)
    parameters = study.get_trials()[0].params
    for _ in range(3):
        study.enqueue_trial({**parameters, "Trajectories.n_steps": 8})
        trial = study.ask()
        trial.suggest_int("Trajectories.n_steps", 8, 9)
    runs = [tmp_path / "runs" / f"trial_{i:04}" for i in (1, 2)]
    for run in runs:
        run.mkdir()
        (run / "trial.lock").touch()
    with held(monkeypatch, study, 2, runs[1] / "trial.lock", 0.0):
        # That which is alive is one of the three.
        assert searched(2.0, n_trials=3) == (0, 1)
    out = capsys.readouterr().out
    assert out.count("waiting for trial_0002, made by other processes\n") == 1
    assert "trial 1: its process is gone; it does not count\n" in out
    assert "trial 2: its" not in out and "trial 3: its" not in out
    # The last one is of a version that held no locks.
    found = ["COMPLETE", "FAIL", "COMPLETE", "RUNNING", "COMPLETE"]
    assert states_of(study) == found
    assert study.get_trials()[4].params["Trajectories.n_steps"] == 8


@pytest.mark.filterwarnings("ignore")
def test_the_command_that_is_told_can_be_pasted(searched, tmp_path, capsys):
    folder = tmp_path / "a b"
    folder.mkdir()
    assert searched(1.0, folder=folder, n_trials=1) == (0, 1)
    last = capsys.readouterr().out.splitlines()[-1]
    told = shlex.split(last.partition("train it: ")[2])
    assert told == ["tfrl", "train", str(folder / "runs" / "best.gin")]


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_ends_meanwhile_is_not_taken_back(searched, tmp_path, monkeypatch):
    assert searched(1.0, n_trials=1) == (0, 1)
    trial = studied(tmp_path).ask()
    trial.suggest_int("Trajectories.n_steps", 8, 9)
    run = tmp_path / "runs" / "trial_0001"
    run.mkdir()
    (run / "trial.lock").touch()

    def lock_file(file, lock=durable.lock_file, **given):
        # The other process had still held it when trials were listed.
        if os.path.samestat(os.fstat(file), (run / "trial.lock").stat()):
            trial.study.tell(trial, 0.0)
        lock(file, **given)

    monkeypatch.setattr(durable, "lock_file", lock_file)
    assert searched(2.0, n_trials=2) == (0, 0)
    assert states_of(studied(tmp_path)) == ["COMPLETE", "COMPLETE"]
