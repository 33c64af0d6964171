"""Search for hyper-parameters: trials by Optuna, those that fall behind end early.

    <output_dir>/study.db       the trials, which several processes may share
    <output_dir>/trial_<N>/     the run of each
    <output_dir>/best.gin       the best values so far, for `tfrl train`

A configuration says what is searched for, and in which other configuration:

    Tuning.config = "ppo_cartpole.gin"
    Tuning.parameters = {
        "PPO.learning_rate": ("log", 1e-5, 1e-2),
        "PPO.gamma": ("float", 0.9, 0.999),
        "PPO.n_epochs": ("int", 1, 20),
        "PPO.minibatch_size": ("choice", 64, 128, 256),
    }
"""

import argparse
import contextlib
import contextvars
import dataclasses
import math
import os
import pathlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tfrl import rl_trainer
from tfrl._internal import arguments, durable, output
from tfrl.configuring import configs
from tfrl.experiments import _digests

_trial: contextvars.ContextVar[Any] = contextvars.ContextVar("trial")
_KINDS = ("choice", "float", "int", "log")
# What a study keeps of why a trial failed, unlike of one that was interrupted.
_REASON = "failed"
# Held in the folder of a trial by the process that makes it.
_LOCK = "trial.lock"


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What to search for.

    Attributes:
        config: the configuration that is trained; looked for beside the file that names
            it, then in the working directory.
        parameters: what is searched by the name of its binding: `("log", low, high)`,
            `("float", low, high)`, `("int", low, high)` or `("choice", a, b, ...)`.
        bindings: further ones, for every trial, such as fewer steps.
        n_trials: how many there are to be, with those that end early and those that
            fail, as their values do not fit together. One that was interrupted is
            made again, and counts once.
        n_startup_trials: trials that run to their end whatever they reach.
        seed: of what is tried, beside the number of the trial; that of the runs is in
            their configuration.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if there is nothing to search for, or in no range.

    Example:
        >>> Tuning("ppo.gin", {"PPO.gamma": ("float", 0.9, 0.999)}).n_trials
        20
        >>> Tuning("ppo.gin", {"PPO.gamma": ("float", 1.0, 0.9)})
        Traceback (most recent call last):
        ...
        ValueError: `Tuning`: `parameters` expected "PPO.gamma" as ("log", low, high), \
("float", low, high), ("int", low, high), low < high, or ("choice", ...); got \
('float', 1.0, 0.9)
    """

    config: str = ""
    parameters: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    bindings: Sequence[str] = ()
    n_trials: int = 20
    n_startup_trials: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        where = "Tuning"
        if not self.config:
            raise ValueError(f"`{where}`: `config` expected a gin file; got none")
        arguments.check_texts(where, "bindings", [*self.bindings])
        for name, low in {"n_trials": 1, "n_startup_trials": 0, "seed": 0}.items():
            arguments.check_whole_number(where, name, getattr(self, name), low=low)
        expected = "bindings by name, one at least"
        arguments.check_type(where, "parameters", self.parameters, Mapping, expected)
        if not self.parameters:
            raise ValueError(f"`{where}`: `parameters` expected {expected}; got none")
        for name, given in self.parameters.items():
            if not _is_searched(given):
                raise ValueError(
                    f'`{where}`: `parameters` expected "{name}" as ("log", low, high), '
                    '("float", low, high), ("int", low, high), low < high, or '
                    f'("choice", ...); got {given!r}'
                )


class Tuned(NamedTuple):
    """What was found.

    Attributes:
        value: mean return of the final evaluation of the best trial.
        parameters: its values by name.
        path: of the gin file that has them.
    """

    value: float
    parameters: dict[str, Any]
    path: pathlib.Path


class _Reported(keras.callbacks.Callback):
    """Tells the trial in this context of evaluations; ends it if it falls behind."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        del epoch
        value = (logs or {}).get("eval/return_mean")
        trial = _trial.get(None)  # None if the run of a trial goes on by itself
        if value is None or trial is None:
            return
        share = round(100 * self.model.epoch / self.model.n_epochs)
        trial.report(value, step=share)
        if trial.should_prune():
            raise _optuna().TrialPruned(f"at {share} % with a return of {value:.1f}")


def _reported(
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> list[keras.callbacks.Callback]:
    """Those of the configuration, and then that which may end the trial."""
    return [*callbacks, _Reported()]


_made = configs.register({"TrialCallbacks": _reported, "Tuning": Tuning})["Tuning"]


def tune(
    config_files: Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    bindings: Sequence[str] = (),
) -> Tuned:
    """Trains trial after trial, until there are as many as asked for.

    Values come from Optuna's tree-structured Parzen estimator. A trial ends when an
    evaluation is worse than the median of those before at the same share of the run, if
    `Intervals.eval_epochs` has evaluations made. The callbacks of a configuration are
    made anew for each trial, and called before that which reports; of a trial that ends
    early they get no `on_train_end`. A trial that raises a ValueError, such as by
    values that do not fit together, or whose return is not finite has failed; the
    search goes on. Any other error ends it, and its trial does not count. A study that
    is in the folder goes on, unless the configuration that is trained, or one that it
    includes, was edited; an interrupted trial is made again, as is one of a process
    that was killed, when the next one is begun. Several processes may share the folder:
    those that find as many trials begun as are asked for wait until these have ended.

    Args:
        config_files: gin files that bind `Tuning`.
        output_dir: folder of the study.
        bindings: single lines of gin.

    Returns:
        The best trial.

    Raises:
        ImportError: if Optuna is missing (extra `tfrl[tune]`).
        KeyboardInterrupt: if it was interrupted; what is finished is kept.
        ValueError: if a configuration is wrong, the study in the folder is of another
            search, or no trial reached its end.

    Example:
        >>> tune(["absent.gin"], "runs/tuned")  # doctest: +SKIP
        Tuned(value=500.0, parameters={'PPO.learning_rate': 0.0021}, ...)

    References:
        Akiba, Sano, Yanase, Ohta and Koyama, "Optuna: A Next-generation Hyperparameter
        Optimization Framework", 2019.
    """
    optuna = _optuna()
    try:
        configs.parse(config_files, bindings)
        tuning: Tuning = _made()
        configs.check_all_used()
    finally:
        configs.clear()
    beside = [pathlib.Path(os.fspath(x)).parent / tuning.config for x in config_files]
    trained = next((x for x in beside if x.is_file()), pathlib.Path(tuning.config))
    some = {name: given[1] for name, given in tuning.parameters.items()}
    try:  # before anything is written
        _parse(tuning, trained, some)
    finally:
        configs.clear()
    folder = arguments.as_path("tune", "output_dir", output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Names of folders may hold what has a meaning in an address.
    database = str(folder.resolve() / "study.db")
    sqlalchemy = arguments.imported("tune", "sqlalchemy", "SQLAlchemy", "tune")
    storage = sqlalchemy.URL.create("sqlite", database=database)
    states = optuna.trial.TrialState
    with durable.shared_folder(folder):
        study = optuna.create_study(
            storage=storage.render_as_string(),
            study_name="tfrl",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(tuning.n_startup_trials),
        )
        _check_alike(study, tuning, trained, folder)
    while len(_ended(study, states)) < tuning.n_trials:
        _try(optuna, study, tuning, trained, folder)
        if study.get_trials(deepcopy=False, states=(states.COMPLETE,)):
            _write_best(study, tuning, trained, folder)
    if not study.get_trials(deepcopy=False, states=(states.COMPLETE,)):
        raise _none_complete(_ended(study, states), folder)
    best = study.best_trial
    values = {name: _value(tuning, best, name) for name in tuning.parameters}
    return Tuned(float(best.value), values, folder / "best.gin")


def main(flags: argparse.Namespace) -> int:
    """Does what `tfrl tune` asks for.

    Args:
        flags: config, binding, output_dir.

    Returns:
        0, or 130 if it was interrupted.
    """
    folder = flags.output_dir or f"runs/{pathlib.Path(flags.config[0]).stem}"
    try:
        found = tune(flags.config, folder, flags.binding)
    except KeyboardInterrupt:
        output.say("interrupted; the same command goes on with what is finished")
        return 130
    train = shlex.join(["tfrl", "train", str(found.path)])
    output.say(f"best: return {found.value:.1f}; train it: {train}")
    return 0


def _try(
    optuna: Any, study: Any, tuning: Tuning, trained: pathlib.Path, folder: pathlib.Path
) -> None:
    """Makes one trial, or waits for one; one that its values do not fit fails."""
    states = optuna.trial.TrialState
    with _asked(study, states, tuning, folder) as trial:
        if trial is None:
            return
        # Those who share a study try different values: each trial has its own draws.
        drawn = np.random.SeedSequence([tuning.seed, trial.number]).generate_state(1)
        study.sampler = optuna.samplers.TPESampler(seed=int(drawn[0]))
        token = _trial.set(trial)
        try:
            value = _trained(trial, tuning, trained, folder)
            study.tell(trial, value)
            output.say(f"trial {trial.number}: return {value:.1f}")
        except optuna.TrialPruned as pruned:
            study.tell(trial, state=states.PRUNED)
            told = rl_trainer.in_one_line(pruned)
            output.say(f"trial {trial.number}: ended early, {told}")
        except ValueError as error:
            told = rl_trainer.in_one_line(error)
            trial.set_user_attr(_REASON, told)
            study.tell(trial, state=states.FAIL)
            output.say(f"trial {trial.number}: failed: {told}")
        except BaseException as error:
            study.tell(trial, state=states.FAIL)
            if isinstance(error, KeyboardInterrupt):
                study.enqueue_trial(trial.params)
            raise
        finally:
            _trial.reset(token)
            configs.clear()
            keras.backend.clear_session()  # which collects garbage too


def _trained(
    trial: Any, tuning: Tuning, trained: pathlib.Path, folder: pathlib.Path
) -> float:
    """Trains with the values of a trial; returns the return of its final evaluation."""
    for name, given in tuning.parameters.items():
        _suggest(trial, name, given)
    values = {name: _value(tuning, trial, name) for name in tuning.parameters}
    shown = ", ".join(f"{name} = {x!r}" for name, x in values.items())
    output.say(f"trial {trial.number}: {shown}")
    _parse(tuning, trained, values)
    played = rl_trainer.train_rl(_run_of(folder, trial.number))
    if played is None:
        raise KeyboardInterrupt
    value = float(played.returns.mean())
    if not math.isfinite(value):
        raise ValueError(f"its final evaluation has a return of {value}")
    return value


@contextlib.contextmanager
def _asked(
    study: Any, states: Any, tuning: Tuning, folder: pathlib.Path
) -> Iterator[Any]:
    """Yields the next trial; its lock tells others that its process is alive.

    It waits, and yields None, if there are enough with those that others make: one may
    come to nothing.
    """
    with contextlib.ExitStack() as held:
        trial = None
        with durable.shared_folder(folder):
            others = _take_back(study, states, folder)
            n_left = tuning.n_trials - len(_ended(study, states))
            if n_left > len(others):
                trial = study.ask()
                run = _run_of(folder, trial.number)
                run.mkdir(exist_ok=True)
                lock = held.enter_context(open(run / _LOCK, "ab"))
                durable.lock_file(lock.fileno())
        if trial is None and n_left > 0:
            names = ", ".join(path.parent.name for path in others)
            output.say(f"waiting for {names}, made by other processes")
            while not any(map(_is_free, others)):
                time.sleep(0.5)
        yield trial


def _take_back(study: Any, states: Any, folder: pathlib.Path) -> list[pathlib.Path]:
    """Has trials made again whose processes were killed, as their locks tell.

    Returns:
        The locks of those that are being made.
    """
    held = []

    def running() -> dict[int, Any]:
        found = study.get_trials(deepcopy=False, states=(states.RUNNING,))
        return {trial.number: trial for trial in found}

    for number, trial in running().items():
        path = _run_of(folder, number) / _LOCK
        if not path.exists():  # without a lock nobody knows
            continue
        if not _is_free(path):
            held.append(path)
            continue
        if number not in running():  # it has ended meanwhile, and let its lock go
            continue
        study.tell(number, state=states.FAIL)
        study.enqueue_trial(trial.params)
        output.say(f"trial {number}: its process is gone; it does not count")
    return held


def _is_free(path: pathlib.Path) -> bool:
    """Whether no process holds a lock."""
    try:
        with open(path, "rb+") as lock:
            durable.lock_file(lock.fileno(), wait=False)
    except BlockingIOError:
        return False
    return True


def _run_of(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / f"trial_{number:04}"


def _ended(study: Any, states: Any) -> list[Any]:
    """Returns the trials that count, of which failed ones have a reason."""
    kinds = states.COMPLETE, states.PRUNED, states.FAIL
    found = study.get_trials(deepcopy=False, states=kinds)
    return [x for x in found if x.state != states.FAIL or _REASON in x.user_attrs]


def _none_complete(ended: Sequence[Any], folder: pathlib.Path) -> ValueError:
    """Returns the error of a search in which no trial reached its end."""
    reasons = [x.user_attrs[_REASON] for x in ended if _REASON in x.user_attrs]
    got, last = f"none of {len(ended)} in {str(folder)!r}", ""
    if reasons:
        got += f", of which {len(reasons)} failed"
        last = f", the last one by: {reasons[-1]}"
    return ValueError(
        f"`tune`: `config_files` expected a trial that reaches its end; got {got}{last}"
        "; search among other values, in another folder, or raise `Tuning.n_trials`"
    )


def _check_alike(
    study: Any, tuning: Tuning, trained: pathlib.Path, folder: pathlib.Path
) -> None:
    """Raises unless a study is of the same search; bounds of numbers may differ.

    Of choices it knows the numbers alone, and of the configuration a digest, which one
    of old gets when it goes on.
    """
    searched = {
        name: repr([*given]) if given[0] == "choice" else given[0]
        for name, given in tuning.parameters.items()
    }
    asked: dict[str, Any] = {"config": tuning.config, "bindings": [*tuning.bindings]}
    asked |= {"parameters": searched, "digest": _digests.digest(trained)}
    known = {**asked, **study.user_attrs.get("search", {})}
    for name, value in asked.items():
        if known[name] != value:
            got = f"with one of `{name}` {known[name]}, not {value}"
            if name == "digest":
                got = f"with one of {trained}, or what it includes, before an edit"
            raise ValueError(
                "`tune`: `output_dir` expected a study of the same search; got "
                f"{str(folder)!r} {got}; take another folder, or the old search"
            )
    study.set_user_attr("search", asked)


def _suggest(trial: Any, name: str, given: Sequence[Any]) -> None:
    kind, *rest = given
    if kind == "choice":
        # Of tuples, which a study does not keep, their numbers.
        trial.suggest_categorical(name, [*range(len(rest))])
    elif kind == "int":
        trial.suggest_int(name, *rest)
    else:
        trial.suggest_float(name, *rest, log=kind == "log")


def _value(tuning: Tuning, trial: Any, name: str) -> Any:
    kind, *rest = tuning.parameters[name]
    found = trial.params[name]
    return rest[found] if kind == "choice" else found


def _bindings(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {value!r}" for name, value in values.items()]


def _parse(tuning: Tuning, trained: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Configures a trial, with a callback more than the configuration has."""
    bindings = [*tuning.bindings, *_bindings(values)]
    configs.parse([trained], bindings)
    callbacks = configs.bound("Trainer.callbacks")
    if callbacks is not None:
        bindings.append(f"TrialCallbacks.callbacks = {callbacks}")
    # The import is for whoever goes on with the run of a trial.
    bindings += ["Trainer.callbacks = @TrialCallbacks()", f"import {__name__}"]
    configs.parse([trained], bindings)


def _write_best(
    study: Any, tuning: Tuning, trained: pathlib.Path, folder: pathlib.Path
) -> None:
    """Writes a configuration that includes the one trained, and changes it."""
    best = study.best_trial
    values = {name: _value(tuning, best, name) for name in tuning.parameters}
    lines = [
        f"# The best of {len(study.trials)} trials, number {best.number}: its final "
        f"evaluation had a return of {best.value:.1f}.",
        f'include "{os.path.relpath(trained.resolve(), folder.resolve())}"',
        *tuning.bindings,
        *_bindings(values),
    ]
    durable.replace_file(folder / "best.gin", ("\n".join(lines) + "\n").encode())


def _is_searched(given: Any) -> bool:
    if not (isinstance(given, tuple | list) and given and given[0] in _KINDS):
        return False
    kind, *rest = given
    if kind == "choice":
        return len(rest) > 1
    numbers = int if kind == "int" else (int, float)
    if len(rest) != 2 or any(
        isinstance(x, bool) or not isinstance(x, numbers) for x in rest
    ):
        return False
    return (0 if kind == "log" else -math.inf) < rest[0] < rest[1]


def _optuna() -> Any:
    return arguments.imported("tune", "optuna", "optuna", "tune")
