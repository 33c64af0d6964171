"""What a trainer is asked for, checked, with the counts that follow from it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from tfrl.core import checks
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
        config: hyper-parameters of the agent.
        experience: what it learns from.
        is_played: whether environments are played for it.
        n_envs: environments of all workers.
        n_steps: steps per environment and epoch.
        n_epochs: most epochs.
        env_steps: of all these epochs.
    """

    config: Any
    experience: Any
    is_played: bool
    n_envs: int
    n_steps: int
    n_epochs: int
    env_steps: int


def planned(
    agent: Any,
    experience: Any,
    workers: _workers.Workers,
    callbacks: Sequence[Any],
    intervals: Any,
    n_epochs: int,
    n_envs: int,
    total_env_steps: int | None,
    seed: int,
    stop_at_return: float | None,
) -> Plan:
    """Checks arguments of a trainer, which names them.

    Raises:
        TypeError: if one is of another type than the trainer takes.
        ValueError: if one is out of range, or they do not fit each other.
    """
    where, check = "Trainer", checks.check_whole_number
    check(where, "n_epochs", n_epochs, low=1)
    check(where, "n_envs", n_envs, low=1)
    check(where, "seed", seed, low=0)
    if total_env_steps is not None:
        check(where, "total_env_steps", total_env_steps, low=1)
    if stop_at_return is not None:
        checks.check_finite(where, "stop_at_return", stop_at_return)
    config = _made_agents.checked(agent)
    learned = _made_agents.checked_experience(config, experience)
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
    if not isinstance(intervals, cadence.Intervals | None):
        raise TypeError(
            f"`Trainer`: `intervals` expected Intervals or None; got {intervals!r:.80}"
        )
    with workers.scope():
        _made_agents.check_shared(learned)
    is_played = not isinstance(learned, experiences.FromDataset)
    n_all, n_steps = n_envs * workers.count, learned.n_steps if is_played else 1
    per_epoch = n_all * n_steps if is_played else learned.n_batches * learned.batch_size
    if total_env_steps is not None:
        n_epochs = min(n_epochs, -(-total_env_steps // per_epoch))
    total = n_epochs * per_epoch
    return Plan(config, learned, is_played, n_all, n_steps, n_epochs, total)
