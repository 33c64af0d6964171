"""Tests of `tfrl._internal.regular_files`."""

import os

import pytest

from tfrl._internal import regular_files


def test_only_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert regular_files.read_file(tmp_path / "file") == b"content"
    assert regular_files.read_file(tmp_path / "link") == b"content"
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="no regular file"):
            regular_files.read_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        regular_files.read_file(tmp_path / "nothing")
