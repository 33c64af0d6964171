"""Shares rows with children, then ends; prints the name of the segment first.

Run by test_numpy_storage_shared.py.
"""

import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

from tfrl.replay.memory.numpy_storage import NumpyStorage

SPEC = {"x": tf.TensorSpec([1000]), "n": tf.TensorSpec([], tf.int64)}


def row(number):
    return {"x": np.full(1000, number), "n": np.array(number)}


def write(storage, number, ready):
    storage.set(number, row(number))
    ready.set()
    time.sleep(600)


def share(storage):
    for number, method in enumerate(("fork", "spawn"), 1):
        context = multiprocessing.get_context(method)
        ready = context.Event()
        child = context.Process(target=write, args=(storage, number, ready))
        child.start()
        ready.wait()
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    got = storage.get(slice(None))
    if got["n"].tolist() != [0, 1, 2, 0] or (got["x"] != got["n"][:, None]).any():
        raise SystemExit(f"other rows: {got}")


def main():
    storage = NumpyStorage(SPEC, 4, shared=True)
    mine = f"tfrl-{os.getpid()}-"
    print(*(name for name in os.listdir("/dev/shm") if name.startswith(mine)))
    sys.stdout.flush()
    share(storage)


if __name__ == "__main__":
    main()
