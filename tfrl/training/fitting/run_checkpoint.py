"""A whole run of `fit` on disk, from which it goes on as if it had never stopped."""

import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.core import checks, durable
from tfrl.training.checkpointing import (
    _checkpoint_folder,
    _checkpointed,
    _refusals,
    _sealed_folder,
    checkpoints,
)
from tfrl.training.fitting import _fit_run, agent_model

# By `tf.train.Checkpoint`.
_TAKEN = ("save_counter", "self")


class RunCheckpoint(keras.callbacks.Callback):
    """Saves a run of `FitModel.fit` or `AgentModel.fit` at epochs' ends and resumes it.

    When `fit` begins, and a run is in the folder, everything is restored and the epochs
    done are not repeated: the weights become those that a run without interruption
    would have, bit for bit, on the same machine and devices, where

    - batches come from a replay or from `Rollouts`, which is among the `parts`;
    - all else that is random is among the `parts`, or in the layers;
    - the environments' own state can be captured (see `tfrl.environments.capture`);
      elsewhere new episodes begin, with a `UserWarning`.

    Keras' callbacks keep their memories to themselves: `EarlyStopping` begins anew.

    A run of an `AgentModel` is one like those of `Trainer`: the agent is saved under
    its environment steps (its minibatches, where nothing is played), and each epoch is
    a row of `metrics.csv`. Made by `AgentModel.create` the model leaves a `run.json`
    too, so that `tfrl evaluate`, `record`, `export`, `plot` and `doctor` and
    `tfrl.rl_trainer.open_run` take the folder. `fit` resumes it, not `Trainer`.

    A save is complete or not there, whenever the process is killed. While `fit` runs
    no other run may use the folder. List this callback last.

    Args:
        directory: folder of the run; created if missing.
        parts: names to what has a state beside the model: `Collect`, `Rollouts`,
            replays (with their stores; what did not change is shared by the saves),
            `np.random.Generator`s, `tf.Module`s and what else `tf.train.Checkpoint`
            saves.
        every_epochs: epochs between saves; the last epoch is saved in any case.
        keep: how many saves stay.
        make_envs: of an `AgentModel`: maps `n_envs=` to environments in which others
            are to evaluate the run; by default what `Collect` or `Rollouts` among the
            parts plays in, if `make_vec` can make it.

    Raises:
        TypeError: if a part is something else.
        ValueError: if a number is out of range or a name no identifier; when `fit`
            begins, if the run in the folder is of another model or other parts.

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
    ) -> None:
        super().__init__()
        where = "RunCheckpoint"
        checks.check_whole_number(where, "every_epochs", every_epochs, low=1)
        checks.check_whole_number(where, "keep", keep, low=1)
        self.directory = _refusals.as_path(where, "directory", directory)
        if not isinstance(parts, Mapping | None):
            raise TypeError(
                f"`{where}`: `parts` expected a dictionary; got {parts!r}; give each "
                "part a name"
            )
        self._parts = {} if parts is None else dict(parts)
        for name, part in self._parts.items():
            _refusals.check_texts(where, "parts", [name])
            if not name.isidentifier() or name in _TAKEN:
                raise ValueError(
                    f"`{where}`: `parts` expected names like variables; got {name!r}; "
                    "rename it"
                )
            _kind(name, part)
        if make_envs is not None and not callable(make_envs):
            raise TypeError(
                f"`{where}`: `make_envs` expected a function of `n_envs`; got "
                f"{make_envs!r:.80}"
            )
        self._every_epochs, self._keep = every_epochs, keep
        self._make_envs = make_envs
        self._run: _fit_run.FitRun | None = None
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
            envs = [part.envs for part in self._parts.values() if hasattr(part, "envs")]
            self._run = _fit_run.FitRun(self.directory, model, envs, self._make_envs)
            if is_new:
                self._run.begin()
        if is_new:
            return 0
        state, metadata, step = checkpoints.load_run(
            self.directory, self._template(model)
        )
        self._check_parts(metadata, step)
        if self._run is not None:
            self._run.resume(state, metadata, step)
        else:
            for variable, value in zip(
                tf.nest.flatten(_variables(model)), tf.nest.flatten(state), strict=True
            ):
                variable.assign(value)
        epoch = step if self._run is None else metadata["fit"]["epoch"]
        self._restore_tracked(metadata, step)
        for name, value in metadata["states"].items():
            part = self._parts[name]
            try:
                if isinstance(part, np.random.Generator):
                    part.bit_generator.state = value
                else:
                    part.set_state(value)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                if str(error).startswith("`"):
                    raise
                raise ValueError(
                    f"`RunCheckpoint`: `parts` expected {name!r} as it was in epoch "
                    f"{epoch}; got another state ({type(error).__name__}: {error}); "
                    "make it as it was saved"
                ) from error
        return epoch

    def after_fit(self) -> None:
        """Gives the folder back; `FitModel.fit` calls it, also after an error."""
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
        done = epoch + 1
        if self._run is not None:
            self._run.write(done, {} if logs is None else logs)
        last = done == self.params.get("epochs") or self.model.stop_training
        if done % self._every_epochs and not last:
            return
        states = {}
        for name, part in self._parts.items():
            if isinstance(part, np.random.Generator):
                states[name] = part.bit_generator.state
            elif _kind(name, part) == "callback":
                states[name] = part.state()
        step = done if self._run is None else self._run.step
        metadata = {"states": states, "tracked": self._save_tracked(step)}
        if self._run is not None:
            state, metadata["fit"] = self.model.agent, self._run.state(done)
            metadata["log"] = metadata["fit"].pop("log")
        else:
            state = tf.nest.map_structure(tf.convert_to_tensor, _variables(self.model))
        checkpoints.save_run(self.directory, step, state, metadata, keep=self._keep)
        folder = self._tracked_folder(step).parent
        kept = {f"step-{step}" for step in checkpoints.list_steps(self.directory)}
        for old in folder.glob("step-*"):
            if old.name not in kept:
                durable.remove_folder(old)

    def _template(self, model: Any) -> Any:
        if self._run is not None:
            return model.agent
        return tf.nest.map_structure(
            lambda variable: tf.TensorSpec(variable.shape, variable.dtype),
            _variables(model),
        )

    def _of_kind(self, kind: str) -> dict[str, Any]:
        parts = self._parts.items()
        return {name: part for name, part in parts if _kind(name, part) == kind}

    def _tracked_folder(self, step: int) -> pathlib.Path:
        return self.directory / "parts" / f"step-{step}"

    def _save_tracked(self, step: int) -> dict[str, Any]:
        """Saves parts beside the step that will name them; returns what it says."""
        tracked, replays = self._of_kind("trackable"), self._of_kind("replay")
        digests: dict[str, str] = {}
        folder = self._tracked_folder(step)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with durable.shared_folder(folder.parent):
            # Of a save that was killed before it counted.
            if folder.exists():
                durable.remove_folder(folder)
            saved = checkpoints.latest_step(self.directory)
            before = None if saved is None else self._tracked_folder(saved)
            if tracked or replays:
                with durable.new_folder(folder) as temporary:
                    inner = _checkpoint_folder.write_replays(temporary, replays, before)
                    if tracked:
                        tf.train.Checkpoint(**tracked).write(str(temporary / "parts"))
                    digests = _sealed_folder.digests(temporary, inner)
        names = sorted([*tracked, *replays])
        return {"names": names, "replays": sorted(replays), "digests": digests}

    def _restore_tracked(self, metadata: Mapping[str, Any], step: int) -> None:
        saved, folder = metadata["tracked"], self._tracked_folder(step)
        # Runs of earlier versions have replays among the others.
        apart = saved.get("replays", [])
        tracked = {n: self._parts[n] for n in saved["names"] if n not in apart}
        try:
            _sealed_folder.compare_files(folder, {"files": saved["digests"]})
            replays = {name: self._parts[name] for name in apart}
            _checkpoint_folder.read_replays(folder, replays)
        except _sealed_folder.DamageError as damage:
            raise ValueError(
                f"`RunCheckpoint`: `directory` expected the parts of epoch {step} as "
                f"they were saved; got {folder}, damaged ({damage}); remove "
                f"{self.directory / 'checkpoints' / folder.name} to go on from the "
                "save before"
            ) from damage
        if not tracked:
            return
        try:
            status = tf.train.Checkpoint(**tracked).read(str(folder / "parts"))
            status.assert_existing_objects_matched().assert_consumed()
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"`RunCheckpoint`: `parts` expected {sorted(tracked)} as they were in "
                f"epoch {step}; got others: {error}; make them as they were saved"
            ) from error

    def _check_parts(self, metadata: Mapping[str, Any], step: int) -> None:
        of_agent = self._run is not None
        if not _is_of_fit(metadata) or of_agent != ("fit" in metadata):
            raise ValueError(
                "`RunCheckpoint`: `directory` expected a run of `fit`; got something "
                f"else in epoch {step} of {self.directory}; choose another folder"
            )
        saved = {*metadata["states"], *metadata["tracked"]["names"]}
        if saved != set(self._parts):
            raise ValueError(
                f"`RunCheckpoint`: `parts` expected {sorted(saved)}, with which epoch "
                f"{step} was saved in {self.directory}; got {sorted(self._parts)}; "
                "name the same"
            )


def _kind(name: str, part: Any) -> str:
    if isinstance(part, np.random.Generator):
        return "generator"
    if hasattr(part, "state") and hasattr(part, "set_state"):
        return "callback"
    if isinstance(part, _checkpointed.REPLAYS):
        return "replay"
    # Keras' own objects lose state in `tf.train.Checkpoint` without a word.
    foreign = isinstance(part, keras.layers.Layer | keras.optimizers.Optimizer)
    try:
        if foreign:
            raise ValueError
        lost = _lost(name, part, tf.train.Checkpoint(part=part))
    except ValueError:
        lost = [name]
    if lost:
        raise TypeError(
            f"`RunCheckpoint`: `parts` expected callbacks, generators and what "
            f"`tf.train.Checkpoint` saves whole; got {type(part).__name__} as "
            f"{name!r}, of which it would lose {', '.join(lost)}; pass a list of its "
            "variables, and generators of NumPy as parts of their own"
        )
    return "trackable"


def _lost(name: str, part: Any, checkpoint: tf.train.Checkpoint) -> list[str]:
    """Lists what a checkpoint passes over in a part, as far as is known."""
    try:
        found = _checkpointed.search("RunCheckpoint", name, part)
    except (TypeError, ValueError):  # of what it does not know, or not yet
        return []
    reached = {id(each) for each in tf.train.TrackableView(checkpoint).descendants()}
    arrays = [each for each, array in found.arrays.items() if id(array) not in reached]
    return arrays + list(found.generators)


def _is_of_fit(metadata: Mapping[str, Any]) -> bool:
    states, tracked = metadata.get("states"), metadata.get("tracked")
    if not isinstance(states, dict) or not isinstance(tracked, dict):
        return False
    names, replays = tracked.get("names"), tracked.get("replays", [])
    digests = tracked.get("digests")
    if not (isinstance(names, list) and isinstance(replays, list)):
        return False
    keys = [*states, *names, *replays, *(digests if isinstance(digests, dict) else [0])]
    return all(isinstance(key, str) for key in keys) and {*replays} <= {*names}


def _variables(model: Any) -> dict[str, list[Any]]:
    return {
        "model": list(model.variables),
        "optimizer": [x for each in model.optimizers.values() for x in each.variables],
        "own": list(model.own_variables().values()),
    }
