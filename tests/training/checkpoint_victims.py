"""Victims that save a run without end, answering `saved <step>`, or hold its lock."""

import os
import time

import numpy as np
import victims

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


if __name__ == "__main__":
    victims.serve({"save": save_for_ever, "lock": hold_the_lock})
