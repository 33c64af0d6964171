"""A trainer whose agent learns from what was recorded; callbacks of Keras."""

import functools
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import rl_trainer
from tfrl.agents import bc, policy_gradient
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, saved_run, trainer

MAKE = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")


def recorded():
    """A pole is kept upright by pushing where it falls."""
    rows = np.random.default_rng(0).normal(size=[300, 4]).astype(np.float32)
    return {"observations": rows, "actions": (rows[:, 2] + rows[:, 3] > 0).astype(int)}


def make_trainer(folder, data=recorded, **settings):
    settings = {
        "n_epochs": 6,
        "agent": bc.BC(hidden_units=(16,), learning_rate=1e-2),
        "make_envs": MAKE,
        "experience": experience.FromDataset(data, batch_size=32, n_batches=7),
        "intervals": cadence.Intervals(
            log_epochs=1, eval_epochs=3, eval_episodes=2, checkpoint_epochs=2
        ),
        **settings,
    }
    return trainer.Trainer(folder, **settings)


def assert_same(first, second):
    pairs = zip(*map(tf.nest.flatten, (first, second)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(recorded, id="function"),
        pytest.param(recorded(), id="arrays", marks=pytest.mark.slow),
    ],
)
def test_it_clones_and_resumes_to_the_bit(tmp_path, data):
    with make_trainer(tmp_path / "whole", data) as whole:
        played = whole.run(quiet=True)
    assert len(played.returns) == 2
    # Rows that were learned from count as steps: of passes of 9 batches, 42.
    assert whole.env_steps == 6 * 7 * 32
    columns = run_log.read_metrics(tmp_path / "whole" / "metrics.csv")
    assert columns["train/accuracy"][-1] > max(0.7, columns["train/accuracy"][0])
    with make_trainer(tmp_path / "cut", data) as cut:
        gather = cut.gather

        def interrupted():
            if cut.epoch == 2:
                signal.raise_signal(signal.SIGINT)
            return gather()

        cut.gather = interrupted
        assert cut.run(quiet=True) is None and cut.epoch == 3
    with make_trainer(tmp_path / "cut", data, resume=True) as resumed:
        resumed.run(quiet=True)
    assert_same(resumed.agent, whole.agent)
    with saved_run.SavedRun.reopen(tmp_path / "cut") as run:
        assert len(run.evaluate(2).returns) == 2
        run.export(tmp_path / "policy")


def test_each_pass_takes_every_row_once(tmp_path):
    with make_trainer(tmp_path, experience=FromTen()) as running:
        seen = np.concatenate([running.gather()["actions"] for _ in range(3)])
    # Passes of 3 batches of 3 rows: one row waits.
    passes = seen.reshape(2, 9)
    assert all(len(set(each)) == 9 for each in passes)
    assert passes[0].tolist() != passes[1].tolist()


def FromTen():
    rows = {"observations": np.zeros([10, 4], "f"), "actions": np.arange(10)}
    return experience.FromDataset(rows, batch_size=3, n_batches=2)


def test_train_rl_takes_arrays(tmp_path):
    make = functools.partial(
        trainer.Trainer,
        agent=bc.BC(hidden_units=(4,)),
        make_envs=MAKE,
        experience=experience.FromDataset(recorded(), n_batches=1),
        intervals=cadence.Intervals(eval_episodes=1),
    )
    assert rl_trainer.train_rl(tmp_path, n_epochs=1, light_rl_trainer=make) is not None
    with rl_trainer.open_run(tmp_path, "best") as run:
        assert len(run.evaluate(1).returns) == 1


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (lambda: None, TypeError, "`FromDataset`: `data` expected a mapping of arrays"),
        ({"actions": np.zeros(3)}, ValueError, "of 32 rows at least; got"),
        (
            {"observations": np.zeros([40, 4]), "actions": np.zeros(39)},
            ValueError,
            r"arrays of one length, of 32 rows at least; got \[39, 40\]",
        ),
        ({}, ValueError, "arrays of one length"),
    ],
    ids=["none", "few", "lengths", "empty"],
)
def test_data_that_do_not_fit(tmp_path, data, error, match):
    with pytest.raises(error, match=match):
        make_trainer(tmp_path / "run", data)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match="`FromDataset`: `data` expected a mapping"):
        experience.FromDataset(3)


class Told(keras.callbacks.Callback):
    """Keeps what it is told; ends the run after an epoch."""

    def __init__(self, last=None):
        super().__init__()
        self.calls, self.last = [], last

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(("begins", epoch))

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(("ends", epoch, sorted(logs or ())))
        if epoch == self.last:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        self.calls.append("end")


def make_playing(folder, **settings):
    return trainer.Trainer(
        folder,
        n_epochs=6,
        agent=policy_gradient.PolicyGradient(hidden_units=(4,)),
        make_envs=MAKE,
        n_envs=2,
        experience=experience.Trajectories(8),
        **{
            "intervals": cadence.Intervals(
                log_epochs=2, eval_epochs=4, eval_episodes=1, checkpoint_epochs=6
            ),
            **settings,
        },
    )


def test_callbacks_are_told_and_may_end_the_run(tmp_path):
    told = Told(last=3)
    with make_playing(tmp_path, callbacks=[told]) as running:
        assert told.model is running
        assert running.run(quiet=True) is not None
    assert running.epoch == 4 and checkpoints.latest_step(tmp_path) == 64
    calls = told.calls
    assert calls[0] == "begin" and calls[-1] == "end"
    assert calls[1:3] == [("begins", 0), ("ends", 0, [])]
    assert "train/loss" in calls[4][2] and "eval/return_mean" not in calls[4][2]
    assert calls[8][:2] == ("ends", 3) and "eval/return_mean" in calls[8][2]


def test_callbacks_of_keras(tmp_path):
    every = cadence.Intervals(log_epochs=1, eval_episodes=1, checkpoint_epochs=6)
    stop = keras.callbacks.EarlyStopping("epoch", mode="min", patience=2)
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    kept = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)
    with make_playing(
        tmp_path / "run", callbacks=[stop, log, kept], intervals=every
    ) as running:
        running.run(quiet=True)
    # The number of the epoch never falls.
    assert running.epoch == 3
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert len(lines) == 4 and "train/loss" in lines[0]
