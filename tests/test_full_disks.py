"""Every writer on a full disk: one line, the old file, nothing half-written."""

import errno
import os

import gymnasium as gym
import keras
import numpy as np
import pytest
from full_disks import no_file_above

from tfrl import exporting, summaries
from tfrl.summaries import run_log

COLUMNS = ["loss", "a_column_with_a_long_name"]


def rendered():
    return gym.make("CartPole-v1", render_mode="rgb_array")


def films(path):
    env = rendered()
    return {
        "gif": lambda: summaries.generate_gif(env, path, max_episode_steps=3, seed=0),
        "mp4": lambda: summaries.record_episode(env, path, max_episode_steps=3, seed=0),
    }


@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_films(tmp_path, kind):
    pytest.importorskip("pygame")
    path = tmp_path / f"film.{kind}"
    path.write_bytes(b"old")
    call = films(path)[kind]
    with (
        no_file_above(100),
        pytest.raises(OSError, match="path` expected a disk that takes the file"),
    ):
        call()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_plots(tmp_path):
    path, rows = tmp_path / "curves.png", tmp_path / "run"
    with run_log.RunLog(rows, ["train/return_mean"]) as log:
        for step in range(3):
            log.write(step, {"train/return_mean": step})
    path.write_bytes(b"old")
    with (
        no_file_above(100),
        pytest.raises(OSError, match="`path` expected a disk that takes the file"),
    ):
        summaries.plot_learning_curve(rows / "metrics.csv", path, title="")
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["curves.png", "run"]


@pytest.mark.parametrize("name", ["folder", "model.keras", "model.tflite"])
@pytest.mark.parametrize("size", [50, 3000])
def test_exports(tmp_path, name, size):
    layers = [keras.Input([3]), keras.layers.Dense(300)]
    model = keras.Sequential(layers)
    path = tmp_path / name
    with (
        no_file_above(size),
        pytest.raises(OSError, match="`path` expected a disk that takes the files"),
    ):
        exporting.export_model(model, path)
    assert os.listdir(tmp_path) == []


def rows(log, count):
    for step in range(count):
        log.write(step, {"loss": step / 7})


def test_the_log_of_a_run(tmp_path):
    log = run_log.RunLog(tmp_path, COLUMNS)
    rows(log, 3)
    position = log.position()
    size = (tmp_path / "metrics.csv").stat().st_size
    with (
        no_file_above(size + 200),
        pytest.raises(OSError, match="`RunLog`: `directory` expected a disk") as found,
    ):
        for step in range(3, 100):
            log.write(step, {"loss": step / 7})
    assert found.value.errno in (errno.EFBIG, errno.ENOSPC)
    text = (tmp_path / "metrics.csv").read_text()
    assert text.endswith("\n") and len(text) >= size
    with pytest.raises(ValueError, match="expected an open log"):
        log.write(100, {})
    kept = summaries.read_metrics(tmp_path / "metrics.csv")["loss"]
    np.testing.assert_allclose(kept, np.arange(len(kept)) / 7)
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=position) as log:
        log.write(3, {"loss": 9.0})
    assert len(summaries.read_metrics(tmp_path / "metrics.csv")["loss"]) == 4


@pytest.mark.parametrize("size", [0, 10, 60])
def test_a_log_that_cannot_begin_leaves_nothing(tmp_path, size):
    with no_file_above(size), pytest.raises(OSError, match="`RunLog`: `directory`"):
        run_log.RunLog(tmp_path, COLUMNS)
    assert os.listdir(tmp_path) == []
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        rows(log, 1)
