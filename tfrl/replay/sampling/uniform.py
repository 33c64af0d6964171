"""Replay that draws every step equally often."""

import math
from typing import Any

import numpy as np

from tfrl.replay import episodes, locking
from tfrl.replay.sampling import _draws, _sampler, transitions

# Fewer than this share of rows: they are listed rather than found by trying.
_RARE = 0.125


class UniformReplay(_sampler.Sampler):
    """Draws steps of an episode store, each equally likely, independently.

        probability = 1 / size

    Args:
        store: where the steps are. Several samplers may share it.
        kind: what a sample is, `Transitions` or `Sequences`; None for `Transitions()`.
        seed: what it draws by: an int, a `np.random.Generator`, or None for a seed of
            the system's. A checkpoint keeps the state of the generator, and the store.
        name: name of the module.

    Raises:
        TypeError: if `store` or `kind` is something else.
        ValueError: if no sample of this kind fits into the store.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([4]), tf.TensorSpec([], tf.int32), 100, 2)
        >>> zeros = np.zeros(2, bool)
        >>> for t in range(5):
        ...     store.add(np.full([2, 4], t), [t, t], [1., 2.], zeros, zeros,
        ...               np.full([2, 4], t + 1))
        >>> replay = UniformReplay(store, seed=0)
        >>> sample = replay.sample(32)
        >>> replay.size, sample.data.observations.shape, sample.probabilities[0]
        (10, (32, 4), np.float32(0.1))
    """

    def __init__(
        self,
        store: episodes.EpisodeStore,
        kind: Any = None,
        seed: int | np.random.Generator | None = None,
        name: str = "UniformReplay",
    ) -> None:
        super().__init__(store, kind, name)
        self._random = _draws.Draws(seed)
        self._filled = 1
        self._listed: np.ndarray | None = None

    @locking.atomic
    def sample(self, batch_size: int, out: Any = None) -> transitions.Sample:
        """Draws steps, with replacement.

        Args:
            batch_size: how many, at least 1.
            out: the `data` of an earlier sample, or arrays like it, to read into. Saves
                making new ones, which takes longer than reading if rows are large.

        Returns:
            A `Sample`.

        Raises:
            TypeError: if `batch_size` is not an integer, or `out` no writeable arrays.
            ValueError: if `batch_size` is less than 1, `out` does not fit, or nothing
                can be drawn yet.
        """
        targets = self._ready(batch_size, out)
        random = self._random.generator
        rows = self._drawn(batch_size, random)
        weights = np.empty(batch_size, np.float32)
        probabilities = np.empty(batch_size, np.float32)
        weights.fill(1.0)
        probabilities.fill(1.0 / self._eligible.count)
        return self._sampled(rows, random, targets, weights, probabilities)

    def _catch_up(self) -> None:
        if self._eligible.update() is None:
            return
        # Rows are filled in their order, those of all environments in turns.
        self._filled = min(int(self._steps.upcoming.max()) + 1, self._steps.capacity)
        self._listed = None

    def _drawn(self, batch_size: int, random: np.random.Generator) -> np.ndarray:
        """Returns rows drawn from all that are eligible."""
        eligible, filled = self._eligible, self._filled
        share = eligible.count / filled
        if share < _RARE:
            if self._listed is None:
                self._listed = np.flatnonzero(eligible.flags)
            return self._listed[random.integers(0, self._listed.size, batch_size)]
        if share == 1.0:
            return random.integers(0, filled, batch_size)
        found: list[np.ndarray] = []
        missing = batch_size
        while missing > 0:
            # So many that one time is mostly enough.
            tries = missing + 4.0 * math.sqrt(missing * (1.0 - share))
            rows = random.integers(0, filled, int(tries / share) + 1)
            rows = rows[eligible.flags.take(rows)]
            found.append(rows)
            missing -= rows.size
        return (rows if len(found) == 1 else np.concatenate(found))[:batch_size]
