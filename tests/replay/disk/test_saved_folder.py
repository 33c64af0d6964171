"""Tests of `tfrl.replay.disk._saved_folder`."""

import itertools
import json

import numpy as np
import pytest

from tfrl._internal import durable, sealed_folder
from tfrl.replay.disk import _saved_folder

STEP = 100


def part(segments):
    return _saved_folder.Part(["a/b", "c"], "things", 250, STEP, segments)


def filled(folder, *numbers, old=None):
    """Saves a part of segments of one number each; returns manifest and bytes."""
    with _saved_folder.Writer(folder, old) as writer:
        known = [] if old is None else old.parts[0].segments
        found = [
            writer.write(bytes([number]) * 90, segment)
            for number, segment in itertools.zip_longest(numbers, known)
        ]
        manifest = writer.finish([part(found)])
    return manifest, writer.written


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def read(folder, segment):
    data = _saved_folder.read_segment("load", folder, segment)
    return np.frombuffer(data, np.uint8)


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


@pytest.mark.parametrize("block", ["raises", "disk"])
def test_failures_leave_what_was_there(tmp_path, monkeypatch, block):
    old, _ = filled(tmp_path, 1, 2)
    before = names(tmp_path)

    def refuse(*paths):
        raise OSError(28, "No space left on device")

    if block == "raises":
        with pytest.raises(KeyError):
            with _saved_folder.Writer(tmp_path, old) as writer:
                writer.write(bytes(range(9)), None)
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
        with pytest.raises(ValueError, match=f"{segment.file}, which {trouble}"):
            _saved_folder.read_segment("load", tmp_path, segment)
    path.unlink()
    with pytest.raises(ValueError, match="is missing; restore it from a copy"):
        _saved_folder.read_segment("load", tmp_path, segment)


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
    path.write_bytes(sealed_folder.sealed({**body, "format": 2}))
    with pytest.raises(ValueError, match="`load`.*format 1; got format 2 in .*; use"):
        _saved_folder.read_manifest("load", tmp_path)
