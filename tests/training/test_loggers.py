"""Rows sent elsewhere: to stand-ins always, to the libraries where they are."""

import pathlib
import sys
import types

import keras
import pytest
from tiny_agents import build

from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, loggers

EVERY = cadence.Intervals(log_epochs=1, eval_episodes=1)


def train(folder, logger, n_epochs=3, **options):
    options |= {"intervals": EVERY, "callbacks": [logger]}
    with build(folder, n_epochs=n_epochs, **options) as trainer:
        trainer.run(quiet=True)
    return run_log.read_metrics(folder / "metrics.csv")


class FakeRun:
    """Stands for a run of Weights & Biases."""

    def __init__(self, **options):
        self.options, self.rows, self.is_over = options, [], False

    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.is_over = True


@pytest.fixture
def wandb_runs(monkeypatch):
    runs = []

    def init(**options):
        runs.append(FakeRun(**options))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return runs


def test_wandb_gets_each_row_and_goes_on_with_its_run(tmp_path, wandb_runs):
    folder = tmp_path / "seven"
    logger = loggers.WandbLogger("pendulum", group="seeds", mode="offline")
    train(folder, logger)
    rows = train(folder, logger, n_epochs=5, resume=True)
    first, second = wandb_runs
    asked = first.options
    assert (asked["project"], asked["name"]) == ("pendulum", "seven")
    assert (asked["group"], asked["mode"]) == ("seeds", "offline")
    assert asked["config"]["agent.rate"] == 0.1 and asked["dir"] == folder
    assert asked["id"] == second.options["id"] and second.options["resume"] == "allow"
    sent = [*first.rows, *second.rows]
    assert [step for step, _ in sent] == rows["env_steps"].tolist()
    assert sent[-1][1]["eval/return_mean"] == rows["eval/return_mean"][-1]
    assert "eval/return_mean" not in sent[0][1]  # nan in that row
    assert first.is_over and second.is_over


def test_wandb_takes_a_fit_too(wandb_runs):
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False, run_eagerly=True)
    ones = keras.ops.ones([2, 1])
    logger = loggers.WandbLogger()
    model.fit(ones, ones, epochs=2, verbose=0, callbacks=[logger])
    (run,) = wandb_runs
    assert [step for step, _ in run.rows] == [0, 1] and "loss" in run.rows[0][1]


def test_bad_input():
    with pytest.raises(ValueError, match="`WandbLogger`: `mode`"):
        loggers.WandbLogger(mode="loud")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_library_is_named_before_the_first_step(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    kind = {"wandb": loggers.WandbLogger, "mlflow": loggers.MlflowLogger}[name]
    with pytest.raises(ImportError, match=rf"`{kind.__name__}`.*`tfrl\[{name}\]`"):
        train(tmp_path, kind())
    assert checkpoints.latest_step(tmp_path) is None


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_offline(tmp_path):
    pytest.importorskip("wandb")
    train(tmp_path, loggers.WandbLogger("try", mode="offline"))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    identity = (tmp_path / "wandb_run_id").read_text()
    assert folder.name.endswith(identity)
    assert pathlib.Path(folder, f"run-{identity}.wandb").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_in_a_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = str(tmp_path / "store")
    logger = loggers.MlflowLogger("pendulum", tracking_uri=store)
    train(tmp_path / "run", logger)
    rows = train(tmp_path / "run", logger, n_epochs=5, resume=True)
    client = mlflow.MlflowClient(store)
    identity = (tmp_path / "run" / "mlflow_run_id").read_text()
    run = client.get_run(identity)
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["agent.rate"] == "0.1"
    sent = client.get_metric_history(identity, "train/return_mean")
    assert {each.step for each in sent} <= set(rows["env_steps"])
    assert run.data.metrics["eval/return_mean"] == rows["eval/return_mean"][-1]
