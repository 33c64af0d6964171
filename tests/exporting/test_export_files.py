"""Tests of `tfrl.exporting.export`: where models land, and what was there before."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import keras
import pytest
import tensorflow as tf

from tfrl.exporting import _beside, export


def dense():
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def content_of(path):
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {x.name: x.read_bytes() for x in files if x.is_file()}


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_existing_models_stay_unless_overwritten(tmp_path, name):
    path = tmp_path / "1" / name
    export.export_model(dense(), path)
    before = content_of(path)
    with pytest.raises(ValueError, match=f"`export_model`: `path` .*nothing.*{name}"):
        export.export_model(dense(), path)
    assert content_of(path) == before and names(path.parent) == [name]
    export.export_model(dense(), path, overwrite=True)
    assert content_of(path) != before and names(path.parent) == [name]
    export.verify(path)


def make(path, text, **options):
    with _beside.made_beside("make", path, **options) as fresh:
        (fresh / "deep").mkdir(parents=True)
        (fresh / "deep" / "text").write_text(text)


def read(path):
    return (path / "deep" / "text").read_text()


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_what_exists_stays(tmp_path, kind):
    path = tmp_path / "taken"
    if kind == "file":
        path.write_text("mine")
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.mkdir()
        if kind == "folder":
            (path / "mine").write_text("mine")
    entered = False
    with pytest.raises(ValueError, match="`make`: `path` expected .*; got '.*taken'"):
        with _beside.made_beside("make", path):
            entered = True
    assert not entered
    assert names(tmp_path) == ["taken"]


def test_what_appears_meanwhile_stays(tmp_path):
    path = tmp_path / "taken"
    with pytest.raises(ValueError, match="`make`: `path` expected a place where"):
        with _beside.made_beside("make", path) as fresh:
            fresh.write_text("late")
            path.write_text("first")
    assert path.read_text() == "first"
    assert names(tmp_path) == ["taken"]


def test_what_may_be_overwritten(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    make(tmp_path / "model", "old")
    for name in ("model", "empty", "file", "link"):
        make(tmp_path / name, "new", overwrite=True)
        assert read(tmp_path / name) == "new"
    with pytest.raises(ValueError, match="`make`: `path` expected .* with 'mine' in"):
        make(tmp_path / "kept", "new", overwrite=True)
    with pytest.raises(ValueError, match="`make`: `path` expected .* nothing else is"):
        with _beside.made_beside("make", tmp_path / "kept", overwrite=True) as fresh:
            fresh.write_text("a file")
    assert (tmp_path / "kept" / "mine").read_text() == "mine"
    assert names(tmp_path) == ["empty", "file", "kept", "link", "model"]


@pytest.mark.parametrize("existing", [True, False], ids=["over old", "new"])
def test_a_block_that_raises_leaves_nothing(tmp_path, existing):
    path = tmp_path / "model"
    if existing:
        make(path, "old")
    with pytest.raises(KeyboardInterrupt):
        with _beside.made_beside("make", path, overwrite=True) as fresh:
            fresh.mkdir()
            raise KeyboardInterrupt
    assert names(tmp_path) == (["model"] if existing else [])
    if existing:
        assert read(path) == "old"


@pytest.mark.parametrize("overwrite", [True, False], ids=["over old", "new"])
def test_every_call_of_the_disk_may_fail(tmp_path, monkeypatch, overwrite):
    """The k-th renaming, flushing or making of a folder fails, for every k."""
    calls, failing = [], -1

    def counted(real):
        def call(*args, **kwargs):
            calls.append(real.__name__)
            if len(calls) - 1 == failing:
                raise OSError("the disk refuses")
            return real(*args, **kwargs)

        return call

    for name in ("rename", "fsync", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    outcomes = []
    for k in range(100):
        path = tmp_path / str(k) / "model"
        failing = -1
        path.parent.mkdir()
        if overwrite:
            make(path, "old")
        calls.clear()
        failing = k
        try:
            make(path, "new", overwrite=overwrite)
        except OSError as error:
            assert "the disk refuses" in str(error)
            outcomes.append(read(path) if path.exists() else "nothing")
        assert set(names(path.parent)) <= {"model"}
        if len(calls) <= k:
            break
    assert read(path) == "new"
    # After the last renaming only the wait for the disk can fail.
    before = "old" if overwrite else "nothing"
    assert outcomes == [before] * (len(outcomes) - 1) + ["new"]
    assert len(outcomes) >= 6


# The folders stand for the packages, whose doors would load TensorFlow.
KILLED = """
import os, signal, sys, types

root, path, when = sys.argv[1:]
for name in ("tfrl", "tfrl.exporting"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(root, *name.split("."))]
from tfrl.exporting import _beside

if when == "swapping":
    rename = os.rename

    def rename_once(source, target):
        rename(source, target)
        if os.path.basename(target) == "old":
            os.kill(os.getpid(), signal.SIGKILL)

    os.rename = rename_once
with _beside.made_beside("make", path, overwrite=True) as fresh:
    (fresh / "deep").mkdir(parents=True)
    (fresh / "deep" / "half").write_text("half")
    if when == "making":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["making", "swapping"])
def test_a_killed_process_is_cleared_away(tmp_path, when):
    path = tmp_path / "model"
    make(path, "old")
    root = pathlib.Path(__file__).parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), str(path), when], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert len([x for x in names(tmp_path) if x.startswith(".model.export-")]) == 1
    assert path.exists() == (when == "making")
    with pytest.raises(ValueError, match="nothing is yet"):
        make(path, "new")
        pytest.fail("what was replaced has not come back")
    if when == "making":
        make(path, "newer", overwrite=True)
    assert read(path) == ("newer" if when == "making" else "old")
    assert names(tmp_path) == ["model"]


def test_what_is_still_at_work_is_left_alone(tmp_path):
    with _beside.made_beside("make", tmp_path / "model") as fresh:
        fresh.write_text("first")
        make(tmp_path / "model", "second")
        assert fresh.read_text() == "first"
        # Of another name, though it begins alike.
        make(tmp_path / "mod", "other")
        (tmp_path / "model").rename(tmp_path / "moved")
    assert (tmp_path / "model").read_text() == "first"
    assert names(tmp_path) == ["mod", "model", "moved"]


def test_one_of_many_writers_wins(tmp_path):
    path, won, lost = tmp_path / "model", [], []

    def write(index):
        try:
            make(path, str(index))
            won.append(index)
        except ValueError:
            lost.append(index)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7
    assert read(path) == str(won[0])
    assert names(tmp_path) == ["model"]


VICTIM = """
import itertools, sys
import tensorflow as tf
from tfrl.exporting import export

weights = tf.Variable(tf.ones([500_000]))
for i in itertools.count():
    path, spec = f"{sys.argv[1]}/{i}", tf.TensorSpec([None])
    export.export_model(lambda x: x * tf.reduce_sum(weights), path, spec)
    print(i, flush=True)
"""


@pytest.mark.slow
def test_killed_exports_leave_whole_models(tmp_path):
    rng = random.Random(0)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        with subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            text=True,
        ) as victim:
            victim.stdout.readline()
            time.sleep(rng.random())
            victim.send_signal(signal.SIGKILL)
            told = [0, *map(int, victim.stdout)]
        whole = [name for name in names(folder) if name.isdigit()]
        assert len(whole) in (len(told), len(told) + 1)
        for name in whole:
            export.verify(folder / name)
        killed = str(len(whole))
        left = [name for name in names(folder) if not name.isdigit()]
        assert all(name.startswith(f".{killed}.export-") for name in left)
        export.export_model(tf.abs, folder / killed, tf.TensorSpec([None, 3]))
        assert names(folder) == sorted([*whole, killed])
