"""Saves and loads a replay of images in the folder given, and prints what it took.

    saving_measures.py <folder> <MiB of images>

One line of JSON: MiB written, MiB of memory taken beside the replay, and seconds, of a
first save, of a second one after a few steps, and of loading.
"""

import json
import pathlib
import sys
import time

import numpy as np
import tensorflow as tf

from tfrl.replay.disk.saving import load, save
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay

SHAPE, ENVIRONMENTS = (84, 84, 4), 8


def memory(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def measured(function, *args):
    """Returns the result, MiB taken at most meanwhile, and seconds."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, start = memory("VmRSS"), time.perf_counter()
    result = function(*args)
    return result, memory("VmHWM") - before, time.perf_counter() - start


def made(capacity):
    image, number = tf.TensorSpec(SHAPE, tf.uint8), tf.TensorSpec([], tf.int32)
    store = EpisodeStore(image, number, capacity, ENVIRONMENTS)
    return store, PrioritizedReplay(store, seed=0)


def fill(store, rounds, seed):
    """Adds steps with images of noise."""
    rng, ones = np.random.default_rng(seed), np.ones(ENVIRONMENTS)
    store.cut()
    before = np.zeros((ENVIRONMENTS, *SHAPE), np.uint8)
    for k in range(rounds):
        after = rng.integers(0, 256, before.shape, np.uint8)
        ends = np.full(ENVIRONMENTS, k % 500 == 499)
        store.add(before, ones.astype(int), ones, ends, np.zeros_like(ends), after)
        before = after


def main():
    folder, capacity = sys.argv[1], int(sys.argv[2]) * 2**20 // int(np.prod(SHAPE))
    store, replay = made(capacity)
    fill(store, capacity // ENVIRONMENTS, seed=0)
    replay.sample(32)
    found = {}
    for name in ("first", "again"):
        written, *rest = measured(save, folder, {"replay": replay})
        found[name] = [written / 2**20, *rest]
        fill(store, 10, seed=1)
    save(folder, {"replay": replay})
    other_store, other = made(capacity)
    for array in other_store.steps.rows.arrays:
        array[:] = 1
    _, *rest = measured(load, folder, {"replay": other})
    found["load"] = [found["first"][0], *rest]
    tf.nest.map_structure(
        np.testing.assert_array_equal, other.sample(64), replay.sample(64)
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
