"""Hindsight relabelling of goals (HER) in a replay of tensors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfrl.core import records

# Returns the rows of a nest of columns `[C, T, N, ...]` at numbers of steps `[n]`.
Read = Callable[[Any, tf.Tensor], Any]


class EpisodeBounds(NamedTuple):
    """Of every step in a replay the first and a later one of its episode, by number.

    Attributes:
        first: `[C, T, N]` int32, the first step of the episode.
        later: `[C, T, N]` int32, its last step in the same piece.
    """

    first: tf.Tensor
    later: tf.Tensor

    @classmethod
    def of(cls, shape: Any) -> "EpisodeBounds":
        """Returns those of a replay with nothing in it."""
        return cls(tf.zeros(shape, tf.int32), tf.zeros(shape, tf.int32))

    def added(
        self, piece: records.Trajectory, before: tf.Tensor, count: tf.Tensor
    ) -> "EpisodeBounds":
        """Adds a piece in place of the oldest.

        Args:
            piece: a trajectory `[T, N]`.
            before: `[N]` bool, whether the step before it ended an episode.
            count: number of its first step.
        """
        n_pieces, n_steps, n_envs = self.first.shape
        place = count // n_steps
        ended = piece.terminated | piece.truncated
        steps = tf.broadcast_to(count + tf.range(n_steps)[:, None], [n_steps, n_envs])
        begun = self.first[(place - 1) % n_pieces, -1]
        begun = tf.where(before | tf.equal(count, 0), count, begun)
        begins = tf.concat([tf.ones_like(ended[:1]), ended[:-1]], 0)
        first = tf.concat([begun[None], steps[1:]], 0)
        first = tf.where(begins, first, begun)
        later = tf.where(ended, steps, count + n_steps - 1)
        new = _running(tf.maximum, first), _running(tf.minimum, later[::-1])[::-1]
        return EpisodeBounds(
            *(
                tf.tensor_scatter_nd_update(old, [[place % n_pieces]], x[None])
                for old, x in zip(self, new, strict=True)
            )
        )

    def last(
        self, pieces: records.Trajectory, step: tf.Tensor, count: tf.Tensor, read: Read
    ) -> tf.Tensor:
        """Returns the last steps that are stored of the episodes of some steps, `[n]`.

        Args:
            pieces: the replay's.
            step: `[n]`, numbers of steps.
            count: number after the newest step.
            read: reads rows.
        """

        def goes_on(last: tf.Tensor) -> tf.Tensor:
            ends = (read(x, last) for x in (pieces.terminated, pieces.truncated))
            return (last + 1 < count) & ~tf.logical_or(*ends)

        return tf.while_loop(
            lambda last: tf.reduce_any(goes_on(last)),
            lambda last: (tf.where(goes_on(last), read(self.later, last + 1), last),),
            (read(self.later, step),),
        )[0]


class Relabelling(NamedTuple):
    """How desired goals are replaced, as of `tfrl.replay.Hindsight`.

    Attributes:
        compute_reward: of achieved and desired goals `[n, *shape]`, rewards `[n]`.
        ratio: share of the transitions whose goals are replaced.
        strategy: "future", "episode" or "final".
    """

    compute_reward: Callable[[Any, Any], Any]
    ratio: float
    strategy: str

    def drawn(
        self, chance: tf.Tensor, step: tf.Tensor, first: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws transitions to relabel, and the steps that achieved their new goals.

        Args:
            chance: `[2, n]`, uniform in (0, 1).
            step: `[n]`, with which transitions begin.
            first: `[n]`, the first steps stored of their episodes.
            last: `[n]`, the last ones.

        Returns:
            `[n]` bool, and `[n]` numbers of steps.
        """
        start = {"future": step, "episode": first, "final": last}[self.strategy]
        ahead = tf.cast(last - start + 1, tf.float32) * chance[1]
        goal = tf.minimum(start + tf.cast(ahead, tf.int32), last)
        return chance[0] < self.ratio, goal


def with_goals(observations: Any, chosen: tf.Tensor, goals: tf.Tensor) -> Any:
    """Returns observations with other desired goals where that is chosen.

    Args:
        observations: dict of `[n, ...]`.
        chosen: `[n]` bool.
        goals: `[n, *shape]`.
    """
    desired = observations["desired_goal"]
    mask = tf.reshape(chosen, [-1, *[1] * (desired.shape.rank - 1)])
    return {**observations, "desired_goal": tf.where(mask, goals, desired)}


def _running(function: Any, x: tf.Tensor) -> tf.Tensor:
    """Running maximum or minimum along the first axis, by doubling."""
    shift = 1
    while shift < x.shape[0]:
        ahead = tf.concat([tf.repeat(x[:1], shift, 0), x[:-shift]], 0)
        x, shift = function(x, ahead), 2 * shift
    return x
