"""Keras' own callbacks do with an agent what they do with any model.

The table at the top of `tfrl.training.fitting.fit_callbacks` says what that is.
"""

import csv
import http.server
import json
import math
import threading
import urllib.parse

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

from tfrl import replay, training
from tfrl.training.fitting import fit_callbacks

STOCK = {
    *["BackupAndRestore", "CSVLogger", "EarlyStopping", "History", "LambdaCallback"],
    *["LearningRateScheduler", "ModelCheckpoint", "ProgbarLogger", "ReduceLROnPlateau"],
    *["RemoteMonitor", "SwapEMAWeights", "TensorBoard", "TerminateOnNaN"],
}
LOGS = {
    *["loss", "return_mean", "length_mean", "env_steps"],
    *["val_return_mean", "val_return_std", "val_length_mean"],
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)


def fit(*callbacks, epochs=3, optimizer=None, model=None, verbose=0, **options):
    """A DQN-like agent that collects and is evaluated; returns model and logs."""
    model = examples.q_model() if model is None else model
    if optimizer is not None:
        model.compile(optimizer, run_eagerly=True)
    store = examples.store()
    policy = examples.acting(model)
    collect = training.Collect(examples.walks(), store, policy, warm_up_steps=30)
    best = examples.acting(model, examples.greedy)
    evaluate = training.Evaluate(examples.walks(), best, 3)
    history = model.fit(
        replay.UniformReplay(store, seed=0),
        steps_per_epoch=3,
        epochs=epochs,
        callbacks=[collect, evaluate, *callbacks],
        verbose=verbose,
        **options,
    )
    return model, history.history


def returns_of(*values):
    """Says what evaluation brought, as if it had."""
    values = iter(values)

    def say(epoch, logs):
        logs["val_return_mean"] = next(values)

    return keras.callbacks.LambdaCallback(on_epoch_end=say)


def test_all_of_kerass_callbacks_are_here():
    bases = {"Callback", "CallbackList", "MonitorCallback"}
    # Orbax is a package of its own.
    found = {
        name
        for name in dir(keras.callbacks)
        if isinstance(getattr(keras.callbacks, name), type)
    }
    assert {name for name in found - bases if "Orbax" not in name} == STOCK
    table = fit_callbacks.__doc__
    assert [name for name in STOCK if f"`{name}`" not in table] == []


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        (text,) = urllib.parse.parse_qs(self.rfile.read(size).decode())["data"]
        self.server.received.append(json.loads(text))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.mark.slow
def test_those_that_report_tell_the_same(tmp_path, capsys):
    pytest.importorskip("requests")
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(dict(logs)),
        on_train_batch_end=lambda batch, logs: seen.append(batch),
    )
    file = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    board = keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1)
    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.received = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            root = f"http://127.0.0.1:{server.server_port}"
            remote = keras.callbacks.RemoteMonitor(root)
            _, history = fit(watch, file, board, remote, verbose=2)
        finally:
            server.shutdown()
            thread.join()
    assert set(history) == LOGS
    assert all(len(values) == 3 for values in history.values())
    assert [each for each in seen if not isinstance(each, dict)] == [0, 1, 2] * 3
    of_epochs = [each for each in seen if isinstance(each, dict)]
    assert [logs["loss"] for logs in of_epochs] == history["loss"]
    assert all(type(value) is float for value in of_epochs[0].values())
    shown = capsys.readouterr().out  # of ProgbarLogger
    assert all(f"{name}: " in shown for name in LOGS) and shown.count("Epoch ") == 3
    assert f"loss: {history['loss'][0]:.4f}"[:9] in shown
    assert [each["epoch"] for each in server.received] == [0, 1, 2]
    assert [each["env_steps"] for each in server.received] == history["env_steps"]
    with open(tmp_path / "log.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2]
    for name in LOGS:
        written = [float(row[name]) for row in rows]
        np.testing.assert_allclose(written, history[name])
    tags = {}
    for folder in ("train", "validation"):
        events = event_accumulator.EventAccumulator(
            str(tmp_path / folder), size_guidance={"tensors": 0}
        )
        events.Reload()
        for tag in events.Tags()["tensors"]:
            tensors = [tf.make_ndarray(e.tensor_proto) for e in events.Tensors(tag)]
            tags[folder, tag] = tensors
    for tag, name in (
        (("train", "epoch_loss"), "loss"),
        (("train", "epoch_env_steps"), "env_steps"),
        (("validation", "epoch_return_mean"), "val_return_mean"),
    ):
        np.testing.assert_allclose(tags[tag], history[name], rtol=1e-6)
    assert any("kernel" in tag for _, tag in tags)


@pytest.mark.slow
def test_early_stopping_by_the_return():
    stop = keras.callbacks.EarlyStopping(
        monitor="val_return_mean", mode="max", patience=2, restore_best_weights=True
    )
    weights = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
    )
    model = examples.q_model()
    _, history = fit(
        returns_of(1.0, 3.0, 2.0, 2.5, 9.0), watch, stop, model=model, epochs=5
    )
    assert history["val_return_mean"] == [1.0, 3.0, 2.0, 2.5]
    assert stop.best == 3.0
    # The best weights are those of the network and of the target.
    examples.assert_same(model.get_weights(), weights[1])


@pytest.mark.slow
def test_reduce_lr_on_plateau():
    reduce = keras.callbacks.ReduceLROnPlateau(
        monitor="val_return_mean", mode="max", patience=1, factor=0.5, min_delta=0.0
    )
    model, history = fit(returns_of(1.0, 2.0, 2.0, 2.0), reduce, epochs=4)
    np.testing.assert_allclose(history["learning_rate"], [1e-2, 1e-2, 1e-2, 5e-3])
    np.testing.assert_allclose(model.optimizer.learning_rate, 2.5e-3)


@pytest.mark.slow
def test_learning_rate_scheduler():
    rates = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (1 + epoch))
    model, history = fit(rates)
    np.testing.assert_allclose(history["learning_rate"], [0.1, 0.05, 0.1 / 3])
    np.testing.assert_allclose(model.optimizer.learning_rate, 0.1 / 3)


def test_terminate_on_nan():
    model = examples.q_model()

    def spoil(epoch, logs):
        if epoch == 1:
            kernel = model.network.weights[0]
            kernel.assign(kernel * math.nan)

    breaking = keras.callbacks.LambdaCallback(on_epoch_end=spoil)
    _, history = fit(
        breaking,
        keras.callbacks.TerminateOnNaN(),
        model=model,
        epochs=5,
    )
    assert len(history["loss"]) == 3
    assert math.isnan(history["loss"][-1])


@pytest.mark.slow
@pytest.mark.parametrize("weights_only", [False, True], ids=["model", "weights"])
def test_model_checkpoint(tmp_path, weights_only):
    suffix = ".weights.h5" if weights_only else ".keras"
    path = tmp_path / f"best{suffix}"
    best = keras.callbacks.ModelCheckpoint(
        path,
        monitor="val_return_mean",
        mode="max",
        save_best_only=True,
        save_weights_only=weights_only,
    )
    kept = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.append(examples.weights_of(model))
    )
    model = examples.q_model()
    fit(returns_of(1.0, 3.0, 2.0), watch, best, model=model)
    if weights_only:
        loaded = examples.q_model()
        loaded.load_weights(path)
    else:
        loaded = keras.models.load_model(path)
    examples.assert_same(examples.weights_of(loaded), kept[1])
    assert int(loaded.optimizer.iterations) == 6
    assert int(loaded.env_steps) == 30 + 6 * 3
    assert int(loaded.target_updater.variables[0]) == 6


@pytest.mark.slow
def test_backup_and_restore(tmp_path):
    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    model = examples.q_model()
    kept = []

    def break_off(epoch, logs):
        kept.append(examples.weights_of(model))
        if epoch == 1:
            raise InterruptedError

    breaking = keras.callbacks.LambdaCallback(on_epoch_end=break_off)
    with pytest.raises(InterruptedError):
        fit(backup(), breaking, model=model)
    began = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: began.append(
            (epoch, examples.weights_of(again))
        )
    )
    again = examples.q_model()
    fit(backup(), watch, model=again)
    assert began[0][0] == 2
    examples.assert_same(began[0][1], kept[1])
    assert int(again.optimizer.iterations) == 9
    assert not (tmp_path / "backup").exists()


@pytest.mark.slow
def test_swap_ema_weights():
    model = examples.q_model()
    optimizer = keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=0.5)
    seen = {}

    def keep(name):
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.update(
                {name: [w.numpy() for w in model.trainable_variables]}
            )
        )

    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    fit(keep("raw"), swap, keep("averages"), model=model, optimizer=optimizer)
    assert np.abs(seen["raw"][0] - seen["averages"][0]).max() > 1e-5
    # Training went on from the raw weights, and ends with the averages.
    trained = [w.numpy() for w in model.trainable_variables]
    examples.assert_same(trained, seen["averages"])
