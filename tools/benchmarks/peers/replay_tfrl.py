"""Replay of tfrl, and what NumPy needs at least, for the benchmarks of replays.

Contenders have a case and how many environments there are for arguments, and methods:
`ready`, the arguments of `add` for a step; `add`; `sample`, maybe `sample_into`; and
`read`, what was drawn as (observations, actions, rewards, terminated,
next_observations). Those that draw by priority also have `indices` of a sample,
`priorities` as they take them, and `set`; those that save have `save` and `load`, to
and from a folder.
"""

import itertools

import numpy as np
import tensorflow as tf

from tfrl import replay


class Episodes:
    """Observations once, in the order of time."""

    sampler = replay.UniformReplay

    def __init__(self, case, width):
        action = tf.TensorSpec([], tf.int64)
        self.store = replay.EpisodeStore(
            tf.TensorSpec(case.shape, case.dtype), action, case.capacity, width
        )
        self.replay = self.sampler(self.store, seed=0)
        self.add = self.store.add

    def ready(self, step):
        return step

    def sample(self, n):
        return self.replay.sample(n)

    def sample_into(self, n, out):
        return self.replay.sample(n, out.data)

    def read(self, found):
        data = found.data
        seen, then = data.observations, data.next_observations
        return seen, data.actions, data.rewards, data.discounts == 0, then

    def save(self, folder):
        replay.save(folder, {"replay": self.replay})

    def load(self, folder):
        replay.load(folder, {"replay": self.replay})


class Frames(Episodes):
    """The last frame of each observation, stacked with those before it when drawn."""

    def __init__(self, case, width):
        super().__init__(case._replace(shape=case.shape[:-1]), width)
        self.replay = self.sampler(self.store, replay.Transitions(frame_stack=4))

    def ready(self, step):
        seen, then = step.observations[..., -1], step.next_observations[..., -1]
        return step._replace(observations=seen, next_observations=then)


class ByPriority(Episodes):
    """Drawn by priority, with importance weights."""

    sampler = replay.PrioritizedReplay

    def indices(self, found):
        return found.indices

    def priorities(self, numbers):
        return numbers

    def set(self, indices, priorities):
        self.replay.update_priorities(indices, priorities)


def transition_spec(case):
    seen, number = tf.TensorSpec(case.shape, case.dtype), tf.TensorSpec([])
    action, flag = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool)
    return case.step(seen, action, number, flag, flag, seen)


class Rows:
    """Whole transitions."""

    def __init__(self, case, width):
        del width
        self.buffer = replay.DataBuffer(transition_spec(case), case.capacity, seed=0)

    def ready(self, step):
        return (step,)

    def add(self, step):
        self.buffer.add_batch(step)

    def sample(self, n):
        return self.buffer.get_batch(n)

    def sample_into(self, n, out):
        return self.buffer.get_batch(n, out)

    def read(self, found):
        return *found[:4], found.next_observations

    def save(self, folder):
        replay.save(folder, {"buffer": self.buffer})

    def load(self, folder):
        replay.load(folder, {"buffer": self.buffer})


class RowsOfEnvironments:
    """Whole transitions, in the order of time."""

    def __init__(self, case, width):
        self.buffer = replay.RingBuffer(
            transition_spec(case), width, case.capacity // width
        )

    def ready(self, step):
        return (step,)

    def add(self, step):
        self.buffer.enqueue(step)


class Floor:
    """What NumPy needs to read five arrays, where it is known which rows."""

    def __init__(self, case, width):
        del width
        fields = ((*case.shape,), case.dtype), ((), "int64"), ((), "float32")
        fields = (*fields, ((), "bool"), fields[0])
        self.arrays = [
            np.ones((case.capacity, *shape), dtype) for shape, dtype in fields
        ]
        self.out = None
        rng = np.random.default_rng(0)
        self.drawn = itertools.cycle(rng.integers(0, case.capacity, (512, 256)))

    def sample(self, n):
        if self.out is None:
            self.out = [np.ones_like(array[:n]) for array in self.arrays]
        rows = next(self.drawn)
        for array, out in zip(self.arrays, self.out, strict=True):
            array.take(rows, 0, out, "clip")
