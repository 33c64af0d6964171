"""What makes the folder of an `AgentModel.fit` a run like those of a trainer."""

import functools
import pathlib
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import _metrics, _run_record, cadence

_OWN = ("num_envs", "vectorization_mode", "vector_kwargs")


class FitRun:
    """Record, rows and best policy of a run.

    Args:
        directory: of the run, locked.
        model: the `AgentModel`.
        envs: that callbacks play in.
        make_envs: as of `RunCheckpoint`.

    Attributes:
        step: of the run now: environment steps, or minibatches where none are played.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        model: Any,
        envs: Sequence[VectorEnv],
        make_envs: Any,
    ) -> None:
        self._directory, self._model = directory, model
        self._envs, self._make_envs = envs, make_envs
        self.step = self._iterations = 0
        self._seconds, self._since = 0.0, time.perf_counter()
        self._best = float("-inf")
        self._report: Any = None

    def begin(self) -> None:
        """Opens a new run."""
        self._open(run_log.RunLog.START)

    def resume(self, agent: Any, metadata: Mapping[str, Any], step: int) -> None:
        """Goes on with a run, and with the model as it was then.

        Args:
            agent: that was saved.
            metadata: of the save.
            step: of it.

        Raises:
            ValueError: if the model is of other hyper-parameters than the run.
        """
        kept = metadata["fit"]
        self._model.agent = agent
        self._model.env_steps.assign(kept["env_steps"])
        self._model.iterations.assign(kept["iterations"])
        self.step, self._iterations = step, kept["iterations"]
        self._seconds, self._best = kept["seconds"], kept.get("best", self._best)
        self._open(metadata["log"])

    def write(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Writes a row, and the agent to `best/` if none was evaluated as well.

        Args:
            epoch: epochs done.
            logs: of Keras.
        """
        model = self._model
        played, learned = int(model.env_steps.numpy()), int(model.iterations.numpy())
        before, now = self.step, time.perf_counter()
        more = learned - self._iterations
        self.step = played if played > before else before + more
        self._iterations = learned
        seconds, self._since = now - self._since, now
        self._seconds += seconds
        row = {
            "epoch": float(epoch),
            "seconds": self._seconds,
            "env_steps_per_second": (self.step - before) / max(seconds, 1e-9),
        }
        row |= {_column(name): float(x) for name, x in logs.items() if name != _STEPS}
        self._report.write(self.step, row, self.step)
        mean = row.get("eval/return_mean", float("-inf"))
        if mean > self._best:
            self._best, facts = mean, {"return_mean": mean}
            best = self._directory / "best"
            checkpoints.save_best(best, self.step, model.agent, facts)

    def state(self, epoch: int) -> dict[str, Any]:
        """Returns what `resume` needs, as plain data."""
        return {
            "epoch": epoch,
            "env_steps": int(self._model.env_steps.numpy()),
            "iterations": int(self._model.iterations.numpy()),
            "seconds": self._seconds,
            "best": self._best,
            "log": self._report.position(),
        }

    def close(self) -> None:
        """Closes the files."""
        if self._report is not None:
            self._report.__exit__(None, None, None)
        self._report = None

    def _open(self, position: Any) -> None:
        if self._model.recipe is not None:
            self._record()
        report = _metrics.Report(self._directory, position, None)
        self._report = report.__enter__()
        self._since = time.perf_counter()

    def _record(self) -> None:
        """Writes `run.json`."""
        recipe, envs = self._model.recipe, self._envs
        given = {"seed": 0, **recipe.arguments}
        makers = [*filter(None, map(_maker_of, envs))]
        numbers = {k: given[k] for k in ("seed", "n_envs", "n_steps") if k in given}
        arguments = {
            "agent": recipe.config,
            "make_envs": self._make_envs or (makers[0] if makers else _Unknown()),
            "n_envs": envs[0].num_envs if envs else None,
            "experience": None,
            "seed": given["seed"],
            "n_epochs": None,
            "network": given.get("network"),
            "total_env_steps": None,
            "intervals": cadence.Intervals(),
            "fit": True,
        }
        like: Any = types.SimpleNamespace(
            single_observation_space=recipe.observation_space,
            single_action_space=recipe.action_space,
            spec=getattr(envs[0], "spec", None) if envs else None,
        )
        record = _run_record.of_trainer(arguments, numbers, like)
        if checkpoints.latest_step(self._directory) is not None:
            old = _run_record.read("RunCheckpoint", self._directory)
            record = _run_record.continued(record, self._directory, True)
            if old is not None and len(record.overrides) > len(old.overrides):
                changed = _run_record.told(record.overrides[-1])
                raise ValueError(
                    "`RunCheckpoint`: `directory` expected a run of this model; got "
                    f"{self._directory}, of another: {changed}; give the old values, "
                    "or choose another folder"
                )
        _run_record.write(self._directory, record)


class _Unknown:
    """Stands for environments of which nobody said how they are made."""

    def __call__(self, n_envs: int) -> None:
        """Makes none."""


_STEPS = "env_steps"


def _column(name: str) -> str:
    """Returns the column of `metrics.csv` for a name in Keras' logs."""
    return f"eval/{name[4:]}" if name.startswith("val_") else f"train/{name}"


def _maker_of(envs: Any) -> Any:
    """Returns a function of `n_envs` that makes such environments, if it is known."""
    spec = getattr(envs, "spec", None)
    if spec is None:
        return None
    kwargs = {name: x for name, x in spec.kwargs.items() if name not in _OWN}
    limit = kwargs.pop("max_episode_steps", None)
    return functools.partial(
        vector.make_vec,
        env_id=spec.id,
        max_episode_steps=limit,
        env_kwargs=kwargs or None,
    )
