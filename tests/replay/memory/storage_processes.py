"""Processes that share a storage, run by test_numpy_storage_shared.py.

    storage_processes.py share <folder>  shares rows with children, then ends
    storage_processes.py wait <folder>   fills shared rows and files in the folder with
                                         numbers, then waits to be killed

Both print the name of the segment first.
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


def main(action, folder):
    storage = NumpyStorage(SPEC, 4, shared=True)
    if action == "wait":
        files = NumpyStorage(SPEC, 4, path=folder)
        for rows in (storage, files):
            rows.set(3, row(3))
    mine = f"tfrl-{os.getpid()}-"
    print(*(name for name in os.listdir("/dev/shm") if name.startswith(mine)))
    sys.stdout.flush()
    if action == "share":
        share(storage)
    else:
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
