"""A replay of tensors, for who collects and learns within one graph."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfrl._internal import draws
from tfrl.core import records
from tfrl.replay.sampling import transitions


class DeviceReplay(NamedTuple):
    """The last steps of N environments, in a ring of pieces of T steps.

    Attributes:
        pieces: a `Trajectory` `[C, T, N, ...]`; `()` for what transitions do not need.
        count: how many steps each environment has added.
    """

    pieces: records.Trajectory
    count: tf.Tensor

    @classmethod
    def of(cls, piece: records.Trajectory, capacity: int) -> "DeviceReplay":
        """Returns a replay of zeros.

        Args:
            piece: a trajectory `[T, N]` such as will be added.
            capacity: steps of all environments that it keeps; rounded to pieces.
        """
        n_steps, n_envs = piece.rewards.shape
        count = max(1, capacity // (n_steps * n_envs))
        zeros = tf.nest.map_structure(
            lambda x: tf.zeros([count, *x.shape], x.dtype), _kept(piece)
        )
        return cls(zeros, tf.constant(0))

    def extended(self, piece: records.Trajectory) -> "DeviceReplay":
        """Returns the replay with a trajectory `[T, N]` in place of the oldest."""
        n_pieces, n_steps, _ = self.pieces.rewards.shape
        place = [[self.count // n_steps % n_pieces]]
        pieces = tf.nest.map_structure(
            lambda old, new: tf.tensor_scatter_nd_update(old, place, new[None]),
            self.pieces,
            _kept(piece),
        )
        return DeviceReplay(pieces, self.count + n_steps)

    def drawn(
        self, seed: tf.Tensor, sizes: tuple[int, int], n_steps: int, gamma: float
    ) -> transitions.Sample:
        """Draws transitions uniformly, with replacement.

        Args:
            seed: int32 `[2]`.
            sizes: K and B.
            n_steps: m, the most steps of a transition, whose reward is the sum of
                `gamma^j * rewards[t + j]` up to the episode's end or the newest step.
            gamma: discount factor per step.

        Returns:
            A `Sample` of `Transition`s `[K, B, ...]`, without indices.
        """
        n_pieces, length, n_envs = self.pieces.rewards.shape
        capacity, size = n_pieces * length, tf.minimum(self.count, n_pieces * length)
        chance = draws.uniform([2, sizes[0] * sizes[1]], seed, tf.float32)
        age = tf.minimum(
            tf.cast(chance[0] * tf.cast(size, tf.float32), tf.int32), size - 1
        )
        env = tf.minimum(tf.cast(chance[1] * n_envs, tf.int32), n_envs - 1)
        first = self.count - size + age

        def read(column: Any, step: tf.Tensor) -> Any:
            rows = step % capacity * n_envs + env
            return tf.nest.map_structure(
                lambda x: tf.gather(tf.reshape(x, [-1, *x.shape[3:]]), rows), column
            )

        pieces, last = self.pieces, first
        rewards, discounts = tf.zeros(first.shape), tf.ones(first.shape)
        goes_on = tf.ones(first.shape, tf.bool)
        for j in range(n_steps):
            step = first + j
            taken = goes_on & (step < self.count)
            ended, cut = (read(x, step) for x in (pieces.terminated, pieces.truncated))
            # Nothing is added, be it NaN, of steps that are not taken.
            gained = discounts * read(pieces.rewards, step)
            rewards += tf.where(taken, gained, tf.zeros_like(gained))
            share = tf.where(ended, tf.zeros_like(gained), gamma)
            discounts = tf.where(taken, discounts * share, discounts)
            last = tf.where(taken, step, last)
            goes_on = taken & ~(ended | cut)
        data = records.Transition(
            observations=read(pieces.observations, first),
            actions=read(pieces.actions, first),
            rewards=rewards,
            discounts=discounts,
            next_observations=read(pieces.next_observations, last),
        )
        data, ones = tf.nest.map_structure(
            lambda x: tf.reshape(x, [*sizes, *x.shape[1:]]),
            (data, tf.ones_like(rewards)),
        )
        return transitions.Sample(
            data, (), ones, ones / tf.cast(size * n_envs, tf.float32)
        )


def _kept(piece: records.Trajectory) -> records.Trajectory:
    return piece._replace(valid=(), log_probs=(), states=())
