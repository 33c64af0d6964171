"""One pass over a store: every step that can be drawn, once."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay import _indices, episodes, locking
from tfrl.replay.sampling import transitions, uniform


class SinglePass(uniform.Sampler):
    """Goes through the steps of an episode store, each once.

    The order is that of time, with the environments in turn, or shuffled. It is fixed
    when a pass begins; from then on nothing may be overwritten. Every pass is the same:
    to evaluate a loss over everything, to fit a model, to copy a store.

    Args:
        store: where the steps are. Several samplers may share it.
        kind: what a sample is, `Transitions` or `Sequences`; None for `Transitions()`.
        seed: of the shuffling, alike in every pass; None for the order of time. Goals
            are relabelled by it too.
        name: name of the module.

    Raises:
        TypeError: if `store` or `kind` is something else.
        ValueError: if no sample of this kind fits into the store.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([]), tf.TensorSpec([], tf.int32), capacity=100)
        >>> for t in range(5):
        ...     store.add([float(t)], [t], [1.0], [False], [False], [t + 1.0])
        >>> once = SinglePass(store)
        >>> [batch.indices.tolist() for batch in once.batches(2)]
        [[0, 1], [2, 3], [4]]
        >>> [int(batch.indices[0]) for batch in once.dataset(2, drop_remainder=True)]
        [0, 2]
    """

    def __init__(
        self,
        store: episodes.EpisodeStore,
        kind: Any = None,
        seed: int | None = None,
        name: str = "SinglePass",
    ) -> None:
        super().__init__(store, kind, name)
        if seed is not None:
            checks.check_whole_number("SinglePass", "seed", seed, low=0)
        self._seed = seed

    @property
    def settings(self) -> dict[str, Any]:
        """What is read, `kind`, and the seed."""
        return {**super().settings, "seed": self._seed}

    def batches(
        self, batch_size: int, drop_remainder: bool = False
    ) -> Iterator[transitions.Sample]:
        """Returns an iterator over one pass.

        Args:
            batch_size: steps in a batch, at least 1; the last may have less.
            drop_remainder: whether to leave out such a last batch.

        Returns:
            An iterator of `Sample`s, with weights 1 and probabilities 1 / size.

        Raises:
            TypeError: if `batch_size` is not an integer.
            ValueError: if it is less than 1; while iterating, if a step to come has
                been overwritten.
        """
        where = "SinglePass.batches"
        checks.check_whole_number(where, "batch_size", batch_size, low=1)
        random = np.random.default_rng(self._seed)
        indices = self._listed()
        if self._seed is not None:
            random.shuffle(indices)
        stop = len(indices) - (len(indices) % batch_size if drop_remainder else 0)
        return (
            self._read(indices[start : start + batch_size], len(indices), random)
            for start in range(0, stop, batch_size)
        )

    def dataset(self, batch_size: int, drop_remainder: bool = False) -> tf.data.Dataset:
        """Returns a dataset of the same batches, a new pass each time it is iterated.

        Args:
            batch_size: as in `batches`.
            drop_remainder: as in `batches`; shapes are static then.

        Returns:
            A `tf.data.Dataset` of `Sample`s.
        """
        spec = self.sample_spec(batch_size)
        if not drop_remainder:
            pairs = zip(self._reader.outer(2), self._reader.outer(3), strict=True)
            of_data = [one != other for one, other in pairs].index(True)
            parts = {}
            for name, part in spec._asdict().items():
                axis = of_data if name in ("data", "extra") else 0
                change = functools.partial(_of_any_size, axis)
                parts[name] = tf.nest.map_structure(change, part)
            spec = transitions.Sample(**parts)
        return tf.data.Dataset.from_generator(
            lambda: self.batches(batch_size, drop_remainder), output_signature=spec
        )

    def _catch_up(self) -> None:
        self._eligible.update()

    @locking.atomic
    def _listed(self) -> np.ndarray:
        """Returns the indices of all steps that can be drawn, in order."""
        self._catch_up()
        return np.sort(self._eligible.indices[self._eligible.flags])

    @locking.atomic
    def _read(
        self, indices: np.ndarray, size: int, random: np.random.Generator
    ) -> transitions.Sample:
        self._catch_up()
        rows = indices % self._steps.capacity
        there = self._eligible.indices.take(rows) == indices
        _indices.ensured(
            there.all(),
            indices[~there],
            "`SinglePass.batches`: `store` expected to keep the steps of a pass",
            "add none meanwhile, or raise its capacity",
        )
        weights = np.ones(len(indices), np.float32)
        return self._sampled(rows, random, None, weights, weights / np.float32(size))


def _of_any_size(axis: int, spec: tf.TensorSpec) -> tf.TensorSpec:
    sizes = list(spec.shape)
    return tf.TensorSpec([*sizes[:axis], None, *sizes[axis + 1 :]], spec.dtype)
