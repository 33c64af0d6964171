"""Tests of `tfrl.saving.checkpoints` with other processes, that are killed."""

import os
import pathlib
import random
import signal
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf
from saving import checkpoint_victims, saved_models
from victims import start

from tfrl import replay
from tfrl.saving import checkpointer, checkpoints


@pytest.fixture(scope="module")
def victims():
    with start(pathlib.Path(__file__).with_name("checkpoint_victims.py")) as victims:
        yield victims


def kill_a_busy_save(victims, directory, seconds):
    pid = victims.fork("save", directory)
    assert victims.answer()[0] == "saved"
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    acknowledged = 1
    while (answer := victims.answer())[0] == "saved":
        acknowledged = int(answer[1])
    template = {f"w{i}": np.zeros([64, i + 1], np.float32) for i in range(8)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state, metadata, step = checkpoints.load_run(directory, template)
    assert step >= acknowledged
    assert metadata == {"step": step}
    assert all((values == step).all() for values in state.values())
    left = sorted(os.listdir(directory / "checkpoints"))
    assert left[0] == ".lock" and all(name.startswith("step-") for name in left[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["3", "30"]
)
def test_a_killed_save_loses_nothing_acknowledged(tmp_path, victims, kills):
    rng = random.Random(kills)
    for _ in range(kills):
        kill_a_busy_save(victims, tmp_path, rng.uniform(0.0, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["3", "30"]
)
def test_a_killed_save_of_objects_loses_nothing_acknowledged(tmp_path, victims, kills):
    rng = random.Random(kills)
    variables = [tf.Variable(tf.zeros([64, i + 1])) for i in range(8)]
    size = checkpoint_victims.ROWS
    rows = replay.DataBuffer(tf.TensorSpec([2]), capacity=size, seed=0)
    manager = checkpointer.Checkpointer(tmp_path, v=variables, rows=rows)
    for _ in range(kills):
        pid = victims.fork("save_objects", tmp_path)
        assert victims.answer()[0] == "saved"
        time.sleep(rng.uniform(0.0, 0.1))
        os.kill(pid, signal.SIGKILL)
        acknowledged = 1
        while (answer := victims.answer())[0] == "saved":
            acknowledged = int(answer[1])
        left = sorted(int(path.name[5:]) for path in tmp_path.glob("ckpt-*"))
        assert left[-1] >= acknowledged
        for step in left:
            assert manager.load(step) == step
            assert all((each.numpy() == step).all() for each in variables)
            assert int(rows.current_size) == min(3 * step, size)
            saved = np.repeat(np.arange(step) + 1, 3)[-size:]
            position = 3 * step % size if 3 * step > size else 0
            found = rows.get_all()[: len(saved), 0]
            np.testing.assert_array_equal(np.roll(found, -position), saved)


@pytest.mark.slow
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path, victims):
    directory = tmp_path / "new" / "run"
    pid = victims.fork("lock", directory)
    assert victims.answer() == ["locked"]
    with pytest.raises(ValueError, match=f"held by pid {pid} on .*; stop that"):
        checkpoints.RunLock(directory).__enter__()
    os.kill(pid, signal.SIGKILL)
    assert victims.answer() == ["gone"]
    with checkpoints.RunLock(directory):
        pass


def test_the_lock_also_holds_within_a_process(tmp_path):
    lock = checkpoints.RunLock(tmp_path)
    for _ in range(2):
        with lock:
            with pytest.raises(ValueError, match=f"held by pid {os.getpid()} on"):
                checkpoints.RunLock(tmp_path).__enter__()
    files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError):
        with lock:
            raise KeyError
    with lock:
        pass
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="`RunLock`.*file/run.*Not a directory"):
        checkpoints.RunLock(tmp_path / "file" / "run").__enter__()

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ValueError, match="`RunLock`.*Permission denied"):
        checkpoints.RunLock(tmp_path).__enter__()


@pytest.mark.slow
def test_automatic_names_load_in_another_process(tmp_path, victims):
    """Whatever Keras and the user made before, names are the same."""
    victims.fork("save_models", tmp_path)
    assert victims.answer() == ["saved"] and victims.answer() == ["gone"]
    items = saved_models.made()
    blocks = saved_models.sequential("block_2", "block_5")
    manager = checkpointer.Checkpointer(tmp_path, **items, blocks=blocks)
    assert manager.load() == 1
    saved_models.check({**items, "state": manager["state"]})


def test_a_lock_tells_that_its_folder_is_gone(tmp_path):
    place, lock = tmp_path / "run", checkpoints.RunLock(tmp_path / "run")
    lock.check()  # holds nothing
    for remake in (False, True):
        with lock:
            lock.check()
            place.rename(tmp_path / f"moved_{remake}")
            if remake:
                with checkpoints.RunLock(place):
                    pass
            with pytest.raises(ValueError, match="got .*run, moved or.* --resume NEW"):
                lock.check()
    with pytest.raises(ValueError, match="got .*run, moved or"):
        with lock, lock.in_place():
            place.rename(tmp_path / "moved")
            (place / "part").write_text("")
    with pytest.raises(FileNotFoundError):
        with lock, lock.in_place():
            (place / "no" / "part").write_text("")
