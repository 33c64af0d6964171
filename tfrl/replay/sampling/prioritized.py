"""Prioritized replay: steps are drawn in proportion to their priorities."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay import _eligibility, _indices, episodes, locking
from tfrl.replay.sampling import segment_tree, transitions, uniform

_INDEX = np.dtype(np.int64)


class PrioritizedReplay(uniform.Sampler):
    """Draws steps of an episode store in proportion to their priorities.

        mass_i = (priority_i + epsilon)^alpha
        probability_i = mass_i / sum_j mass_j
        weight_i = (size probability_i)^-beta / max_k (size probability_k)^-beta

    where the maximum is over the batch, so that weights are in (0, 1]. Draws are
    independent or, so that batches vary less, stratified: one from each of `batch_size`
    parts of equal mass, in random order. New steps have the highest priority that any
    step was ever given, at first 1; steps that are overwritten or cannot be drawn have
    none.

    Args:
        store: where the steps are. Several samplers may share it.
        kind: what a sample is, `Transitions` or `Sequences`; None for `Transitions()`.
        alpha: how much priorities count, in [0, 1]; 0 draws uniformly.
        beta: how much weights correct for it, in [0, 1]: a number, or a function
            without arguments that returns one, such as a schedule of `tfrl.schedules`.
        epsilon: number > 0, which keeps steps of priority 0 in play.
        seed: of its draws: an int, a `np.random.Generator`, or None for a seed from the
            system. A checkpoint keeps the state of the generator, all priorities,
            `alpha`, and the store.
        name: name of the module.
        stratified: whether draws are.

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
        *,
        stratified: bool = False,
    ) -> None:
        where = "PrioritizedReplay"
        checks.check_within(where, "alpha", alpha, 0, 1)
        if not callable(beta):
            checks.check_within(where, "beta", beta, 0, 1)
        checks.check_positive(where, "epsilon", epsilon)
        checks.check_finite(where, "epsilon", epsilon)
        checks.check_type(where, "stratified", stratified, bool, "a bool")
        super().__init__(store, kind, name)
        self._beta, self._modulus = beta, np.array(store.capacity)
        self._epsilon, self._stratified = np.array(float(epsilon)), stratified
        reader = self._reader
        padded = ", padded at ends" if self._pad_end else ""
        samples = (
            f"samples of {reader.reach} steps{padded}, with {reader.behind} before "
            f"them, from {store.steps.contents.contents}"
        )
        self._masses = _Masses(samples, self._eligible, store.capacity, alpha)
        self._random = _indices.Draws(where, seed)

    @property
    def settings(self) -> dict[str, Any]:
        """What is drawn, `kind`, and the numbers by which."""
        numbers = {"alpha": self.alpha, "epsilon": float(self._epsilon)}
        how = {"beta": self._beta, "stratified": self._stratified}
        return {**super().settings, **numbers, **how}

    @property
    def alpha(self) -> float:
        """How much priorities count. Setting another number keeps priorities.

        It may be set to numbers in (0, 1], but not if it was 0, which keeps no
        priorities.
        """
        return float(self._masses.alpha)

    @alpha.setter
    @locking.atomic
    def alpha(self, alpha: float) -> None:
        where, masses = "PrioritizedReplay", self._masses
        checks.check_within(where, "alpha", alpha, 0, 1)
        if alpha == self.alpha:
            return
        if not (alpha and self.alpha):
            raise ValueError(
                f"`{where}`: `alpha` expected to go from one number in (0, 1] to "
                f"another; got {alpha} after {self.alpha}; make another sampler"
            )
        self._catch_up()
        masses.tree.set_values(..., masses.tree.values ** (alpha / self.alpha))
        masses.alpha = np.array(float(alpha))

    @locking.atomic
    def sample(self, batch_size: int, out: Any = None) -> transitions.Sample:
        """Draws steps, with replacement.

        Args:
            batch_size: how many, at least 1.
            out: the `data` of an earlier sample, or arrays like it, to read into. This
                saves making new ones, which takes longer than reading if rows are
                large.

        Returns:
            A `Sample`.

        Raises:
            TypeError: if `batch_size` is not an integer, or `out` not writeable arrays.
            ValueError: if `batch_size` is less than 1, `out` does not fit, nothing
                can be drawn yet, or what `beta` returns is not in [0, 1].
        """
        beta = self._beta() if callable(self._beta) else self._beta
        if type(beta) is not float or not 0.0 <= beta <= 1.0:
            checks.check_within("PrioritizedReplay.sample", "beta", beta, 0, 1)
        targets = self._ready(batch_size, out)
        random, tree = self._random.generator, self._masses.tree
        numbers = random.random(batch_size)
        if self._stratified:
            numbers = (random.permutation(batch_size) + numbers) / batch_size
            # Rounding may give 1.
            np.minimum(numbers, np.nextafter(1.0, 0.0), out=numbers)
        rows = tree.inverse_cdf(numbers)
        shares = tree.values.take(rows) / tree.heap.running_sums()[-1]
        weights = (shares.min() / shares) ** float(beta)
        weights, shares = weights.astype(np.float32), shares.astype(np.float32)
        return self._sampled(rows, random, targets, weights, shares)

    @locking.atomic
    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Gives steps new priorities; steps overwritten since are left out.

        Args:
            indices: `[B]` integers, `indices` of samples. For one that occurs several
                times the last priority counts.
            priorities: `[B]` finite numbers >= 0, such as absolute errors.

        Raises:
            TypeError: if `indices` are not integers, or `priorities` not real numbers.
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
        highest = segment_tree.highest_weight(where, "priorities", values)
        self._catch_up()
        rows = index % self._modulus
        there = self._eligible.indices.take(rows)
        if there.tobytes() != index.tobytes():
            upcoming = self._steps.upcoming[index % self._steps.num_environments]
            _indices.ensured(
                np.all((upcoming > index) & (index >= 0)),
                index,
                f"`{where}`: `indices` expected steps that were added",
                "pass those of a sample",
            )
            same = there == index
            rows, values = rows[same], values[same]
            highest = values.max(initial=0.0)
        self._masses.highest = max(self._masses.highest, float(highest))
        values += self._epsilon
        np.power(values, self._masses.alpha, out=values)
        self._masses.tree.heap.set_leaves(rows, values)

    def _catch_up(self) -> None:
        """Gives new steps the highest priority so far, and those gone none."""
        change, masses = self._eligible.update(), self._masses
        if change is not None and change.rows.size:
            new = (masses.highest + self._epsilon) ** masses.alpha
            masses.tree.heap.set_leaves(change.rows, change.eligible * new)


class _Masses(tf.train.experimental.PythonState):
    """The tree of masses, one for each row, alpha, and the highest priority so far.

    `contents` says what they belong to, and has to be the same where they are restored.
    """

    def __init__(
        self,
        samples: str,
        eligible: _eligibility.Eligibility,
        capacity: int,
        alpha: float,
    ) -> None:
        self.alpha = np.array(float(alpha))
        self.contents, self._eligible = samples, eligible
        self.tree, self.highest = segment_tree.SumTree(capacity), 1.0

    def serialize(self) -> bytes:
        """Returns what a checkpoint keeps."""
        header = {
            "samples": self.contents,
            "highest": self.highest,
            "alpha": float(self.alpha),
            "checked": self._eligible.checked.tolist(),
        }
        masses = self.tree.values.astype("<f8", copy=False)
        return json.dumps(header).encode() + b"\n" + masses.tobytes()

    def deserialize(self, string_value: bytes) -> None:
        """Takes back what a checkpoint kept, of samples from an equal store."""
        text, _, rest = string_value.partition(b"\n")
        header = json.loads(text)
        where = "PrioritizedReplay"
        _indices.check_contents(where, header["samples"], self.contents)
        masses = np.frombuffer(rest, "<f8")
        self.tree.set_values(..., masses)
        self.highest = header["highest"]
        # Older checkpoints had the one that the sampler is made with.
        self.alpha = np.array(header.get("alpha", float(self.alpha)))
        self._eligible.restore(masses > 0, np.array(header["checked"], np.int64))
