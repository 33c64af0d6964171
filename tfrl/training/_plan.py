"""What a trainer is asked for, checked, with the counts that follow from it."""

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import keras
from gymnasium.vector import VectorEnv

from tfrl._internal import checks, gym_checks
from tfrl.agents import replicated
from tfrl.training import _made_agents, _workers, cadence
from tfrl.training import experience as experiences

_OF_MODELS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.TensorBoard,
)


class Plan(NamedTuple):
    """What a run is to be.

    Attributes:
        arguments: of the trainer by name, with what None stands for.
        is_played: whether environments are played for it.
        n_envs: environments of all workers.
        n_steps: steps per environment and epoch.
        n_epochs: most epochs.
        env_steps: of all these epochs.
    """

    arguments: dict[str, Any]
    is_played: bool
    n_envs: int
    n_steps: int
    n_epochs: int
    env_steps: int


def planned(
    given: Mapping[str, Any], workers: _workers.Workers, callbacks: Sequence[Any]
) -> Plan:
    """Checks arguments of a trainer, and counts what follows from them.

    Args:
        given: the arguments that a run keeps, by name.
        workers: who train.
        callbacks: of Keras.

    Raises:
        TypeError: if one is of another type than the trainer takes.
        ValueError: if one is out of range, or they do not fit each other.
    """
    where, limit = "Trainer", given["total_env_steps"]
    for name, low in {"n_epochs": 1, "n_envs": 1, "seed": 0}.items():
        checks.check_whole_number(where, name, given[name], low=low)
    if limit is not None:
        checks.check_whole_number(where, "total_env_steps", limit, low=1)
    if given["stop_at_return"] is not None:
        checks.check_finite(where, "stop_at_return", given["stop_at_return"])
    config = _made_agents.checked(given["agent"])
    learned = _made_agents.checked_experience(config, given["experience"])
    _check_callbacks(callbacks)
    intervals = given["intervals"]
    if not isinstance(intervals, cadence.Intervals | None):
        raise TypeError(
            f"`{where}`: `intervals` expected Intervals or None; got {intervals!r:.80}"
        )
    if given["stop_at_return"] is not None and (
        intervals is None or intervals.eval_epochs is None
    ):
        raise ValueError(
            f"`{where}`: `intervals` expected `eval_epochs` beside `stop_at_return`, "
            "as evaluations alone end the run; got None; give such as "
            "Intervals(eval_epochs=10)"
        )
    if not isinstance(learned, experiences.Trajectories):
        name = f"{type(learned).__name__}.batch_size"
        with workers.scope():  # replicas share batches evenly
            replicated.check_rows(where, name, learned.batch_size)
    is_played = not isinstance(learned, experiences.FromDataset)
    n_all, n_steps = given["n_envs"] * workers.count, 1
    if is_played:
        n_steps = learned.n_steps
        per_epoch = n_all * n_steps
    else:
        per_epoch = learned.n_batches * learned.batch_size
    n_epochs = given["n_epochs"]
    if limit is not None:
        n_epochs = min(n_epochs, -(-limit // per_epoch))
    arguments = {**given, "agent": config, "experience": learned, "n_epochs": n_epochs}
    arguments["intervals"] = intervals or cadence.Intervals()
    total = n_epochs * per_epoch
    return Plan(arguments, is_played, n_all, n_steps, n_epochs, total)


def _check_callbacks(callbacks: Sequence[Any]) -> None:
    if not isinstance(callbacks, list | tuple):
        raise TypeError(
            f"`Trainer`: `callbacks` expected a list of them; got {callbacks!r:.80}"
        )
    for each in callbacks:
        if not isinstance(each, keras.callbacks.Callback):
            raise TypeError(
                f"`Trainer`: `callbacks` expected callbacks of Keras; got {each!r:.80}"
            )
        if isinstance(each, _OF_MODELS) or getattr(each, "restore_best_weights", False):
            raise TypeError(
                "`Trainer`: `callbacks` expected such as need no Keras model; got "
                f"{type(each).__name__}; the trainer saves and keeps the best by "
                "itself, and `AgentModel` takes this one in `fit`"
            )


def made_envs(
    make_envs: Any, counts: Sequence[int], undo: contextlib.ExitStack
) -> list[VectorEnv]:
    """Makes vector environments, of so many each; `undo` closes them."""
    _check_maker(make_envs)
    found = []
    for count in counts:
        found.append(make_envs(n_envs=count))
        gym_checks.check_vector("Trainer", "make_envs", found[-1], count)
        undo.callback(found[-1].close)
    return found


def _check_maker(make_envs: Any) -> None:
    """Raises a TypeError unless it is a function that can be given `n_envs=`."""
    got = None
    if not callable(make_envs) or isinstance(make_envs, gym.Env | VectorEnv):
        got = repr(make_envs)
    elif isinstance(make_envs, type) and issubclass(make_envs, gym.Env):
        got = f"the environment class {make_envs.__name__}"
    else:
        with contextlib.suppress(ValueError):  # some know no signature
            signature = inspect.signature(make_envs)
            try:
                signature.bind_partial(n_envs=1)
            except TypeError:
                got = f"a function of {signature}"
    if got is not None:
        raise TypeError(
            "`Trainer`: `make_envs` expected a function that makes a vector "
            f"environment when called with `n_envs=`; got {got}; pass a function of "
            "`n_envs`, such as functools.partial(tfrl.environments.make_vec, "
            "'CartPole-v1')"
        )
