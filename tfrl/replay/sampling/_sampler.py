"""What samplers have in common: the store, what can be drawn from it, the reading."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import shapes
from tfrl.replay import _indices, episodes, locking
from tfrl.replay.memory import _row_layout
from tfrl.replay.sampling import _eligibility, _reading, transitions


class Sampler(tf.Module):
    """Draws steps of a store, and reads samples of one kind from them.

    Args:
        store: the `EpisodeStore`.
        kind: `Transitions` or `Sequences`, or what has a method `reader` like them;
            None for `Transitions()`.
        name: name of the module.
    """

    def __init__(self, store: episodes.EpisodeStore, kind: Any, name: str) -> None:
        self._where = type(self).__name__
        kind = transitions.Transitions() if kind is None else kind
        if not isinstance(store, episodes.EpisodeStore):
            raise TypeError(
                f"`{self._where}`: `store` expected an EpisodeStore; got "
                f"{type(store).__name__}; make one"
            )
        if not hasattr(kind, "reader"):
            raise TypeError(
                f"`{self._where}`: `kind` expected Transitions(...) or Sequences(...); "
                f"got {kind!r}; pass one of them"
            )
        steps = store.steps
        reader = kind.reader(steps)
        super().__init__(name=name)
        self._steps, self._reader = steps, reader
        self._eligible = _eligibility.Eligibility(steps, reader.reach, reader.behind)
        # What no rows at all are read as says how others look.
        nothing = reader.read(np.zeros(0, np.intp), np.random.default_rng(0), None)
        n_outer = len(reader.outer(0))
        leaves = [shapes.ShapeDtype(x.shape[n_outer:], x.dtype) for x in nothing]
        step = steps.rows.data_spec
        nests = {**step._asdict(), "next_observations": step.observations}
        fields = {name: nests.get(name, 0) for name in reader.record._fields}
        data = tf.nest.pack_sequence_as(reader.record(**fields), leaves)
        self._layout = _row_layout.RowLayout(data, steps.capacity)
        self._extra = _row_layout.RowLayout(step.extra, steps.capacity)
        self._store, self._lock = store, store.lock
        # Checkpoints restore in this order; one of something else changes nothing.
        self._contents = steps.contents

    @property
    def store(self) -> episodes.EpisodeStore:
        """Where the steps are."""
        return self._store

    @property
    @locking.atomic
    def size(self) -> int:
        """How many steps can be drawn."""
        self._catch_up()
        return self._eligible.count

    def sample_spec(self, batch_size: int) -> transitions.Sample:
        """Returns specs of what `sample` returns.

        Args:
            batch_size: how many steps, at least 1.

        Returns:
            A `Sample` of `tf.TensorSpec`.

        Raises:
            TypeError: if `batch_size` is not an integer.
            ValueError: if it is less than 1.
        """
        where = f"{self._where}.sample_spec"
        count = checks.check_whole_number(where, "batch_size", batch_size, low=1)
        outer = self._reader.outer(count)
        data, extra = (
            tf.nest.map_structure(
                lambda leaf: tf.TensorSpec((*outer, *leaf.shape), leaf.dtype),
                layout.data_spec,
            )
            for layout in (self._layout, self._extra)
        )
        number = tf.TensorSpec([count], tf.float32)
        index = tf.TensorSpec([count], tf.int64)
        return transitions.Sample(data, index, number, number, extra)

    def _catch_up(self) -> None:
        """Follows the store to where it is now."""
        raise NotImplementedError

    def _ready(self, batch_size: Any, out: Any) -> _reading.Targets:
        """Returns the leaves of `out`; raises unless so many samples can be drawn."""
        where, targets = f"{self._where}.sample", None
        _indices.check_eager(where, "use `as_dataset`")
        if type(batch_size) is not int or batch_size < 1:
            checks.check_whole_number(where, "batch_size", batch_size, low=1)
        if out is not None:
            outer = self._reader.outer(int(batch_size))
            targets = self._layout.targets(out, outer, where)
        self._catch_up()
        if not self._eligible.count:
            raise ValueError(
                f"`{where}`: `store` expected at least {self._reader.reach} steps of "
                "one episode; got none that long; add steps first"
            )
        return targets

    def _sampled(
        self,
        rows: np.ndarray,
        random: np.random.Generator,
        targets: _reading.Targets,
        weights: np.ndarray,
        probabilities: np.ndarray,
    ) -> transitions.Sample:
        """Returns the samples of the steps in rows."""
        data = self._layout.pack(self._reader.read(rows, random, targets))
        extra = self._extra.data_spec
        if self._extra.leaves:
            along, arrays = self._reader.rows(rows), self._steps.columns().extra
            leaves = [array.take(along, 0, None, "clip") for array in arrays]
            extra = self._extra.pack(leaves)
        indices = self._steps.marks.arrays[0].take(rows)
        return transitions.Sample(data, indices, weights, probabilities, extra)
