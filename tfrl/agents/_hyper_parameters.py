"""Settings that algorithms share: checks, schedules, the optimizer and the policy."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import gradient_transforms, train_state
from tfrl.policies import actor_critic
from tfrl.schedules import progress as progresses

# A number, or a schedule: a function of a share, a count of updates or of steps.
Scheduled = float | Callable[..., Any]


def check_settings(
    config: Any,
    *,
    scheduled: Collection[str] = ("learning_rate",),
    positive: Collection[str] = (),
    optional: Collection[str] = (),
    shares: Collection[str] = (),
) -> None:
    """Raises unless the settings of an algorithm are in range.

    `hidden_units` is checked too, and becomes a tuple.

    Args:
        config: the dataclass of settings.
        scheduled: names of positive numbers or schedules; the setting `NAME_schedule`,
            where there is one, says whether the number falls.
        positive: names of positive numbers.
        optional: names of positive numbers that may be None.
        shares: names of numbers in [0, 1].

    Raises:
        TypeError: if a setting is of another type.
        ValueError: if a setting is out of range.

    Example:
        >>> check_settings(tfrl.agents.PPO(), positive=["clip"], shares=["gamma"])
    """
    where = type(config).__name__
    for name in scheduled:
        kind = _kind(config, name)
        checks.check_one_of(where, f"{name}_schedule", kind, ("constant", "linear"))
        check(where, name, getattr(config, name), kind)
    for name in (*positive, *optional):
        if name in positive or getattr(config, name) is not None:
            checks.check_positive(where, name, getattr(config, name))
    for name in shares:
        checks.check_within(where, name, getattr(config, name), 0.0, 1.0)
    units = checks.check_whole_numbers(
        where, "hidden_units", config.hidden_units, low=1
    )
    object.__setattr__(config, "hidden_units", units)


def check(where: str, name: str, value: Any, kind: str = "constant") -> None:
    """Raises unless a hyper-parameter is a positive number or a schedule.

    Args:
        where: the asking class, for the message.
        name: of the hyper-parameter.
        value: number or schedule.
        kind: "linear" for a number that falls to 0 over the run.

    Raises:
        ValueError: if it is no positive number, or a schedule is to fall besides.

    Example:
        >>> check("PPO", "clip", 0.2)
    """
    if not callable(value):
        checks.check_positive(where, name, value)
    elif kind == "linear":
        raise ValueError(
            f"`{where}`: `{name}_schedule` expected 'constant' where `{name}` is a "
            "schedule itself; got 'linear'"
        )


def first(value: Scheduled) -> float:
    """Returns a hyper-parameter before the first update.

    Args:
        value: number or schedule.

    Returns:
        A number; in a graph, where schedules are not known, 1.

    Example:
        >>> first(0.5)
        0.5
    """
    found = at(progresses.Progress(), value=(value, "constant"))["value"]
    return float(found) if tf.executing_eagerly() else 1.0


def at(
    progress: progresses.Progress | None, **values: tuple[Scheduled, str]
) -> dict[str, tf.Tensor]:
    """Returns hyper-parameters at a progress.

    A schedule of `tfrl.schedules` follows the progress that it names, one of Keras the
    number of updates.

        linear:  value * max(0, 1 - percent)

    Args:
        progress: how far the run has come; that in context if None.
        **values: a number or schedule, and "constant" or "linear", by name.

    Returns:
        float32 `[]` by name.

    Example:
        >>> half = progresses.Progress(percent=0.5)
        >>> float(at(half, clip=(0.2, "linear"))["clip"])
        0.10000000149011612
    """
    done = progresses.current_progress() if progress is None else progress

    def found(value: Any, kind: str) -> tf.Tensor:
        if callable(value):
            measure = getattr(value, "progress_type", "iterations")
            return tf.cast(value(getattr(done, measure)), tf.float32)
        if kind == "constant":
            return tf.constant(value, tf.float32)
        if tf.is_tensor(done.percent):
            left = 1.0 - tf.cast(done.percent, tf.float32)
            return np.float32(value) * tf.maximum(left, 0.0)
        # The same in NumPy: eager ops would take as long as some gradient steps.
        left = np.float32(1.0) - np.float32(done.percent)
        return tf.constant(np.float32(value) * np.maximum(left, np.float32(0.0)))

    return {name: found(*pair) for name, pair in values.items()}


def settings_at(
    config: Any, progress: progresses.Progress | None, names: Collection[str]
) -> dict[str, tf.Tensor]:
    """Returns the scheduled settings of an algorithm at a progress.

    Args:
        config: the dataclass of settings.
        progress: as of `at`.
        names: of the settings.

    Returns:
        float32 `[]` by name.

    Example:
        >>> sorted(settings_at(tfrl.agents.PPO(), None, ["learning_rate", "clip"]))
        ['clip', 'learning_rate']
    """
    pairs = {name: (getattr(config, name), _kind(config, name)) for name in names}
    return at(progress, **pairs)


def with_rate(state: train_state.TrainState, rate: Any) -> train_state.TrainState:
    """Returns a state with another learning rate for the gradient steps to come.

    Args:
        state: whose optimizer was given a number.
        rate: number or scalar tensor.

    Returns:
        The new state.

    Example:
        >>> state = train_state.TrainState.create(
        ...     tf.multiply, tf.constant(1.0), gradient_transforms.sgd(0.5))
        >>> state = with_rate(state, 0.25).apply_gradients(grads=tf.constant(1.0))
        >>> float(state.params)
        0.75
    """
    if state.tx is None:
        raise ValueError(
            "`update`: `tx` expected an optimizer in the state of the policy; got "
            "None; pass `tx=` to `TrainState.create`"
        )
    return state.replace(
        opt_state=gradient_transforms.with_learning_rate(state.opt_state, rate)
    )


def learner(config: Any, **options: float) -> Callable[[Any], train_state.TrainState]:
    """Returns what makes a network one that learns by clipped gradients and Adam.

    Args:
        config: settings with `learning_rate` and `max_gradient_norm`, None for no
            clipping.
        **options: of `adam`.

    Returns:
        From a network to a `TrainState`.

    Example:
        >>> network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> len(learner(tfrl.agents.PPO())(network).tx.parts)
        3
    """
    tx = gradient_transforms.adam(first(config.learning_rate), **options)
    if config.max_gradient_norm is not None:
        clip = gradient_transforms.clip_by_global_norm(config.max_gradient_norm)
        tx = gradient_transforms.chain(clip, tx)
    return functools.partial(train_state.TrainState.create, tx=tx)


def actor_critic_of(
    config: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    network: Any,
    seed: int,
    **options: float,
) -> actor_critic.ActorCriticPolicy:
    """Returns the policy that the settings of an algorithm describe.

    Args:
        config: the dataclass of settings.
        observation_space: of one environment.
        action_space: of one environment.
        network: as of `ActorCriticPolicy.create`.
        seed: of the weights.
        **options: of `adam`.

    Returns:
        A policy that learned nothing yet.

    Example:
        >>> policy = actor_critic_of(tfrl.agents.PPO(), gym.spaces.Box(-1.0, 1.0, (1,)),
        ...                          gym.spaces.Discrete(2), network=None, seed=0)
        >>> policy.head.n_outputs
        2
    """
    names = ("squash", "log_std", "normalize_observations")
    given = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return actor_critic.ActorCriticPolicy.create(
        observation_space,
        action_space,
        learner=learner(config, **options),
        network=network,
        hidden_units=config.hidden_units,
        activation=config.activation,
        seed=seed,
        **given,
    )


def _kind(config: Any, name: str) -> str:
    return getattr(config, f"{name}_schedule", "constant")
