"""Tests of `tfrl.replay.disk.saving`: folders that share what did not change."""

import errno
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import durable
from tfrl.replay.disk import _saved
from tfrl.replay.disk.saving import load, save
from tfrl.replay.memory import _homes
from tfrl.replay.memory.numpy_storage import NumpyStorage


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 400)


@pytest.fixture
def rows():
    """Ten segments of ten rows."""
    made = NumpyStorage(tf.TensorSpec([10]), 100)
    made.set(np.arange(100), np.ones([100, 10]))
    return made


def values(folder):
    made = NumpyStorage(tf.TensorSpec([10]), 100)
    load(folder, {"rows": made})
    return made.get(np.arange(100))[:, 0]


def files(folder):
    paths = [path for path in folder.iterdir() if path.suffix == ".segment"]
    return {path.stat().st_ino for path in paths}


def test_only_what_changed_is_written(tmp_path, rows):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    assert save(one, {"rows": rows}) == 4000
    rows.set([15], np.full([1, 10], 2.0))
    assert save(two, {"rows": rows}, base=one) == 400
    rows.set([99], np.full([1, 10], 3.0))
    assert save(three, {"rows": rows}, base=str(two)) == 400
    assert len(files(one) & files(two) & files(three)) == 8
    expected = np.ones(100)
    np.testing.assert_array_equal(values(one), expected)
    expected[15] = 2
    np.testing.assert_array_equal(values(two), expected)
    shutil.rmtree(one)
    expected[99] = 3
    np.testing.assert_array_equal(values(three), expected)
    names = [entry.name for entry in three.iterdir() if ".seg" not in entry.name]
    assert sorted(names) == [".lock", "manifest.json"] and len(files(three)) == 10


def test_another_process_compares(tmp_path, rows):
    save(tmp_path / "one", {"rows": rows})
    other = NumpyStorage(tf.TensorSpec([10]), 100)
    other.set(np.arange(100), np.ones([100, 10]))
    other.set([3], np.full([1, 10], 5.0))
    assert save(tmp_path / "two", {"rows": other}, base=tmp_path / "one") == 400
    assert values(tmp_path / "two")[3] == 5


def test_segments_of_zeros(tmp_path, rows):
    save(tmp_path / "one", {"rows": rows})
    rows.set(np.arange(20), np.zeros([20, 10]))
    assert save(tmp_path / "two", {"rows": rows}, base=tmp_path / "one") == 0
    assert len(files(tmp_path / "two")) == 8
    assert values(tmp_path / "two").sum() == 80


@pytest.mark.parametrize(
    "trouble", ["some links", "manifest", "format", "segment", "size", "none"]
)
def test_all_is_written_where_nothing_can_be_shared(
    tmp_path, rows, monkeypatch, trouble
):
    base, folder = tmp_path / "base", tmp_path / "folder"
    save(base, {"rows": rows})
    segment = sorted(base.glob("*.segment"))[4]
    if trouble == "some links":
        left, link = [3], os.link

        def refuse(*args):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EPERM, "Operation not permitted")
            link(*args)

        monkeypatch.setattr(os, "link", refuse)
    elif trouble == "manifest":
        (base / "manifest.json").write_bytes(b"{}")
    elif trouble == "format":
        monkeypatch.setattr(_saved, "_FORMAT", 2)
    elif trouble == "segment":
        segment.unlink()
    elif trouble == "size":
        segment.write_bytes(segment.read_bytes()[:-1])
    else:
        base = tmp_path / "empty"
        base.mkdir()
    assert save(folder, {"rows": rows}, base=base) == 4000
    assert not files(folder) & files(base)
    assert values(folder).sum() == 100 and len(files(folder)) == 10


def test_a_folder_with_something_has_no_base(tmp_path, rows):
    save(tmp_path / "one", {"rows": rows})
    assert save(tmp_path / "one", {"rows": rows}, base=tmp_path / "one") == 0
    rows.set([0], np.full([1, 10], 2.0))
    save(tmp_path / "two", {"rows": rows})
    rows.set([0], np.ones([1, 10]))
    assert save(tmp_path / "two", {"rows": rows}, base=tmp_path / "one") == 400


def test_a_base_that_is_not_there_is_refused(tmp_path, rows):
    with pytest.raises(FileNotFoundError, match="`save`: `base` expected the folder"):
        save(tmp_path / "one", {"rows": rows}, base=tmp_path / "none")
    assert not (tmp_path / "one").exists()


def test_a_save_that_fails_leaves_the_base(tmp_path, rows, monkeypatch):
    save(tmp_path / "one", {"rows": rows})
    before = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    rows.set([0], np.full([1, 10], 2.0))

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "flush_to_disk", refuse)
        with pytest.raises(OSError, match="got No space left"):
            save(tmp_path / "two", {"rows": rows}, base=tmp_path / "one")
    after = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert after == before
    with pytest.raises(FileNotFoundError):
        values(tmp_path / "two")
    assert save(tmp_path / "two", {"rows": rows}, base=tmp_path / "one") == 400
