"""A process that forks children which save without end, to be killed by the tests.

TensorFlow is imported once; each line `save <directory>` or `lock <directory>` on the
standard input forks one child, which answers with its process number and then with
every step that it saved. Children end when they are killed.
"""

import os
import sys
import time

import numpy as np

from tfrl.training import checkpoints


def save_for_ever(directory: str) -> None:
    step = checkpoints.latest_step(directory) or 0
    while True:
        step += 1
        state = {f"w{i}": np.full([64, i + 1], step, np.float32) for i in range(8)}
        checkpoints.save_run(directory, step, state, {"step": step}, keep=2)
        os.write(1, f"saved {step}\n".encode())


def hold_the_lock(directory: str) -> None:
    with checkpoints.RunLock(directory):
        # A worker that survives its parent must not keep the lock.
        worker = os.fork()
        if worker == 0:
            os.write(1, b"locked\n")
            time.sleep(5)
            os._exit(0)
        os.wait()


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        what, directory = line.split()
        child = os.fork()
        if child == 0:
            try:
                os.write(1, f"pid {os.getpid()}\n".encode())
                {"save": save_for_ever, "lock": hold_the_lock}[what](directory)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
