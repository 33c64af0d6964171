"""Tests of `tfrl.training.checkpointing._sealed_folder`."""

import json

import pytest

from tfrl.training.checkpointing import _sealed_folder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "inner").mkdir()
    _sealed_folder.seal(tmp_path, "manifest.json", {"step": 3})
    return tmp_path


def test_what_was_sealed_is_read_back(folder):
    body = _sealed_folder.unseal(folder, "manifest.json")
    _sealed_folder.compare_files(folder, body)
    assert body["step"] == 3 and list(body["files"]) == ["a"]


def test_files_of_inner_folders(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b").write_bytes(b"content")
    (tmp_path / "a").write_bytes(b"")
    assert list(_sealed_folder.digests(tmp_path)) == ["a"]
    found = _sealed_folder.digests(tmp_path, ["inner/b"])
    assert list(found) == ["a", "inner/b"]
    _sealed_folder.compare_files(tmp_path, {"files": found})
    (tmp_path / "inner" / "b").unlink()
    with pytest.raises(_sealed_folder.DamageError, match="inner/b cannot be read"):
        _sealed_folder.compare_files(tmp_path, {"files": found})


@pytest.mark.parametrize("data", [b"contenT", b"", b"content "])
def test_changed_files_are_found(folder, data):
    (folder / "a").write_bytes(data)
    body = _sealed_folder.unseal(folder, "manifest.json")
    with pytest.raises(_sealed_folder.DamageError, match="a is not as it was written"):
        _sealed_folder.compare_files(folder, body)


def test_missing_files_are_found(folder):
    (folder / "a").unlink()
    body = _sealed_folder.unseal(folder, "manifest.json")
    with pytest.raises(_sealed_folder.DamageError, match="a cannot be read"):
        _sealed_folder.compare_files(folder, body)


def test_a_changed_manifest_is_found(folder):
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    whole["manifest"]["step"] = 4
    path.write_text(json.dumps(whole))
    with pytest.raises(_sealed_folder.DamageError, match="not as it was written"):
        _sealed_folder.unseal(folder, "manifest.json")
    path.unlink()
    with pytest.raises(_sealed_folder.DamageError, match="cannot be read"):
        _sealed_folder.unseal(folder, "manifest.json")
