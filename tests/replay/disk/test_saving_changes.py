"""Tests of `tfrl.replay.disk.saving`: a second save writes what changed, all of it."""

import multiprocessing
import shutil
import threading

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf

from tfrl._internal import durable
from tfrl.replay.data_buffer import DataBuffer
from tfrl.replay.disk import _parts
from tfrl.replay.disk.saving import load, save
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.memory import _homes
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.ring_buffer import RingBuffer
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.uniform import UniformReplay

SPEC = {"x": tf.TensorSpec([3]), "n": tf.TensorSpec([], tf.int32)}
ROW, STEP = 16, 64  # bytes of a row and of a segment


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", STEP)
    monkeypatch.setattr(_parts, "_PIECE_BYTES", STEP)


def rows(number, count=None):
    shape = () if count is None else (count,)
    return {
        "x": np.full((*shape, 3), number, np.float32),
        "n": np.full(shape, number, np.int32),
    }


def storage(kind="memory", folder=None, capacity=40):
    path = folder / "rows" if kind == "path" else None
    return NumpyStorage(SPEC, capacity, path=path, shared=kind == "shared")


def assert_saved(folder, objects, fresh):
    """What is in a folder is what objects hold: all bytes of all rows."""
    load(folder, fresh)
    for one, other in zip(every_array(objects), every_array(fresh), strict=True):
        np.testing.assert_array_equal(other, one, strict=True)


def every_array(objects):
    parts, _ = _parts.found("load", objects)
    for part in parts:
        part.freeze()
        data = b"".join(part.read(k) for k in range(part.count))
        yield np.frombuffer(data or bytes(part.size), np.uint8)


@pytest.mark.parametrize("kind", ["memory", "path", "shared"])
def test_only_segments_that_changed_are_written(kind, tmp_path):
    with storage(kind, tmp_path) as one:
        one.set(slice(None), rows(1, 40))
        objects, folder = {"rows": one}, tmp_path / "s"
        assert save(folder, objects) == 40 * ROW
        assert save(folder, objects) == 0
        for k, (changed, segments) in enumerate(
            [
                ([5], 1),
                (-1, 1),
                ([3, 4, 3], 2),
                (slice(0, 40, 9), 5),
                (np.arange(40) == 6, 1),
                (np.array([[0], [39]]), 2),
                ([], 0),
                (slice(None), 10),
            ]
        ):
            one.set(changed, rows(k + 2))
            assert save(folder, objects) == segments * STEP
            with pytest.raises(ValueError, match="expected shape"):
                one.set(0, rows(1, 3))
            one.get([1, 2])
            one.get(slice(0, 9), out=rows(1, 9))
            assert save(folder, objects) == 0
        one.set([17], rows(0))
        assert save(folder, objects) == STEP
        one.set(slice(None), rows(0))
        assert save(folder, objects) == 0
        assert_saved(folder, objects, {"rows": storage()})


def test_files_that_are_not_needed_are_removed(tmp_path):
    one = storage()
    one.set(slice(None), rows(1, 40))
    save(tmp_path, {"rows": one})
    for k in range(5):
        one.set(k, rows(k + 2))
        save(tmp_path, {"rows": one})
        assert len(list(tmp_path.glob("*.segment"))) == 10
    (tmp_path / "00000099-000000.segment").write_bytes(b"left by a kill")
    (tmp_path / ".writing-manifest.json").write_bytes(b"left by a kill")
    (tmp_path / "mine.txt").touch()
    save(tmp_path, {"rows": one})
    assert len(list(tmp_path.iterdir())) == 10 + 3
    save(tmp_path, {"other": storage(capacity=4)})
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(ValueError, match="what was saved, other; got 'rows'"):
        load(tmp_path, {"rows": one})


def test_what_is_written_through_views_is_saved(tmp_path):
    one = storage()
    one.set(slice(None), rows(1, 40))
    some, single = one.get(slice(2, 6)), one.get(20)
    objects = {"rows": one}
    save(tmp_path, objects)
    assert save(tmp_path, objects) == 0
    some["n"][3] = 7
    assert save(tmp_path, objects) == STEP
    single["x"][:] = 9
    one.set(20 + 4, rows(3))
    assert save(tmp_path, objects) == 2 * STEP
    one.arrays[1][39] = 11.0
    one.touch(39)
    assert save(tmp_path, objects) == STEP
    one.get(slice(9, 2, -1))["n"][0] = 3  # and at once, from then on, all between
    one.get(slice(2, 2))
    assert save(tmp_path, objects) == STEP
    assert_saved(tmp_path, objects, {"rows": storage()})


@pytest.mark.parametrize("folders", [2, 9])
def test_folders_in_turns(folders, tmp_path):
    one = storage()
    one.set(slice(None), rows(1, 40))
    objects = {"rows": one}
    for k in range(3 * folders):
        folder = tmp_path / str(k % folders)
        one.set(4 * (k % 10), rows(k + 2))
        written = 10 if k < folders else min(folders, 10)
        assert save(folder, objects) == written * STEP
        assert_saved(folder, objects, {"rows": storage()})


def test_a_folder_that_somebody_else_saved_to(tmp_path):
    one, other = storage(), storage()
    one.set(slice(None), rows(1, 40))
    other.set(slice(None), rows(1, 40))
    other.set([1], rows(5))
    save(tmp_path / "a", {"rows": one})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert save(tmp_path / "a", {"rows": other}) == STEP
    assert save(tmp_path / "a", {"rows": one}) == STEP
    assert_saved(tmp_path / "a", {"rows": one}, {"rows": storage()})
    shutil.rmtree(tmp_path / "a")
    shutil.move(tmp_path / "b", tmp_path / "a")
    one.set([30], rows(5))
    assert save(tmp_path / "a", {"rows": one}) == STEP
    assert_saved(tmp_path / "a", {"rows": one}, {"rows": storage()})
    shutil.rmtree(tmp_path / "a")
    assert save(tmp_path / "a", {"rows": one}) == 10 * STEP


def in_a_fork(function, *args):
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("kind", ["memory", "path", "shared"])
def test_other_processes_write_and_save(kind, tmp_path):
    with storage(kind, tmp_path) as one:
        one.set(slice(None), rows(1, 40))
        objects, folder = {"rows": one}, tmp_path / "s"
        save(folder, objects)

        def child():
            one.set([8], rows(2))
            assert save(folder if kind == "memory" else f"{folder}2", objects)

        in_a_fork(child)
        one.set([20], rows(3))
        assert save(folder, objects) == 2 * STEP
        assert_saved(folder, objects, {"rows": storage()})


def test_rows_in_files_that_are_opened_again(tmp_path):
    storage("path", tmp_path).set(slice(None), rows(1, 40))
    save(tmp_path / "s", {"rows": storage("path", tmp_path)})
    storage("path", tmp_path).set([9], rows(2))
    one = {"rows": storage("path", tmp_path)}
    assert save(tmp_path / "s", one) == STEP
    assert_saved(tmp_path / "s", one, {"rows": storage()})


def test_what_was_loaded_is_not_written_again(tmp_path):
    one, other = storage(), storage()
    one.set(slice(3, 30), rows(1, 27))
    save(tmp_path / "a", {"rows": one})
    load(tmp_path / "a", {"rows": other})
    assert save(tmp_path / "a", {"rows": other}) == 0
    other.set([39], rows(2))
    assert save(tmp_path / "a", {"rows": other}) == STEP
    assert_saved(tmp_path / "a", {"rows": other}, {"rows": storage()})
    assert save(tmp_path / "b", {"rows": other}) == 9 * STEP
    load(tmp_path / "a", {"rows": one})
    one.set([39], rows(3))
    load(tmp_path / "a", {"rows": one})
    assert one.get(39)["n"] == 2


def test_restoring_a_checkpoint_between_saves(tmp_path):
    one = storage()
    one.set(slice(None), rows(1, 40))
    path = tf.train.Checkpoint(rows=one).write(str(tmp_path / "c"))
    one.set([8], rows(2))
    save(tmp_path / "s", {"rows": one})
    tf.train.Checkpoint(rows=one).read(path)
    assert save(tmp_path / "s", {"rows": one}) == STEP
    assert_saved(tmp_path / "s", {"rows": one}, {"rows": storage()})


@pytest.mark.parametrize("make", [RingBuffer, DataBuffer], ids=["ring", "data"])
def test_buffers_write_what_they_added(make, tmp_path):
    sizes = (3, 40) if make is RingBuffer else (120,)
    one, other = make(SPEC, *sizes), make(SPEC, *sizes)
    rng = np.random.default_rng(0)
    written = []
    for k in range(20):
        for _ in range(rng.integers(1, 4)):
            if make is DataBuffer:
                one.add_batch(rows(k, rng.integers(0, 9)))
            elif rng.random() < 0.5:
                one.enqueue(rows(k, 3))
            else:
                one.enqueue(rows(k, 2), env_ids=rng.permutation(3)[:2])
        if rng.random() < 0.1:
            one.clear()
        written.append(save(tmp_path, {"it": one}))
        assert_saved(tmp_path, {"it": one}, {"it": other})
    assert max(written[1:]) < 15 * STEP  # of 30, and the positions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("memory", 0),
        ("path", 1),
        ("shared", 2),
        *(pytest.param("memory", seed, marks=pytest.mark.slow) for seed in (1, 2)),
        *(pytest.param("path", seed, marks=pytest.mark.slow) for seed in (0, 2)),
        *(pytest.param("shared", seed, marks=pytest.mark.slow) for seed in (0, 1)),
    ],
)
def test_stores_write_what_they_added(kind, seed, tmp_path):
    def stream(name):
        path = {"path": tmp_path / name} if kind == "path" else {}
        return replay_episodes.Stream(3, 11, shared=kind == "shared", **path)

    rng = np.random.default_rng(seed)
    both, other = stream("one"), stream("other")
    replay, fresh = (PrioritizedReplay(each.store, seed=0) for each in (both, other))
    checkpoint = tf.train.Checkpoint(replay=replay)
    for k in range(15):
        both.run(100 * seed + k, int(rng.integers(0, 8)), ends=0.15)
        if rng.random() < 0.2:
            both.store.cut()
            for env in range(3):
                both.model.cut(env)
        if replay.size and rng.random() < 0.5:
            replay.update_priorities(replay.sample(5).indices, rng.random(5))
        if rng.random() < 0.2:
            kept = checkpoint.write(str(tmp_path / "c"))
            both.store.cut()
            save(tmp_path / "other", {"replay": replay})
            checkpoint.read(kept)
        save(tmp_path / "s", {"replay": replay})
        assert_saved(tmp_path / "s", {"replay": replay}, {"replay": fresh})
        if rng.random() < 0.2:
            load(tmp_path / "s", {"replay": replay})


def test_a_large_store_writes_little(tmp_path, monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 40 * 20)
    monkeypatch.setattr(_parts, "_PIECE_BYTES", 1 << 20)
    both = replay_episodes.Stream(4, 1000)
    both.run(0, 500, ends=0.05)
    replay = UniformReplay(both.store, seed=0)
    save(tmp_path, {"replay": replay})
    both.run(1, 5, ends=0.05)
    ends = 5 * 4  # rows; of marks those of whole episodes
    assert save(tmp_path, {"replay": replay}) < 40 * (ends + 60) + 24 * 4 * 200 + 1000


def numbered(capacity=200):
    """Returns a store, and a function that adds a step whose numbers are its index."""
    store = EpisodeStore(tf.TensorSpec([3]), tf.TensorSpec([], tf.int32), capacity)

    def add(ends=False):
        index = int(store.steps.upcoming[0])
        store.add(
            np.full([1, 3], index, np.float32),
            [index],
            [float(index)],
            [ends],
            [False],
            np.full([1, 3], index + 1, np.float32),
        )

    return store, add


@pytest.mark.slow
def test_a_store_is_used_while_it_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 50 * 18)
    store, add = numbered()
    for k in range(300):
        add(k % 17 == 16)
    stopped, added = threading.Event(), []

    def work():
        while not stopped.is_set():
            add(len(added) % 17 == 16)
            added.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            save(tmp_path, {"store": store})
            fresh, _ = numbered()
            load(tmp_path, {"store": fresh})
            columns = fresh.steps.columns()
            rows = np.arange(200)
            there = fresh.steps.ends(rows) > columns.indices
            steps = fresh.get(columns.indices[there])
            assert there.sum() > 150
            np.testing.assert_array_equal(steps.actions, columns.indices[there])
            np.testing.assert_array_equal(steps.observations[:, 1], steps.actions)
    finally:
        stopped.set()
        thread.join()
    assert added


def test_the_lock_is_free_while_most_is_written(tmp_path, monkeypatch):
    store, add = numbered()
    for _ in range(150):
        add()
    busy, go_on, original = threading.Event(), threading.Event(), durable.flush_to_disk

    def flush(*paths):
        busy.set()
        go_on.wait(60)
        original(*paths)

    monkeypatch.setattr(durable, "flush_to_disk", flush)
    thread = threading.Thread(target=save, args=(tmp_path, {"store": store}))
    thread.start()
    assert busy.wait(60)
    free = store.lock.acquire(timeout=60)
    if free:
        add()
        store.lock.release()
    go_on.set()
    thread.join()
    assert free
    fresh, _ = numbered()
    load(tmp_path, {"store": fresh})
    assert fresh.get([150]).actions == [150]
