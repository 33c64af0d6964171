"""What the processes of the replay tests do; spawned ones import it by name."""

import os
import signal
import time

import numpy as np
import tensorflow as tf

SPEC = {"body": tf.TensorSpec([500], tf.int64), "check": tf.TensorSpec([], tf.int64)}


def rows(env_ids, positions):
    """Rows that say in every number whose they are and in what place."""
    check = np.asarray(env_ids) * 10**9 + np.asarray(positions)
    return {"body": np.repeat(check[..., None], 500, axis=-1), "check": check}


def assert_whole(found, env_ids, positions):
    expected = rows(env_ids, positions)
    np.testing.assert_array_equal(found["check"], expected["check"])
    np.testing.assert_array_equal(found["body"], expected["body"])


def write(buffer, env, seconds, ready):
    """Appends step after step to one environment, once all are `ready`."""
    ready.wait(120)
    position, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(100):
            buffer.enqueue(rows([env], [position]), [env])
            position += 1
    assert buffer.get_current_position()[env] == position


def sample(buffer, seconds, ready):
    """Reads random steps and looks at each number; returns how many steps."""
    ready.wait(120)
    rng, end, count = np.random.default_rng(0), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with buffer.lock:
            env_ids = rng.integers(buffer.num_environments, size=64)
            sizes = buffer.current_size[env_ids]
            env_ids, sizes = env_ids[sizes > 0], sizes[sizes > 0]
            ages = rng.integers(sizes)
            positions = buffer.get_earliest_position(env_ids) + ages
            found = buffer.get(env_ids, positions)
        assert_whole(found, env_ids, positions)
        count += len(env_ids)
    return count


def produce(buffer, count):
    """Appends steps, waiting for space before each, until `count` or stopped."""
    for position in range(count):
        if not buffer.enqueue(rows([0], [position]), [0], blocking=True):
            return


def consume_for_ever(buffer, started):
    """Waits for steps that never come."""
    started.wait()
    buffer.dequeue([0], blocking=True)


def consume_until_stopped(buffer, started):
    """Ends well if `stop` ends the waiting."""
    started.wait()
    assert buffer.dequeue([0], blocking=True) is None


def forked(action):
    """Runs an action of a file descriptor in a fork.

    Returns the number of the process, and the lines that it writes there.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action(write)
        finally:
            os._exit(1)
    os.close(write)
    return pid, open(read)


def kill(pid):
    """Kills a process and returns when it is dead."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def die_holding(buffer):
    """Is killed while nobody else can call."""
    with buffer.lock:
        os.kill(os.getpid(), signal.SIGKILL)
