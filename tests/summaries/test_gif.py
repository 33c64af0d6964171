"""Tests of `tfrl.summaries._gif`."""

import pathlib
import sys

import pytest

from tfrl.summaries import _gif


def test_pillow_is_returned_or_asked_for(monkeypatch):
    assert callable(_gif.imported_pillow("film").fromarray)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="`film`: expected Pillow; found none; run"):
        _gif.imported_pillow("film")


def test_paths_end_in_gif():
    for path in ("a.gif", pathlib.Path("a", "B.GIF")):
        assert _gif.checked_path("film", "path", path) == str(path)
    with pytest.raises(ValueError, match="`film`: `path` expected to end in .gif; got"):
        _gif.checked_path("film", "path", "a.png")
