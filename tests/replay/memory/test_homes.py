"""Where arrays live: what every home promises, and what systems may lack."""

import os
import pickle

import ml_dtypes
import numpy as np
import pytest

from tfrl.core import shapes
from tfrl.replay.memory import _homes, _row_layout

SPECS = [
    shapes.ShapeDtype((3,), np.int8),
    shapes.ShapeDtype((0,), np.float32),
    shapes.ShapeDtype((), ml_dtypes.bfloat16),
    shapes.ShapeDtype((2, 1), np.complex128),
    shapes.ShapeDtype((), "U3"),
]
LAYOUT = _row_layout.RowLayout(SPECS, 5)


@pytest.fixture(params=["memory", "folder", "segment"])
def home(request, tmp_path):
    if request.param == "memory":
        home = _homes.Memory(LAYOUT)
    elif request.param == "folder":
        home = _homes.Folder(LAYOUT, tmp_path)
    else:
        home = _homes.Segment(LAYOUT)
    yield home
    home.release()


def flat(array):
    return array.reshape(-1).view(np.uint8)


def test_arrays_are_zeros_apart_from_each_other(home):
    arrays = [home.array(k) for k in range(len(SPECS) + 1)]
    for array, leaf in zip(arrays, LAYOUT.leaves, strict=False):
        assert array.shape == (5, *leaf.shape)
        assert array.dtype == leaf.dtype
    for number, array in enumerate(arrays):
        assert array.flags.writeable and array.flags.c_contiguous
        assert not flat(array).any()
        flat(array)[...] = number
    for number, array in enumerate(arrays):
        assert (flat(array) == number).all()


def test_lasting_homes_find_their_arrays_again(home):
    for k in (0, 2, 5):
        flat(home.array(k))[...] = 1
        home.flush()
        assert flat(home.array(k)).all() == home.lasting
        assert home.exists(k) == home.lasting


def test_others_open_the_same(home):
    if home.lasting:
        data = pickle.dumps(home)
        other = pickle.loads(data)
        home.array(0)[2] = 7
        assert other.array(0)[2].tolist() == [7, 7, 7]
        other.release()
        assert pickle.loads(data).array(0)[2].tolist() == [7, 7, 7]


def test_another_process_removes_nothing(monkeypatch):
    segment = _homes.Segment(LAYOUT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        fork = _homes.Segment(LAYOUT, segment._name)
        fork._owned, fork._owner = segment._owned, segment._owner
        fork.release()
    assert segment._name in os.listdir("/dev/shm")
    segment.release()
    assert segment._name not in os.listdir("/dev/shm")


def test_a_segment_that_somebody_else_removed():
    segment = _homes.Segment(LAYOUT)
    os.unlink(f"/dev/shm/{segment._name}")
    segment.release()
    segment.release()


def test_systems_without_shared_files(monkeypatch, tmp_path):
    monkeypatch.setattr(_homes, "_SHARED", tmp_path / "none")
    with pytest.raises(ValueError, match="got a system without; pass path="):
        _homes.Segment(LAYOUT)


def test_systems_that_cannot_reserve(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "posix_fallocate")
    array = _homes.Folder(LAYOUT, tmp_path).array(0)
    assert array.shape == (5, 3) and not array.any()
