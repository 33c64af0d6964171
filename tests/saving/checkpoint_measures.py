"""Saves a replay of images with a `Checkpointer` and prints what it took.

    checkpoint_measures.py <folder> <MiB of images>

One line of JSON: MiB written, MiB of memory taken beside the replay, and seconds, of a
first save, of a second one after ten steps, and of loading the first.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
from replay.disk import saving_measures

from tfrl.saving.checkpointer import Checkpointer


def written(folder):
    """Returns how many MiB the files of a folder take that no other one has."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1) / 2**20


def main():
    folder = pathlib.Path(sys.argv[1])
    capacity = int(sys.argv[2]) * 2**20 // int(np.prod(saving_measures.SHAPE))
    store, replay = saving_measures.made(capacity)
    rounds = capacity // saving_measures.ENVIRONMENTS
    saving_measures.fill(store, rounds, seed=0)
    found, samples = {}, {}
    manager = Checkpointer(folder, replay=replay)
    for step, name in enumerate(("first", "again")):
        path, *rest = saving_measures.measured(manager.save, step)
        found[name] = [written(path), *rest]
        samples[name] = replay.sample(64)
        saving_measures.fill(store, 10, seed=1)
    other_store, other = saving_measures.made(capacity)
    for array in other_store.steps.rows.arrays:
        array[:] = 1
    manager = Checkpointer(folder, replay=other)
    for step, name in enumerate(samples):
        _, *rest = saving_measures.measured(manager.load, step)
        tf.nest.map_structure(
            np.testing.assert_array_equal, other.sample(64), samples[name]
        )
        found[f"load {name}"] = [found["first"][0], *rest]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
