"""Tests of `tfrl.replay.memory._changes`."""

import multiprocessing

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory import _changes, numpy_storage

SPEC = {"x": tf.TensorSpec([2]), "n": tf.TensorSpec([], tf.int64)}  # 16 bytes


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_changes, "_SEGMENT_BYTES", 70)  # 4 rows


@pytest.fixture(params=["memory", "path", "shared"])
def storage(request, tmp_path):
    path = tmp_path / "rows" if request.param == "path" else None
    shared = request.param == "shared"
    with numpy_storage.NumpyStorage(SPEC, 11, path=path, shared=shared) as made:
        yield made


def value(count=None):
    shape = () if count is None else (count,)
    return {"x": np.ones((*shape, 2), np.float32), "n": np.ones(shape, np.int64)}


def changed(storage, act):
    """Returns which segments changed by what is done."""
    before = storage.changes.gather()
    act()
    same = _changes.unchanged(storage.changes.gather(), before)
    return np.flatnonzero(~same).tolist()


def test_segments_are_as_large_as_they_may_be():
    segments = numpy_storage.NumpyStorage(SPEC, 11).changes.segments
    assert (segments.row_bytes, segments.rows, segments.count) == (16, 4, 3)
    large = numpy_storage.NumpyStorage(tf.TensorSpec([100]), 3).changes.segments
    assert (large.rows, large.count) == (1, 3)
    empty = numpy_storage.NumpyStorage(tf.TensorSpec([0]), 3).changes.segments
    assert (empty.row_bytes, empty.rows, empty.count) == (0, 3, 1)


@pytest.mark.parametrize(
    ("rows", "segments"),
    [
        (0, [0]),
        (-1, [2]),
        (slice(3, 5), [0, 1]),
        (slice(None, None, 8), [0, 2]),
        ([4, 5, 7, 4], [1]),
        (np.array([[0], [10]]), [0, 2]),
        (np.arange(11) == 6, [1]),
        ([], []),
    ],
    ids=["int", "negative", "slice", "steps", "list", "array", "bools", "none"],
)
def test_set_changes_the_segments_of_its_rows(storage, rows, segments):
    storage.set(0, value())
    assert changed(storage, lambda: storage.set(rows, value())) == segments
    assert changed(storage, lambda: None) == []


def test_a_refused_set_changes_nothing(storage):
    def act():
        with pytest.raises(ValueError, match="expected shape"):
            storage.set(0, value(3))

    assert changed(storage, act) == []


def test_reading_copies_changes_nothing(storage):
    storage.set(0, value())

    def act():
        storage.get([1, 2])
        storage.get(slice(0, 9), out=value(9))

    assert changed(storage, act) == []


@pytest.mark.parametrize(
    ("rows", "segments"),
    [(5, [1]), (-1, [2]), (slice(3, 5), [0, 1]), (slice(9, 2, -1), [0, 1, 2])],
)
def test_who_has_views_may_always_have_written(storage, rows, segments):
    storage.get(rows)
    for _ in range(2):
        assert changed(storage, lambda: None) == segments
    storage.get(slice(2, 2))
    storage.set(slice(None), value())
    assert changed(storage, lambda: None) == segments


def test_restoring_a_checkpoint_changes_everything(storage, tmp_path):
    storage.set(slice(None), value())
    path = tf.train.Checkpoint(storage=storage).write(str(tmp_path / "c"))

    def restore():
        tf.train.Checkpoint(storage=storage).read(path)

    assert changed(storage, restore) == [0, 1, 2]
    fresh = numpy_storage.NumpyStorage(SPEC, 11)
    saved = fresh.changes.saved("")
    assert _changes.unchanged(fresh.changes.gather(), saved).all()
    tf.train.Checkpoint(storage=fresh).read(path)
    assert not _changes.unchanged(fresh.changes.gather(), saved).any()


def test_what_was_saved_is_known_by_its_key():
    changes = numpy_storage.NumpyStorage(SPEC, 11).changes
    assert _changes.unchanged(changes.gather(), changes.saved("")).all()
    for key in "abcdefghij":
        changes.touch(4)
        changes.remember(key, changes.gather())
    for key, segments in [("j", []), ("i", [1]), ("d", [1]), ("a", [0, 1, 2])]:
        same = _changes.unchanged(changes.gather(), changes.saved(key))
        assert np.flatnonzero(~same).tolist() == segments
    changes.touch_all()
    assert not _changes.unchanged(changes.gather(), changes.saved("j")).any()


def test_nothing_is_known_of_rows_that_others_made(tmp_path):
    numpy_storage.NumpyStorage(SPEC, 11, path=tmp_path).set(0, value())
    assert numpy_storage.NumpyStorage(SPEC, 11, path=tmp_path).changes.saved("") is None


@pytest.mark.parametrize("kind", ["path", "shared"])
def test_processes_share_what_changed(kind, tmp_path):
    path = tmp_path / "rows" if kind == "path" else None
    with numpy_storage.NumpyStorage(
        SPEC, 11, path=path, shared=kind == "shared"
    ) as storage:
        storage.set(0, value())

        def act():
            process = multiprocessing.get_context("fork").Process(
                target=storage.set, args=([6], value(1))
            )
            process.start()
            process.join(60)

        assert changed(storage, act) == [1]
