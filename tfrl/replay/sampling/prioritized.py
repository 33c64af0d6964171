"""Replay that draws steps by how much there is to learn from them."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.replay import _indices, episodes, locking
from tfrl.replay.sampling import _draws, _source, segment_tree, transitions

_INFINITY = np.float64(np.inf).view(np.uint64)
_INDEX = np.dtype(np.int64)


class PrioritizedReplay(tf.Module):
    """Draws steps of an episode store in proportion to their priorities.

        mass_i = (priority_i + epsilon)^alpha
        probability_i = mass_i / sum_j mass_j
        weight_i = (size probability_i)^-beta / max_k (size probability_k)^-beta

    where the maximum is over the batch, so that weights are in (0, 1]. Draws are
    independent. New steps have the highest priority any step was ever given, at first
    1; what is overwritten or cannot be drawn has none.

    Args:
        store: where the steps are. Several samplers may share it.
        kind: what a sample is, `Transitions` or `Sequences`; None for `Transitions()`.
        alpha: how much priorities count, in [0, 1]; 0 draws uniformly.
        beta: how much weights make up for it, in [0, 1]: a number, or a function
            without arguments that returns one, such as a schedule of `tfrl.schedules`.
        epsilon: number > 0, which keeps steps of priority 0 in play.
        seed: what it draws by: an int, a `np.random.Generator`, or None for a seed of
            the system's. A checkpoint keeps the state of the generator, all
            priorities, and the store.
        name: name of the module.

    Raises:
        TypeError: if `store` or `kind` is something else.
        ValueError: if a number is out of range, or no sample of this kind fits into the
            store.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([]), tf.TensorSpec([], tf.int32), capacity=100)
        >>> for t in range(4):
        ...     store.add([float(t)], [t], [1.0], [False], [False], [t + 1.0])
        >>> replay = PrioritizedReplay(store, alpha=1.0, seed=0)
        >>> replay.update_priorities([0, 1, 2, 3], [0.0, 0.0, 3.0, 1.0])
        >>> sample = replay.sample(6)
        >>> sample.indices, sample.probabilities[0].round(2)
        (array([2, 2, 2, 2, 3, 3]), np.float32(0.75))

    References:
        T. Schaul, J. Quan, I. Antonoglou, D. Silver, 2016, Prioritized Experience
        Replay, section 3.
    """

    def __init__(
        self,
        store: episodes.EpisodeStore,
        kind: Any = None,
        alpha: float = 0.6,
        beta: float | Callable[[], Any] = 0.4,
        epsilon: float = 1e-6,
        seed: int | np.random.Generator | None = None,
        name: str = "PrioritizedReplay",
    ) -> None:
        where = "PrioritizedReplay"
        checks.check_within(where, "alpha", alpha, 0, 1)
        if not callable(beta):
            checks.check_within(where, "beta", beta, 0, 1)
        checks.check_positive(where, "epsilon", epsilon)
        checks.check_finite(where, "epsilon", epsilon)
        kind = transitions.Transitions() if kind is None else kind
        source = _source.Source(where, store, kind)
        super().__init__(name=name)
        self._source, self._beta = source, beta
        self._store, self._lock = store, store.lock
        # Checkpoints restore in this order; one of something else changes nothing.
        self._contents = store.steps.contents
        self._masses = _Masses(source, float(alpha), float(epsilon))
        self._random = _draws.Draws(seed)

    @property
    def store(self) -> episodes.EpisodeStore:
        """Where the steps are."""
        return self._store

    @property
    @locking.atomic
    def size(self) -> int:
        """How many steps can be drawn."""
        self._masses.catch_up()
        return self._source.eligible.count

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
        return self._source.spec(batch_size)

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
            ValueError: if `batch_size` is less than 1, `out` does not fit, nothing
                can be drawn yet, or what `beta` returns is not in [0, 1].
        """
        targets = self._source.targets(batch_size, out)
        beta = self._beta() if callable(self._beta) else self._beta
        if type(beta) is not float or not 0.0 <= beta <= 1.0:
            checks.check_within("PrioritizedReplay.sample", "beta", beta, 0, 1)
        self._masses.catch_up()
        self._source.check_any()
        random, tree = self._random.generator, self._masses.tree
        rows = tree.inverse_cdf(random.random(batch_size))
        shares = tree.values.take(rows) / tree.heap.running_sums()[-1]
        weights = (shares.min() / shares) ** float(beta)
        data, indices, extra = self._source.read(rows, random, targets)
        return transitions.Sample(
            data,
            indices,
            weights.astype(np.float32),
            shares.astype(np.float32),
            extra,
        )

    @locking.atomic
    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Gives steps new priorities; those overwritten since are left out.

        Args:
            indices: `[B]` integers, `indices` of samples. Of one that comes several
                times the last priority counts.
            priorities: `[B]` finite numbers >= 0, such as absolute errors.

        Raises:
            TypeError: if `indices` are no integers, or `priorities` no real numbers.
            ValueError: if a shape does not fit, a priority is negative, infinite or
                NaN, or a step was never added; all priorities are unchanged.
        """
        where = "PrioritizedReplay.update_priorities"
        index, given = indices, np.asarray(priorities)
        if type(index) is not np.ndarray or index.dtype != _INDEX:
            index = _indices.int64_array(where, "indices", indices)
        if given.dtype.kind not in "biuf" and not tf.as_dtype(given.dtype).is_floating:
            raise TypeError(
                f"`{where}`: `priorities` expected real numbers; got {given.dtype}; "
                "convert them to float32"
            )
        if index.ndim != 1 or index.shape != given.shape:
            checks.check_rank(where, "indices", index, exact=1)
            checks.check_same_shape(where, indices=index, priorities=given)
        if not given.size:
            return
        values = given.astype(np.float64)
        # Read as whole numbers, those of a sign and NaN are above inf, too.
        highest = values.view(np.uint64).max()
        if highest >= _INFINITY:
            wrong = values[~((values >= 0) & (values < np.inf))]
            if wrong.size:
                raise ValueError(
                    f"`{where}`: `priorities` expected finite numbers >= 0; got "
                    f"{wrong[0]}; correct it"
                )
            highest = values.max().view(np.uint64)
        self._masses.set(where, index, values, highest.view(np.float64))


class _Masses(tf.train.experimental.PythonState):
    """The tree of masses, one for each row; a checkpoint keeps them.

    `contents` says what they belong to, and has to be the same where they are restored.
    """

    def __init__(self, source: _source.Source, alpha: float, epsilon: float) -> None:
        self._source = source
        self._alpha, self._epsilon = np.array(alpha), np.array(epsilon)
        self.contents = source.samples
        self._highest = 1.0
        self.tree = segment_tree.SumTree(source.steps.capacity)
        self._modulus = np.array(source.steps.capacity)

    def catch_up(self) -> None:
        """Gives new steps the highest priority so far, and those gone none."""
        change = self._source.eligible.update()
        if change is not None and change.rows.size:
            new = (self._highest + self._epsilon) ** self._alpha
            self.tree.heap.set_leaves(change.rows, change.eligible * new)

    def set(
        self, where: str, index: np.ndarray, priorities: np.ndarray, highest: np.float64
    ) -> None:
        """Sets the priorities of those steps that can still be drawn.

        The priorities are overwritten. Raises `ValueError` if a step was never added.
        """
        self.catch_up()
        rows, steps = index % self._modulus, self._source.steps
        there = self._source.eligible.indices.take(rows)
        if there.tobytes() != index.tobytes():
            known = steps.upcoming[index % steps.num_environments] > index
            _indices.ensured(
                np.all(known & (index >= 0)),
                index,
                f"`{where}`: `indices` expected steps that were added",
                "pass those of a sample",
            )
            same = there == index
            rows, priorities = rows[same], priorities[same]
            highest = priorities.max(initial=0.0)
        self._highest = max(self._highest, float(highest))
        priorities += self._epsilon
        np.power(priorities, self._alpha, out=priorities)
        self.tree.heap.set_leaves(rows, priorities)

    def serialize(self) -> bytes:
        """Returns what a checkpoint keeps."""
        return b"".join(piece.tobytes() for piece in self.pieces())

    def pieces(self) -> list[np.ndarray]:
        """Returns what a checkpoint keeps, one piece behind the other, without a copy.

        There are many masses if rows are small.
        """
        header = {
            "samples": self._source.samples,
            "highest": self._highest,
            "checked": self._source.eligible.checked.tolist(),
        }
        text = np.frombuffer(json.dumps(header).encode() + b"\n", np.uint8)
        return [text, self.tree.values.astype("<f8", copy=False)]

    def deserialize(self, string_value: bytes) -> None:
        """Takes back what a checkpoint kept, of samples from an equal store."""
        text, _, rest = string_value.partition(b"\n")
        header, samples = json.loads(text), self._source.samples
        if header["samples"] != samples:
            raise ValueError(
                f"`PrioritizedReplay`: the checkpoint expected {header['samples']}; "
                f"got {samples}; make the sampler like the one saved"
            )
        masses = np.frombuffer(rest, "<f8")
        self.tree.set_values(..., masses)
        self._highest = header["highest"]
        self._source.eligible.restore(masses > 0, np.array(header["checked"], np.int64))
