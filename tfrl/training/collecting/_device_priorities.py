"""Priorities of a replay of tensors, and draws in proportion to them."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# As of `tfrl.replay.PrioritizedReplay`.
_EPSILON = 1e-6


class DevicePriorities(NamedTuple):
    """The mass of every row of a replay, `(priority + epsilon)^alpha`.

    A row is drawn in two steps, its piece by the sums of the pieces and its place among
    that piece's masses, each by a number of its own: so that float32 is enough for
    many rows, where one running sum over all would round shares away.

    Attributes:
        masses: `[C, W]` float32, 0 where nothing has been added yet.
        highest: scalar, the highest priority that a row was given, at first 1.
    """

    masses: tf.Tensor
    highest: tf.Tensor

    @classmethod
    def of(cls, n_pieces: int, width: int) -> "DevicePriorities":
        """Returns those of a replay with nothing in it, of pieces of so many rows."""
        return cls(tf.zeros([n_pieces, width]), tf.constant(1.0))

    def added(self, piece: tf.Tensor, alpha: float) -> "DevicePriorities":
        """Gives the rows of a new piece the highest priority so far.

        Args:
            piece: its number, a scalar.
            alpha: how much priorities count.
        """
        width = self.masses.shape[1]
        new = tf.fill([1, width], (self.highest + _EPSILON) ** alpha)
        masses = tf.tensor_scatter_nd_update(self.masses, [[piece]], new)
        return self._replace(masses=masses)

    def drawn(
        self, chance: tf.Tensor, n_filled: tf.Tensor, beta: float
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws rows in proportion to their masses, with replacement.

        Args:
            chance: `[2, n]`, uniform in (0, 1).
            n_filled: how many pieces have been added, at most C.
            beta: how far weights make up for it.

        Returns:
            Rows, their weights and probabilities, all `[n]`. Weights are

                (rows probability)^-beta / max_i (rows probability_i)^-beta
        """
        width = self.masses.shape[1]
        inside = tf.cumsum(self.masses, axis=1)
        until = tf.cumsum(inside[:, -1])
        start = tf.zeros(chance[0].shape, tf.int32)
        piece = _n_below(until, start, chance[0] * until[-1])
        piece = tf.minimum(piece, n_filled - 1)  # sums are rounded
        sums, start = tf.reshape(inside, [-1]), piece * width
        targets = chance[1] * tf.gather(inside[:, -1], piece)
        place = _n_below(sums, start, targets, width)
        rows = start + tf.minimum(place, width - 1)
        share = tf.gather(tf.reshape(self.masses, [-1]), rows) / until[-1]
        return rows, (tf.reduce_min(share) / share) ** beta, share

    def updated(
        self, rows: tf.Tensor, priorities: tf.Tensor, alpha: float
    ) -> "DevicePriorities":
        """Gives rows new priorities; of one that comes several times the last counts.

        Args:
            rows: `[n]`.
            priorities: `[n]`, numbers >= 0.
            alpha: how much they count.
        """
        n, masses = rows.shape[0], tf.reshape(self.masses, [-1])
        priorities = tf.cast(priorities, tf.float32)
        highest = tf.maximum(self.highest, tf.reduce_max(priorities))
        last = tf.tensor_scatter_nd_max(
            tf.fill(masses.shape, -1), rows[:, None], tf.range(n)
        )
        latest = tf.gather(priorities, tf.gather(last, rows))
        new = (latest + _EPSILON) ** alpha
        masses = tf.tensor_scatter_nd_update(masses, rows[:, None], new)
        return DevicePriorities(tf.reshape(masses, self.masses.shape), highest)

    def reweighted(self, old: float, new: float) -> "DevicePriorities":
        """Returns the same priorities with another alpha.

        Args:
            old: how much they counted.
            new: how much they are to count.

        Raises:
            ValueError: if just one is 0, as masses of 1 tell no priorities.
        """
        if old == new:
            return self
        if not (old and new):
            raise ValueError(
                "`Trainer`: `experience` expected `alpha` to go from one number in "
                f"(0, 1] to another; got {new} after {old}; give the old value"
            )
        return self._replace(masses=self.masses ** (new / old))

    def check(self) -> None:
        """Raises a ValueError if a priority was NaN or infinite."""
        if not np.isfinite(self.highest):
            raise ValueError(
                "`Trainer`: `agent` expected to give finite `priorities`; got "
                f"{float(self.highest)}; its loss diverges: lower its learning rate"
            )


def _n_below(
    sums: tf.Tensor, start: tf.Tensor, targets: tf.Tensor, width: int | None = None
) -> Any:
    """How many of the running sums from `start` on are at most the targets, `[n]`."""
    width = sums.shape[0] if width is None else width
    found, stride = tf.zeros_like(start), 2 ** (width.bit_length() - 1)
    while stride:
        ahead = found + stride
        place = start + tf.minimum(ahead, width) - 1
        is_below = (ahead <= width) & (tf.gather(sums, place) <= targets)
        found, stride = tf.where(is_below, ahead, found), stride // 2
    return found
