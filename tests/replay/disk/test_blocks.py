import os

import ml_dtypes
import numpy as np
import pytest

from tfrl.core import shapes
from tfrl.replay import _row_layout
from tfrl.replay.disk import _blocks

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
        home = _blocks.Memory(LAYOUT)
    elif request.param == "folder":
        home = _blocks.Folder(LAYOUT, tmp_path)
    else:
        home = _blocks.Segment(LAYOUT)
    yield home
    home.release()


def test_arrays_are_zeros_apart_from_each_other(home):
    arrays = [block.array() for block in home.blocks]
    for array, leaf in zip(arrays, LAYOUT.leaves, strict=True):
        assert array.shape == (5, *leaf.shape)
        assert array.dtype == leaf.dtype
        assert array.flags.writeable and array.flags.c_contiguous
        assert not array.view(np.uint8).any()
        if array.size:
            assert array.ctypes.data % _blocks.ALIGNMENT == 0
    for number, array in enumerate(arrays):
        array.reshape(-1).view(np.uint8)[...] = number
    for number, array in enumerate(arrays):
        assert (array.reshape(-1).view(np.uint8) == number).all()


def test_lasting_blocks_find_their_array_again(home):
    for block in home.blocks:
        if block.array().size:
            block.array().reshape(-1).view(np.uint8)[...] = 1
            block.flush()
            again = block.array().reshape(-1).view(np.uint8)
            assert again.all() == block.lasting
            assert block.exists() == block.lasting


def test_others_open_the_same(home):
    if isinstance(home, _blocks.Folder | _blocks.Segment):
        make, place = home.others_open()
        other = make(LAYOUT, place)
        home.blocks[0].array()[2] = 7
        assert other.blocks[0].array()[2].tolist() == [7, 7, 7]
        other.release()
        assert make(LAYOUT, place).blocks[0].array()[2].tolist() == [7, 7, 7]


def test_another_process_removes_nothing(monkeypatch):
    segment = _blocks.Segment(LAYOUT)
    _, name = segment.others_open()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        fork = _blocks.Segment(LAYOUT, name)
        fork._owned, fork._owner = segment._owned, segment._owner
        fork.release()
    assert name in os.listdir("/dev/shm")
    segment.release()
    assert name not in os.listdir("/dev/shm")


def test_a_segment_that_somebody_else_removed():
    segment = _blocks.Segment(LAYOUT)
    os.unlink(f"/dev/shm/{segment.others_open()[1]}")
    segment.release()
    segment.release()


def test_systems_without_shared_files(monkeypatch, tmp_path):
    monkeypatch.setattr(_blocks, "_SHARED", tmp_path / "none")
    with pytest.raises(ValueError, match="got a system without; pass path="):
        _blocks.Segment(LAYOUT)


def test_systems_that_cannot_reserve(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "posix_fallocate")
    array = _blocks.Folder(LAYOUT, tmp_path).blocks[0].array()
    assert array.shape == (5, 3) and not array.any()
