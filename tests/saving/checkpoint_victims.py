"""Victims that save without end, answering `saved <step>`, or hold a run's lock."""

import os
import time

import keras
import numpy as np
import tensorflow as tf
import victims
from saving import saved_models

from tfrl import replay
from tfrl.replay.memory import _homes
from tfrl.saving import checkpointer, checkpoints

ROWS = 400


def save_for_ever(directory: str) -> None:
    step = checkpoints.latest_step(directory) or 0
    while True:
        step += 1
        state = {f"w{i}": np.full([64, i + 1], step, np.float32) for i in range(8)}
        checkpoints.save_run(directory, step, state, {"step": step}, keep=2)
        os.write(1, f"saved {step}\n".encode())


def save_objects_for_ever(directory: str) -> None:
    step, variables = 0, [tf.Variable(tf.zeros([64, i + 1])) for i in range(8)]
    rows = replay.DataBuffer(tf.TensorSpec([2]), capacity=ROWS, seed=0)
    manager = checkpointer.Checkpointer(directory, v=variables, rows=rows)
    while True:
        step = max(step, manager.load() if manager.has_checkpoint() else 0) + 1
        for variable in variables:
            variable.assign(tf.fill(variable.shape, float(step)))
        rows.add_batch(np.full([3, 2], step, np.float32))
        manager.save(step, keep=2)
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


def save_models(directory: str) -> None:
    for _ in range(3):
        keras.layers.Dense(1), keras.Sequential(), keras.layers.Dropout(0.1)
    items = saved_models.filled(saved_models.made())
    blocks = saved_models.sequential("block_2", "block_5")
    manager = checkpointer.Checkpointer(directory, **items, blocks=blocks)
    manager.save(1, state=items["state"])
    os.write(1, b"saved\n")


if __name__ == "__main__":
    _homes._SEGMENT_BYTES = 256
    victims.serve(
        {
            "save": save_for_ever,
            "save_objects": save_objects_for_ever,
            "save_models": save_models,
            "lock": hold_the_lock,
        }
    )
