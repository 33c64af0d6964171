"""Collection and learning within one graph, of environments that are compiled."""

import collections
import copy
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.agents import carrying, replicated
from tfrl.core import random, records
from tfrl.environments import goals
from tfrl.environments.compiled import protocol, wrappers
from tfrl.training import evaluation
from tfrl.training import experience as experiences
from tfrl.training.collecting import (
    _compiled_evaluation,
    _compiled_program,
    _device_replay,
    _rollouts,
    collection,
)

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
        agent: whose policy acts first.
        seed: of environments and draws.
        where: whose run it is, for messages.

    Attributes:
        program: what a call computes, shared by the runs that are alike.

    Raises:
        TypeError: if the environments are not compiled.
        ValueError: if what is learned from cannot be collected in a graph, or the
            copies of the environments share a state that replicas would have to.
    """

    _episodes: _rollouts.Episodes
    _key: tf.Tensor

    def __init__(
        self, envs: Any, learned: Any, agent: Any, seed: int, where: str = "Trainer"
    ) -> None:
        fault = f"`{where}`: expected"
        if where == "Trainer":
            fault = f"`{where}`: `collector` 'compiled' expected"
        if not isinstance(getattr(envs, "compiled", None), protocol.CompiledEnv):
            raise TypeError(
                f"{fault} a `make_envs` of compiled environments, such as "
                f"`tfrl.environments.compiled.make_compiled`; got {envs}"
            )
        if not wrappers.resets_itself(envs.compiled):
            raise ValueError(
                f"{fault} environments that begin new episodes by themselves; "
                f"got {type(envs.compiled).__name__}; wrap it in AutoReset"
            )
        _check_experience(fault, learned)
        self._env, self._learned, self._policy = envs.compiled, learned, agent.policy
        self._piece: Any = None
        super().__init__(envs, learned.n_steps, seed)
        if getattr(learned, "relabel", None) is not None:
            goals.goal_rewards(envs)  # which refuses what has none
        self._n_at_once = 1
        # An agent, and how loops carry it.
        self._learned_last: tuple[Any, Any] = (None, None)
        self._judging: dict[Any, _compiled_evaluation.CompiledEvaluation] = {}
        given = self._env, learned, envs.num_envs, where
        self.program: _compiled_program.Program = _compiled_program.kept(
            _compiled_program.Program, agent, *given
        )
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
        n_epochs = min(n_epochs, self.program.most_epochs, self._n_at_once)
        numbers = map(tf.constant, (epoch, epoch + n_epochs, float(total)))
        last, packed = self._learned_last
        if last is not agent:
            packed = carrying.packed(carrying.lent(agent))
        packed, self._episodes, *found = replicated.run_alone(
            self.program.play, packed, self._episodes, self._key, *numbers
        )
        info = self.noted(n_epochs, *found)
        if self._episodes.replay and self._episodes.replay.priorities:
            self._episodes.replay.priorities.check()
        seconds = (time.perf_counter() - start) / n_epochs
        self._n_at_once = max(1, min(2 * n_epochs, int(_CALL_SECONDS / seconds)))
        agent = carrying.returned(carrying.unpacked(packed), agent)
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
            packed, *found = self.program.played(agent, *start)
            return carrying.unpacked(packed), found

        numbers = map(tf.constant, (done, done + 1, float(total)))
        return (self._episodes, self._key, *numbers), collected_and_learned

    def noted(
        self,
        n_epochs: int,
        numbers: tf.Tensor,
        ended: tf.Tensor,
        facts: _compiled_program.Facts,
        where: str = "Trainer",
    ) -> dict[str, tf.Tensor]:
        """Counts episodes and steps of some epochs; returns the last one's info.

        Args:
            n_epochs: of the call.
            numbers: `[M, K, T, N]`, what `played` returned, of which the first epochs
                are these.
            ended: `[M, T, N]`, likewise.
            facts: likewise.
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
        last = facts.numbers[n_epochs - 1]
        return {name: last[i] for i, name in enumerate(facts.names)}

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
        judging = self._judging.get(envs)
        if judging is None:
            judging = self._judging[envs] = _compiled_program.kept(
                _compiled_evaluation.CompiledEvaluation,
                *(acting.policy.policy, envs.compiled, envs.num_envs),
            )
        given = acting.policy.policy, n_episodes, seed, acting.check
        found: evaluation.Evaluation = judging.evaluated(*given)
        return found

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
