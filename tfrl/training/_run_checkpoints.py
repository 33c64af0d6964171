"""What a run keeps in its folder of how far it has come.

    <directory>/checkpoints/  agent, environments and draws
    <directory>/replay/       experience, where there is a replay
    <directory>/best/         the agent that was evaluated best

A step of the first two is there as a whole or not at all.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import named_arrays
from tfrl.environments import snapshots
from tfrl.saving import checkpoints
from tfrl.training import (
    _kept_arguments,
    _older_agents,
    _processes,
    _run_record,
    cadence,
)
from tfrl.training.collecting import collection

_EVAL_ENVS = "eval_environments"


class RunCheckpoints:
    """Saves and loads all that a run goes on with.

    Args:
        directory: of the run.
        workers: who train; the chief alone writes.
        source: of the experience.
        rng: by which actions are drawn.
        collector: who plays.
        seed: of the run.
        keep: number of checkpoints that stay.
        agent: as it was made.

    Attributes:
        lock: of the directory; as long as it holds, nothing is saved elsewhere.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        workers: _processes.Workers,
        source: Any,
        rng: np.random.Generator,
        collector: collection.Collector,
        seed: int,
        keep: int,
        agent: Any,
    ) -> None:
        self._directory, self._workers, self._source = directory, workers, source
        self._own, self._seed, self._keep = (rng, collector), seed, keep
        self.lock = checkpoints.RunLock(directory)
        # Steps whose experience is damaged.
        self._lost: list[int] = []
        self._like, self._settings = _described(agent), _settings_of(agent)

    def check(self, agent: Any) -> None:
        """Raises a ValueError if an agent is not made as the one of the start was.

        Of other arrays checkpoints would load nowhere; other settings would be gone as
        soon as the run is resumed.
        """
        others = _kept_arguments.differences(self._settings, _settings_of(agent))
        if others:
            told = [
                f"{name} = {now} (was {old})" for name, (old, now) in others.items()
            ]
            raise ValueError(
                "`Trainer`: `agent` expected the settings that the run was made with, "
                f"and that it records; got {', '.join(told)}; make the trainer with "
                "them, or begin from the weights of that agent alone, by `network=` of "
                "its `policy.to_keras(as_network=True)`"
            )
        found = named_arrays.array_differences(
            _described(agent), self._like, ("after it", "before")
        )
        if found:
            raise ValueError(
                "`Trainer`: `agent` expected an `update` that keeps the names, shapes "
                "and dtypes of the arrays that `create` made, or no checkpoint would "
                f"load; got {found}"
            )

    def save(
        self, env_steps: int, agent: Any, facts: dict[str, Any], eval_envs: VectorEnv
    ) -> None:
        """Saves the state after so many steps; all workers call it.

        Args:
            env_steps: number of the checkpoint.
            agent: of that moment.
            facts: of the run, plain values by name, with `epoch`.
            eval_envs: to evaluate in; what they carry over episodes is saved too.
        """
        self.check(agent)
        captured = collection.captured(*self._own)
        if self._evaluates_in(eval_envs):
            captured[_EVAL_ENVS] = snapshots.capture(eval_envs)
        own = self._workers.gather_values(captured)
        if not self._workers.is_chief:
            return
        with self.lock.in_place():
            mine = own[0] if len(own) == 1 else {"workers": own}
            self._write(env_steps, agent, {**facts, **mine})

    def _write(self, env_steps: int, agent: Any, facts: dict[str, Any]) -> None:
        while self._lost:  # they would be in the way, being later
            checkpoints.drop_step(self._directory, self._lost.pop())
            self._source.prune(self._directory, checkpoints.list_steps(self._directory))
        self._source.save(self._directory, env_steps)
        metadata = {**facts, "source": self._source.state()}
        checkpoints.save_run(
            self._directory, env_steps, agent, metadata, keep=self._keep
        )
        self._source.prune(self._directory, checkpoints.list_steps(self._directory))

    def save_best(self, env_steps: int, agent: Any, return_mean: float) -> None:
        """Keeps an agent in `best/`, in the place of the one before."""
        self.check(agent)
        if self._workers.is_chief:
            facts = {"return_mean": return_mean}
            checkpoints.save_best(self._directory / "best", env_steps, agent, facts)

    def _evaluates_in(self, eval_envs: VectorEnv) -> bool:
        """Whether these are others than those of training, and played in here."""
        collector = self._own[1]
        return eval_envs is not collector.envs and not hasattr(collector, "evaluated")

    def load(
        self,
        agent: Any,
        record: _run_record.RunRecord,
        may_lack_rows: bool,
        eval_envs: VectorEnv,
    ) -> tuple[Any, dict[str, Any], int, str | None]:
        """Goes back to the newest checkpoint that is not damaged.

        Later ones of which the experience is damaged are removed by the next save.

        Args:
            agent: of the same architecture.
            record: of the run; where it overrode the environments after the
                checkpoint, they begin new episodes.
            may_lack_rows: whether rows that are gone are done without.
            eval_envs: to evaluate in; others than were saved begin anew.

        Returns:
            The agent, the facts, the steps, and what the user should know.
        """
        tried: list[int] = []

        def beside(step: int) -> None:
            tried.append(step)
            self._source.load(self._directory, step)

        space = self._own[1].envs.single_observation_space
        agent, metadata, env_steps = _older_agents.load_run(
            self._directory, agent, space, beside=beside
        )
        self._lost, self._like = tried[:-1], _described(agent)
        self._settings = _settings_of(agent)
        if may_lack_rows:
            metadata["log"] = cadence.without_rows(self._directory, metadata["log"])
        saved = metadata.get("workers", [metadata])
        own = self._workers.own_of(saved, str(self._directory))
        self._source.set_state(metadata.get("source"))
        first = self._workers.rank * self._own[1].envs.num_envs
        seed = self._seed + 7_919 * metadata["epoch"] + first
        later = [each for each in record.overrides if each["env_steps"] >= env_steps]
        changed = {name for each in later for name in each["changes"]}
        are_others = any(name.partition(".")[0] == "make_envs" for name in changed)
        notice = collection.restore(own, *self._own, seed, are_others=are_others)
        if notice is not None:
            self._source.cut()
        known = own.get(_EVAL_ENVS)  # None of older runs, and what cannot be captured
        if known is not None and self._evaluates_in(eval_envs) and not are_others:
            with contextlib.suppress(ValueError):  # others than were saved
                snapshots.restore(eval_envs, known)
        return agent, metadata, env_steps, notice


def _settings_of(agent: Any) -> dict[str, Any]:
    """The settings of an agent that keeps those it was made with, and of its parts."""
    config, parts = getattr(agent, "config", None), getattr(agent, "agents", None)
    has_any = dataclasses.is_dataclass(config)
    own = {"agent": _kept_arguments.kept(config)} if has_any else {}
    if not isinstance(parts, dict):
        return own
    return {**own, "agents": {name: _settings_of(x) for name, x in parts.items()}}


def _described(agent: Any) -> dict[str, Any]:
    return named_arrays.describe_arrays(named_arrays.name_arrays(agent, "agent"))
