"""Who saves a replay without end, and disks that fail at any call."""

import contextlib
import os
import threading
import types

import numpy as np
import tensorflow as tf

from tfrl.replay.disk import _saved
from tfrl.replay.disk.saving import load, save
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay

CAPACITY, WIDTH = 600, 64


def made():
    store = EpisodeStore(tf.TensorSpec([WIDTH]), tf.TensorSpec([], tf.int64), CAPACITY)
    return store, PrioritizedReplay(store, seed=0)


def add(store):
    """Adds a step whose numbers are its index."""
    index = int(store.steps.upcoming[0])
    store.add(
        np.full([1, WIDTH], index, np.float32),
        [index],
        [float(index % 1000)],
        [index % 13 == 12],
        [False],
        np.full([1, WIDTH], index + 1, np.float32),
    )


def save_for_ever(folder, output):
    """Saves again and again; each save is answered by the number of steps."""
    store, replay = made()
    if os.path.exists(os.path.join(folder, "manifest.json")):
        load(folder, {"replay": replay})
    while True:
        for _ in range(40):
            add(store)
        replay.update_priorities(replay.sample(10).indices, np.arange(10.0))
        save(folder, {"replay": replay})
        os.write(output, f"{store.steps.upcoming[0]}\n".encode())


class Disk:
    """Does something instead of one of the calls that reach the disk.

    `setattr` replaces functions, `number` is that of the call. Files are written in
    pieces of a few bytes, each a call.
    """

    def __init__(self, setattr, number, act, piece):
        self.left, self.act, self.piece = number, act, piece
        self.lock = threading.Lock()
        for name in ("fsync", "rename", "unlink"):
            setattr(os, name, self.counting(getattr(os, name)))
        setattr(_saved, "open", self.opened)

    def counting(self, function):
        def call(*args, **kwargs):
            with self.lock:
                self.left -= 1
                if self.left == 0:
                    self.act()
            return function(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def opened(self, path, mode):
        with open(path, mode, buffering=0) as file:
            write = self.counting(file.write)
            yield types.SimpleNamespace(
                write=lambda data: [
                    write(data[k : k + self.piece])
                    for k in range(0, len(data), self.piece)
                ]
            )
