"""Tests of `tfrl._internal.plain_paths`."""

import pathlib

import pytest

from tfrl._internal import plain_paths


@pytest.mark.parametrize("name", ["seven", "*?{a,b}", "a]", "~"])
def test_what_tensorflow_takes_as_it_is_stays_so(name, tmp_path):
    with plain_paths.plain(tmp_path / name) as path:
        assert path == str(tmp_path / name)


@pytest.mark.parametrize("name", ["a[1]", "a\\b"])
def test_others_are_reached_by_a_link_that_goes(name, tmp_path, monkeypatch):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "file").write_text("there")
    monkeypatch.chdir(tmp_path)
    for given in (folder, name):
        with plain_paths.plain(given) as path:
            assert not set(path) & set("[\\")
            assert pathlib.Path(path, "file").read_text() == "there"
        assert not pathlib.Path(path).is_symlink()
    assert (folder / "file").is_file()
