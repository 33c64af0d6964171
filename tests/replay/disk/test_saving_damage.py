"""Tests of `tfrl.replay.disk.saving` with files that change and disks that fail."""

import errno
import functools
import json
import random
import resource

import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from replay.disk import saving_victims

from tfrl._internal import sealed_folder
from tfrl._internal.sealed_folder import DamageError
from tfrl.replay.disk import _parts, _saved
from tfrl.replay.disk.saving import check_saved, load, save
from tfrl.replay.memory import _homes
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.sampling.prioritized import PrioritizedReplay


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(_homes, "_SEGMENT_BYTES", 300)


def replay_of(rounds, seed):
    both = replay_episodes.Stream(2, 30).run(seed, rounds)
    replay = PrioritizedReplay(both.store, seed=seed)
    assert replay.size
    return both, replay


def state(replay):
    """Returns all bytes of a sampler and its store."""
    parts, _ = _parts.found("save", {"replay": replay})
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
        with pytest.raises(DamageError, match=rf"`load`.*got .*{path.name}, which "):
            load(tmp_path, {"replay": other})
        assert state(other) == before
        path.write_bytes(data)
    load(tmp_path, {"replay": other})
    assert state(other) == state(replay)


def test_a_file_that_is_missing_or_longer(tmp_path):
    _, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    path, before = sorted(tmp_path.glob("*.segment"))[3], state(replay)
    with open(path, "ab") as file:
        file.write(b"1")
    for trouble in ("has .* bytes instead of", "is missing; restore it from a copy"):
        for call in (
            lambda: load(tmp_path, {"replay": replay}),
            lambda: check_saved(tmp_path),
        ):
            with pytest.raises(ValueError, match=f"000003.segment, which {trouble}"):
                call()
        path.unlink(missing_ok=True)
    assert state(replay) == before


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b"3", b"\xff", None, 2])
def test_manifests_that_cannot_be_read_are_not_replaced(data, tmp_path):
    one = {"rows": NumpyStorage(tf.TensorSpec([]), 2)}
    save(tmp_path, one)
    path, match = tmp_path / "manifest.json", ".*json, which is not as it was written"
    if data is None:
        data = path.read_bytes()[:-3]
    elif data == 2:
        body = json.loads(path.read_bytes())["manifest"]
        data, match = (
            sealed_folder.sealed({**body, "format": 2}),
            ".*format 1; got format 2",
        )
    path.write_bytes(data)
    for call in (save, load):
        with pytest.raises(ValueError, match=f"`{call.__name__}`: `folder`{match}"):
            call(tmp_path, one)
    assert path.read_bytes() == data


@pytest.mark.parametrize("how", ["refuses", "changes"])
def test_a_disk_that_fails_between_looking_and_loading(how, tmp_path, monkeypatch):
    _, replay = replay_of(40, 0)
    save(tmp_path, {"replay": replay})
    original, read = _saved.fill, []

    def fill(where, folder, segment, checksum, places):
        read.append(segment)
        if len(read) == 3:
            checksum += 1
        if how == "refuses" and len(read) == 3:
            raise OSError(errno.EIO, "Input/output error")
        original(where, folder, segment, checksum, places)

    with monkeypatch.context() as patch:
        patch.setattr(_saved, "fill", fill)
        with pytest.raises(RuntimeError, match="expected to stay as it was; got .*ag"):
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
    _, other = replay_of(20, 5)
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
        load(tmp_path, {"replay": other})
        assert state(other) in (saved, state(replay))
        saved = state(other)
        manifest = _saved.read_manifest("load", tmp_path)
        left = {path.name for path in tmp_path.glob("*.segment")}
        assert left == {*manifest.files()} or failed
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
