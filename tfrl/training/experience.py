"""What agents learn from: trajectories, a replay, or a data set.

`Trajectories`, `Replayed` and `FromDataset` are settings. A running trainer makes a
source of each, which holds the state that is saved and resumed.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, durable
from tfrl.core import records, spaces
from tfrl.environments import goals
from tfrl.replay import episodes
from tfrl.replay.disk import saving
from tfrl.replay.sampling import prioritized, transitions, uniform
from tfrl.training import (
    _frame_stacks,
    _minibatches,
    _recorded_rows,
    _settings_checks,
)
from tfrl.training.collecting import _delivery, collection

_SAMPLERS = ("uniform", "prioritized")
# Settings of a replay that may be None.
_MAY_LACK = ("batch_size", "frame_stack", "sequence_length")
# Of agents that do not say otherwise.
_USUAL = {"batch_size": 64, "updates_per_step": 0.25}


@dataclasses.dataclass(frozen=True)
class Trajectories:
    """On-policy: each update learns once from what was just collected.

    Attributes:
        n_steps: steps per environment and epoch, T.

    Example:
        >>> Trajectories(n_steps=32).n_steps
        32
    """

    n_steps: int = 128

    def __post_init__(self) -> None:
        checks.check_whole_number("Trajectories", "n_steps", self.n_steps, low=1)


@dataclasses.dataclass(frozen=True)
class Replayed:
    """Off-policy: each update draws minibatches from all steps collected so far.

    An epoch plays `n_steps` steps in each of N environments, and then, once there are
    `learning_starts` of them, takes

        K = round(updates_per_step * n_steps * N)

    gradient steps, on minibatches that are drawn together: the agent's `update` gets a
    `tfrl.replay.Sample` of `tfrl.core.Transition`s `[K, batch_size, ...]`, or, with
    `sequence_length`, of `tfrl.core.Trajectory`s `[K, batch_size, T, ...]`. Actions are
    the raw ones of the policy's head.

    The replay is saved with the run (only what changed), and a resumed run has the same
    one, with its priorities and generator.

    Attributes:
        capacity: steps that are kept, over all environments.
        batch_size: transitions, or sequences, per gradient step, B; None for what is
            usual for the agent: 256 for actor-critics, 32 for sequences, 64 for agents
            of action values and those without a preference.
        n_steps: steps per environment and epoch.
        updates_per_step: gradient steps per environment step; None for what is usual
            for the agent, 1, 0.1 or 0.25 respectively.
        learning_starts: steps before the first update.
        gamma: discount factor per step.
        n_step_returns: maximum steps of a transition, m in `tfrl.replay.Transitions`.
        sampler: "uniform" or "prioritized".
        alpha: with "prioritized", how much priorities count.
        beta: with "prioritized", how far weights correct for them; a number, or a
            schedule of `tfrl.schedules`.
        relabel: "future", "episode" or "final" to replace desired goals by achieved
            ones, see `tfrl.replay.Hindsight`, with rewards from the environment's
            `compute_reward`; None leaves goals as they were.
        relabel_ratio: share of the transitions whose goals are replaced.
        frame_stack: k, where observations are stacks of the last k frames, as
            `gymnasium.wrappers.FrameStackObservation` makes them: each frame is kept
            once, which takes a k-th of the memory, and samples are the same stacks.
            The k - 1 oldest steps of an environment, whose frames are partly
            overwritten, are not drawn. None keeps observations as they are; the
            collector "compiled" supports nothing else.
        prior_data: recorded transitions, such as demonstrations, that join the
            collected ones in every minibatch; in the form of `data` of `FromDataset`.
            They are not in the replay: they are never overwritten, and drawn uniformly,
            as transitions of one step, with replacement if they are fewer than their
            share of a minibatch. None for none; the collector "compiled" supports
            nothing else.
        prior_share: share of a minibatch's rows that come from `prior_data`.
        sequence_length: L, for agents that learn from sequences, such as
            `tfrl.agents.R2D2`: samples are T = burn_in + L steps of one episode, as
            `tfrl.replay.Sequences(L, burn_in, pad_end=True)` draws them, with what the
            policy remembered before each as `states`. Weights and priorities are those
            of whole sequences, `[K, batch_size]`, and agents discount by a factor of
            their own. None for transitions; the collector "compiled" supports nothing
            else.
        burn_in: with `sequence_length`, steps before it that warm up a memory.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a number is out of range, an option unknown, `capacity` less than
            `learning_starts` or a batch, or options do not go together.

    Example:
        >>> replayed = Replayed(capacity=10_000, n_steps=4, updates_per_step=0.5)
        >>> replayed.n_gradient_steps(n_envs=8)
        16

    References:
        Lin, 1992, Self-Improving Reactive Agents Based On Reinforcement Learning,
        Planning and Teaching. Schaul et al., 2016, Prioritized Experience Replay.
        Andrychowicz et al., 2017, Hindsight Experience Replay. Ball, Smith, Kostrikov
        and Levine, 2023, Efficient Online Reinforcement Learning with Offline Data,
        section 4.1, of `prior_data`. Kapturowski et al., 2019, Recurrent Experience
        Replay in Distributed Reinforcement Learning, section 3, of sequences.
    """

    capacity: int = 100_000
    batch_size: int | None = None
    n_steps: int = 16
    updates_per_step: float | None = None
    learning_starts: int = 1_000
    gamma: float = 0.99
    n_step_returns: int = 1
    sampler: str = "uniform"
    alpha: float = 0.6
    beta: float | Callable[[], Any] = 0.4
    relabel: str | None = None
    relabel_ratio: float = 0.8
    frame_stack: int | None = None
    prior_data: Any = None
    prior_share: float = 0.5
    sequence_length: int | None = None
    burn_in: int = 0

    def __post_init__(self) -> None:
        where = "Replayed"
        counts = {"capacity": 1, "n_steps": 1, "n_step_returns": 1}
        counts |= {"learning_starts": 0, "batch_size": 1, "frame_stack": 1}
        counts |= {"sequence_length": 1, "burn_in": 0}
        for name, least in counts.items():
            value = getattr(self, name)
            if not (value is None and name in _MAY_LACK):
                checks.check_whole_number(where, name, value, low=least)
        if self.updates_per_step is not None:
            checks.check_positive(where, "updates_per_step", self.updates_per_step)
        for name in ("gamma", "alpha", "relabel_ratio", "prior_share"):
            checks.check_within(where, name, getattr(self, name), 0.0, 1.0)
        _settings_checks.check_beta(self.beta)
        checks.check_one_of(where, "sampler", self.sampler, _SAMPLERS)
        if self.relabel is not None:
            checks.check_one_of(where, "relabel", self.relabel, transitions.STRATEGIES)
        least = max(self.learning_starts, self.batch_size or 1)
        if self.capacity < least:
            raise ValueError(
                f"`{where}`: `capacity` expected at least `learning_starts` and "
                f"`batch_size`, {least}; got {self.capacity}"
            )
        _settings_checks.check_sequences(self)
        if self.prior_data is not None:
            _settings_checks.check_data(where, "prior_data", self.prior_data)
            size = self.batch_size
            if size is not None and not 0 < self._prior_size() < size:
                raise ValueError(
                    f"`{where}`: `prior_share` expected rows of either kind in each "
                    f"minibatch of {size}; got {self.prior_share}"
                )

    def _prior_size(self) -> int:
        """How many rows of a minibatch are of `prior_data`."""
        size: Any = self.batch_size
        return 0 if self.prior_data is None else round(self.prior_share * size)

    def for_agent(self, config: Any) -> "Replayed":
        """Returns these settings with None replaced by what is usual for an agent.

        Args:
            config: hyper-parameters; their attribute `usual_replay`, a dictionary, may
                define what is usual.

        Raises:
            ValueError: if `capacity` is less than a batch.

        Example:
            >>> usual = Replayed(updates_per_step=0.5).for_agent(tfrl.agents.SAC())
            >>> usual.batch_size, usual.updates_per_step
            (256, 0.5)
        """
        usual = {**_USUAL, **getattr(config, "usual_replay", {})}
        lacking = {name: x for name, x in usual.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **lacking)

    def n_gradient_steps(self, n_envs: int) -> int:
        """Returns K.

        Args:
            n_envs: environments of all workers, N.

        Raises:
            ValueError: if K is 0.
            TypeError: if `updates_per_step` is None; see `for_agent`.
        """
        ratio: Any = self.updates_per_step
        checks.check_positive("Replayed", "updates_per_step", ratio)
        count = round(ratio * self.n_steps * n_envs)
        if not count:
            raise ValueError(
                "`Replayed`: `updates_per_step` expected a gradient step per epoch at "
                f"least; got {ratio} of {self.n_steps * n_envs} steps; "
                f"raise it, or `n_steps` ({self.n_steps})"
            )
        return count


@dataclasses.dataclass(frozen=True)
class FromDataset:
    """Offline: each update learns from recorded batches.

    An epoch takes `n_batches` batches. An agent that learns from transitions gets them
    as from a replay, a `tfrl.replay.Sample` `[n_batches, batch_size, ...]`; one that
    learns from batches, such as `BC`, gets the mapping, stacked alike. Environments are
    made only for evaluation. The environment steps of the run are the rows that it
    learned from.

    In every data set, `observations` and `actions` must be finite and belong to the
    environments' spaces; observations may exceed the bounds of a Box. Transitions have
    `observations`, `actions`, `rewards`, `next_observations` (at an episode's end its
    last observation) and `discounts` or else `terminated`, which gives
    `discounts = gamma * (1 - terminated)`; `truncated` may accompany it. Data are
    checked when the trainer is made.

    Attributes:
        data: a function without arguments that returns a mapping of arrays
            `[rows, ...]`, such as a `tfrl.datasets.MinariDataset`, or the mapping
            itself. Each pass over the rows is shuffled anew; rows that do not fill a
            batch wait for the next pass. Actions have the form that environments take:
            those of a `Trajectory` are raw, and
            `policy.head.to_env(trajectory.actions)` converts them.
        batch_size: rows per gradient step.
        n_batches: gradient steps per epoch.
        gamma: discount factor per step, for data without `discounts`.

    Raises:
        TypeError: if `data` is neither a mapping nor a function, or a count no int.
        ValueError: if a number is out of range.

    Example:
        >>> data = {"observations": np.zeros((9, 4), "f"), "actions": np.zeros(9, int)}
        >>> FromDataset(data, batch_size=3).n_batches
        100
    """

    data: Any = None
    batch_size: int = 256
    n_batches: int = 100
    gamma: float = 0.99

    def __post_init__(self) -> None:
        for name in ("batch_size", "n_batches"):
            checks.check_whole_number("FromDataset", name, getattr(self, name), low=1)
        checks.check_within("FromDataset", "gamma", self.gamma, 0.0, 1.0)
        _settings_checks.check_data("FromDataset", "data", self.data)


class ReplaysOnDisk:
    """Replays in `replay/step-N` of a run's folder, of which steps share what stays.

    Args:
        replays: by name.
    """

    def __init__(self, replays: Mapping[str, tf.Module]) -> None:
        self._replays = dict(replays)
        self._base: pathlib.Path | None = None

    def save(self, directory: pathlib.Path, step: int) -> None:
        """Saves them, before the checkpoint of that step."""
        folder = directory / "replay" / f"step-{step}"
        shared = self._base is not None and self._base.is_dir()
        saving.save(folder, self._replays, base=self._base if shared else None)
        self._base = folder

    def load(self, directory: pathlib.Path, step: int) -> None:
        """Loads what was saved with a checkpoint."""
        folder = directory / "replay" / f"step-{step}"
        saving.load(folder, self._replays)
        self._base = folder

    def prune(self, directory: pathlib.Path, steps: list[int]) -> None:
        """Removes what belongs to none of the checkpoints."""
        kept = {f"step-{step}" for step in steps}
        for folder in (directory / "replay").iterdir():
            if folder.name not in kept:
                durable.remove_folder(folder)


class Latest(_recorded_rows.Source):
    """The trajectory that was just collected."""

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        """Plays; see `Source`."""
        trajectory = collect()
        return trajectory, env_steps + int(trajectory.valid.sum())


def step_specs(host: Any, collector: collection.Collector) -> tuple[Any, Any]:
    """Returns specs of the observations and raw actions that a replay is of.

    Args:
        host: the policy that acts; it alone knows what raw actions look like.
        collector: who plays.
    """
    state = host.initial_state(collector.envs.num_envs)
    chance = np.random.default_rng(0)
    raw = host.act(collector.observations, state, seed=chance).raw_actions
    actions = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), raw)
    return spaces.spec_from_space(collector.envs.single_observation_space), actions


def replay_of(
    config: Replayed,
    specs: tuple[Any, Any],
    n_envs: int,
    seed: np.random.Generator,
    envs: Any,
    memory: Any = (),
) -> uniform.UniformReplay | prioritized.PrioritizedReplay:
    """Makes a replay with nothing in it.

    Args:
        config: its settings.
        specs: as in `step_specs`.
        n_envs: environments of all workers.
        seed: of draws.
        envs: those of this worker, which say how goals are rewarded.
        memory: nest of specs of what a policy remembers, to be kept with each step.
    """
    seen, actions = specs
    if config.frame_stack is not None:
        seen = _frame_stacks.frame_specs(seen)
    store = episodes.EpisodeStore(seen, actions, config.capacity, n_envs, memory)
    hindsight = None
    if config.relabel is not None:
        rewards = goals.goal_rewards(envs)
        hindsight = transitions.Hindsight(rewards, config.relabel_ratio, config.relabel)
    kind: Any = transitions.Transitions(
        config.n_step_returns, config.gamma, config.frame_stack, hindsight
    )
    if config.sequence_length is not None:
        kind = transitions.Sequences(
            config.sequence_length, config.burn_in, pad_end=True
        )
    if config.sampler == "uniform":
        return uniform.UniformReplay(store, kind, seed)
    return prioritized.PrioritizedReplay(
        store, kind, config.alpha, config.beta, seed=seed
    )


class _Replay(Latest):
    """A replay of everything that was collected.

    Args:
        config: its settings.
        specs: as in `step_specs`.
        n_envs: environments of all workers.
        seed: of draws.
        collector: who plays.
        prior: recorded minibatches, of which each is a part of one here; or None.
        memory: as in `replay_of`.
    """

    def __init__(
        self,
        config: Replayed,
        specs: Any,
        n_envs: int,
        seed: int,
        collector: collection.Collector,
        prior: _recorded_rows.Batches | None,
        memory: Any,
    ) -> None:
        self._starts, self._stack = config.learning_starts, config.frame_stack
        self._count, self._alpha = config.n_gradient_steps(n_envs), config.alpha
        draws = np.random.default_rng([seed, 7])
        self._replay: Any = replay_of(
            config, specs, n_envs, draws, collector.envs, memory
        )
        self._parts = collector.parts
        self._prior, where = prior, "`Trainer`: `experience`"
        self._minibatches = _minibatches.Minibatches(
            where, self._replay, config.batch_size, n_beside=config._prior_size()
        )
        self._on_disk = ReplaysOnDisk({"replay": self._replay})

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        trajectory, env_steps = super().gathered(collect, env_steps)
        if self._stack is not None:
            trajectory = _frame_stacks.last_frames(trajectory)
        for part, env_ids, is_new in self._parts(trajectory):
            if is_new:
                self._replay.store.cut(env_ids)
            _delivery.add_trajectory(self._replay.store, part, env_ids)
        if env_steps < self._starts or not self._replay.size:
            return None, env_steps
        drawn = self._minibatches.drawn(self._count)
        drawn = drawn if self._stack is None else _frame_stacks.stacked(drawn)
        if self._prior is not None:
            recorded, _ = self._prior.gathered(collect, 0)
            drawn = tf.nest.map_structure(_side_by_side, drawn, recorded)
        return drawn, env_steps

    def learned(self, priorities: Any) -> None:
        self._minibatches.learned(priorities)

    def state(self) -> Any:
        return None if self._prior is None else self._prior.state()

    def set_state(self, state: Any) -> None:
        if self._prior is not None and state is not None:  # it may be new
            self._prior.set_state(state)
        if isinstance(self._replay, prioritized.PrioritizedReplay):
            self._replay.alpha = self._alpha  # it has that of the saved one

    def cut(self) -> None:
        self._replay.store.cut()

    def save(self, directory: pathlib.Path, step: int) -> None:
        self._on_disk.save(directory, step)

    def load(self, directory: pathlib.Path, step: int) -> None:
        self._on_disk.load(directory, step)

    def prune(self, directory: pathlib.Path, steps: list[int]) -> None:
        self._on_disk.prune(directory, steps)


def _side_by_side(drawn: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Minibatches `[K, B, ...]` of the rows of both."""
    return np.concatenate([drawn, recorded.astype(drawn.dtype)], axis=1)


def _batches_of(
    config: FromDataset,
    host: Any,
    collector: collection.Collector,
    seed: int,
    needed: Sequence[str] | None,
    least: int | None = None,
) -> _recorded_rows.Batches:
    """A source of a data set that fits what an agent learns from."""
    least = config.batch_size if least is None else least
    data: Any = _recorded_rows.arrays_of(config.data, least)
    envs, head = collector.envs, getattr(host.policy, "head", None)
    spaces = envs.single_observation_space, envs.single_action_space
    if needed is not None:
        _recorded_rows.check_batches(data, spaces, needed)
    else:
        data = _recorded_rows.transitions_of(data, config.gamma, spaces)
        if head is not None:  # of actions, agents learn from the raw ones
            raw = tf.nest.map_structure(np.asarray, head.from_env(data.actions))
            data = data._replace(actions=raw)
    return _recorded_rows.Batches(data, config.batch_size, config.n_batches, seed)


def source_of(
    learned: Any,
    host: Any,
    collector: collection.Collector,
    n_envs: int,
    seed: int,
    needed: Sequence[str] | None = (),
) -> _recorded_rows.Source:
    """Returns where what an agent learns from comes from.

    Args:
        learned: the experience of a trainer.
        host: the policy that acts.
        collector: who plays.
        n_envs: environments of all workers.
        seed: of draws.
        needed: names of columns that a data set must have; None for those of
            transitions, of which the agent learns as from a replay.

    Returns:
        A source without anything in it.

    Raises:
        TypeError: if data are no mapping of arrays.
        ValueError: if they do not fit the agent.
    """
    if isinstance(learned, FromDataset):
        return _batches_of(learned, host, collector, seed, needed)
    if isinstance(learned, Trajectories):
        return Latest()
    if learned.frame_stack is not None:
        _frame_stacks.check_reset(collector.observations, learned.frame_stack)
    prior = None
    if learned.prior_data is not None:
        try:
            beside = _of_prior(learned, n_envs)
            prior = _batches_of(beside, host, collector, seed, None, least=1)
        except (TypeError, ValueError) as error:  # which names what it checks for
            told = str(error).replace(
                "`FromDataset`: `data`", "`Replayed`: `prior_data`"
            )
            raise type(error)(told) from error
    specs = step_specs(host, collector)
    memory: Any = ()
    if learned.sequence_length is not None:
        memory = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape[1:], x.dtype),
            host.initial_state(collector.envs.num_envs),
        )
    return _Replay(learned, specs, n_envs, seed, collector, prior, memory)


def _of_prior(config: Replayed, n_envs: int) -> FromDataset:
    """The settings of the recorded part of minibatches."""
    counts = config._prior_size(), config.n_gradient_steps(n_envs)
    return FromDataset(config.prior_data, *counts, config.gamma)


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
        >>> recorded(Trajectories(3))
        Trajectories(n_steps=3)
    """
    for name in ("data", "prior_data"):
        if isinstance(getattr(learned, name, None), Mapping):
            return dataclasses.replace(learned, **{name: _InMemory()})
    return learned
