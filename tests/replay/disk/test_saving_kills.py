"""Tests of `tfrl.replay.disk.saving` with processes that are killed while they save."""

import os
import random
import shutil
import time

import numpy as np
import pytest
import replay_workers
from replay.disk import saving_victims

from tfrl.replay.disk import _saved
from tfrl.replay.disk.saving import load, save
from tfrl.replay.memory import _homes


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 1 << 13)


def kill_a_busy_save(folder, seconds):
    def save(output):
        saving_victims.save_for_ever(str(folder), output)

    pid, answers = replay_workers.forked(save)
    with answers:
        acknowledged = int(answers.readline())
        time.sleep(seconds)
        replay_workers.kill(pid)
        for line in answers:
            acknowledged = int(line)
    assert loaded(folder)[0] >= acknowledged


def loaded(folder):
    """Returns the index of the next step, and a sampler in which all is right."""
    store, replay = saving_victims.made()
    load(folder, {"replay": replay})
    found = int(store.steps.upcoming[0])
    columns, rows = store.steps.columns(), np.arange(store.capacity)
    indices = columns.indices[store.steps.ends(rows) > columns.indices]
    expected = np.arange(max(0, found + 1 - store.capacity), found)
    expected = expected[(expected % 13 != 0) | (expected == 0)]
    np.testing.assert_array_equal(np.intersect1d(indices, expected), expected)
    steps = store.get(expected)
    np.testing.assert_array_equal(steps.actions, expected)
    assert (steps.observations == expected[:, np.newaxis]).all()
    data = replay.sample(100).data
    assert (data.next_observations == data.observations + 1).all()
    assert (data.observations[:, 0] == data.actions).all()
    return found, replay


@pytest.mark.parametrize(
    "kills", [3, pytest.param(30, marks=pytest.mark.slow)], ids=["3", "30"]
)
def test_a_killed_save_loses_nothing_acknowledged(tmp_path, kills):
    rng = random.Random(kills)
    for _ in range(kills):
        kill_a_busy_save(tmp_path, rng.uniform(0.0, 0.1))
    _, replay = loaded(tmp_path)
    saving_victims.add(replay.store)
    save(tmp_path, {"replay": replay})
    needed = {"manifest.json", ".lock"}
    assert {
        entry.name for entry in tmp_path.iterdir() if ".s" not in entry.name
    } == needed


def killed(number, folder, objects):
    """Saves in a fork that is killed at a call that reaches the disk; was it?"""
    child = os.fork()
    if child == 0:
        try:
            saving_victims.Disk(setattr, number, lambda: os._exit(9), 5000)
            save(folder, objects)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.slow
def test_a_save_killed_at_any_call_leaves_the_old_or_the_new(tmp_path):
    store, replay = saving_victims.made()
    for _ in range(100):
        saving_victims.add(store)
    old = store.steps.upcoming[0]
    save(tmp_path / "0", {"replay": replay})
    for _ in range(30):
        saving_victims.add(store)
    new, found, dead = store.steps.upcoming[0], [], True
    while dead:
        folder = tmp_path / str(len(found) + 1)
        shutil.copytree(tmp_path / "0", folder)
        dead = killed(len(found) + 1, folder, {"replay": replay})
        number, fresh = loaded(folder)
        found.append(number)
        save(folder, {"replay": fresh})
        manifest = _saved.read_manifest("load", folder)
        left = {entry.name for entry in folder.iterdir()}
        assert left == {*manifest.files(), "manifest.json", ".lock"}
    count = found.count(old)
    assert found == [old] * count + [new] * (len(found) - count)
    assert count > 10 and new in found[:-1]
