"""Tests of `tfrl.replay.disk._saved_folder`."""

import errno
import fcntl
import io
import itertools
import json
import os

import numpy as np
import pytest

from tfrl.core import durable
from tfrl.replay.disk import _saved_folder

STEP = 100


def part(segments):
    return _saved_folder.Part(["a/b", "c"], "things", 250, STEP, segments)


def filled(folder, *numbers, old=None):
    """Saves a part of segments of one number each; returns manifest and bytes."""
    with _saved_folder.Writer(folder, old, STEP) as writer:
        known = [] if old is None else old.parts[0].segments
        found = []
        for number, segment in itertools.zip_longest(numbers, known):
            buffer = writer.buffer()
            buffer[:90] = number
            found.append(writer.write(buffer, 90, segment))
        manifest = writer.finish([part(_saved_folder.results(found))])
    return manifest, writer.written


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def read(folder, segment, size=90):
    target = np.zeros(size, np.uint8)
    pieces = [target[:40], target[40:40], target[40:]]
    _saved_folder.read_segment("load", folder, segment, pieces)
    return target


def test_manifests_come_back(tmp_path):
    assert _saved_folder.read_manifest("load", tmp_path) is None
    manifest, written = filled(tmp_path, 1, 0, 2)
    assert _saved_folder.read_manifest("load", tmp_path) == manifest
    assert (manifest.generation, written) == (1, 180)
    (found,) = manifest.parts
    assert found._replace(segments=[]) == part([])
    assert found.segments[1] is None
    assert read(tmp_path, found.segments[2]).tolist() == [2] * 90
    assert sorted([*manifest.files(), "manifest.json"]) == names(tmp_path)


def test_equal_bytes_are_not_written_again(tmp_path):
    old, _ = filled(tmp_path, 1, 0, 2)
    new, written = filled(tmp_path, 1, 3, 0, old=old)
    assert written == 90 and new.key != old.key
    assert new.parts[0].segments[0] == old.parts[0].segments[0]
    assert len(names(tmp_path)) == 4
    (tmp_path / "mine.segment").touch()
    _saved_folder.remove_others(tmp_path, new)
    assert names(tmp_path) == sorted([*new.files(), "manifest.json", "mine.segment"])
    _saved_folder.remove_others(tmp_path, None)
    assert names(tmp_path) == ["manifest.json", "mine.segment"]


def test_more_segments_than_buffers(tmp_path):
    numbers = [k % 251 + 1 for k in range(40)]
    manifest, _ = filled(tmp_path, *numbers)
    for number, segment in zip(numbers, manifest.parts[0].segments, strict=True):
        assert (read(tmp_path, segment) == number).all()


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 12288, 16384])
def test_segments_are_written_whole(size, tmp_path):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    with _saved_folder.Writer(tmp_path, None, 1 << 14) as writer:
        buffer = writer.buffer()
        buffer[:size], buffer[size:] = data, 7
        segment = writer.write(buffer, size, None).result()
    assert (tmp_path / segment.file).read_bytes() == data.tobytes()


@pytest.mark.parametrize("trouble", [errno.EINVAL, errno.ENOSPC])
def test_disks_that_cannot_write_past_the_cache(trouble, tmp_path):
    class File(io.FileIO):
        def write(self, data):
            if fcntl.fcntl(self, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(trouble, "refused")
            return super().write(data[:3000])

    data = np.random.default_rng(0).integers(0, 256, 10_000, np.uint8)
    with File(tmp_path / "a", "wb") as file:
        if trouble == errno.EINVAL:
            _saved_folder._write_all(file, data.data)
            assert (tmp_path / "a").read_bytes() == data.tobytes()
        else:
            with pytest.raises(OSError, match="refused"):
                _saved_folder._write_all(file, data.data)


def test_large_segments_have_one_buffer():
    writer = _saved_folder.Writer(None, None, 1 << 26)
    assert writer._buffers.qsize() == 1


@pytest.mark.parametrize("block", ["raises", "disk"])
def test_failures_leave_what_was_there(tmp_path, monkeypatch, block):
    old, _ = filled(tmp_path, 1, 2)
    before = names(tmp_path)

    def refuse(*paths):
        raise OSError(28, "No space left on device")

    if block == "raises":
        with pytest.raises(KeyError):
            with _saved_folder.Writer(tmp_path, old, STEP) as writer:
                writer.write(np.ones(9, np.uint8), 9, None).result()
                assert names(tmp_path) != before
                raise KeyError
    else:
        monkeypatch.setattr(durable, "flush_to_disk", refuse)
        with pytest.raises(OSError, match="No space"):
            filled(tmp_path, *range(3, 50), old=old)
    assert names(tmp_path) == before
    assert _saved_folder.read_manifest("load", tmp_path) == old


def test_a_manifest_that_is_in_place_keeps_its_files(tmp_path, monkeypatch):
    old, _ = filled(tmp_path, 1)
    original = durable.replace_file

    def replace(path, data):
        original(path, data)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durable, "replace_file", replace)
    with pytest.raises(OSError, match="Input"):
        filled(tmp_path, 7, old=old)
    manifest = _saved_folder.read_manifest("load", tmp_path)
    assert read(tmp_path, manifest.parts[0].segments[0]).tolist() == [7] * 90


def test_damaged_segments(tmp_path):
    segment = filled(tmp_path, 1)[0].parts[0].segments[0]
    path = tmp_path / segment.file
    data = path.read_bytes()
    for wrong, trouble in [
        (data[:-1], "has 89 bytes instead of 90"),
        (data + b"1", "has 91 bytes instead of 90"),
        (b"\x03" + data[1:], "is not as it was written"),
    ]:
        path.write_bytes(wrong)
        for targets in (None, [np.zeros(90, np.uint8)]):
            with pytest.raises(ValueError, match=f"{segment.file}, which {trouble}"):
                _saved_folder.read_segment("load", tmp_path, segment, targets)
    path.unlink()
    with pytest.raises(ValueError, match="is missing; restore it from a copy"):
        _saved_folder.read_segment("load", tmp_path, segment)


def test_large_segments_are_compared_in_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(_saved_folder, "_PAGE_BYTES", 40)
    segment = filled(tmp_path, 1)[0].parts[0].segments[0]
    _saved_folder.read_segment("load", tmp_path, segment)
    with pytest.raises(ValueError, match="is not as"):
        wrong = segment._replace(digest="0" * 64)
        _saved_folder.read_segment("load", tmp_path, wrong)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b"3", b"null", b"\xff"])
def test_other_manifests(tmp_path, data):
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(ValueError, match="`save`: `folder`.*json, which is not as it"):
        _saved_folder.read_manifest("save", tmp_path)


def test_changed_manifests(tmp_path):
    filled(tmp_path, 1)
    path = tmp_path / "manifest.json"
    data = path.read_bytes()
    for wrong in (data.replace(b"250", b"251"), data + b" ", data[:-1]):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="is not as it was written"):
            _saved_folder.read_manifest("load", tmp_path)


def test_other_formats(tmp_path):
    filled(tmp_path, 1)
    path = tmp_path / "manifest.json"
    body = json.loads(path.read_bytes())["manifest"]
    path.write_bytes(durable.sealed({**body, "format": 2}))
    with pytest.raises(ValueError, match="`load`.*format 1; got format 2 in .*; use"):
        _saved_folder.read_manifest("load", tmp_path)
