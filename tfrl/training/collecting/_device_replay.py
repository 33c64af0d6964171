"""A replay of tensors, for who collects and learns within one graph."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfrl._internal import draws
from tfrl.core import records
from tfrl.replay.sampling import transitions
from tfrl.schedules import schedulers
from tfrl.training.collecting import _device_goals, _device_priorities


class DeviceReplay(NamedTuple):
    """The last steps of N environments, in a ring of pieces of T steps.

    Attributes:
        pieces: a `Trajectory` `[C, T, N, ...]`; `()` for what transitions do not need.
        count: how many steps each environment has added.
        priorities: `DevicePriorities` of the rows; `()` to draw uniformly.
        bounds: `EpisodeBounds`; `()` where goals are left as they were.
    """

    pieces: records.Trajectory
    count: tf.Tensor
    priorities: Any = ()
    bounds: Any = ()

    @classmethod
    def of(cls, piece: records.Trajectory, learned: Any) -> "DeviceReplay":
        """Returns a replay of zeros.

        Args:
            piece: a trajectory `[T, N]` such as will be added.
            learned: the `Replayed` asked for; its capacity is rounded to pieces.
        """
        n_steps, n_envs = piece.rewards.shape
        count = max(1, learned.capacity // (n_steps * n_envs))
        zeros = tf.nest.map_structure(
            lambda x: tf.zeros([count, *x.shape], x.dtype), _kept(piece)
        )
        priorities: Any = ()
        if learned.sampler == "prioritized":
            width = n_steps * n_envs
            priorities = _device_priorities.DevicePriorities.of(count, width)
        bounds: Any = ()
        if learned.relabel is not None:
            bounds = _device_goals.EpisodeBounds.of([count, n_steps, n_envs])
        return cls(zeros, tf.constant(0), priorities, bounds)

    def extended(self, piece: records.Trajectory, alpha: float) -> "DeviceReplay":
        """Returns the replay with a trajectory `[T, N]` in place of the oldest.

        Args:
            piece: what is added.
            alpha: how much priorities count.
        """
        n_pieces, n_steps, _ = self.pieces.rewards.shape
        place = self.count // n_steps % n_pieces
        priorities, bounds = self.priorities, self.bounds
        if priorities:
            priorities = priorities.added(place, alpha)
        if bounds:
            newest = (place - 1) % n_pieces
            ends = self.pieces.terminated, self.pieces.truncated
            before = tf.logical_or(*(x[newest, -1] for x in ends))
            bounds = bounds.added(piece, before, self.count)
        pieces = tf.nest.map_structure(
            lambda old, new: tf.tensor_scatter_nd_update(old, [[place]], new[None]),
            self.pieces,
            _kept(piece),
        )
        return DeviceReplay(pieces, self.count + n_steps, priorities, bounds)

    def drawn(
        self,
        seed: tf.Tensor,
        n_batches: int,
        learned: Any,
        relabelling: _device_goals.Relabelling | None = None,
    ) -> transitions.Sample:
        """Draws transitions with replacement, uniformly or by their priorities.

        One of at most `n_step_returns` steps, m, is rewarded by the sum of
        `gamma^j * rewards[t + j]` up to the episode's end or the newest step.

        Args:
            seed: int32 `[2]`.
            n_batches: K.
            learned: the `Replayed` asked for.
            relabelling: how goals are replaced, None for the goals as they were.

        Returns:
            A `Sample` of `Transition`s `[K, B, ...]`; its indices are rows of the ring.
        """
        n_pieces, length, n_envs = self.pieces.rewards.shape
        capacity, size = n_pieces * length, tf.minimum(self.count, n_pieces * length)
        sizes = n_batches, learned.batch_size
        n_numbers = 2 if relabelling is None else 4
        chance = draws.uniform([n_numbers, sizes[0] * sizes[1]], seed, tf.float32)
        if self.priorities:
            begun, weights, shares = self.priorities.drawn(
                chance[:2], size // length, schedulers.as_scheduler(learned.beta)()
            )
            env, newest = begun % n_envs, self.count - 1
            first = newest - (newest - begun // n_envs) % capacity
        else:
            age = tf.cast(chance[0] * tf.cast(size, tf.float32), tf.int32)
            first = self.count - size + tf.minimum(age, size - 1)
            env = tf.minimum(tf.cast(chance[1] * n_envs, tf.int32), n_envs - 1)
            begun, weights = first % capacity * n_envs + env, tf.ones(first.shape)
            shares = weights / tf.cast(size * n_envs, tf.float32)

        def read(column: Any, step: tf.Tensor) -> Any:
            rows = step % capacity * n_envs + env
            return tf.nest.map_structure(
                lambda x: tf.gather(tf.reshape(x, [-1, *x.shape[3:]]), rows), column
            )

        goals = None
        if relabelling is not None:
            oldest = self.count - size
            goals = self._goals(chance[2:], first, oldest, read, relabelling)
        data = self._transitions(first, learned, read, relabelling, goals)
        data, *numbers = tf.nest.map_structure(
            lambda x: tf.reshape(x, [*sizes, *x.shape[1:]]),
            (data, begun, weights, shares),
        )
        return transitions.Sample(data, *numbers)

    def _goals(
        self,
        chance: tf.Tensor,
        step: tf.Tensor,
        oldest: tf.Tensor,
        read: _device_goals.Read,
        relabelling: _device_goals.Relabelling,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Which transitions get other goals, `[n]` bool, and those, `[n, *shape]`."""
        begin = tf.maximum(read(self.bounds.first, step), oldest)
        end = self.bounds.last(self.pieces, step, self.count, read)
        chosen, achieving = relabelling.drawn(chance, step, begin, end)
        achieved = self.pieces.next_observations["achieved_goal"]
        return chosen, read(achieved, achieving)

    def _transitions(
        self,
        first: tf.Tensor,
        learned: Any,
        read: _device_goals.Read,
        relabelling: _device_goals.Relabelling | None,
        goals: tuple[tf.Tensor, tf.Tensor] | None,
    ) -> records.Transition:
        """Transitions `[n, ...]` that begin with some steps."""
        pieces, last = self.pieces, first
        rewards, discounts = tf.zeros(first.shape), tf.ones(first.shape)
        goes_on = tf.ones(first.shape, tf.bool)
        for j in range(learned.n_step_returns):
            step = first + j
            taken = goes_on & (step < self.count)
            ended, cut = (read(x, step) for x in (pieces.terminated, pieces.truncated))
            reward = read(pieces.rewards, step)
            if relabelling is not None and goals is not None:
                achieved = read(pieces.next_observations["achieved_goal"], step)
                anew = relabelling.compute_reward(achieved, goals[1])
                reward = tf.where(goals[0], tf.cast(anew, reward.dtype), reward)
            # Nothing is added, be it NaN, of steps that are not taken.
            gained = discounts * reward
            rewards += tf.where(taken, gained, tf.zeros_like(gained))
            share = tf.where(ended, tf.zeros_like(gained), learned.gamma)
            discounts = tf.where(taken, discounts * share, discounts)
            last = tf.where(taken, step, last)
            goes_on = taken & ~(ended | cut)
        seen = read(pieces.observations, first), read(pieces.next_observations, last)
        if goals is not None:
            seen = tuple(_device_goals.with_goals(x, *goals) for x in seen)
        return records.Transition(
            observations=seen[0],
            actions=read(pieces.actions, first),
            rewards=rewards,
            discounts=discounts,
            next_observations=seen[1],
        )


def _kept(piece: records.Trajectory) -> records.Trajectory:
    return piece._replace(valid=(), log_probs=(), states=())


def taken_up(episodes: Any, state: Mapping[str, Any], learned: Any) -> Any:
    """Returns running episodes as they were kept, with priorities of the alpha now.

    Args:
        episodes: of the same structure.
        state: what was kept, its `episodes` and, but for older runs, `alpha`.
        learned: the experience.
    """
    leaves = map(tf.constant, state["episodes"])
    episodes = tf.nest.pack_sequence_as(episodes, [*leaves])
    replay, old = episodes.replay, state.get("alpha")
    if not (replay and replay.priorities) or old is None:
        return episodes
    priorities = replay.priorities.reweighted(old, learned.alpha)
    return episodes.replace(replay=replay._replace(priorities=priorities))
