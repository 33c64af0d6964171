"""Environment steps become trajectories."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.vector import AutoresetMode, VectorEnv

from tfrl.core import checks, records
from tfrl.environments import vector


class Collector:
    """Steps a vector environment and records what happened, true to the last row.

    All three autoreset modes give the same transitions: `next_observations` is always
    the successor itself, at an episode's end the last observation of that episode. The
    rows in which a `NEXT_STEP` environment only resets are marked not `valid`.

    Args:
        envs: vector environment; the collector resets it.
        n_steps: rows per trajectory, T.
        seed: of the environments.

    Attributes:
        observations: what the environments show now, nest of `[N, *shape]`.
        env_steps: steps of experience so far, over all environments.
        episode_returns: undiscounted returns of the last 100 finished episodes.
        episode_lengths: their lengths in steps.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> collector = Collector(envs, n_steps=5, seed=0)
        >>> trajectory = collector.collect(
        ...     lambda observations: np.zeros(2, np.int32), to_env=lambda raw: raw)
        >>> trajectory.observations.shape, collector.env_steps
        ((5, 2, 4), 10)
    """

    def __init__(self, envs: VectorEnv, n_steps: int, seed: int) -> None:
        checks.check_whole_number("Collector", "n_steps", n_steps, low=1)
        self.envs = envs
        self.n_steps = n_steps
        self._mode = vector.autoreset_mode(envs)
        self.env_steps = 0
        self.episode_returns: deque[float] = deque(maxlen=100)
        self.episode_lengths: deque[int] = deque(maxlen=100)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Starts new episodes everywhere; running ones are given up.

        Args:
            seed: of the environments.
        """
        self.observations, _ = self.envs.reset(seed=seed)
        self._returns = np.zeros(self.envs.num_envs)
        self._lengths = np.zeros(self.envs.num_envs, np.int64)
        self._resetting = np.zeros(self.envs.num_envs, bool)

    def state(self) -> dict[str, Any]:
        """Returns everything but the environments' own state, as plain data."""
        return {
            "observations": [np.copy(x) for x in tf.nest.flatten(self.observations)],
            "env_steps": self.env_steps,
            "episode_returns": list(self.episode_returns),
            "episode_lengths": list(self.episode_lengths),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "resetting": self._resetting.copy(),
        }

    def set_state(self, state: dict[str, Any], *, same_episodes: bool) -> None:
        """Takes up where `state` was returned.

        Args:
            state: what `state()` returned.
            same_episodes: whether the environments were restored to that moment too;
                if not, only the counters are taken and the running episodes are new.
        """
        self.env_steps = state["env_steps"]
        self.episode_returns.clear()
        self.episode_returns.extend(state["episode_returns"])
        self.episode_lengths.clear()
        self.episode_lengths.extend(state["episode_lengths"])
        if same_episodes:
            self.observations = tf.nest.pack_sequence_as(
                self.observations, state["observations"]
            )
            self._returns = np.array(state["returns"])
            self._lengths = np.array(state["lengths"])
            self._resetting = np.array(state["resetting"])

    def collect(
        self,
        act: Callable[[Any], np.ndarray],
        to_env: Callable[[np.ndarray], np.ndarray],
    ) -> records.Trajectory:
        """Plays `n_steps` steps in every environment.

        Args:
            act: maps a nest of observations `[N, *shape]` to raw actions `[N, ...]`.
            to_env: maps raw actions to what the environments take.

        Returns:
            A `Trajectory` of NumPy arrays.

        Raises:
            ValueError: if a reward or an observation is NaN or infinite.
        """
        rows = _Rows(self.n_steps, self.observations)
        for t in range(self.n_steps):
            actions = act(self.observations)
            # Before the step, which may overwrite what an environment has shown.
            rows.write_choice(t, self.observations, actions)
            after, rewards, terminated, truncated, info = self.envs.step(
                to_env(actions)
            )
            ended = terminated | truncated
            last = after
            if ended.any():
                last, after = self._successors(after, ended, info)
            rows.write_outcome(t, rewards, terminated, truncated, last)
            if self._mode == AutoresetMode.NEXT_STEP:
                rows.valid[t] = ~self._resetting
                self._resetting = ended
            self.observations = after
        trajectory = rows.trajectory()
        self._count(rows.rewards, trajectory)
        return trajectory

    def _successors(self, after: Any, ended: np.ndarray, info: dict) -> tuple[Any, Any]:
        """Returns the true successors, and what to act upon next."""
        if self._mode == AutoresetMode.NEXT_STEP:
            return after, after
        if self._mode == AutoresetMode.DISABLED:
            last = tf.nest.map_structure(np.copy, after)
            return last, self.envs.reset(options={"reset_mask": ended})[0]
        last = tf.nest.map_structure(np.copy, after)
        for index in np.flatnonzero(ended):
            final = info["final_obs"][index]
            leaves = zip(tf.nest.flatten(last), tf.nest.flatten(final), strict=True)
            for leaf, value in leaves:
                leaf[index] = value
        return last, after

    def _count(self, rewards: np.ndarray, trajectory: records.Trajectory) -> None:
        """Adds `[T, N]` rewards to the running episodes and closes those that ended."""
        valid = trajectory.valid
        ended = (trajectory.terminated | trajectory.truncated) & valid
        # Sums from the start of the trajectory; an episode's own begin at its carry.
        returns = np.where(valid, rewards, 0.0).cumsum(0)
        lengths = valid.cumsum(0)
        for t, n in np.argwhere(ended):
            self.episode_returns.append(float(self._returns[n] + returns[t, n]))
            self.episode_lengths.append(int(self._lengths[n] + lengths[t, n]))
            self._returns[n], self._lengths[n] = -returns[t, n], -lengths[t, n]
        self._returns += returns[-1]
        self._lengths += lengths[-1]
        self.env_steps += int(lengths[-1].sum())


class _Rows:
    """Preallocated arrays of one trajectory."""

    def __init__(self, n_steps: int, observations: Any) -> None:
        self._structure = observations
        leaves = tf.nest.flatten(observations)
        n_envs = len(leaves[0])
        shape = (n_steps, n_envs)
        self._observations = [np.empty((n_steps, *x.shape), x.dtype) for x in leaves]
        self._next = [np.empty_like(x) for x in self._observations]
        self._actions: np.ndarray | None = None
        self.rewards = np.empty(shape)
        self.valid = np.ones(shape, bool)
        self._terminated = np.empty(shape, bool)
        self._truncated = np.empty(shape, bool)

    def write_choice(self, t: int, observations: Any, actions: np.ndarray) -> None:
        if self._actions is None:
            shape = (len(self.rewards), *actions.shape)
            self._actions = np.empty(shape, actions.dtype)
        self._actions[t] = actions
        self._write(self._observations, t, observations)

    def write_outcome(
        self,
        t: int,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observations: Any,
    ) -> None:
        self.rewards[t] = rewards
        self._terminated[t] = terminated
        self._truncated[t] = truncated
        self._write(self._next, t, next_observations)

    @staticmethod
    def _write(leaves: list[np.ndarray], t: int, observations: Any) -> None:
        if isinstance(observations, np.ndarray):  # by far the most frequent nest
            leaves[0][t] = observations
            return
        for leaf, value in zip(leaves, tf.nest.flatten(observations), strict=True):
            leaf[t] = value

    def trajectory(self) -> records.Trajectory:
        pack = tf.nest.pack_sequence_as
        trajectory = records.Trajectory(
            observations=pack(self._structure, self._observations),
            actions=self._actions,
            rewards=self.rewards.astype(np.float32),
            terminated=self._terminated,
            truncated=self._truncated,
            next_observations=pack(self._structure, self._next),
            valid=self.valid,
        )
        # Rewards last: they are often the consequence.
        _check_numbers("next_observations", self._next)
        _check_numbers("observations", self._observations)
        _check_numbers("rewards", [trajectory.rewards])
        return trajectory


def _check_numbers(name: str, leaves: list[np.ndarray]) -> None:
    for leaf in leaves:
        if leaf.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            # One pass without a temporary array; only what it finds is looked for.
            suspicious = not np.isfinite(leaf.sum())
        if not suspicious:
            continue
        for place in np.argwhere(~np.isfinite(leaf)):
            raise ValueError(
                f"`Collector.collect`: `{name}` expected finite numbers; got "
                f"{leaf[tuple(place)]} at step {place[0]} in environment {place[1]}; "
                "mend the environment"
            )
