import contextlib
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.memory.numpy_storage import NumpyStorage

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/dev/shm"), reason="shared rows need /dev/shm"
)
SPEC = {"x": tf.TensorSpec([1 << 17]), "n": tf.TensorSpec([], tf.int64)}


def segments(process=None):
    mine = f"tfrl-{process or os.getpid()}-"
    return [name for name in os.listdir("/dev/shm") if name.startswith(mine)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@contextlib.contextmanager
def started(action, folder):
    """Runs `storage_processes.py`, in a group of its own that ends with the block."""
    script = pathlib.Path(__file__).with_name("storage_processes.py")
    process = subprocess.Popen(
        [sys.executable, script, action, folder],
        cwd=script.parents[3],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module", autouse=True)
def waiting(folder):
    # It starts while other tests run.
    with started("wait", folder) as process:
        yield process


def test_whoever_unpickles_has_the_same_rows():
    before = set(segments())
    with NumpyStorage(SPEC, 4, "rows", shared=True) as storage:
        other = pickle.loads(pickle.dumps(storage))
        third = pickle.loads(pickle.dumps(other))
        storage.set(1, {"x": np.array(np.arange(1 << 17)), "n": np.array(5)})
        third.set(3, other.get(1))
        assert storage.get([0, 1, 2, 3])["n"].tolist() == [0, 5, 0, 5]
        np.testing.assert_array_equal(storage.get(3)["x"], np.arange(1 << 17))
        assert (third.name, third.capacity, third.data_spec) == ("rows", 4, SPEC)
        assert len(set(segments()) - before) == 1


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
    other.set(0, {"x": np.ones(1 << 17), "n": np.array(3)})
    assert view["x"][-1] == 1
    with pytest.raises(FileNotFoundError, match="expected the shared rows to exist"):
        pickle.loads(pickled)


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


def test_restoring_writes_into_the_shared_rows(tmp_path):
    with NumpyStorage(SPEC, 8, shared=True) as storage:
        other = pickle.loads(pickle.dumps(storage))
        path = tf.train.Checkpoint(s=NumpyStorage(SPEC, 8)).save(tmp_path / "empty")
        storage.set(slice(None), {"x": np.ones(1 << 17), "n": np.array(3)})
        full = tf.train.Checkpoint(s=other).save(tmp_path / "full")
        status = tf.train.Checkpoint(s=storage).restore(path)
        status.assert_consumed()
        assert not other.get(slice(None))["x"].any()
        status = tf.train.Checkpoint(s=storage).restore(full)
        status.assert_consumed()
        assert other.get(slice(None))["x"].all()
        assert other.get(slice(None))["n"].tolist() == [3] * 8


@pytest.mark.slow
def test_children_write_and_die_and_nothing_is_left(folder):
    with started("share", folder) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert len(output.split()) == 1
    assert segments(process.pid) == []
    assert "Traceback" not in errors
    assert "resource_tracker" not in errors


def test_a_maker_that_is_killed_leaves_files_and_no_segment(waiting, folder):
    process = waiting
    (name,) = process.stdout.readline().split()
    assert name in os.listdir("/dev/shm")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while name in os.listdir("/dev/shm") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert name not in os.listdir("/dev/shm")
    spec = {"x": tf.TensorSpec([1000]), "n": tf.TensorSpec([], tf.int64)}
    rows = NumpyStorage(spec, 4, path=folder).get(slice(None))
    assert rows["n"].tolist() == [0, 0, 0, 3]
    np.testing.assert_array_equal(rows["x"][3], np.full(1000, 3))
