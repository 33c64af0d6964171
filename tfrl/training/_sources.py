"""Where the experience of a running trainer comes from, and how it is resumed."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import durable
from tfrl.core import records, spaces
from tfrl.replay import episodes
from tfrl.replay.disk import saving
from tfrl.replay.sampling import prioritized, transitions, uniform
from tfrl.training import experience
from tfrl.training.collecting import _stored, collection


class Latest:
    """The trajectory that was just collected."""

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        """Gathers experience for one update.

        Args:
            collect: plays.
            env_steps: steps of the run so far.

        Returns:
            What the agent is to learn from, None if it is too early; and the steps.
        """
        trajectory = collect()
        return trajectory, env_steps + int(trajectory.valid.sum())

    def learned(self, priorities: Any) -> None:
        """Takes the priorities that an agent gave to what was drawn."""

    def state(self) -> Any:
        """Returns what a resumed run needs, as plain values."""
        return None

    def set_state(self, state: Any) -> None:
        """Takes up where `state` was returned."""

    def cut(self) -> None:
        """Ends all episodes: those that follow are others."""

    def save(self, directory: pathlib.Path, step: int) -> None:
        """Saves what is no plain value, before the checkpoint of that step."""

    def load(self, directory: pathlib.Path, step: int) -> None:
        """Loads what `save` saved."""

    def prune(self, directory: pathlib.Path, steps: list[int]) -> None:
        """Removes what belongs to none of the checkpoints."""


class Replay(Latest):
    """A replay of everything that was collected.

    Args:
        config: its settings.
        observation_space: of one environment.
        raw_actions: nest of `[N, ...]`, as the policy draws them.
        n_envs: environments of all workers.
        seed: of draws.
    """

    def __init__(
        self,
        config: experience.Replayed,
        observation_space: gym.Space,
        raw_actions: Any,
        n_envs: int,
        seed: int,
    ) -> None:
        self._starts = config.learning_starts
        self._count = config.n_gradient_steps(n_envs)
        actions = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape[1:], x.dtype), raw_actions
        )
        observations = spaces.spec_from_space(observation_space)
        store = episodes.EpisodeStore(observations, actions, config.capacity, n_envs)
        kind = transitions.Transitions(config.n_step_returns, config.gamma)
        draws = np.random.default_rng([seed, 7])
        self._replay: Any
        if config.sampler == "uniform":
            self._replay = uniform.UniformReplay(store, kind, draws)
        else:
            self._replay = prioritized.PrioritizedReplay(
                store, kind, config.alpha, config.beta, seed=draws
            )
        self._minibatches = _stored.Minibatches(
            "`Trainer`: `experience`", self._replay, config.batch_size
        )
        self._base: pathlib.Path | None = None

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        trajectory, env_steps = super().gathered(collect, env_steps)
        _stored.add(self._replay.store, trajectory)
        if env_steps < self._starts or not self._replay.size:
            return None, env_steps
        return self._minibatches.drawn(self._count), env_steps

    def learned(self, priorities: Any) -> None:
        self._minibatches.learned(priorities)

    def cut(self) -> None:
        self._replay.store.cut()

    def save(self, directory: pathlib.Path, step: int) -> None:
        folder = directory / "replay" / f"step-{step}"
        saving.save(folder, {"replay": self._replay}, base=self._base)
        self._base = folder

    def load(self, directory: pathlib.Path, step: int) -> None:
        folder = directory / "replay" / f"step-{step}"
        saving.load(folder, {"replay": self._replay})
        self._base = folder

    def prune(self, directory: pathlib.Path, steps: list[int]) -> None:
        kept = {f"step-{step}" for step in steps}
        for folder in (directory / "replay").iterdir():
            if folder.name not in kept:
                durable.remove_folder(folder)


class Batches(Latest):
    """Batches of recorded rows, shuffled anew for each pass.

    Args:
        config: its settings.
        seed: of the order.
    """

    def __init__(self, config: experience.FromDataset, seed: int) -> None:
        where = "`FromDataset`: `data` expected"
        data = config.data() if callable(config.data) else config.data
        if not isinstance(data, Mapping):
            raise TypeError(f"{where} a mapping of arrays; got {data!r:.80}")
        for name, part in data.items():
            if isinstance(part, list):
                raise TypeError(f"{where} arrays; got a list for {name!r}")
        self._data = tf.nest.map_structure(np.asarray, dict(data))
        lengths = {len(x) if x.ndim else 0 for x in tf.nest.flatten(self._data)}
        if len(lengths) != 1 or min(lengths) < config.batch_size:
            raise ValueError(
                f"{where} arrays of one length, of {config.batch_size} rows at least; "
                f"got {sorted(lengths)}"
            )
        (self._n_rows,) = lengths
        self._config, self._seed, self._n_drawn = config, seed, 0

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        del collect  # nothing is played
        config = self._config
        per_pass = self._n_rows // config.batch_size
        picked: list[np.ndarray] = []
        for _ in range(config.n_batches):
            number, place = divmod(self._n_drawn, per_pass)
            if not picked or not place:
                chance = np.random.default_rng([self._seed, number])
                order = chance.permutation(self._n_rows)
            start = place * config.batch_size
            picked.append(order[start : start + config.batch_size])
            self._n_drawn += 1
        rows = np.stack(picked)
        given = tf.nest.map_structure(lambda x: x[rows], self._data)
        return given, env_steps + rows.size

    def state(self) -> Any:
        return self._n_drawn

    def set_state(self, state: Any) -> None:
        self._n_drawn = int(state)


def made(
    learned: Any,
    host: Any,
    collector: collection.Collector,
    n_envs: int,
    seed: int,
) -> Latest:
    """Returns where what an agent learns from comes from.

    Args:
        learned: the experience of a trainer.
        host: the policy that acts.
        collector: who plays.
        n_envs: environments of all workers.
        seed: of draws.

    Returns:
        A source without anything in it.
    """
    if isinstance(learned, experience.FromDataset):
        return Batches(learned, seed)
    if isinstance(learned, experience.Trajectories):
        return Latest()
    # Only the policy knows what raw actions look like.
    state = host.initial_state(collector.envs.num_envs)
    chance = np.random.default_rng(0)
    raw = host.act(collector.observations, state, seed=chance).raw_actions
    space = collector.envs.single_observation_space
    return Replay(learned, space, raw, n_envs, seed)


class _InMemory:
    """Stands for arrays in the record of a run, which does not keep them."""

    def __repr__(self) -> str:
        return "arrays in memory"

    def __call__(self) -> None:
        """Returns nothing: they are lost."""


def recorded(learned: Any) -> Any:
    """Returns what the record of a run is to keep: settings, but no arrays.

    Args:
        learned: the experience of a trainer.

    Returns:
        The same, or one whose data are named only.

    Example:
        >>> recorded(experience.Trajectories(3))
        Trajectories(n_steps=3)
    """
    if isinstance(learned, experience.FromDataset) and not callable(learned.data):
        return dataclasses.replace(learned, data=_InMemory())
    return learned
