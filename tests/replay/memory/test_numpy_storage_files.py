"""Rows in files, and files that are something else."""

import errno
import json
import os
import pathlib
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory.numpy_storage import NumpyStorage

SPEC = {"x": tf.TensorSpec([3]), "n": tf.TensorSpec([], tf.int64)}


def row(number):
    return {"x": np.full(3, number), "n": np.array(number)}


def contents(folder):
    return {file.name: file.read_bytes() for file in pathlib.Path(folder).iterdir()}


def test_files_are_made_when_rows_are_touched(tmp_path):
    storage = NumpyStorage(SPEC, 4, path=tmp_path)
    assert list(contents(tmp_path)) == ["storage.json"]
    assert json.loads(contents(tmp_path)["storage.json"]) == {
        "format": 1,
        "contents": "4 rows of {'n': int64[], 'x': float32[3]}",
    }
    storage.get(0)
    leaves = ["leaf-0.bin", "leaf-1.bin"]
    assert sorted(contents(tmp_path)) == ["changes.bin", *leaves, "storage.json"]
    assert len(contents(tmp_path)["leaf-1.bin"]) == 4 * 3 * 4


def test_flush_and_objects_of_the_same_folder(tmp_path):
    storage = NumpyStorage(SPEC, 4, path=tmp_path)
    storage.flush()
    other = pickle.loads(pickle.dumps(storage))
    storage.set(1, row(9))
    storage.flush()
    assert other.get(1)["n"] == 9
    assert contents(tmp_path)["leaf-0.bin"] == np.array([0, 9, 0, 0]).tobytes()


@pytest.mark.parametrize(
    "spec, capacity, message",
    [
        (SPEC, 5, "to hold 5 rows of .*; got .* of 4 rows of"),
        (
            {**SPEC, "n": tf.TensorSpec([])},
            4,
            r"4 rows of {'n': float32\[\].* of 4 rows",
        ),
        (tuple(SPEC.values()), 4, r"to hold 4 rows of \(float32\[3\], int64\[\],\)"),
    ],
    ids=["capacity", "dtype", "container"],
)
def test_a_folder_of_another_storage(spec, capacity, message, tmp_path):
    with NumpyStorage(SPEC, 4, path=tmp_path) as storage:
        storage.set(2, row(5))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"`NumpyStorage`: `path` .*{message}"):
        NumpyStorage(spec, capacity, path=tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "header, message",
    [
        (b"", "damaged files"),
        (b"[1]", "damaged files"),
        (b'{"format": 2, "contents": "2 rows of int8[]"}', "in another format"),
    ],
    ids=["empty", "list", "format"],
)
def test_another_header(header, message, tmp_path):
    (tmp_path / "storage.json").write_bytes(header)
    with pytest.raises(ValueError, match=message):
        NumpyStorage(tf.TensorSpec([], tf.int8), 2, path=tmp_path)
    assert contents(tmp_path) == {"storage.json": header}


def test_a_file_of_another_size(tmp_path):
    with NumpyStorage(SPEC, 4, path=tmp_path) as storage:
        storage.set(2, row(5))
    os.truncate(tmp_path / "leaf-1.bin", 20)
    with pytest.raises(ValueError, match=r"expected 48 bytes in .*leaf-1.bin; got 20"):
        NumpyStorage(SPEC, 4, path=tmp_path)
    assert len(contents(tmp_path)["leaf-1.bin"]) == 20


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="a storage or an empty folder; .*thesis.tex"):
        NumpyStorage(SPEC, 4, path=tmp_path)
    assert list(contents(tmp_path)) == ["thesis.tex"]


def test_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "rows"):
        with pytest.raises(OSError, match="file"):
            NumpyStorage(SPEC, 4, path=path)
    with pytest.raises(OSError, match="proc"):
        NumpyStorage(SPEC, 4, path="/proc/rows")


def test_no_room_at_all(tmp_path):
    storage = NumpyStorage(SPEC, 1 << 46, path=tmp_path)
    with pytest.raises(OSError, match="`capacity` expected to fit into the .* bytes"):
        storage.set(2, row(5))
    assert contents(tmp_path)["leaf-0.bin"] == b""
    # The storage is as it was: also for the next one who opens it.
    assert not NumpyStorage(SPEC, 1 << 46, path=tmp_path).exists


def test_room_that_ends(tmp_path, monkeypatch):
    storage = NumpyStorage(SPEC, 4, path=tmp_path)
    reserve = os.posix_fallocate

    def full(file, offset, size):
        reserve(file, offset, size // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            storage.set(2, row(5))
    monkeypatch.delattr(os, "posix_fallocate")  # as on some systems
    storage.set(1, row(6))
    assert storage.get(slice(None))["n"].tolist() == [0, 6, 0, 0]
