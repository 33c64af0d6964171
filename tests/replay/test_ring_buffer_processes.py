"""Buffers that several processes share."""

import contextlib
import gc
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import replay_workers

from tfrl import replay
from tfrl.replay import locking

PATIENCE = 60.0  # for processes that do not end, a failure; never reached otherwise
# Python 3.12 warns of forking where there are threads; the workers touch no thread.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
forked = multiprocessing.get_context("fork")
spawned = multiprocessing.get_context("spawn")


def shared_files(buffer):
    """Returns what is in shared memory on behalf of this process and the buffer."""
    parts = buffer._positions._parts
    semaphores = {f"sem{parts.lock._semlock.name}"}
    mine = f"tfrl-{os.getpid()}-"
    return {
        name
        for name in os.listdir("/dev/shm")
        if name.startswith(mine) or name.replace("sem.", "sem/") in semaphores
    }


def make(num_environments=1, max_length=4):
    return replay.RingBuffer(
        replay_workers.SPEC, num_environments, max_length, allow_multiprocess=True
    )


@contextlib.contextmanager
def worker(context, target, *args, exitcode=0):
    process = context.Process(target=target, args=args)
    process.start()
    try:
        yield process
        process.join(PATIENCE)
        assert process.exitcode == exitcode
    finally:
        process.kill()
        process.join()


def wait_for_waiting(started):
    """Returns when somebody is about to wait, and some time for that has passed."""
    started.wait(PATIENCE)
    time.sleep(0.1)


def share(seconds, contexts):
    """Two processes write, this one and maybe another sample, all at once.

    Returns which files in shared memory that took.
    """
    buffer = make(num_environments=2, max_length=50)
    ready = spawned.Barrier(len(contexts) + 1)
    jobs = [
        (replay_workers.write, buffer, 0, seconds, ready),
        (replay_workers.write, buffer, 1, seconds, ready),
        (replay_workers.sample, buffer, seconds, ready),
    ]
    with contextlib.ExitStack() as stack:
        for context, job in zip(contexts, jobs, strict=False):
            stack.enter_context(worker(context, *job))
        assert replay_workers.sample(buffer, seconds, ready) > 500 * seconds
    written = buffer.get_current_position()
    assert (written > 100).all(), written
    positions = written[:, None] - 50 + np.arange(50)
    found = buffer.get(np.arange(2)[:, None], positions)
    replay_workers.assert_whole(found, np.arange(2)[:, None], positions)
    return shared_files(buffer)


def assert_gone(files):
    gc.collect()
    assert len(files) > 1
    assert not files & set(os.listdir("/dev/shm")), "nothing is left in shared memory"


@pytest.mark.slow
def test_rows_stay_whole_between_processes():
    assert_gone(share(1.0, [forked, spawned]))


@pytest.mark.slow
def test_rows_stay_whole_for_a_minute():
    assert_gone(share(60.0, [spawned, spawned, spawned]))


def test_a_process_feeds_another_through_a_short_buffer():
    buffer = make()
    with worker(forked, replay_workers.produce, buffer, 500):
        for position in range(500):
            found = buffer.dequeue(blocking=True)
            replay_workers.assert_whole(found, [[0]], [[position]])


def test_stop_ends_waiting_in_all_processes():
    buffer = make()
    target = replay_workers.consume_until_stopped
    started = spawned.Barrier(3)
    with (
        worker(forked, target, buffer, started),
        worker(forked, target, buffer, started),
    ):
        wait_for_waiting(started)
        buffer.stop()
    assert buffer.dequeue(blocking=True) is None
    buffer.revive()
    with worker(forked, replay_workers.produce, buffer, 1):
        found = buffer.dequeue(blocking=True)
    replay_workers.assert_whole(found, [[0]], [[0]])


def test_a_process_killed_while_it_waits_troubles_nobody():
    buffer = make()
    target = replay_workers.consume_for_ever
    started = spawned.Barrier(2)
    killed = -signal.SIGKILL
    with worker(forked, target, buffer, started, exitcode=killed) as process:
        wait_for_waiting(started)
        process.kill()
    for position in range(20):
        buffer.enqueue(replay_workers.rows([0], [position]), blocking=True)
        replay_workers.assert_whole(buffer.dequeue(blocking=True), [[0]], [[position]])


def test_a_process_killed_inside_a_call_is_named(monkeypatch):
    monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 0.2)
    buffer = make()
    killed = -signal.SIGKILL
    with worker(forked, replay_workers.die_holding, buffer, exitcode=killed) as process:
        process.join(PATIENCE)
        with pytest.raises(TimeoutError, match=f"held by process {process.pid}, which"):
            buffer.get_current_position()
