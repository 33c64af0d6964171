"""Steps of environments that all replays are filled with, and how they are filled."""

import itertools
import pathlib
from typing import Any, NamedTuple

import numpy as np

# As much of them as is sure to have left the caches before it comes again.
CYCLE_BYTES = 48 << 20


class Step(NamedTuple):
    """One step of each environment."""

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any


class Case(NamedTuple):
    """Shape and dtype of an observation, and how many transitions are kept."""

    shape: tuple
    dtype: Any
    capacity: int
    step: type = Step

    @property
    def bytes(self):
        """Bytes of an observation."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


def episodes(case, width, count):
    """Steps that follow each other, and again from the first; rewards number them."""
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (count + 1, width, *case.shape), np.uint8)
    seen = seen.astype(case.dtype)
    numbers = np.arange(count * width).reshape(count, width)
    ends, cuts = (rng.random((2, count, width)) < 0.01) & [[[True]], [[False]]]
    cuts[-1] = True
    return [
        Step(
            seen[t],
            rng.integers(0, 4, width),
            numbers[t].astype(np.float32),
            ends[t],
            cuts[t],
            seen[t + 1],
        )
        for t in range(count)
    ]


def filled(contender, case, width):
    """Fills a contender; returns steps that go on, as it takes them, without an end."""
    steps = episodes(case, width, min(max(CYCLE_BYTES // (width * case.bytes), 16), 64))
    # Each step follows the one before, also in what is timed.
    around = itertools.cycle([*map(contender.ready, steps)])
    for _ in range(-(-case.capacity // width) + 1):
        contender.add(*next(around))
    return around


def memory(name):
    """MiB of this process: "VmRSS" now, or "VmHWM" at most since `forget_peak`."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def forget_peak():
    """Lets the peak of memory start anew."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
