"""Rows in shared memory: who sees them, and who removes them."""

import contextlib
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker

import numpy as np
import pytest
import replay_workers
import tensorflow as tf

from tfrl.replay.memory import _homes
from tfrl.replay.memory.numpy_storage import NumpyStorage

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/dev/shm"), reason="shared rows need /dev/shm"
)
SPEC = {"x": tf.TensorSpec([1000]), "n": tf.TensorSpec([], tf.int64)}


# What other tests of this process have not let go of yet.
_others = set()


@pytest.fixture(autouse=True)
def _found_before():
    _others.clear()
    _others.update(segments())


def segments(process=None):
    mine = f"tfrl-{process or os.getpid()}-"
    found = (name for name in os.listdir("/dev/shm") if name.startswith(mine))
    return [name for name in found if name not in _others]


def test_whoever_unpickles_has_the_same_rows():
    with NumpyStorage(SPEC, 4, "rows", shared=True) as storage:
        other = pickle.loads(pickle.dumps(storage))
        third = pickle.loads(pickle.dumps(other))
        storage.set(1, {"x": np.array(np.arange(1000)), "n": np.array(5)})
        third.set(3, other.get(1))
        assert storage.get([0, 1, 2, 3])["n"].tolist() == [0, 5, 0, 5]
        np.testing.assert_array_equal(storage.get(3)["x"], np.arange(1000))
        assert (third.name, third.capacity, third.data_spec) == ("rows", 4, SPEC)
        assert len(segments()) == 1


@pytest.mark.slow
def test_only_the_maker_removes_the_segment():
    storage = NumpyStorage(SPEC, 4, shared=True)
    other = pickle.loads(pickle.dumps(storage))
    last = pickle.loads(pickle.dumps(storage))
    other.close()
    del last
    gc.collect()
    assert len(segments()) == 1
    pickled = pickle.dumps(storage)
    other = pickle.loads(pickled)
    view = storage.get(0)
    storage.close()
    storage.close()
    assert segments() == []
    other.set(0, {"x": np.ones(1000), "n": np.array(3)})
    assert view["x"][-1] == 1
    with pytest.raises(FileNotFoundError, match="expected the shared rows to exist"):
        pickle.loads(pickled)


@pytest.mark.slow
def test_an_object_that_is_gone_leaves_nothing():
    storage = NumpyStorage(SPEC, 4, shared=True)
    rows = storage.get([0, 1])
    del storage
    gc.collect()
    assert segments() == []
    assert not rows["x"].any()


def test_one_whose_making_fails_leaves_nothing():
    with pytest.raises(OSError, match="`capacity` expected to fit"):
        NumpyStorage(SPEC, 1 << 40, shared=True)
    assert segments() == []


def test_arguments():
    with pytest.raises(ValueError, match="`shared` expected False with a `path`"):
        NumpyStorage(SPEC, 4, path="/tmp/anywhere", shared=True)
    with pytest.raises(TypeError, match="expected shared=True or path= to be pickled"):
        pickle.dumps(NumpyStorage(SPEC, 4))


@pytest.mark.slow
def test_children_write_and_die_and_nothing_is_left():
    script = pathlib.Path(__file__).with_name("storage_processes.py")
    process = subprocess.Popen(
        [sys.executable, script],
        cwd=script.parents[3],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert len(output.split()) == 1
    assert segments(process.pid) == []
    assert "Traceback" not in errors
    assert "resource_tracker" not in errors


def test_a_maker_that_is_killed_leaves_files_and_no_segment(tmp_path):
    def fill(output):
        # A tracker of its own, as every process has that was not forked from another.
        resource_tracker._resource_tracker.__init__()
        with NumpyStorage(SPEC, 4, shared=True) as shared:
            files = NumpyStorage(SPEC, 4, path=tmp_path)
            for rows in (shared, files):
                rows.set(3, {"x": np.full(1000, 3), "n": np.array(3)})
            os.write(output, f"{segments()[0]}\n".encode())
            time.sleep(600)

    pid, lines = replay_workers.forked(fill)
    with lines:
        name = lines.readline().strip()
    assert name in segments(pid)
    replay_workers.kill(pid)
    deadline = time.monotonic() + 60
    while segments(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert segments(pid) == []
    rows = NumpyStorage(SPEC, 4, path=tmp_path).get(slice(None))
    assert rows["n"].tolist() == [0, 0, 0, 3]
    np.testing.assert_array_equal(rows["x"][3], np.full(1000, 3))


def test_a_fork_removes_nothing():
    with NumpyStorage(SPEC, 4, shared=True) as storage:
        pid, lines = replay_workers.forked(lambda output: storage.close())
        assert lines.read() == ""
        lines.close()
        os.waitpid(pid, 0)
        assert len(segments()) == 1
        os.unlink(f"/dev/shm/{segments()[0]}")  # by somebody else: nobody minds
    assert segments() == []


def test_systems_without_shared_files(monkeypatch, tmp_path):
    monkeypatch.setattr(_homes, "_SHARED", tmp_path / "none")
    with pytest.raises(ValueError, match="got a system without; pass path="):
        NumpyStorage(SPEC, 4, shared=True)
