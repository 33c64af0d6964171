"""What samplers have in common: the store, what can be drawn from it, the reading."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.replay import _eligibility, _episode_rows, _reading, episodes, transitions


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
        self._extra_spec = self.steps.rows.data_spec.extra
        self._specs = functools.lru_cache(8)(self._prepared)

    def spec(self, batch_size: int) -> transitions.Sample:
        """Returns specs of a sample."""
        where = f"{self._where}.sample_spec"
        count = checks.check_whole_number(where, "batch_size", batch_size, low=1)
        data = self._specs(count)[1]
        outer = data.rewards.shape
        extra = tf.nest.map_structure(
            lambda spec: tf.TensorSpec((*outer, *spec.shape), spec.dtype),
            self._extra_spec,
        )
        number = tf.TensorSpec([count], tf.float32)
        index = tf.TensorSpec([count], tf.int64)
        return transitions.Sample(data, index, number, number, extra)

    def targets(self, batch_size: Any, out: Any) -> _reading.Targets:
        """Returns the leaves of `out`; raises if samples do not fit into them."""
        where = f"{self._where}.sample"
        _episode_rows.check_eager(where)
        checks.check_whole_number(where, "batch_size", batch_size, low=1)
        if out is None:
            return None
        specs, expected = self._specs(int(batch_size))
        if self._reader.single and type(out) is type(expected):
            leaves = list(out)
        else:
            leaves = self._flat(where, expected, out)
        for array, (shape, dtype) in zip(leaves, specs, strict=True):
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise TypeError(
                    f"`{where}`: `out` expected writeable numpy arrays; got "
                    f"{type(array).__name__}; use np.empty"
                )
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"`{where}`: `out` expected {dtype} of shape {list(shape)}; got "
                    f"{array.dtype} of {list(array.shape)}; make one to measure"
                )
        return leaves

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
        columns = self.steps.columns()
        data = self._pack(self._reader.read(rows, random, targets))
        extra = self._extra_spec
        if columns.extra:
            along = self._reader.rows(rows)
            leaves = [array.take(along, 0, mode="clip") for array in columns.extra]
            extra = tf.nest.pack_sequence_as(extra, leaves)
        return data, columns.indices.take(rows), extra

    def _prepared(self, batch_size: int) -> tuple[list[tuple[Any, Any]], Any]:
        """Returns shape and dtype of the leaves of samples, and these as specs."""
        fields = self._reader.specs(batch_size)
        leaves = [leaf for field in fields for leaf in field]
        return leaves, self._pack([tf.TensorSpec(*leaf) for leaf in leaves])

    def _flat(self, where: str, expected: Any, out: Any) -> list[Any]:
        try:
            tf.nest.assert_same_structure(expected, out)
        except (TypeError, ValueError):
            raise ValueError(
                f"`{where}`: `out` expected the structure of {expected}; got "
                f"{type(out).__name__}; pass the `data` of a sample"
            ) from None
        return tf.nest.flatten(out)

    def _pack(self, leaves: list[Any]) -> Any:
        if self._reader.single:
            return self._reader.record(*leaves)
        step = self.steps.rows.data_spec
        record: Any = self._reader.record
        fields = [0] * len(record._fields)
        fields[0] = fields[record._fields.index("next_observations")] = (
            step.observations
        )
        fields[1] = step.actions
        return tf.nest.pack_sequence_as(record(*fields), leaves)
