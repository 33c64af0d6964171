"""What samplers have in common: the store, what can be drawn from it, the reading."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks, shapes
from tfrl.replay import _episode_rows, _row_layout, episodes
from tfrl.replay.sampling import _eligibility, _reading, transitions


class Source:
    """Steps of a store as samples of one kind.

    Attributes:
        steps: rows of the store.
        eligible: which of them can be drawn.
        samples: from which steps samples are read, as a line of text.

    Args:
        where: name of the sampler.
        store: the `EpisodeStore`.
        kind: `Transitions` or `Sequences`, or what has a method `reader` like them.
    """

    def __init__(self, where: str, store: Any, kind: Any) -> None:
        if not isinstance(store, episodes.EpisodeStore):
            raise TypeError(
                f"`{where}`: `store` expected an EpisodeStore; got "
                f"{type(store).__name__}; make one"
            )
        if not hasattr(kind, "reader"):
            raise TypeError(
                f"`{where}`: `kind` expected Transitions(...) or Sequences(...); got "
                f"{kind!r}; pass one of them"
            )
        self._where, self.steps = where, store.steps
        self._reader = kind.reader(self.steps)
        reach, behind = self._reader.reach, self._reader.behind
        self.eligible = _eligibility.Eligibility(self.steps, reach, behind)
        self.samples = (
            f"samples of {reach} steps, with {behind} before them, from "
            f"{self.steps.contents.serialize()}"
        )
        step = self.steps.rows.data_spec
        nests = {"observations": step.observations, "actions": step.actions}
        nests["next_observations"] = step.observations
        fields = {
            name: tf.nest.pack_sequence_as(
                nests.get(name, 0), [shapes.ShapeDtype(*leaf) for leaf in leaves]
            )
            for name, leaves in self._reader.specs()._asdict().items()
        }
        data = self._reader.record(**fields)
        self._layout = _row_layout.RowLayout(data, self.steps.capacity)
        self._extra = _row_layout.RowLayout(step.extra, self.steps.capacity)

    def spec(self, batch_size: int) -> transitions.Sample:
        """Returns specs of a sample."""
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

    def targets(self, batch_size: Any, out: Any) -> _reading.Targets:
        """Returns the leaves of `out`; raises if samples do not fit into them."""
        if not tf.executing_eagerly():
            raise _episode_rows.traced(f"{self._where}.sample")
        if type(batch_size) is not int or batch_size < 1:
            where = f"{self._where}.sample"
            checks.check_whole_number(where, "batch_size", batch_size, low=1)
        if out is None:
            return None
        outer = self._reader.outer(int(batch_size))
        return self._layout.targets(out, outer, f"{self._where}.sample")

    def check_any(self) -> None:
        """Raises if there is nothing to draw."""
        if not self.eligible.count:
            raise ValueError(
                f"`{self._where}.sample`: `store` expected at least "
                f"{self._reader.reach} steps of one episode; got none that long; add "
                "steps first"
            )

    def read(
        self, rows: np.ndarray, random: np.random.Generator, targets: _reading.Targets
    ) -> tuple[Any, np.ndarray, Any]:
        """Returns data, indices and extra of the steps in rows."""
        data = self._layout.pack(self._reader.read(rows, random, targets))
        extra = self._extra.data_spec
        if self._extra.leaves:
            along, arrays = self._reader.rows(rows), self.steps.columns().extra
            leaves = [array.take(along, 0, None, "clip") for array in arrays]
            extra = self._extra.pack(leaves)
        return data, self.steps.marks.arrays[0].take(rows), extra
