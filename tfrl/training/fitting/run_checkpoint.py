"""A whole run of `fit` on disk, which can be resumed as if it had never stopped."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import adapted_layers, checks, durable, sealed_folder
from tfrl.replay.disk import saving
from tfrl.saving import checkpointer, checkpoints
from tfrl.summaries import run_log
from tfrl.training import _run_record, cadence, experience
from tfrl.training.fitting import _fit_checks, _recorded, agent_model

# By `Checkpointer`.
_TAKEN = ("ckpt_dir", "global_step", "keep", "score", "self")


class RunCheckpoint(keras.callbacks.Callback):
    """Saves a run of `FitModel.fit` or `AgentModel.fit` at epochs' ends and resumes it.

    When `fit` begins and the folder holds a run, everything is restored and the epochs
    done are not repeated: the weights become those of an uninterrupted run, bit for
    bit, on the same machine and devices, where

    - batches come from a replay or from `Rollouts`, which is among the `parts`;
    - everything else that is random is among the `parts`, or in the layers;
    - the environments' own state can be captured (see `tfrl.environments.capture`);
      elsewhere new episodes begin, with a `UserWarning`.

    The state of Keras' callbacks is not saved: `EarlyStopping` begins anew.

    A run of an `AgentModel` is one like those of `Trainer`: the agent is saved under
    its environment steps (its minibatches, where nothing is played), and each epoch is
    a row of `metrics.csv`. A model made by `AgentModel.create` leaves a `run.json` too,
    so that `tfrl evaluate`, `record`, `export`, `plot` and `doctor` and
    `tfrl.rl_trainer.open_run` accept the folder. With `Evaluate` listed before this
    callback, the policy with the highest mean return is kept in `best/`.

    The program that made a run resumes it, and so does `tfrl --resume RUN`, to the same
    bits, if `run.json` describes all of the run. It does if the data are `Rollouts`, or
    a replay of `Transitions` that `Collect` fills, the agent itself plays, the
    environments come from `make_vec` or an importable `make_envs`, there are no other
    parts, and the only other callback, if any, is an `Evaluate`.

    A save is complete or absent, whenever the process is killed. While `fit` runs, no
    other run may use the folder. List this callback last.

    Args:
        directory: folder of the run; created if missing.
        parts: names to what has a state besides the model: `Collect`, `Rollouts`,
            replays (with their stores; what did not change is shared by the saves),
            `np.random.Generator`s, `tf.Module`s, layers and whatever else a
            `Checkpointer` loads in place.
        every_epochs: epochs between saves; the last epoch is saved in any case.
        keep: how many saves stay.
        make_envs: for an `AgentModel`, maps `n_envs=` to environments for evaluating
            the run later, and for `tfrl train --resume` to train it where `make_vec`
            did not make those of `Collect` or `Rollouts`; by default like those of one
            of these among the parts, if `make_vec` can make them.
        override: resume with other hyper-parameters, which `run.json` records.

    Raises:
        TypeError: if a part is something else.
        ValueError: if a number is out of range or a name no identifier; when `fit`
            begins, if the run in the folder has another model or other parts.

    Example:
        >>> import tempfile
        >>> def run(folder, epochs):
        ...     network = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        ...     model = tfrl.training.FitModel(network, lambda model, x: model(x) ** 2)
        ...     model.compile("sgd")
        ...     return model.fit(np.ones([8, 1], np.float32), shuffle=False, verbose=0,
        ...                      epochs=epochs, callbacks=[RunCheckpoint(folder)])
        >>> folder = tempfile.mkdtemp()
        >>> run(folder, epochs=2).epoch, run(folder, epochs=5).epoch
        ([0, 1], [2, 3, 4])
    """

    def __init__(
        self,
        directory: durable.Path,
        parts: Mapping[str, Any] | None = None,
        every_epochs: int = 1,
        keep: int = 3,
        make_envs: Any = None,
        override: bool = False,
    ) -> None:
        super().__init__()
        where = "RunCheckpoint"
        checks.check_whole_number(where, "every_epochs", every_epochs, low=1)
        checks.check_whole_number(where, "keep", keep, low=1)
        self.directory = checks.as_path(where, "directory", directory)
        expected = "a dictionary, as each part has a name"
        checks.check_type(where, "parts", parts, Mapping | None, expected)
        self.parts = {} if parts is None else dict(parts)
        checks.check_texts(where, "parts", list(self.parts))
        for name in self.parts:
            if not name.isidentifier() or name in _TAKEN:
                raise ValueError(
                    f"`{where}`: `parts` expected names like variables; got {name!r}; "
                    "rename it"
                )
        self._stated = {n: x for n, x in self.parts.items() if _has_state(x)}
        self._held = {n: x for n, x in self.parts.items() if n not in self._stated}
        # Layers may be built later.
        with contextlib.suppress(ValueError):
            for name in checkpointer.immutable_items(where, self._held):
                raise TypeError(
                    f"`{where}`: `parts` expected what can be loaded in place; got "
                    f"{type(self._held[name]).__name__} as {name!r}; put it into "
                    "variables"
                )
        expected, kinds = "a function of `n_envs`", Callable | None
        checks.check_type(where, "make_envs", make_envs, kinds, expected)
        kind = _fit_checks.Replay
        replays = {n: x for n, x in self._held.items() if isinstance(x, kind)}
        self._others = {n: x for n, x in self._held.items() if n not in replays}
        if len(replays) == 1:  # as a trainer calls its own
            replays = {"replay": replays.popitem()[1]}
        self._replays = experience.ReplaysOnDisk(replays) if replays else None
        self.every_epochs, self.keep = every_epochs, keep
        self.make_envs, self.override = make_envs, override
        self._run: _FitRun | None = None
        self._lock: checkpoints.RunLock | None = None

    def before_fit(self, model: Any) -> int:
        """Locks the folder and restores what is in it; `FitModel.fit` calls it.

        Args:
            model: the `FitModel` or `AgentModel`, compiled.

        Returns:
            How many epochs are done.
        """
        lock = checkpoints.RunLock(self.directory)
        lock.__enter__()
        self._lock = lock
        is_new = checkpoints.latest_step(self.directory) is None
        if isinstance(model, agent_model.AgentModel):
            self._run = _FitRun(model, self)
            if is_new:
                self._run.open(run_log.RunLog.START)
        if is_new:
            return 0
        template = _variables(model) if self._run is None else model.agent
        state, metadata, step = checkpoints.load_run(self.directory, template)
        self._check_parts(metadata, step)
        if self._run is not None:
            self._run.resume(state, metadata, step)
        else:
            pairs = zip(*map(tf.nest.flatten, (template, state)), strict=True)
            for variable, value in pairs:
                variable.assign(value)
            adapted_layers.renew(model)
        try:
            self._restore_parts(metadata, step)
        except Exception as error:
            # What parts make of a state that is damaged or not theirs can be any error.
            raise ValueError(
                f"`RunCheckpoint`: `parts` expected {sorted(self.parts)} as they were "
                f"saved with {self.directory / 'checkpoints' / f'step-{step}'}; got "
                f"others ({type(error).__name__}: {error}); make them as they were, or "
                "remove that folder to go on from the save before"
            ) from error
        if self._run is not None:
            log = metadata["log"]
            if self.override:
                log = cadence.without_rows(self.directory, log)
            self._run.open(log)
        epoch: int = step if self._run is None else metadata["fit"]["epoch"]
        return epoch

    def after_fit(self) -> None:
        """Unlocks the folder; `FitModel.fit` calls it, also after an error."""
        if self._run is not None:
            self._run.close()
        if self._lock is not None:
            self._lock.__exit__()
        self._lock = self._run = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Makes sure that the run was restored."""
        if self._lock is None:
            raise ValueError(
                "`RunCheckpoint`: `model` expected a FitModel, which restores a run "
                f"before its data is read; got {type(self.model).__name__}; use "
                "keras.callbacks.BackupAndRestore with it"
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves."""
        if self._lock is not None:
            self._lock.check()
        done = epoch + 1
        if self._run is not None:
            self._run.write(done, {} if logs is None else logs)
        last = done == self.params.get("epochs") or self.model.stop_training
        if done % self.every_epochs and not last:
            return
        states = {
            name: part.bit_generator.state
            if isinstance(part, np.random.Generator)
            else part.state()
            for name, part in self._stated.items()
        }
        metadata: dict[str, Any] = {"states": states, "parts": sorted(self._held)}
        if self._run is None:
            step, state = done, _variables(self.model)
        else:
            step, state = self._run.step, self.model.agent
            metadata["fit"] = self._run.state(done)
            metadata["log"] = metadata["fit"].pop("log")
        # Also those of a save that was killed before it counted.
        self._remove_parts(step)
        if self._replays is not None:
            self._replays.save(self.directory, step)
        if self._others:
            self._checkpointer(self._others).save(step)
        checkpoints.save_run(self.directory, step, state, metadata, keep=self.keep)
        self._remove_parts(step + 1)
        if self._replays is not None:
            steps = checkpoints.list_steps(self.directory)
            self._replays.prune(self.directory, steps)

    def _checkpointer(self, parts: Mapping[str, Any]) -> checkpointer.Checkpointer:
        return checkpointer.Checkpointer(self.directory / "parts", **parts)

    def _remove_parts(self, below: int) -> None:
        """Removes parts that belong to none of the steps below one."""
        steps = [x for x in checkpoints.list_steps(self.directory) if x < below]
        kept = {f"{kind}-{step}" for kind in ("ckpt", "step") for step in steps}
        for old in self.directory.glob("parts/*-*"):
            if old.name not in kept:
                durable.remove_folder(old)

    def _restore_parts(self, metadata: Mapping[str, Any], step: int) -> None:
        # Earlier versions kept replays among the others.
        is_apart = (self.directory / "replay" / f"step-{step}").exists()
        others = self._others if is_apart else self._held
        if "tracked" in metadata:
            self._restore_tracked(metadata["tracked"], step)
        elif others and self._checkpointer(others).load(step) < 0:
            raise sealed_folder.DamageError("there are none")
        if self._replays is not None and is_apart:
            self._replays.load(self.directory, step)
        for name, value in metadata["states"].items():
            part = self.parts[name]
            if isinstance(part, np.random.Generator):
                part.bit_generator.state = value
            else:
                part.set_state(value)

    def _restore_tracked(self, saved: Mapping[str, Any], step: int) -> None:
        """Restores parts that an earlier version saved."""
        folder = self.directory / "parts" / f"step-{step}"
        # Still earlier ones have replays among the others.
        apart = saved.get("replays", [])
        tracked = {n: self.parts[n] for n in saved["names"] if n not in apart}
        sealed_folder.compare_files(folder, {"files": saved["digests"]})
        if apart:
            saving.load(folder / "replay", {n: self.parts[n] for n in apart})
        if tracked:
            status = tf.train.Checkpoint(**tracked).read(str(folder / "parts"))
            status.assert_existing_objects_matched().assert_consumed()

    def _check_parts(self, metadata: Mapping[str, Any], step: int) -> None:
        names = None
        with contextlib.suppress(KeyError, TypeError):
            tracked = metadata.get("tracked") or {"names": metadata["parts"]}
            names = {*metadata["states"], *tracked["names"]}
        if names is None or (self._run is None) == ("fit" in metadata):
            raise ValueError(
                "`RunCheckpoint`: `directory` expected a run of `fit`; got something "
                f"else in epoch {step} of {self.directory}; choose another folder"
            )
        if names != set(self.parts):
            raise ValueError(
                f"`RunCheckpoint`: `parts` expected {sorted(names)}, with which epoch "
                f"{step} was saved in {self.directory}; got {sorted(self.parts)}; "
                "name the same"
            )


class _FitRun:
    """Record, rows and best policy of a run.

    Args:
        model: the `AgentModel`.
        saved: the `RunCheckpoint`, of a locked folder.

    Attributes:
        step: of the run now: environment steps, or minibatches where none are played.
    """

    def __init__(self, model: Any, saved: Any) -> None:
        self._directory, self._model, self._saved = saved.directory, model, saved
        self.step = self._iterations = 0
        self._seconds, self._since = 0.0, time.perf_counter()
        self._best = float("-inf")
        self._report: Any = None

    def resume(self, agent: Any, metadata: Mapping[str, Any], step: int) -> None:
        """Goes on with a run, and with the model as it was then.

        Args:
            agent: that was saved.
            metadata: of the save.
            step: of it.

        Raises:
            ValueError: if the model is of other hyper-parameters than the run.
        """
        self._checked_record()
        kept = metadata["fit"]
        self._model.agent = agent
        self._model.env_steps.assign(kept["env_steps"])
        self._model.iterations.assign(kept["iterations"])
        self.step, self._iterations = step, kept["iterations"]
        self._seconds, self._best = kept["seconds"], kept.get("best", self._best)

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
        row |= {
            _column(name): float(x) for name, x in logs.items() if name != "env_steps"
        }
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

    def open(self, position: Any) -> None:
        """Writes `run.json`, when nothing can be refused any more, and opens the rows.

        Args:
            position: in `metrics.csv`, as it was saved.
        """
        record = self._checked_record()
        if record is not None:
            _run_record.write(self._directory, record)
        report = cadence.Report(self._directory, position, None, record)
        self._report = report.__enter__()
        self._since = time.perf_counter()

    def _checked_record(self) -> _run_record.RunRecord | None:
        """Returns what `run.json` will be.

        Raises:
            ValueError: if it is of other hyper-parameters than the run.
        """
        if self._model.recipe is None:
            return None
        record = _recorded.recorded(self._model, self._saved)
        if checkpoints.latest_step(self._directory) is not None:
            old = _run_record.read("RunCheckpoint", self._directory)
            config = self._model.recipe.config
            record = _run_record.continued(record, self._directory, True, config)
            told = () if old is None else record.overrides[len(old.overrides) :]
            if told and not self._saved.override:
                changes = _run_record.changes_of(told[0])
                raise ValueError(
                    "`RunCheckpoint`: `directory` expected a run of this model; got "
                    f"{self._directory}, of another: {changes}; give the old values, "
                    "go on with the new ones by `override=True`, or choose another "
                    "folder"
                )
        return record


def _column(name: str) -> str:
    """Returns the column of `metrics.csv` for a name in Keras' logs."""
    return f"eval/{name[4:]}" if name.startswith("val_") else f"train/{name}"


def _has_state(part: Any) -> bool:
    is_callback = hasattr(part, "state") and hasattr(part, "set_state")
    return is_callback or isinstance(part, np.random.Generator)


def _variables(model: Any) -> dict[str, list[Any]]:
    return {
        "model": list(model.variables),
        "optimizer": [x for each in model.optimizers.values() for x in each.variables],
        "own": list(model.own_variables().values()),
    }
