"""What trainers require of agents, and what the settings of algorithms share."""

import dataclasses
import math
import numbers
import types
import typing
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import chosen_optimizers, gradient_transforms, train_state
from tfrl.policies import actor_critic, feedforward, recurrent
from tfrl.policies import policy as policies
from tfrl.schedules import progress as progresses
from tfrl.schedules import schedulers

# A number, or a schedule: a function of a share, a count of updates or of steps.
Scheduled = float | Callable[..., Any]
# What makes an optimizer of a learning rate, or None for that of the algorithm.
Optimizer = Callable[..., Any] | None
_SCHEDULED = "a number, or a schedule such as those of `tfrl.schedules` and Keras"
# Limits, which may be infinite.
_LIMITS = frozenset(
    ("clip", "clip_pg_rho", "clip_rho", "max_weight", "target_kl", "value_clip")
)


class Agent(Protocol):
    """An immutable learner: `update` returns a new one.

    Agents are `PyTreeNode`s, so they pass into and out of `tf.function` and are saved
    as the nest of tensors they are.

    Attributes:
        policy: what acts.

    Example:
        >>> sorted(name for name in vars(Agent) if not name.startswith("_"))
        ['policy', 'update']
    """

    @property
    def policy(self) -> policies.Policy:
        """What acts."""

    def update(self, experience: Any) -> tuple[Self, dict]:
        """Learns from experience; returns the new agent and an info.

        Experience is what the trainer gathers: a `tfrl.core.Trajectory` `[T, N]`; a
        `tfrl.replay.Sample` of K minibatches `[K, B, ...]`, of transitions or of
        sequences `[K, B, T, ...]`; or K batches `[K, B, ...]` of a dataset. All
        gradient steps are best taken in one compiled call, see `compiled_update`.

        The info is a dictionary of scalars to report, by names of its own. Beside them
        it may hold `priorities`, `[K, B]`, for a replay that is prioritised.

        In the scope of a strategy its replicas share the gradient steps. The experience
        is then the global one, alike on every worker.
        """


class AgentConfig(Protocol):
    """Hyper-parameters that know how to make their agent.

    An attribute `learns_from` may say what it learns from, and `usual_replay`, a
    dictionary of settings, may fill in what a `tfrl.training.Replayed` leaves open. Of
    one that learns from batches, `columns` may name those that a data set must have.
    `initial_settings` may name settings that `create` alone reads, as what is learned
    takes their place, so that a resumed run refuses to change them; of a setting `x`
    beside `learn_x`, only where that is True.

    Example:
        >>> agent = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> type(agent).__name__
        'PPOAgent'
    """

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> Agent:
        """Returns an agent for the spaces of one environment.

        A trainer also gives `n_envs` and `n_steps` of its trajectories, and `burn_in`
        of its sequences, to a `create` that has arguments of these names.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            seed: of weights and draws.
            network: a Keras model, or a function of both spaces that returns one, in
                place of the agent's own.
        """


def check_settings(
    config: Any,
    *,
    scheduled: Collection[str] = ("learning_rate",),
    positive: Collection[str] = (),
    nonnegative: Collection[str] = (),
    optional: Collection[str] = (),
    shares: Collection[str] = (),
    below_one: Collection[str] = (),
) -> None:
    """Raises unless the settings of an algorithm are in range.

    All settings of tfrl must have the types that they are annotated with: counts are
    whole numbers, and other numbers are finite, except for limits, whose infinity means
    none. `hidden_units` is checked too, and becomes a tuple.

    Args:
        config: the dataclass of settings.
        scheduled: names of positive numbers or schedules; the setting `NAME_schedule`,
            where there is one, says whether the number falls.
        positive: names of positive numbers.
        nonnegative: names of numbers that may be 0.
        optional: names of positive numbers that may be None, if they are annotated so.
        shares: names of numbers in [0, 1].
        below_one: names of numbers in [0, 1).

    Raises:
        TypeError: if a setting is of another type.
        ValueError: if a setting is out of range.
    """
    where = type(config).__name__
    for field in _own_fields(config):
        _check_kind(config, field, may_be_scheduled=field.name in scheduled)
    for name in scheduled:
        _check_scheduled(config, name)
    for name in (*positive, *optional):
        if getattr(config, name) is not None:
            checks.check_positive(where, name, getattr(config, name))
    for name in nonnegative:
        checks.check_within(where, name, getattr(config, name), 0.0, math.inf)
    for name in (*shares, *below_one):
        checks.check_within(where, name, getattr(config, name), 0.0, 1.0)
    for name in below_one:
        share = getattr(config, name)
        if not tf.is_tensor(share) and share == 1.0:
            raise ValueError(f"`{where}`: `{name}` expected less than 1; got 1.0")
    _check_network(config)
    if getattr(config, "optimizer", None) is not None:
        chosen_optimizers.check(config, config.optimizer)


def check_in_range(where: str, name: str, value: Any, high: float = math.inf) -> None:
    """Raises unless a number, or all that a schedule of pairs names, lie in [0, high].

    Args:
        where: whose setting it is, for messages.
        name: of the setting.
        value: a number, or a schedule; only schedules of pairs can be checked.
        high: the greatest number that is allowed.

    Raises:
        ValueError: if a number is out of range.
    """
    given = [value]
    if callable(value):
        of_pairs = isinstance(
            value, schedulers.StepScheduler | schedulers.LinearScheduler
        )
        given = [number for _, number in value.schedule] if of_pairs else []
    for number in given:
        checks.check_within(where, name, number, 0.0, high)


def _own_fields(config: Any) -> list[dataclasses.Field[Any]]:
    """Fields that tfrl declares; what a subclass of the user's adds is the user's."""
    room = __name__.partition(".")[0]
    owners = {
        name: kind.__module__.partition(".")[0]
        for kind in reversed(type(config).__mro__)
        for name in vars(kind).get("__annotations__", {})
    }
    return [x for x in dataclasses.fields(config) if owners.get(x.name) == room]


def _check_network(config: Any) -> None:
    """Raises unless the settings of networks are in range."""
    where = type(config).__name__
    units = checks.check_whole_numbers(
        where, "hidden_units", config.hidden_units, low=1
    )
    object.__setattr__(config, "hidden_units", units)
    feedforward.check_activation(where, config.activation)
    known: tuple[Any, ...] = (*recurrent.CELLS, "own")
    if getattr(type(config), "memory", None) is None:
        known = (None, *known)
    checks.check_one_of(where, "memory", getattr(config, "memory", None), known)
    for name in ("memory_units", "noise_steps"):
        if getattr(config, name, None) is not None:
            checks.check_whole_number(where, name, getattr(config, name), low=1)


def _check_kind(
    config: Any, field: dataclasses.Field[Any], *, may_be_scheduled: bool
) -> None:
    """Raises unless a setting is of the kind that its annotation says."""
    where, name, value = type(config).__name__, field.name, getattr(config, field.name)
    kinds: tuple[Any, ...] = (field.type,)
    if typing.get_origin(field.type) in (types.UnionType, typing.Union):
        kinds = typing.get_args(field.type)
    if value is None and (types.NoneType in kinds or field.default is None):
        return
    if may_be_scheduled or field.type == Scheduled:
        if not callable(value):
            _check_number(where, name, value, _SCHEDULED)
            return
        if not chosen_optimizers.takes(value, 0.0):
            expected = f"{_SCHEDULED}, a function of one argument"
            raise checks.wrong_type(where, name, value, expected)
    elif bool in kinds:
        checks.check_type(where, name, value, bool | np.bool_, "a bool")
    elif int in kinds:
        checks.check_whole_number(where, name, value)
    elif float in kinds:
        _check_number(where, name, value, "a number")


def _check_number(where: str, name: str, value: Any, expected: str) -> None:
    """Raises unless a value is one number, finite if it is no limit."""
    is_one = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_one and not (hasattr(value, "dtype") and np.ndim(value) == 0):
        raise checks.wrong_type(where, name, value, expected)
    if name not in _LIMITS:
        checks.check_finite(where, name, value)


def _check_scheduled(config: Any, name: str) -> None:
    """Raises unless a setting is a positive number or a schedule."""
    where = type(config).__name__
    kind, value = _kind(config, name), getattr(config, name)
    checks.check_one_of(where, f"{name}_schedule", kind, ("constant", "linear"))
    if not callable(value):
        checks.check_positive(where, name, value)
        return
    check_in_range(where, name, value)
    if kind == "linear":
        raise ValueError(
            f"`{where}`: `{name}_schedule` expected 'constant' where `{name}` is a "
            "schedule itself; got 'linear'"
        )


def check_spaces(config: Any, observation_space: Any, action_space: Any) -> None:
    """Raises unless an agent is made for spaces; its networks check their kinds.

    Args:
        config: the dataclass of settings, of whose `create` these are arguments.
        observation_space: of one environment.
        action_space: of one environment, or a nest of specs, see `action_head`.

    Raises:
        TypeError: if an argument is not a space.
    """
    where, kind = f"{type(config).__name__}.create", "a Gymnasium space"
    name = "observation_space"
    checks.check_type(where, name, observation_space, gym.Space, kind)
    if not isinstance(action_space, gym.Space):
        for leaf in tf.nest.flatten(action_space):
            if not isinstance(leaf, tf.TensorSpec):
                raise checks.wrong_type(where, "action_space", action_space, kind)


def settings_at(
    config: Any,
    progress: progresses.Progress | None,
    names: Collection[str],
    step: Any = 1,
) -> dict[str, tf.Tensor]:
    """Returns settings that may be scheduled at a progress, float32 `[]` by name.

    A schedule of `tfrl.schedules` follows the progress that it names, one of Keras the
    number of updates. Numbers of which `NAME_schedule` is "linear" fall:

        value * max(0, 1 - percent)

    Args:
        config: what has the settings for attributes.
        progress: how far the run has come; the one in context if None.
        names: of the settings.
        step: that of the agent's network, 1 before the first update. From the second
            one on, a schedule that gets no progress causes a warning.
    """
    done = progresses.current_progress() if progress is None else progress
    hyper = {
        name: _at(getattr(config, name), _kind(config, name), done) for name in names
    }
    if done is progresses.NOTHING_DONE and tf.executing_eagerly() and step > 1:
        _warn_of_standstill(config, hyper)
    return hyper


def followed(config: Any, hyper: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns those of some settings that follow a schedule.

    Args:
        config: what has the settings for attributes.
        hyper: what `settings_at` gave of it.
    """
    return {
        name: value
        for name, value in hyper.items()
        if callable(getattr(config, name)) or _kind(config, name) != "constant"
    }


def _warn_of_standstill(config: Any, hyper: Mapping[str, tf.Tensor]) -> None:
    for name in followed(config, hyper):
        warnings.warn(
            f"`{type(config).__name__}.update`: `{name}` follows the progress of "
            "training, of which nothing is told, and stays as at the beginning; "
            "call it `with tfrl.schedules.progress_context(tfrl.schedules.Progress("
            "percent=...))`, or give a number",
            stacklevel=4,
        )


def first(value: Scheduled) -> float:
    """Returns a setting before the first update; 1 in a graph, where it is unknown."""
    found = _at(value, "constant", progresses.Progress())
    return float(found) if tf.executing_eagerly() else 1.0


def learner(
    config: Any,
    optimizer: Callable[..., Any] = gradient_transforms.adam,
    rate: str = "learning_rate",
    **options: float,
) -> Callable[[Any], train_state.TrainState]:
    """Returns what makes a network learn by clipped gradients.

    Args:
        config: settings with a rate and `max_gradient_norm`, None for no clipping.
        optimizer: makes the gradient transform where the settings have no `optimizer`
            of their own, Adam by default.
        rate: name of the rate.
        **options: of the optimizer.

    Raises:
        TypeError: if the `optimizer` of the settings makes none.
        ValueError: if what it makes cannot be translated, or has another rate.
    """
    initial, own = first(getattr(config, rate)), getattr(config, "optimizer", None)
    tx = (
        optimizer(initial, **options)
        if own is None
        else chosen_optimizers.made(config, initial)
    )
    if config.max_gradient_norm is not None:
        clip = gradient_transforms.clip_by_global_norm(config.max_gradient_norm)
        tx = gradient_transforms.chain(clip, tx)

    def learning(network: Any) -> train_state.TrainState:
        state = train_state.TrainState.create(network, tx=tx)
        if own is not None:
            chosen_optimizers.check_follows(config, state, initial)
        return state

    return learning


def memory_options(config: Any, network: Any) -> dict[str, Any]:
    """Returns arguments of `RecurrentPolicy.create` for the memory of settings.

    Args:
        config: settings with `memory` and `memory_units`.
        network: that of a user, or None.

    Raises:
        ValueError: if `memory` is "own" without a `network`, or another with one.
    """
    memory, is_own = config.memory, config.memory == "own"
    if is_own != (network is not None):
        wanted = "'gru' or 'lstm' without `network`, 'own' with one"
        name = type(config).__name__
        raise ValueError(f"`{name}`: `memory` expected {wanted}; got {memory!r}")
    return {"units": config.memory_units, **({} if is_own else {"cell": memory})}


def actor_critic_of(
    config: Any,
    observation_space: gym.Space,
    action_space: gym.Space,
    network: Any,
    seed: int,
    **options: Any,
) -> Any:
    """Returns the policy that the settings of an algorithm describe.

    That is an `ActorCriticPolicy`, or a `RecurrentPolicy` where they ask for a memory.

    Args:
        config: the dataclass of settings.
        observation_space: of one environment.
        action_space: of one environment.
        network: as in `ActorCriticPolicy.create`, or in `RecurrentPolicy.create` where
            the settings ask for a memory.
        seed: of the weights.
        **options: of `learner`.

    Raises:
        TypeError: if a space is not one.
        ValueError: if `memory` is "own" without a `network`, or another with one; if it
            is combined with `noise_steps`.
    """
    check_spaces(config, observation_space, action_space)
    names = ("squash", "log_std", "normalize_observations", "noise_steps")
    given = {name: getattr(config, name) for name in names if hasattr(config, name)}
    create: Callable[..., Any] = actor_critic.ActorCriticPolicy.create
    memory = getattr(config, "memory", None)
    if memory is not None:
        if given.pop("noise_steps", None) is not None:
            raise ValueError(
                f"`{type(config).__name__}`: `noise_steps` expected None where there "
                f"is a memory, {memory!r}; got {config.noise_steps}"
            )
        create = recurrent.RecurrentPolicy.create
        given |= {**memory_options(config, network), "has_values": True}
        given.setdefault("log_std", 0.0)
    return create(
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


def _at(value: Any, kind: str, done: progresses.Progress) -> tf.Tensor:
    if callable(value):
        measure = getattr(value, "progress_type", "iterations")
        return tf.cast(value(getattr(done, measure)), tf.float32)
    if kind == "constant":
        return tf.convert_to_tensor(value, tf.float32)
    if tf.is_tensor(done.percent):
        left = 1.0 - tf.cast(done.percent, tf.float32)
        return tf.convert_to_tensor(value, tf.float32) * tf.maximum(left, 0.0)
    # The same in NumPy: eager ops would take as long as some gradient steps.
    left = np.float32(1.0) - np.float32(done.percent)
    return tf.constant(np.float32(value) * np.maximum(left, np.float32(0.0)))
