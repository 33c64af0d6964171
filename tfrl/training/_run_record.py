"""What a run keeps in its folder of what it was made with.

    <directory>/run.json      the trainer's arguments, spaces, and every override;
                              versions of libraries, see `_made_with`
    <directory>/config.gin    the same for who reads or repeats the run, where it is
                              a run of `train_rl`; its first line has its digest

They are replaced as a whole, `config.gin` first, and compared on resuming. A run of old
has no `run.json`, and no digest in its `config.gin`.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
from gymnasium.vector import VectorEnv

from tfrl._internal import dtype_policies, durable, sealed_folder
from tfrl.configuring import gin_calls
from tfrl.saving import checkpoints, typed_json
from tfrl.training import _kept_arguments, _kept_names, _made_with, experience

# What a run may go on with as it likes: how long, how often, in which processes.
_FREE = (
    *("n_epochs", "total_env_steps", "stop_at_return", "intervals", "evaluation"),
    *("make_envs.vectorization", "fit.make_envs.vectorization"),
    *("collector.n_actors", "collector.engine", "collector.address"),
)
_OF_LEARNING = "experience", "fit"
_NO_HYPERPARAMETERS = ("seed", "n_epochs", "intervals", "evaluation")
_NAME, _CONFIG = "run.json", "config.gin"
# The dtype policy that Keras has by itself.
_FORMAT = 1
_ANEW = "train anew in another `output_dir`"
_OVERRIDE = "go on with the new ones by `override=True` (--override), which it records"


class RunRecord(NamedTuple):
    """What `run.json` holds.

    Attributes:
        arguments: of the trainer by name, as `_kept_arguments.kept` returns them.
        numbers: what the agent was created with beside spaces.
        spaces: of observations and actions of one environment, likewise kept.
        environment: what makes its name known, as `_kept_names.needed` returns it.
        overrides: one for each time that the run went on with other arguments:
            `env_steps`, and `changes`, texts of old and new values by place.
        dtype_policy: name of that of Keras, by which networks were made; None of runs
            that did not keep it.
    """

    arguments: dict[str, Any]
    numbers: dict[str, int]
    spaces: tuple[Any, Any]
    environment: list[Any]
    overrides: tuple[dict[str, Any], ...] = ()
    dtype_policy: str | None = None

    @property
    def lost(self) -> dict[str, str]:
        """Arguments that could not be kept: what they were, by their place.

        What was learned from, and how `fit` did, is not among them: nobody who opens a
        run needs it.
        """
        needed = {k: v for k, v in self.arguments.items() if k not in _OF_LEARNING}
        return _kept_arguments.lost(needed, "") | self._lost_name()

    def _lost_name(self) -> dict[str, str]:
        """What the name of an environment stands for, if that could not be kept."""
        lost = _kept_arguments.lost(self.environment, "").values()
        return {"make_envs.env_id": ", ".join(lost)} if lost else {}

    def is_of_gin(self, directory: durable.Path) -> bool:
        """Whether `config.gin` alone tells how to make all arguments."""
        return bool(self.lost) and pathlib.Path(directory, _CONFIG).is_file()

    @property
    def hyperparameters(self) -> dict[str, bool | int | float | str]:
        """The arguments as plain values by their place, but for seed and intervals."""
        names = [x for x in self.arguments if x not in _NO_HYPERPARAMETERS]
        given = {name: self.arguments[name] for name in names}
        return dict(_kept_arguments.plain(given, ""))

    @property
    def notice(self) -> str | None:
        """What the user should know of a run that its folder alone cannot open."""
        if not self.lost:
            return None
        what = ", ".join(f"{place} = {text}" for place, text in self.lost.items())
        return (
            f"another process cannot make all of this run again: got {what}; "
            "define it in a module that can be imported, or use functools.partial of "
            "what is in one; of a network, a function that makes it"
        )

    @property
    def made_by(self) -> str:
        """What makes the run again of its arguments: `Trainer` or `FitTrainer`."""
        return "FitTrainer" if "fit" in self.arguments else "Trainer"

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that all workers have in common."""
        return {k: v for k, v in self.arguments.items() if k != "make_envs"}

    def made(self) -> dict[str, Any]:
        """Makes all arguments again, and imports what makes environments known.

        Raises:
            ValueError: if one could not be kept, or what it names is not here.
        """
        lost = _kept_arguments.lost(self.arguments, "") | self._lost_name()
        if self.arguments.get("fit") is True:
            lost["fit"] = "nothing, as of earlier versions"
        lost = {name: lost[name] for name in sorted(lost, key=lambda x: x != "fit")}
        for place, what in lost.items():
            raise ValueError(
                "`train_rl`: `output_dir` expected a run that keeps all that it is "
                f"made of; got {place} = {what}; go on with the program that made it"
            )
        _kept_names.make_known(self.environment)
        return {name: _kept_arguments.made(x) for name, x in self.arguments.items()}

    def as_gin(self, configurables: Mapping[str, Any]) -> str | None:
        """Returns the arguments as a configuration of `train_rl`, if gin can say it.

        Args:
            configurables: what configurations may name, by name.
        """
        given, kind = dict(self.arguments), self.made_by
        known = {k: _kept_arguments.importable(v) for k, v in configurables.items()}
        names = {full: name for name, full in known.items() if full is not None}
        front = {name: given.pop(name) for name in ("n_epochs", "seed")}
        lines = gin_calls.written_call(kind, given, names)
        if lines is None or self._lost_name():
            return None
        registered = [x for x in self.environment if not _kept_names.is_registration(x)]
        named = (x if isinstance(x, str) else [*x.values()][0] for x in registered)
        head = [f"import {full.partition(':')[0]}" for full in named]
        head += [f"train_rl.light_rl_trainer = @{kind}"]
        if self.dtype_policy not in (None, dtype_policies.DEFAULT):
            head += [f"train_rl.dtype_policy = {self.dtype_policy!r}"]
        head += [f"train_rl.{name} = {value}" for name, value in front.items()]
        return "\n".join([*head, "", *lines, ""])


def of_trainer(
    arguments: Mapping[str, Any],
    numbers: Mapping[str, int],
    envs: VectorEnv,
) -> RunRecord:
    """Returns the record of a new run.

    Args:
        arguments: of the trainer, by name.
        numbers: n_envs, n_steps and seed, of all workers, and n_agents if known.
        envs: that it made.
    """
    data = {name: _own(_kept_arguments.kept(x)) for name, x in arguments.items()}
    observations = _kept_arguments.kept(envs.single_observation_space)
    spaces = observations, _kept_arguments.kept(envs.single_action_space)
    counts = {name: int(number) for name, number in numbers.items()}
    policy = keras.config.dtype_policy().name
    environment = _kept_names.needed(_kept_names.kept_name(envs), data["make_envs"])
    return RunRecord(data, counts, spaces, environment, dtype_policy=policy)


def _own(data: Any) -> Any:
    """Leaves out what a trainer itself says to the function that makes environments."""
    is_partial = isinstance(data, dict) and "=partial" in data
    return {k: v for k, v in data.items() if k != "n_envs"} if is_partial else data


def dtype_policy_of(directory: pathlib.Path, resume: bool) -> str | None:
    """Returns the dtype policy of a run that goes on, as far as it is known.

    None where one was asked for: `continued` holds that against the run's.
    """
    if not resume or dtype_policies.is_asked():
        return None
    old = read("Trainer", directory)
    return None if old is None else old.dtype_policy


def continued(
    new: RunRecord, directory: pathlib.Path, override: bool, config: Any
) -> RunRecord:
    """Returns the record of a run that goes on.

    Args:
        new: of the trainer that goes on with it.
        directory: of the run; one of old has no record.
        override: whether it may differ.
        config: hyper-parameters of the agent; what they name as `initial_settings` may
            not.

    Raises:
        ValueError: if it differs in what `_FREE` does not name, or the old record is
            not as it was written.
    """
    old = read("Trainer", directory)
    if old is None:
        return new
    if ("fit" in old.arguments) != ("fit" in new.arguments):
        raise ValueError(
            f"`Trainer`: `resume` expected a run of a trainer; got {str(directory)!r}, "
            "one of `AgentModel.fit`; go on with the program that made it, or by "
            "`tfrl train --resume --output_dir=...` without a configuration"
        )
    changes = _changes(old, new)
    kinds = changes.get("experience", ())
    # A class of one's own may have moved, or got another name.
    if kinds and all("tfrl." in kind for kind in kinds):
        raise ValueError(
            f"`Trainer`: `resume` expected the kind of experience of the run in "
            f"{str(directory)!r}, as nothing that was saved fits another; got "
            f"experience = {kinds[1]} (was {kinds[0]}); {_ANEW}, from its agent by "
            "`trainer.agent = ...`"
        )
    _check_initial(changes, config)
    apart = None if override else _apart(old.spaces, new.spaces)
    if changes and not override:
        listed = ", ".join(
            f"{name} = {after} (was {before})"
            for name, (before, after) in changes.items()
        )
        if apart is not None:
            raise ValueError(
                "`Trainer`: `resume` expected environments with the spaces of the run "
                f"in {str(directory)!r}, which its policy fits alone; got {listed}, "
                f"whose spaces differ, {apart}; give the old values, or train anew in "
                "another `output_dir`"
            )
        # Of other environments nothing that was saved would load.
        how = _ANEW if "n_envs" in changes else _OVERRIDE
        raise ValueError(
            f"`Trainer`: `resume` expected the arguments of the run in "
            f"{str(directory)!r}; got {listed}; give the old values, or {how}"
        )
    overrides = old.overrides
    if changes:
        texts = {name: list(pair) for name, pair in changes.items()}
        env_steps = checkpoints.latest_step(directory)
        overrides = (*overrides, {"env_steps": env_steps, "changes": texts})
    return new._replace(overrides=overrides)


def _check_initial(changes: Mapping[str, tuple[str, str]], config: Any) -> None:
    """Raises a ValueError where a change would do nothing."""
    for place in _initial_places(config, "agent"):
        before, after = changes.get(place, (_kept_arguments.NOTHING,) * 2)
        # Other agents, and earlier versions, did not have it.
        if _kept_arguments.NOTHING not in (before, after):
            raise ValueError(
                f"`Trainer`: `resume` expected {place} as it was, since only the "
                f"beginning of a run reads it; got {place} = {after} (was {before}); "
                f"give the old value, or {_ANEW}"
            )


def _initial_places(config: Any, place: str) -> Iterator[str]:
    """Yields the places of `initial_settings`, also of agents within agents."""
    for name in getattr(config, "initial_settings", ()):
        if getattr(config, f"learn_{name}", True):
            yield f"{place}.{name}"
    within = config if isinstance(config, Mapping) else {}
    if dataclasses.is_dataclass(config):
        within = {x.name: getattr(config, x.name) for x in dataclasses.fields(config)}
    for name, part in within.items():
        yield from _initial_places(part, f"{place}.{name}")


def _changes(old: RunRecord, new: RunRecord) -> dict[str, tuple[str, str]]:
    """Returns the texts of old and new values, by place, that may not differ freely."""
    changes: dict[str, tuple[str, str]] = {}
    for name, value in new.arguments.items():
        if name in old.arguments and name not in _FREE:
            before = _own(_kept_arguments.completed(old.arguments[name]))
            told_of = [*_kept_arguments.lost(before, "").values()]
            if name == "network" and told_of and "digest" not in told_of[0]:
                continue  # earlier versions kept no networks
            if name in _OF_LEARNING and not _is_described(old, new):
                continue
            changes |= _kept_arguments.differences(before, value, name)
    changes = {place: pair for place, pair in changes.items() if place not in _FREE}
    precisions = old.dtype_policy, new.dtype_policy
    if None not in precisions and len({*precisions}) > 1:
        changes["keras.config.dtype_policy"] = str(precisions[0]), str(precisions[1])
    return changes


def _is_described(*records: RunRecord) -> bool:
    """Whether runs of `fit`, or those of trainers, tell how they learned."""
    fits = [record.arguments.get("fit", {"=": True}) for record in records]
    return all(isinstance(fit, dict) and "=lost" not in fit for fit in fits)


def _apart(old: tuple[Any, Any], new: tuple[Any, Any]) -> str | None:
    """Tells the first difference of kept spaces, if they differ."""
    for name, one, other in zip(("observations", "actions"), old, new, strict=True):
        lost = _kept_arguments.lost(one, "") or _kept_arguments.lost(other, "")
        if not lost and _kept_arguments.differences(one, other):
            before, after = map(_kept_arguments.made, (one, other))
            return f"{name} {after!s:.120} (was {before!s:.120})"
    return None


@contextlib.contextmanager
def locked(
    directory: pathlib.Path, resume: bool, is_chief: bool = True
) -> Iterator[checkpoints.RunLock]:
    """Holds the lock of a folder that has a run just if one is to be resumed.

    Workers but the chief only look at it, and have a lock that holds nothing.

    Raises:
        ValueError: if it has none or one, as it should not, or somebody is at work in
            it, which is told first.
    """
    lock = checkpoints.RunLock(directory)
    with contextlib.ExitStack() as held:
        if was_locked := is_chief and pathlib.Path(directory, "run.lock").exists():
            held.enter_context(lock)
        check_start(directory, resume)
        if is_chief and not was_locked:  # what is refused leaves no file
            held.enter_context(lock)
        yield lock


def check_start(directory: pathlib.Path, resume: bool) -> None:
    """Raises unless there is a run just if one is to be resumed."""
    saved = checkpoints.latest_step(directory)
    if resume and saved is None:
        raise ValueError(
            "`Trainer`: `output_dir` expected a checkpoint to resume from; got "
            f"{str(directory)!r} without one; start without resuming"
        )
    if not resume and saved is not None:
        raise ValueError(
            f"`Trainer`: `output_dir` expected a folder without a run; got "
            f"{str(directory)!r} with one at {saved} environment steps; "
            "resume it (`resume=True`, `tfrl --resume`) or choose another folder"
        )


def lacking(directory: pathlib.Path, record: RunRecord) -> str | None:
    """Returns a line about arguments that cannot be compared with those of a run."""
    needed = {k: v for k, v in record.arguments.items() if k not in _OF_LEARNING}
    closed = _kept_arguments.closed(needed, "")
    if any(pathlib.Path(directory, name).exists() for name in (_NAME, _CONFIG)):
        listed = ", ".join(f"{place} = {what}" for place, what in closed.items())
        what = "what is inside of these could not be compared with what the run had"
        return f"{what}: {listed}" if listed else None
    return (
        f"this run keeps no record of its arguments (neither {_NAME} nor {_CONFIG}): "
        "they could not be compared with those that it goes on with"
    )


def told(override: Mapping[str, Any]) -> str:
    """Returns a line about an override."""
    changes = changes_of(override)
    return f"overridden after {override['env_steps']} environment steps: {changes}"


def changes_of(override: Mapping[str, Any]) -> str:
    """Returns what an override changes, or would."""
    return ", ".join(
        f"{name} from {before} to {after}"
        for name, (before, after) in override["changes"].items()
    )


def write(directory: pathlib.Path, record: RunRecord) -> None:
    """Writes `run.json`, all of it or nothing."""
    run = json.loads(typed_json.to_json(record._asdict()))
    config = directory / _CONFIG
    has_digest = config.is_file() and sealed_folder.has_digest(config.read_bytes())
    body = {"format": _FORMAT, "config_has_digest": has_digest, "run": run}
    body["made_with"] = _made_with.versions(directory / _NAME)
    data = sealed_folder.sealed(body)
    durable.replace_file(directory / _NAME, data)


def read(where: str, directory: durable.Path) -> RunRecord | None:
    """Reads `run.json`; None if there is none.

    Args:
        where: name of the asking function, for the messages.
        directory: folder of the run.

    Raises:
        ValueError: if it is not as it was written, or `config.gin` is not.
    """
    folder = pathlib.Path(directory)
    path = folder / _NAME
    record, has_digest = None, False
    if path.exists():
        try:
            body = sealed_folder.unsealed(path.read_bytes())
            if body["format"] == _FORMAT:
                record = _checked(typed_json.from_json(json.dumps(body["run"])))
                has_digest = body["config_has_digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(where, path, "restore it") from error
        if record is None:
            raise ValueError(
                f"`{where}`: `directory` expected a run of format {_FORMAT}; got "
                f"format {body['format']} in {path}; use the tfrl that wrote it"
            )
    _check_config(where, folder / _CONFIG, has_digest)
    return record


def _checked(fields: dict[str, Any]) -> RunRecord:
    """Raises one of ValueError, KeyError, TypeError unless the parts are what they are.

    The seal shows damage, not what somebody else sealed.
    """
    record = RunRecord(**fields)
    parts: tuple[Any, ...] = (dict, dict, tuple, list, tuple, str | None)
    if any(not isinstance(x, kind) for x, kind in zip(record, parts, strict=True)):
        raise TypeError("a part is of another type")
    for name in ("agent", "make_envs", "intervals"):
        record.arguments[name]
    # Earlier versions kept what is not needed.
    environment = _kept_names.needed(record.environment, record.arguments["make_envs"])
    record = record._replace(environment=environment)
    if "experience" not in record.arguments:
        # A run of a version that knew nothing but trajectories.
        n_steps = record.arguments.pop("n_steps")
        trajectories = experience.Trajectories(n_steps)
        record.arguments["experience"] = _kept_arguments.kept(trajectories)
    for override in record.overrides:
        told(override)
    return record


def _check_config(where: str, path: pathlib.Path, must_have_digest: bool) -> None:
    if not path.is_file():
        return
    data = path.read_bytes()
    asked = must_have_digest or sealed_folder.has_digest(data)
    if asked and not sealed_folder.is_intact(data):
        unmade = f"{_NAME} and the digest" if must_have_digest else "the digest"
        todo = f"restore it; or, if you changed it and mean it, remove {unmade}"
        raise _damaged(where, path, todo)


def _damaged(where: str, path: pathlib.Path, todo: str) -> ValueError:
    return ValueError(
        f"`{where}`: `directory` expected files as they were written; got "
        f"{str(path)!r}, which is not; {todo}"
    )
