"""Tests of `tfrl.exporting._beside`."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from tfrl.exporting import _beside


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make(path, text, **options):
    with _beside.made_beside("make", path, **options) as fresh:
        (fresh / "deep").mkdir(parents=True)
        (fresh / "deep" / "text").write_text(text)


def read(path):
    return (path / "deep" / "text").read_text()


def test_folders_and_files_appear(tmp_path):
    make(tmp_path / "a" / "b", "hello")
    assert read(tmp_path / "a" / "b") == "hello"
    assert names(tmp_path / "a") == ["b"]
    with _beside.made_beside("make", tmp_path / "model.keras") as fresh:
        assert fresh.suffix == ".keras"
        fresh.write_text("file")
        assert not (tmp_path / "model.keras").exists()
    assert (tmp_path / "model.keras").read_text() == "file"
    assert names(tmp_path) == ["a", "model.keras"]


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
    message = "`make`: `path` expected a place where nothing is yet; got '.*taken'"
    entered = False
    with pytest.raises(ValueError, match=message):
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


def test_overwrite(tmp_path):
    path = tmp_path / "model"
    make(path, "old")
    make(path, "new", overwrite=True)
    assert read(path) == "new"
    assert names(tmp_path) == ["model"]


def test_a_folder_of_other_things_is_not_overwritten(tmp_path):
    path = tmp_path / "home"
    path.mkdir()
    (path / "letters").write_text("mine")
    with pytest.raises(
        ValueError, match="`make`: `path` expected .* with 'letters' in"
    ):
        make(path, "new", overwrite=True)
    with pytest.raises(
        ValueError, match="`make`: `path` expected a place where nothing"
    ):
        with _beside.made_beside("make", path, overwrite=True) as fresh:
            fresh.write_text("a file")
    assert (path / "letters").read_text() == "mine"
    assert names(tmp_path) == ["home"]


def test_an_empty_folder_a_file_and_a_link_are_overwritten(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("empty", "file", "link"):
        make(tmp_path / name, "new", overwrite=True)
        assert read(tmp_path / name) == "new"
    assert (tmp_path / "kept" / "mine").read_text() == "mine"


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
        assert read(path) == "newer"
    else:
        assert read(path) == "old"
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
