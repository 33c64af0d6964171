"""Uniform replay: each step is equally likely; and what samplers share."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import shapes
from tfrl.replay import _eligibility, _indices, episodes, locking
from tfrl.replay.memory import _row_layout
from tfrl.replay.sampling import transitions

# Fewer than this share of rows: they are listed rather than found by trying.
_RARE = 0.125


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
        if not hasattr(kind, "reader") or isinstance(kind, type):
            raise TypeError(
                f"`{self._where}`: `kind` expected Transitions(...) or Sequences(...); "
                f"got {kind!r}; pass one of them"
            )
        steps = store.steps
        reader = kind.reader(steps)
        super().__init__(name=name)
        self._kind, self._steps, self._reader = kind, steps, reader
        # Readers of others' kinds need not know of it.
        self._pad_end = getattr(reader, "pad_end", False)
        self._eligible = _eligibility.Eligibility(
            steps, reader.reach, reader.behind, self._pad_end
        )
        # What no rows at all are read as says how others look.
        nothing = reader.read(np.zeros(0, np.intp), np.random.default_rng(0), None)
        n_outer = len(reader.outer(0))
        leaves = [shapes.ShapeDtype(x.shape[n_outer:], x.dtype) for x in nothing]
        step = steps.rows.data_spec
        nests = {**step._asdict(), "next_observations": step.observations}
        # What a record need not have, readers do not read.
        names = set(reader.record._fields) - set(reader.record._field_defaults)
        fields = {name: nests.get(name, 0) for name in names}
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
    def settings(self) -> dict[str, Any]:
        """What is drawn, `kind`, and the numbers by which."""
        return {"kind": self._kind}

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

    def _ready(self, batch_size: Any, out: Any) -> transitions.Targets:
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
            reach, or_ended, remedy = self._reader.reach, "", "add steps first"
            if self._pad_end:
                or_ended = ", or one that has ended"
            elif reach > 1:
                remedy += "; `Sequences(pad_end=True)` takes shorter episodes too"
            raise ValueError(
                f"`{where}`: `store` expected at least {reach} steps of one episode"
                f"{or_ended}; got none that long; {remedy}"
            )
        return targets

    def _sampled(
        self,
        rows: np.ndarray,
        random: np.random.Generator,
        targets: transitions.Targets,
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


class UniformReplay(Sampler):
    """Draws steps of an episode store, each equally likely, independently.

        probability = 1 / size

    With a `recent_ratio`, that share of each batch, rounded, comes only from the newest
    steps, so that for one of these `recent` steps and a share s of the batch,

        probability = s / recent + (1 - s) / size

    Weights are 1 nevertheless: seeing more of what is new is the purpose.

    Args:
        store: where the steps are. Several samplers may share it.
        kind: what a sample is, `Transitions` or `Sequences`; None for `Transitions()`.
        seed: of its draws: an int, a `np.random.Generator`, or None for a seed from the
            system. A checkpoint keeps the state of the generator, and the store.
        name: name of the module.
        replacement: whether a step may occur several times in a batch. Drawing without
            it takes time that grows with the store.
        recent_steps: how many of the newest steps of each environment are recent,
            whether or not a sample of this `kind` can begin with them yet.
        recent_ratio: share of a batch that comes from these, in [0, 1]. While none of
            them can be drawn, the whole batch comes from all steps.

    Raises:
        TypeError: if `store` or `kind` is something else.
        ValueError: if no sample of this kind fits into the store, a number is out of
            range, or there is a `recent_ratio` without `recent_steps`.

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
        *,
        replacement: bool = True,
        recent_steps: int = 0,
        recent_ratio: float = 0.0,
    ) -> None:
        where = "UniformReplay"
        checks.check_type(where, "replacement", replacement, bool, "a bool")
        checks.check_whole_number(where, "recent_steps", recent_steps, low=0)
        checks.check_within(where, "recent_ratio", recent_ratio, 0, 1)
        if recent_ratio and not recent_steps:
            raise ValueError(
                f"`{where}`: `recent_steps` expected at least 1, as `recent_ratio` is "
                f"{recent_ratio}; got 0"
            )
        super().__init__(store, kind, name)
        self._random = _indices.Draws(where, seed)
        self._filled = 1
        self._listed: np.ndarray | None = None
        self._recent: np.ndarray | None = None
        self._replacement = replacement
        self._recent_steps, self._recent_ratio = recent_steps, recent_ratio

    @property
    def settings(self) -> dict[str, Any]:
        """What is drawn, `kind`, and how."""
        return {
            **super().settings,
            "replacement": self._replacement,
            "recent_steps": self._recent_steps,
            "recent_ratio": self._recent_ratio,
        }

    @locking.atomic
    def sample(self, batch_size: int, out: Any = None) -> transitions.Sample:
        """Draws steps.

        Args:
            batch_size: how many, at least 1.
            out: the `data` of an earlier sample, or arrays like it, to read into. This
                saves making new ones, which takes longer than reading if rows are
                large.

        Returns:
            A `Sample`.

        Raises:
            TypeError: if `batch_size` is not an integer, or `out` not writeable arrays.
            ValueError: if `batch_size` is less than 1, `out` does not fit, nothing can
                be drawn yet, or, without replacement, fewer than `batch_size`.
        """
        targets = self._ready(batch_size, out)
        random = self._random.generator
        weights = np.empty(batch_size, np.float32)
        probabilities = np.empty(batch_size, np.float32)
        weights.fill(1.0)
        count = round(self._recent_ratio * batch_size)
        recent = np.zeros(0, np.intp)
        if count:
            if self._recent is None:
                self._recent = self._recent_rows()
            recent = self._recent
        if not recent.size:
            rows = self._drawn(batch_size, random)
            probabilities.fill(1.0 / self._eligible.count)
        else:
            rows, share = self._mixed(batch_size, count, recent, random)
            probabilities.fill((1.0 - share) / self._eligible.count)
            probabilities[np.isin(rows, recent)] += share / recent.size
        return self._sampled(rows, random, targets, weights, probabilities)

    def _recent_rows(self) -> np.ndarray:
        """Returns the rows of the newest steps, those of them that can be drawn."""
        steps, newest = self._steps, self._recent_steps
        top = steps.upcoming
        # Behind the last step of each episode is a row that is none, so that of rows
        # which follow each other at least every other one is a step.
        oldest = np.maximum(top - 2 * newest * steps.stride, steps.oldest())
        index = _eligibility.spans(oldest, top, steps.stride)
        rows = index % steps.modulus
        is_step = steps.ends(rows) > index
        is_step &= steps.marks.arrays[0].take(rows) == index
        counts = np.maximum(top - oldest, 0) // steps.stride
        before = np.append(0, is_step.cumsum())
        later = before[counts.cumsum()].repeat(counts) - before[1:]
        return rows[is_step & (later < newest) & self._eligible.flags.take(rows)]

    def _mixed(
        self, batch_size: int, count: int, recent: np.ndarray, random: Any
    ) -> tuple[np.ndarray, float]:
        """Returns rows of which `count` are recent, and what share these are."""
        if self._replacement:
            newest = recent[random.integers(0, recent.size, count)]
            rest = batch_size - count
            others = self._drawn(rest, random) if rest else newest[:0]
            return np.concatenate([newest, others]), count / batch_size
        count = min(count, recent.size)
        newest = random.choice(recent, count, replace=False)
        others = self._drawn(batch_size, random)
        others = others[~np.isin(others, newest)][: batch_size - count]
        return np.concatenate([newest, others]), count / batch_size

    def _catch_up(self) -> None:
        if self._eligible.update() is None:
            return
        # Rows are filled in their order, those of all environments in turns.
        self._filled = min(int(self._steps.upcoming.max()) + 1, self._steps.capacity)
        self._listed = self._recent = None

    def _drawn(self, batch_size: int, random: np.random.Generator) -> np.ndarray:
        """Returns rows drawn from all that are eligible."""
        eligible, filled = self._eligible, self._filled
        share = eligible.count / filled
        if share < _RARE or not self._replacement:
            if self._listed is None:
                self._listed = np.flatnonzero(eligible.flags)
            if self._replacement:
                return self._listed[random.integers(0, self._listed.size, batch_size)]
            if batch_size > eligible.count:
                raise ValueError(
                    "`UniformReplay.sample`: `batch_size` expected at most the "
                    f"{eligible.count} steps there are, without replacement; got "
                    f"{batch_size}"
                )
            return random.choice(self._listed, batch_size, replace=False)
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
