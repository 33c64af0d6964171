"""Tests of `tfrl._internal.refusals`."""

import pathlib

import pytest
import tensorflow as tf

from tfrl._internal import refusals


def test_paths():
    for path in ("run", pathlib.Path("run")):
        assert refusals.as_path("save", "folder", path) == pathlib.Path("run")
    for wrong in (None, 3, b"run", ["run"]):
        with pytest.raises(TypeError, match="`save`: `folder` expected a path; got"):
            refusals.as_path("save", "folder", wrong)


def test_eager():
    refusals.check_eager("save")
    with pytest.raises(ValueError, match="`save`: expected to be called outside"):
        tf.function(lambda: refusals.check_eager("save"))()


def test_texts():
    for right in ([], ("a",), {"a"}, ["a", "b"]):
        refusals.check_texts("load", "names", right)
    for wrong in ("a", None, [3], iter("a"), {"a": 1}):
        with pytest.raises(TypeError, match="`load`: `names` expected a list of texts"):
            refusals.check_texts("load", "names", wrong)
