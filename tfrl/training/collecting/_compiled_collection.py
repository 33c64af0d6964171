"""Collection and learning within one graph, of environments that are compiled."""

import collections
import copy
import functools
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.agents import carrying, replicated
from tfrl.core import random, records
from tfrl.environments import goals
from tfrl.environments.compiled import protocol, wrappers
from tfrl.schedules import progress as progresses
from tfrl.training import _minibatches, cadence, evaluation
from tfrl.training import experience as experiences
from tfrl.training.collecting import (
    _compiled_evaluation,
    _device_goals,
    _device_replay,
    _rollouts,
    collection,
)

# Rewards of so many steps are brought back by one call at most, of so many epochs.
_STEPS_PER_CALL, _EPOCHS_PER_CALL = 2**20, 64
# Numbers that an update informs about, at most.
N_FACTS = 64
# How long a call may last, during which no signal is heard.
_CALL_SECONDS = 0.5


class CompiledCollector(collection.Collector):
    """Plays a compiled environment, and learns from it, without leaving the graph.

    Many epochs of a trainer are one call of a compiled function: steps of environments,
    draws of a replay, gradient steps. How many, changes nothing but the time.

    The replicas of a strategy in scope play equal parts of the environments, each on
    its own device, where the episodes stay for the whole call. What they play is
    gathered: agents share each gradient step of the global batch, and the replay is one
    for all, on the first device. Chance is that of one replica, see
    `_rollouts.rollout`, so that N replicas learn what one does, but for rounding.

    Args:
        envs: what `tfrl.environments.compiled.as_vector_env` makes.
        learned: `Trajectories` or `Replayed`.
        policy: which acts first.
        seed: of environments and draws.
        where: whose run it is, for messages.

    Attributes:
        most_epochs: of one call.
        settings_read: names of the settings that updates read where `played` is given
            any, also none by `{}`.

    Raises:
        TypeError: if the environments are not compiled.
        ValueError: if what is learned from cannot be collected in a graph, or the
            copies of the environments share a state that replicas would have to.
    """

    _episodes: _rollouts.Episodes
    _key: tf.Tensor

    def __init__(
        self, envs: Any, learned: Any, policy: Any, seed: int, where: str = "Trainer"
    ) -> None:
        self._where, self._fault = where, f"`{where}`: expected"
        if where == "Trainer":
            self._fault = f"`{where}`: `collector` 'compiled' expected"
        if not isinstance(getattr(envs, "compiled", None), protocol.CompiledEnv):
            raise TypeError(
                f"{self._fault} a `make_envs` of compiled environments, such as "
                f"`tfrl.environments.compiled.make_compiled`; got {envs}"
            )
        if not wrappers.resets_itself(envs.compiled):
            raise ValueError(
                f"{self._fault} environments that begin new episodes by themselves; "
                f"got {type(envs.compiled).__name__}; wrap it in AutoReset"
            )
        _check_experience(self._fault, learned)
        self._env, self._learned, self._policy = envs.compiled, learned, policy
        self._piece: Any = None
        super().__init__(envs, learned.n_steps, seed)
        self._relabelling: Any = None
        if getattr(learned, "relabel", None) is not None:
            goals.goal_rewards(envs)  # which refuses what has none
            self._relabelling = _device_goals.Relabelling(
                self._env.compute_reward, learned.relabel_ratio, learned.relabel
            )
        self._facts: list[str] = []
        self._n_at_once = 1
        # An agent, and how loops carry it.
        self._learned_last: tuple[Any, Any] = (None, None)
        self.settings_read: set[str] = set()
        if replicated.n_replicas() > 1:  # who cannot meet within XLA
            self._play: Any = tf.function(self.played, autograph=False)
        else:
            alone = replicated.compiled_update(self.played)
            self._play = functools.partial(replicated.run_alone, alone)
        steps = learned.n_steps * envs.num_envs
        self.most_epochs = max(1, min(_EPOCHS_PER_CALL, _STEPS_PER_CALL // steps))
        self._judging: _compiled_evaluation.CompiledEvaluation | None = None
        if replicated.n_replicas() > 1:
            _rollouts.check_apart(self._episodes, envs.num_envs)

    def copied(self) -> "CompiledCollector":
        """Returns one of the same program, which has counted nothing yet."""
        other = copy.copy(self)
        count = self.episode_returns.maxlen
        other.episode_returns = collections.deque(maxlen=count)
        other.episode_lengths = collections.deque(maxlen=count)
        other.env_steps = 0
        other._count_anew()
        return other

    def learn(
        self, agent: Any, epoch: int, n_epochs: int, total: int
    ) -> tuple[int, Any, dict[str, tf.Tensor]]:
        """Plays and learns for some epochs, as many as a part of a second has.

        Args:
            agent: what learns, and its policy acts.
            epoch: how many epochs there were before.
            n_epochs: how many there are to be at most.
            total: of the run.

        Returns:
            How many there were, the agent after them, and the info of the last.

        Raises:
            ValueError: if a reward or an observation is NaN or infinite, or an integer
                of an observation none of its space.
        """
        start = time.perf_counter()
        n_epochs = min(n_epochs, self.most_epochs, self._n_at_once)
        numbers = map(tf.constant, (epoch, epoch + n_epochs, float(total)))
        last, packed = self._learned_last
        if last is not agent:
            packed = carrying.packed(agent)
        packed, self._episodes, *found = self._play(
            packed, self._episodes, self._key, *numbers
        )
        info = self.noted(n_epochs, *found)
        if self._episodes.replay and self._episodes.replay.priorities:
            self._episodes.replay.priorities.check()
        seconds = (time.perf_counter() - start) / n_epochs
        self._n_at_once = max(1, min(2 * n_epochs, int(_CALL_SECONDS / seconds)))
        agent = carrying.unpacked(packed)
        self._learned_last = agent, packed
        return n_epochs, agent, info

    def rehearsed(self, agent: Any, total: int) -> tuple[Any, Any]:
        """Plays until there is something to learn from; returns one epoch of it.

        Args:
            agent: whose policy acts.
            total: epochs of the run.

        Returns:
            From where the epoch starts, and a function of an agent and this that
            collects and learns, and returns the agent and what was collected.
        """
        least = getattr(self._learned, "learning_starts", 0)
        count, done = -(-least // (self.n_steps * self.envs.num_envs)), 0
        while done < count:
            done += self.learn(agent, done, count - done, total)[0]

        def collected_and_learned(agent: Any, start: Any) -> tuple[Any, Any]:
            packed, *found = self.played(agent, *start)
            return carrying.unpacked(packed), found

        numbers = map(tf.constant, (done, done + 1, float(total)))
        return (self._episodes, self._key, *numbers), collected_and_learned

    def noted(
        self,
        n_epochs: int,
        numbers: tf.Tensor,
        ended: tf.Tensor,
        facts: tf.Tensor,
        where: str = "Trainer",
    ) -> dict[str, tf.Tensor]:
        """Counts episodes and steps of some epochs; returns the last one's info.

        Args:
            n_epochs: of the call.
            numbers: `[M, K, T, N]`, what `played` returned, of which the first epochs
                are these.
            ended: `[M, T, N]`, likewise.
            facts: `[M, 64]`, likewise.
            where: whose run it is, for messages.

        Raises:
            ValueError: if a reward or an observation is NaN or infinite, or an integer
                of an observation none of its space.
        """
        shape = n_epochs * self.n_steps, self.envs.num_envs
        ended = np.asarray(ended)[:n_epochs].reshape(shape)
        parts = np.asarray(numbers)[:n_epochs].swapaxes(0, 1)
        found = [part.reshape(shape) for part in parts]
        _rollouts.check_numbers(where, self._env, found)
        rewards, ones, nothing = found[-1], np.ones_like(ended), ()
        self._count(
            rewards.astype(np.float64),
            records.Trajectory(nothing, nothing, rewards, ended, ended, nothing, ones),
        )
        last = facts[n_epochs - 1]
        return {name: last[i] for i, name in enumerate(self._facts)}

    def evaluated(
        self, acting: Any, envs: Any, n_episodes: int, *, seed: int
    ) -> evaluation.Evaluation:
        """Returns what `tfrl.training.evaluate` would, played in a graph.

        Args:
            acting: an `Until` around what acts on the host, and knows the policy.
            envs: compiled ones, always the same.
            n_episodes: at least 1.
            seed: of the environments.
        """
        if self._judging is None:
            self._judging = _compiled_evaluation.CompiledEvaluation(envs)
        given = acting.policy.policy, n_episodes, seed, acting.check
        return self._judging.evaluated(*given)

    def collect(self, *_: Any, **__: Any) -> records.Trajectory:
        """Raises a RuntimeError: what is collected stays in the graph."""
        raise RuntimeError(
            "`Trainer.gather`: expected a trainer that collects on the host; got one "
            "with `collector` 'compiled', whose experience stays in its graph"
        )

    def _begin(self, seed: int) -> None:
        self._episodes, self._key = self.begun(seed)

    @property
    def observations(self) -> Any:
        """What the environments show now, nest of `[N, *shape]`."""
        return tf.nest.map_structure(np.asarray, self._episodes.observations)

    def state(self) -> dict[str, Any]:
        """Returns episodes and replay, as plain data."""
        leaves = [np.array(x) for x in tf.nest.flatten(self._episodes)]
        own = {"alpha": getattr(self._learned, "alpha", None), "episodes": leaves}
        return {**super().state(), "key": self._key.numpy(), **own}

    def set_state(self, state: dict[str, Any], *, same_episodes: bool) -> None:
        """Takes up where `state` was returned."""
        if "episodes" not in state:
            raise ValueError(
                "`Trainer`: `collector` expected 'host', by which this run was "
                "collected; got 'compiled'"
            )
        super().set_state(state, same_episodes=same_episodes)

    def _take_up(self, state: dict[str, Any]) -> None:
        self._key = tf.constant(state["key"])
        self._episodes = _device_replay.taken_up(self._episodes, state, self._learned)

    @property
    def _resetting(self) -> np.ndarray:
        return np.zeros(self.envs.num_envs, bool)

    def begun(self, seed: int) -> tuple[_rollouts.Episodes, tf.Tensor]:
        """Returns new episodes, with nothing in the replay, and the key of draws.

        Args:
            seed: of both.
        """
        start, key = random.split_seed(seed, 2)
        n_envs = self.envs.num_envs
        state, observations = self._env.reset(start, n_envs)
        memory = tf.nest.map_structure(
            tf.convert_to_tensor, self._policy.initial_state(n_envs)
        )
        begun = _rollouts.Episodes(state, observations, memory)
        if isinstance(self._learned, experiences.Replayed):
            if self._piece is None:
                given = self._policy, self._env, begun, start, self.n_steps
                self._piece = _rollouts.shapes_of(lambda: _rollouts.rollout(*given)[1])
            replay = _device_replay.DeviceReplay.of(self._piece, self._learned)
            begun = begun.replace(replay=replay)
        return begun, key

    def played(
        self,
        agent: Any,
        begun: _rollouts.Episodes,
        key: Any,
        first: Any,
        end: Any,
        total: Any,
        settings: dict[str, tf.Tensor] | None = None,
    ) -> tuple:
        """Plays and learns, in a graph.

        Args:
            agent: what learns, also as `carrying.packed` returns it.
            begun: the episodes that go on.
            key: int32 `[2]`, of all draws of the run.
            first: number of the first epoch.
            end: number after the last one.
            total: of epochs of the run.
            settings: numbers by name, in the place of those of the agent's `config`.

        Returns:
            The agent, packed, and episodes after them; of each epoch the numbers
            `[M, K, T, N]` of `_rollouts.numbers_of`, ends `[M, T, N]`, and scalars
            `[M, 64]` that updates inform about.
        """
        shape = self.n_steps, self.envs.num_envs
        steps, n_kinds = shape[0] * shape[1], len(_rollouts.kinds_of(self._env))

        def epoch(
            i: Any, carried: Any, begun: _rollouts.Episodes, *columns: Any
        ) -> tuple:
            agent = carrying.unpacked(carried)
            seeds = random.split_seed(key + tf.stack([0, i]), 2)
            done = progresses.Progress(
                tf.cast(i, tf.float32) / total, i, *[i * steps] * 2
            )
            begun, trajectory = _rollouts.shared_rollout(
                agent.policy, self._env, begun, seeds[0], self.n_steps
            )

            def update(agent: Any, experience: Any) -> tuple[Any, dict[str, Any]]:
                learner = self._with(agent, settings)
                learned, info = _rollouts.traced_update(
                    learner, experience, self._where
                )
                if settings is not None:
                    learned = learned.replace(config=agent.config)
                return carrying.packed(learned), info

            with progresses.progress_context(done):
                if isinstance(self._learned, experiences.Trajectories):
                    carried, info = update(agent, trajectory)
                    facts = self._row(info)
                else:
                    carried, begun, facts = self._learned_from_replay(
                        carried, begun, trajectory, seeds[1], update
                    )
            ended = trajectory.terminated | trajectory.truncated
            found = _rollouts.numbers_of(trajectory, self._env), ended, facts
            written = [
                column.write(i - first, x)
                for column, x in zip(columns, found, strict=True)
            ]
            return i + 1, carried, begun, *written

        columns = [
            tf.TensorArray(dtype, self.most_epochs, element_shape=each)
            for dtype, each in (
                *((tf.float32, (n_kinds, *shape)), (tf.bool, shape)),
                (tf.float32, [N_FACTS]),
            )
        ]
        _, agent, begun, *columns = tf.while_loop(
            lambda i, *_: i < end,
            epoch,
            (first, carrying.packed(agent), _rollouts.shared(begun), *columns),
        )
        begun = _rollouts.gathered(begun)
        return agent, begun, *[column.stack() for column in columns]

    def _learned_from_replay(
        self,
        carried: Any,
        begun: _rollouts.Episodes,
        trajectory: Any,
        seed: Any,
        update: Any,
    ) -> tuple[Any, _rollouts.Episodes, tf.Tensor]:
        """One update by draws of the replay, to which is added what was collected."""
        learned = self._learned
        replay = begun.replay.extended(trajectory, learned.alpha)
        n_envs = self.envs.num_envs

        def learn() -> tuple[Any, tf.Tensor, Any]:
            count = learned.n_gradient_steps(n_envs)
            drawn = replay.drawn(seed, count, learned, self._relabelling)
            # What is unpacked where it is packed again costs nothing.
            after, info = update(carrying.unpacked(carried), drawn)
            return after, self._row(info), self._prioritized(replay, drawn, info)

        after, facts, priorities = tf.cond(
            replay.count * n_envs >= learned.learning_starts,
            learn,
            lambda: (carried, tf.fill([N_FACTS], np.nan), replay.priorities),
        )
        replay = replay._replace(priorities=priorities)
        return after, begun.replace(replay=replay), facts

    def _prioritized(self, replay: Any, drawn: Any, info: dict[str, Any]) -> Any:
        """The priorities after an update, as the agent says; `()` if there are none."""
        if not replay.priorities:
            return ()
        where, found = f"`{self._where}`: `experience`", info.get("priorities")
        _minibatches.check_priorities(where, found, drawn.indices.shape)
        rows, found = (tf.reshape(x, [-1]) for x in (drawn.indices, found))
        return replay.priorities.updated(rows, found, self._learned.alpha)

    def _with(self, agent: Any, settings: dict[str, tf.Tensor] | None) -> Any:
        """The agent with tensors among its settings; notes which settings are read."""
        if settings is None:
            return agent
        read, own = self.settings_read, settings

        class Settings(type(agent.config)):  # type: ignore[misc]
            def __getattribute__(self, name: str) -> Any:
                read.add(name)
                if name in own:
                    return own[name]
                return super().__getattribute__(name)

        Settings.__name__ = type(agent.config).__name__
        config = object.__new__(Settings)
        config.__dict__.update(agent.config.__dict__)
        return agent.replace(config=config)

    def _row(self, info: dict[str, Any]) -> tf.Tensor:
        """The scalars of an info `[64]`, of which the names are noted."""
        scalars = {name: x for name, x in info.items() if name != "priorities"}
        self._facts = [*scalars]
        if len(scalars) > N_FACTS:
            raise ValueError(
                f"{self._fault} updates of {N_FACTS} numbers at most; got {[*scalars]}"
            )
        for name, x in scalars.items():
            cadence.check_scalar(self._where, name, x)
        numbers = [tf.cast(x, tf.float32) for x in scalars.values()]
        return tf.stack([*numbers, *[0.0] * (N_FACTS - len(scalars))])


def _check_experience(fault: str, learned: Any) -> None:
    if not isinstance(learned, experiences.Trajectories | experiences.Replayed):
        raise ValueError(
            f"{fault} `experience` that is collected, Trajectories or Replayed; got "
            f"{type(learned).__name__}"
        )
    for name in ("frame_stack", "prior_data", "sequence_length"):
        given = getattr(learned, name, None)
        if given is not None:
            got = f"{name}={given!r:.80}; leave it out, or take collector 'host'"
            raise ValueError(f"{fault} `experience` without `{name}`; got {got}")
