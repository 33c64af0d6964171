"""Tests of `tfrl.saving.checkpointer`: buffers, and what is damaged."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay
from tfrl._internal import sealed_folder
from tfrl.replay.memory import _homes
from tfrl.saving import checkpointer


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 400)


def made(number=0):
    """A buffer with rows of numbers."""
    buffer = replay.DataBuffer(tf.TensorSpec([10]), capacity=100, seed=0)
    add(buffer, 0, number)
    return buffer


def add(buffer, start, stop):
    if stop > start:
        buffer.add_batch(np.tile(np.arange(start, stop, dtype="f")[:, None], 10))


def inodes(path):
    return {each.stat().st_ino for each in (path / "replay").glob("*.segment")}


def test_every_checkpoint_can_be_loaded_and_shares_what_it_can(tmp_path):
    buffer, paths = made(50), []
    manager = checkpointer.Checkpointer(tmp_path, rows=buffer)
    for step in range(5):
        paths.append(manager.save(step))
        add(buffer, 50 + 2 * step, 52 + 2 * step)
    # Five segments of ten rows, of which the first four stay.
    shared = set.intersection(*map(inodes, paths))
    assert len(shared) >= 4
    other = made()
    reader = checkpointer.Checkpointer(tmp_path, rows=other)
    for step in (3, 0, 4, 1):
        assert reader.load(step) == step
        size = 50 + 2 * step
        np.testing.assert_array_equal(other.get_all()[:size, 0], np.arange(size))
        assert int(other.current_size) == size
    # Whoever goes on from another one than the newest shares with the newest.
    assert shared <= inodes(reader.save(9, keep=1))
    assert [path.name for path in tmp_path.glob("ckpt-*")] == ["ckpt-9"]
    assert reader.load() == 9 and int(other.current_size) == 52


def test_disks_without_links(tmp_path, monkeypatch):
    buffer = made(50)
    manager = checkpointer.Checkpointer(tmp_path, rows=buffer)
    first = manager.save(1)

    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert not inodes(first) & inodes(manager.save(2))
    assert manager.load(1) == 1 and manager.load() == 2


def test_names_with_slashes(tmp_path):
    buffers = {"a/b": made(3), "a": {"~1b": made(4)}}
    checkpointer.Checkpointer(tmp_path, rows=buffers).save(1)
    others = {"a/b": made(), "a": {"~1b": made()}}
    checkpointer.Checkpointer(tmp_path, rows=others).load()
    assert int(others["a/b"].current_size) == 3
    assert int(others["a"]["~1b"].current_size) == 4


def damaged(path, how):
    folder = path / "replay"
    if how == "gone":
        shutil.rmtree(folder)
        return
    names = sorted(folder.glob("*.segment"), key=lambda each: each.stat().st_nlink)
    file = folder / "manifest.json" if how == "manifest" else names[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    file.write_bytes(data)


@pytest.mark.parametrize("how", ["gone", "manifest", "segment"])
def test_latest_passes_over_damaged_buffers(tmp_path, how):
    scale, buffer = tf.Variable(1.0), made(50)
    manager = checkpointer.Checkpointer(tmp_path, scale=scale, rows=buffer)
    manager.save(1)
    scale.assign(2.0)
    add(buffer, 50, 52)
    damaged(manager.save(2), how)
    scale.assign(3.0)
    with pytest.raises(ValueError, match="expected an undamaged .*ckpt-2, damaged"):
        manager.load(2)
    assert (float(scale), int(buffer.current_size)) == (3.0, 52)
    with pytest.warns(UserWarning, match="ckpt-2 is damaged .*; trying an older one"):
        assert manager.load() == 1
    assert (float(scale), int(buffer.current_size)) == (1.0, 50)
    # Without the buffer, its segments do not matter.
    if how == "segment":
        assert manager.load(2, including_replay_buffer=False) == 2
        assert (float(scale), int(buffer.current_size)) == (2.0, 50)


def test_buffers_of_another_checkpoint_are_not_taken(tmp_path):
    buffer = made(50)
    manager = checkpointer.Checkpointer(tmp_path, rows=buffer)
    one = manager.save(1)
    add(buffer, 50, 52)
    two = manager.save(2)
    for source, target in [(one, tmp_path), (two, one), (tmp_path, two)]:
        os.rename(source / "replay", target / "replay")
    with pytest.raises(ValueError, match="replay/manifest.json is not as it was"):
        manager.load(2)


def test_checkpoints_without_the_digest_of_buffers(tmp_path, monkeypatch):
    seal = sealed_folder.seal
    with monkeypatch.context() as patch:
        patch.setattr(sealed_folder, "seal", lambda *args: seal(*args[:3]))
        path = checkpointer.Checkpointer(tmp_path, rows=made(50)).save(1)
    other = made()
    manager = checkpointer.Checkpointer(tmp_path, rows=other)
    assert manager.load() == 1 and int(other.current_size) == 50
    assert len(inodes(path) & inodes(manager.save(2))) >= 5
    shutil.rmtree(path / "replay")
    with pytest.raises(ValueError, match="expected an undamaged checkpoint; .*ckpt-1"):
        manager.load(1)


def test_a_damaged_checkpoint_makes_room_for_who_passed_over_it(tmp_path):
    value = tf.Variable(1)
    manager = checkpointer.Checkpointer(tmp_path, m=value)
    for step in (9, 10, 20):
        manager.save(step)
    for step in (10, 20):
        (tmp_path / f"ckpt-{step}" / "structure.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match="expected a step after 20, which is in"):
        manager.save(15)
    with pytest.warns(UserWarning, match="is damaged"):
        assert manager.load() == 9
    with pytest.warns(UserWarning, match="ckpt-20 is damaged .* not older .* 15; rem"):
        manager.save(15)
    assert sorted(path.name for path in tmp_path.glob("ckpt-*")) == [
        "ckpt-10",
        "ckpt-15",
        "ckpt-9",
    ]
    with pytest.raises(ValueError, match="expected a step after 15"):
        manager.save(12)


@pytest.mark.slow
def test_a_gibibyte(tmp_path):
    script = pathlib.Path(__file__).with_name("checkpoint_measures.py")
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"}
    output = subprocess.run(
        [sys.executable, script, tmp_path / "c", "1024"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    shutil.rmtree(tmp_path / "c")
    print(output)
    figures = json.loads(output)
    assert figures["first"][0] > 1022
    assert figures["again"][0] < 30
    for written, memory, _ in figures.values():
        assert memory < 64, f"{written} MiB"
