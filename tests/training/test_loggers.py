"""Rows sent elsewhere: to stand-ins always, to the libraries where they are."""

import pathlib
import sys
import types

import keras
import numpy as np
import pytest
from tiny_agents import build

from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, loggers

EVERY = cadence.Intervals(log_epochs=1, eval_episodes=1)


def train(folder, logger, n_epochs=3, **options):
    options = {"intervals": EVERY, "callbacks": [logger], **options}
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


class FakeMlflow:
    """Stands for a server of MLflow, with the rules of its parameters."""

    def __init__(self):
        self.params, self.tags, self.metrics, self.status = {}, {}, [], None
        self.fault = None

    def get_experiment_by_name(self, name):
        del name
        return types.SimpleNamespace(experiment_id="0")

    def create_run(self, experiment, run_name):
        del experiment, run_name
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="seven"))

    def get_run(self, identity):
        assert identity == "seven"
        return types.SimpleNamespace(data=self)

    def update_run(self, identity, status):
        del identity
        self.status = status

    def set_terminated(self, identity):
        self.update_run(identity, "FINISHED")

    def log_batch(self, identity, metrics=(), params=(), tags=()):
        del identity
        if self.fault is not None:
            raise self.fault
        for key, value in params:
            if self.params.setdefault(key, value) != value:
                raise LookupError("Changing param values is not allowed.")
        self.tags |= dict(tags)
        self.metrics += metrics


@pytest.fixture
def server(monkeypatch):
    server = FakeMlflow()
    entities = types.SimpleNamespace(
        Param=lambda key, value: (key, value),
        RunTag=lambda key, value: (key, value),
        Metric=lambda key, value, time, step: (step, key, value),
    )
    mlflow = types.SimpleNamespace(MlflowClient=lambda tracking_uri: server)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return server


def test_mlflow_goes_on_with_more_steps(tmp_path, server):
    given = {"n_epochs": 9, "total_env_steps": 96}
    train(tmp_path, loggers.MlflowLogger(), **given)
    assert server.params["total_env_steps"] == "96" and not server.tags
    for steps in (160, 192, 192):
        given |= {"total_env_steps": steps, "resume": True}
        rows = train(tmp_path, loggers.MlflowLogger(), **given)
        assert server.tags == {"override/total_env_steps": str(steps)}
    assert server.params["total_env_steps"] == "96"
    assert {step for step, *_ in server.metrics} == {*rows["env_steps"]}
    assert server.status == "FINISHED"


def test_an_identity_that_a_kill_left_empty_is_made_again(tmp_path, server):
    train(tmp_path, loggers.MlflowLogger(), n_epochs=2)
    (identity,) = tmp_path.glob("mlflow_run_id-*")
    known = identity.read_text()
    assert known
    identity.write_bytes(b"")
    train(tmp_path, loggers.MlflowLogger(), n_epochs=3, resume=True)
    assert identity.read_text()


def test_several_loggers_of_a_run_keep_apart(tmp_path, wandb_runs, monkeypatch):
    known = {"A": {}, "B": {}}

    class Client(FakeMlflow):
        def __init__(self, tracking_uri):
            super().__init__()
            self.runs = known[tracking_uri]

        def get_experiment_by_name(self, name):
            return types.SimpleNamespace(experiment_id=name)

        def create_run(self, experiment, run_name):
            identity = f"{len(self.runs)}"
            self.runs[identity] = experiment
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=identity))

        def get_run(self, identity):
            assert self.runs[identity]
            return types.SimpleNamespace(data=self)

    entities = dict.fromkeys(("Param", "RunTag", "Metric"), lambda *given: given[:2])
    module = types.SimpleNamespace(MlflowClient=Client)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    module = types.SimpleNamespace(**entities)
    monkeypatch.setitem(sys.modules, "mlflow.entities", module)
    for n_epochs in (2, 3):
        callbacks = [
            *(loggers.WandbLogger("p"), loggers.WandbLogger("q")),
            *(loggers.MlflowLogger(x, tracking_uri="A") for x in ("x", "y")),
            loggers.MlflowLogger("x", tracking_uri="B"),
        ]
        options = {"n_epochs": n_epochs, "resume": n_epochs == 3}
        train(tmp_path, None, callbacks=callbacks, **options)
    assert known == {"A": {"0": "x", "1": "y"}, "B": {"0": "x"}}
    first, second, again, other = (run.options["id"] for run in wandb_runs)
    assert first == again and second == other and first != second
    # Without being asked to, wandb gives the second one the run of the first.
    asked = [run.options.get("reinit") for run in wandb_runs]
    assert asked == [None, "create_new"] * 2


def test_a_run_of_before_keeps_its_identity(tmp_path, wandb_runs):
    train(tmp_path, loggers.WandbLogger("p"), n_epochs=2)
    (path,) = tmp_path.glob("wandb_run_id-*")
    path.rename(tmp_path / "wandb_run_id")  # as earlier versions named it
    callbacks = [loggers.WandbLogger("p"), loggers.WandbLogger("q")]
    train(tmp_path, None, n_epochs=3, resume=True, callbacks=callbacks)
    first, again, other = (run.options["id"] for run in wandb_runs)
    assert first == again != other


def test_what_is_no_number_is_left_out_and_told_once(tmp_path, wandb_runs):
    class Adds(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            del epoch
            logs |= {"level": "hard", "norms": np.ones(3), "mine": np.float32(2.0)}

    callbacks = [Adds(), loggers.WandbLogger()]
    with pytest.warns(UserWarning, match="`WandbLogger`: `logs` expected") as seen:
        rows = train(tmp_path, None, callbacks=callbacks)
    told = [str(each.message) for each in seen if "Logger" in str(each.message)]
    assert len(told) == 2 and "str for 'level'" in told[0] and "'norms'" in told[1]
    (run,) = wandb_runs
    assert len(run.rows) == len(rows["env_steps"])
    assert all(row["mine"] == 2.0 and "level" not in row for _, row in run.rows)


def test_a_tracker_that_fails_later_ends_no_training(tmp_path, server, wandb_runs):
    whole = train(tmp_path / "whole", loggers.MlflowLogger())
    server.metrics.clear()

    class Breaking(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            del logs
            if epoch == 1:
                server.fault = LookupError("the server\nis gone")

    told = r"`MlflowLogger`: .* got LookupError: the server is gone; nothing more is"
    callbacks = [Breaking(), loggers.MlflowLogger(), loggers.WandbLogger()]
    with pytest.warns(UserWarning, match=told) as seen:
        rows = train(tmp_path / "run", None, callbacks=callbacks)
    assert len([each for each in seen if "Logger" in str(each.message)]) == 1
    assert rows["env_steps"].tolist() == whole["env_steps"].tolist()
    assert {step for step, *_ in server.metrics} == {rows["env_steps"][0]}
    assert server.status == "RUNNING"
    (run,) = wandb_runs
    assert run.is_over and len(run.rows) == len(rows["env_steps"])
    assert checkpoints.latest_step(tmp_path / "run") == rows["env_steps"][-1]


def test_a_tracker_that_fails_at_once_is_an_error(tmp_path, server):
    server.fault = LookupError("no key")
    told = "`MlflowLogger`: expected a tracker .* got LookupError: no key; fix it"
    with pytest.raises(OSError, match=told):
        train(tmp_path, loggers.MlflowLogger())
    assert checkpoints.latest_step(tmp_path) is None


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
    (path,) = tmp_path.glob("wandb_run_id-*")
    identity = path.read_text()
    assert folder.name.endswith(identity)
    assert pathlib.Path(folder, f"run-{identity}.wandb").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_has_a_run_for_each_logger(tmp_path):
    pytest.importorskip("wandb")
    callbacks = [loggers.WandbLogger(x, mode="offline") for x in ("p", "q")]
    train(tmp_path, None, callbacks=callbacks)
    found = {path.read_text() for path in tmp_path.glob("wandb_run_id-*")}
    folders = (tmp_path / "wandb").glob("offline-run-*")
    assert {path.name.rpartition("-")[2] for path in folders} == found
    assert len(found) == 2


@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_in_a_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = str(tmp_path / "store")
    logger = loggers.MlflowLogger("pendulum", tracking_uri=store)
    train(tmp_path / "run", logger)
    rows = train(tmp_path / "run", logger, n_epochs=5, resume=True)
    client = mlflow.MlflowClient(store)
    (path,) = (tmp_path / "run").glob("mlflow_run_id-*")
    identity = path.read_text()
    run = client.get_run(identity)
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["agent.rate"] == "0.1"
    sent = client.get_metric_history(identity, "train/return_mean")
    assert {each.step for each in sent} <= set(rows["env_steps"])
    assert run.data.metrics["eval/return_mean"] == rows["eval/return_mean"][-1]
