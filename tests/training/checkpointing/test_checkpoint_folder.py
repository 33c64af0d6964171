"""Tests of `tfrl.training.checkpointing._checkpoint_folder`."""

import pytest
import tensorflow as tf

from tfrl.training.checkpointing import (
    _checkpoint_folder,
    _checkpointed,
    _matching,
    _sealed_folder,
)


@pytest.fixture
def folder(tmp_path):
    def write(step, score=None, **items):
        path = tmp_path / f"ckpt-{step}"
        path.mkdir()
        parts = _checkpointed.Parts("test", items or {"w": tf.Variable(float(step))})
        _checkpoint_folder.write(path, step, score, parts)
        return path

    return write


def test_steps_are_sorted_as_numbers(folder, tmp_path):
    for step in (100, 9, 20):
        folder(step)
    (tmp_path / "ckpt-007").mkdir()
    (tmp_path / ".writing-ckpt-8").mkdir()
    assert _checkpoint_folder.steps(tmp_path) == [9, 20, 100]


def test_best_has_the_highest_score_and_of_equals_the_newest(folder, tmp_path):
    for step, score in [(1, 2.0), (2, 2.0), (3, None), (4, -5.0), (10, 9.0)]:
        folder(step, score)
    (tmp_path / "ckpt-10" / "structure.json").write_bytes(b"{}")
    assert _checkpoint_folder.best(tmp_path) == 2


def test_written_is_read(folder):
    path = folder(3, 0.5, a=tf.Variable([1.0, 2.0]))
    (body,) = used(path)
    assert (body["step"], body["score"]) == (3, 0.5)
    assert _matching.names(body) == ["a"]
    values = _checkpoint_folder.read_arrays(path, {"a": tf.TensorSpec([2])})
    assert values["a"].numpy().tolist() == [1.0, 2.0]


def used(*folders):
    found = []
    _checkpoint_folder.use("test", folders, lambda folder, body: found.append(body))
    return found


def test_formats_of_later_versions_are_refused(tmp_path):
    _sealed_folder.seal(tmp_path, "structure.json", {"format": 3})
    with pytest.raises(ValueError, match="`test`: .* format 2; got format 3"):
        used(tmp_path)


def test_only_damaged_ones_are_an_error(folder, tmp_path):
    paths = [folder(1), folder(2)]
    for path in paths:
        (path / "structure.json").write_bytes(b"{}")
    with (
        pytest.warns(UserWarning, match="ckpt-[12] is damaged"),
        pytest.raises(ValueError, match="got only damaged ones"),
    ):
        used(*paths)
    with pytest.raises(ValueError, match="got .*ckpt-1, damaged .*; take another"):
        used(paths[0])


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
        ("a.b", "", True),
        ("a.b", "a", True),
        ("a.b", "a.", True),
        ("a.b", "a.b", True),
        ("a.bc", "a.b", False),
        ("a", "a.b", False),
    ],
)
def test_prefixes_are_whole_words(name, prefix, expected):
    assert _checkpoint_folder.is_part(name, prefix) is expected
