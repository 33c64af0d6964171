"""Tests of `tfrl.replay.disk.saving` with files that change and disks that fail."""

import errno
import functools
import random
import resource

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from replay.disk import saving_victims

from tfrl.replay.disk import _saved_folder, _saved_parts
from tfrl.replay.disk.saving import load, save
from tfrl.replay.memory import _changes
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.sampling.prioritized import PrioritizedReplay


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_changes, "_SEGMENT_BYTES", 300)


def replay_of(rounds, seed):
    both = replay_episodes.Stream(2, 30).run(seed, rounds)
    replay = PrioritizedReplay(both.store, seed=seed)
    assert replay.size
    return both, replay


def state(replay):
    """Returns all bytes of a sampler and its store."""
    parts, _ = _saved_parts.found("save", {"replay": replay})
    for part in parts:
        part.freeze()
    return b"".join(part.read(k) for part in parts for k in range(part.count))


def damage(path, rng):
    data = path.read_bytes()
    place = rng.randrange(len(data))
    if rng.random() < 0.7:
        bit = bytes([data[place] ^ 1 << rng.randrange(8)])
        path.write_bytes(data[:place] + bit + data[place + 1 :])
    else:
        path.write_bytes(data[:place])
    return data


@pytest.mark.parametrize(
    "times", [40, pytest.param(200, marks=pytest.mark.slow)], ids=["40", "200"]
)
def test_no_damage_goes_unnoticed(times, tmp_path):
    both, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    both.run(1, 5)
    save(tmp_path, {"replay": replay})
    _, other = replay_of(20, 5)
    before, rng = state(other), random.Random(times)
    files = sorted(path for path in tmp_path.iterdir() if path.name != ".lock")
    for k in range(times):
        path = files[0] if k % 8 == 0 else rng.choice(files)
        data = damage(path, rng)
        with pytest.raises(ValueError, match=rf"`load`.*got .*{path.name}, which "):
            load(tmp_path, {"replay": other})
        assert state(other) == before
        path.write_bytes(data)
    load(tmp_path, {"replay": other})
    assert state(other) == state(replay)


def test_a_missing_file(tmp_path):
    _, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    sorted(tmp_path.glob("*.segment"))[3].unlink()
    before = state(replay)
    with pytest.raises(ValueError, match="000003.segment, which is missing; restore"):
        load(tmp_path, {"replay": replay})
    assert state(replay) == before


def test_a_save_does_not_replace_what_it_cannot_read(tmp_path):
    _, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    path = tmp_path / "manifest.json"
    path.write_bytes(path.read_bytes()[:-3])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        ValueError, match="`save`.*json, which is not as it was written"
    ):
        save(tmp_path, {"replay": replay})
    assert sorted(tmp_path.iterdir()) == before


def test_a_disk_that_fails_between_looking_and_loading(tmp_path, monkeypatch):
    _, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    original = _saved_folder.read_segment

    files, seen = len(list(tmp_path.glob("*.segment"))), []

    def read(where, folder, segment):
        seen.append(segment)
        if len(seen) > files:
            raise OSError(errno.EIO, "Input/output error")
        return original(where, folder, segment)

    with monkeypatch.context() as patch:
        patch.setattr(_saved_folder, "read_segment", read)
        with pytest.raises(
            RuntimeError, match="expected to stay as it was; got .*again"
        ):
            load(tmp_path, {"replay": replay})
    _, other = replay_of(40, 0)
    load(tmp_path, {"replay": replay})
    assert state(replay) == state(other)
    # Whatever the disk did, the next save knows what the folder has.
    assert save(tmp_path, {"replay": replay}) == 0


def refuse():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fails_anywhere(tmp_path, monkeypatch):
    both, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    saved, number, failed = state(replay), 0, True
    while failed:
        number += 1
        both.run(number, 1)
        with monkeypatch.context() as patch:
            setattr = functools.partial(patch.setattr, raising=False)
            disk = saving_victims.Disk(setattr, number, refuse, 200)
            try:
                save(tmp_path, {"replay": replay})
            except OSError as error:
                assert error.errno == errno.ENOSPC
                assert "`save`: `folder` expected a disk that takes" in str(error)
            failed = disk.left <= 0
        _, other = replay_of(20, 5)
        load(tmp_path, {"replay": other})
        assert state(other) in (saved, state(replay))
        saved = state(other)
    assert saved == state(replay) and number > 20


def test_a_disk_that_is_full(tmp_path):
    one = NumpyStorage(tf.TensorSpec([10]), 1000)
    one.set(slice(None), np.ones([1000, 10]))
    save(tmp_path, {"rows": one})
    one.set(slice(None), np.full([1000, 10], 2.0))
    files = sorted(tmp_path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(OSError, match="got File too large; make room or choose"):
            save(tmp_path, {"rows": one})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.iterdir()) == files
    other = NumpyStorage(tf.TensorSpec([10]), 1000)
    load(tmp_path, {"rows": other})
    assert (other.get(slice(None)) == 1).all()
    assert save(tmp_path, {"rows": one}) == 40_000


def test_folders_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="`save`: `folder` expected a disk that takes"):
        save(tmp_path / "file" / "s", {"rows": NumpyStorage(tf.TensorSpec([]), 2)})


def test_locks_whose_holder_died(tmp_path):
    class Own(tf.Module):
        def __init__(self):
            super().__init__()
            self.rows, self._lock = NumpyStorage(tf.TensorSpec([]), 2), self

        def __enter__(self):
            raise TimeoutError("held by process 1")

        def __exit__(self, *_):
            raise AssertionError

    with pytest.raises(TimeoutError, match="^held by process 1$"):
        save(tmp_path, {"own": Own()})
