"""Base classes of callbacks that act: `Acting`, and `Playing` in environments."""

import warnings
from typing import Any

import keras
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import checks, gym_checks
from tfrl.core import records
from tfrl.policies import host_policy
from tfrl.policies import policy as policies
from tfrl.schedules import progress
from tfrl.training.collecting import collection


def progress_of(model: Any, env_steps: int) -> progress.Progress:
    """Returns how far the training of a model has come, in numbers."""
    if hasattr(model, "progress"):
        return model.progress()
    iterations = int(model.optimizer.iterations.numpy())
    return progress.Progress(0.0, iterations, env_steps, env_steps)


class Acting(keras.callbacks.Callback):
    """A callback that acts by a policy, or as the agent of the model does.

    Args:
        policy: as of `Collect`.
        **counts: numbers that must be 1 at least, by name.
        seed: must be 0 at least.
    """

    def __init__(self, policy: Any, *, seed: int, **counts: int) -> None:
        super().__init__()
        self._where = type(self).__name__
        self._given = policy
        if policy is not None:
            self._given = policies.as_policy(self._where, "policy", policy)
        checks.check_whole_number(self._where, "seed", seed, low=0)
        for name, count in counts.items():
            checks.check_whole_number(self._where, name, count, low=1)
        self._seed = seed
        # What it was made with, for the record of the run.
        self.settings = {"policy": self._given, "seed": seed, **counts}
        self._host: host_policy.HostPolicy | None = None

    def _policy(self, probe: Any = None) -> Any:
        """Returns what acts now; the agent's copy is compared on observations."""
        if self._given is not None:
            return self._given
        agent = getattr(self.model, "agent", None)
        if agent is None:
            raise TypeError(
                f"`{self._where}`: `policy` expected a policy, or a function from "
                "observations to actions; got None beside a "
                f"{type(self.model).__name__}, which has no agent that could act"
            )
        if self._host is None:
            self._host = host_policy.HostPolicy(agent.policy)
        else:
            self._host.push(agent.policy, probe)
        return self._host

    def _is_due(self, epoch: int, every_epochs: int) -> bool:
        """Whether an epoch is the first, one of every few, or the last."""
        last = epoch + 1 == self.params.get("epochs")
        return not epoch or last or (epoch + 1) % every_epochs == 0


class Playing(Acting):
    """A callback that plays environments, and can be saved amid episodes.

    Args:
        envs: vector environment.
        n_steps: steps that are played at once.
        policy: as of `Collect`.
        seed: of the environments and of what the policy draws.
        **counts: as of `Acting`.
    """

    def __init__(
        self, envs: VectorEnv, n_steps: int, policy: Any, *, seed: int, **counts: int
    ) -> None:
        super().__init__(policy, seed=seed, **counts)
        gym_checks.check_vector(self._where, "envs", envs)
        self.settings["n_steps"] = n_steps
        self.collector = collection.Collector(envs, n_steps, seed)
        self._rng = np.random.default_rng(seed)
        self._told = 0

    @property
    def envs(self) -> VectorEnv:
        """What is played in."""
        return self.collector.envs

    @property
    def env_steps(self) -> int:
        """Steps of experience so far, over all environments."""
        return self.collector.env_steps

    def trajectory(self, model: Any) -> records.Trajectory:
        """Plays on in all environments, as the model would now.

        Args:
            model: whose agent acts, unless there is a policy.

        Returns:
            `[T, N]`, of NumPy arrays.

        Raises:
            TypeError: if there is neither a policy nor an agent.
        """
        self.set_model(model)
        with progress.progress_context(progress_of(model, self.env_steps)):
            policy = self._policy(self.collector.observations)
            played = self.collector.collect(policy, self._rng)
        self._tell_steps(model)
        return played

    def _tell_steps(self, model: Any) -> None:
        """Adds what was played since the last time to the steps of the model."""
        if hasattr(model, "env_steps"):
            model.env_steps.assign_add(self.env_steps - self._told)
        self._told = self.env_steps

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is None:
            return
        for name in ("return", "length"):
            values = getattr(self.collector, f"episode_{name}s")
            logs[f"{name}_mean"] = float(np.mean(values)) if values else float("nan")
        counted = getattr(self.model, "env_steps", self.env_steps)
        logs["env_steps"] = float(np.asarray(counted))

    def state(self) -> dict[str, Any]:
        """Returns what `RunCheckpoint` saves: environments and generators.

        Returns:
            Plain data; what stores keep is saved for itself.
        """
        return collection.captured(self._rng, self.collector)

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes up where `state` was returned.

        Args:
            state: what `state()` returned.
        """
        seed = self._seed + 7_919 * (1 + state["collector"]["env_steps"])
        notice = collection.restore(state, self._rng, self.collector, seed)
        self._told = self.env_steps
        if notice is not None:
            warnings.warn(f"`{self._where}`: {notice}", stacklevel=2)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Does what new episodes ask for."""
