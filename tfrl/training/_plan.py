"""Checks the arguments of a trainer, and counts its epochs and steps."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import keras

from tfrl._internal import checks
from tfrl.agents import agent as agents
from tfrl.agents import replicated
from tfrl.agents.multi_agent import independent, self_play
from tfrl.agents.on_policy import ppo
from tfrl.training import _processes, cadence, evaluation
from tfrl.training import experience as experiences
from tfrl.training.collecting import (
    actor_collection,
)

# The first of each is what is taken where nothing is said.
_KINDS: dict[str, tuple[type, ...]] = {
    "trajectories": (experiences.Trajectories,),
    "transitions": (experiences.Replayed, experiences.FromDataset),
    "recorded": (experiences.FromDataset, experiences.Replayed),
    "batches": (experiences.FromDataset,),
    "sequences": (experiences.Replayed,),
}
# What they have where nothing is said.
_USUAL_OF = {"sequences": {"sequence_length": 40, "burn_in": 20}}
_OF_MODELS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.TensorBoard,
)
# What a trainer has neither batches nor an optimizer for, and why none is needed.
_OF_BATCHES = {
    keras.callbacks.TerminateOnNaN: "a run ends by itself if weights are not finite",
    keras.callbacks.SwapEMAWeights: "an agent brings its own optimizers",
}


# Seeds of parts follow from it, and TensorFlow takes those of 64 bits.
_LARGEST_SEED = 2**63 - 2**32
# Of a run that is told neither of epochs nor of steps.
_MOST_EPOCHS = 10_000


# Settings of a replay that are read only beside another, which says so.
_BESIDE = {"alpha": "sampler", "beta": "sampler"}
_BESIDE |= {"relabel_ratio": "relabel", "prior_share": "prior_data"}


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
    given: Mapping[str, Any], workers: _processes.Workers, callbacks: Sequence[Any]
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
    given = dict(given)
    for name in ("n_epochs", "n_envs", "total_env_steps"):
        if name == "n_envs" or given[name] is not None:
            given[name] = checks.check_whole_number(where, name, given[name], low=1)
    seed = checks.check_whole_number(where, "seed", given["seed"], 0, _LARGEST_SEED)
    given["seed"] = seed
    if given["stop_at_return"] is not None:
        checks.check_finite(where, "stop_at_return", given["stop_at_return"])
    config = checked_agent(given["agent"])
    learned = checked_experience(config, given["experience"])
    _check_callbacks(callbacks)
    intervals = given["intervals"]
    kinds = cadence.Intervals | None
    checks.check_type(where, "intervals", intervals, kinds, "Intervals or None")
    if given["stop_at_return"] is not None and (
        intervals is None or intervals.eval_epochs is None
    ):
        raise ValueError(
            f"`{where}`: `intervals` expected `eval_epochs` beside `stop_at_return`, "
            "as evaluations alone end the run; got None"
        )
    if not isinstance(learned, experiences.Trajectories):
        name = f"{type(learned).__name__}.batch_size"
        with workers.scope():  # replicas share batches evenly
            replicated.check_rows(where, name, learned.batch_size)
    is_played = not isinstance(learned, experiences.FromDataset)
    collector = _checked_collector(given["collector"], given["n_envs"], is_played)
    if collector == "compiled":
        what = f"`{where}`: `collector` 'compiled'"
        check_in_graph(what, config, "take the collector 'host'")
        _check_replicas(given["n_envs"], workers)
    n_all, n_steps = given["n_envs"] * workers.count, 1
    if is_played:
        n_steps = learned.n_steps
        per_epoch = n_all * n_steps
    else:
        per_epoch = learned.n_batches * learned.batch_size
    n_epochs = given["n_epochs"]
    if limit is not None:
        needed = -(-limit // per_epoch)
        n_epochs = needed if n_epochs is None else min(n_epochs, needed)
    elif n_epochs is None:
        n_epochs = _MOST_EPOCHS
    # What is kept is the number that was asked for: who goes on may want more steps.
    arguments = {**given, "agent": config, "experience": learned}
    arguments["intervals"] = intervals or cadence.Intervals()
    arguments["collector"] = collector
    total = n_epochs * per_epoch
    return Plan(arguments, is_played, n_all, n_steps, n_epochs, total)


def _checked_collector(collector: Any, n_envs: int, is_played: bool) -> Any:
    """Returns "host", "compiled" or an `ActorPool`.

    Raises:
        TypeError: if it is something else.
        ValueError: if actors have nothing to play, or not equally much.
    """
    where, names = "Trainer", ("host", "compiled", "actors")
    if isinstance(collector, str):
        checks.check_one_of(where, "collector", collector, names)
        if collector != "actors":
            return collector
        collector = actor_collection.ActorPool()
    expected = f"one of {list(names)} or an ActorPool"
    checks.check_type(
        where, "collector", collector, actor_collection.ActorPool, expected
    )
    if not is_played:
        raise ValueError(
            f"`{where}`: `collector` expected 'host' beside a `FromDataset`, of which "
            f"nothing is played; got {collector}"
        )
    if n_envs % collector.n_actors:
        raise ValueError(
            f"`{where}`: `n_envs` expected equally many for each of "
            f"{collector.n_actors} actors; got {n_envs}; give a multiple, or change "
            "`ActorPool.n_actors`"
        )
    return collector


def _check_replicas(n_envs: int, workers: _processes.Workers) -> None:
    """Raises a ValueError unless the replicas share compiled environments evenly."""
    if workers.count > 1:
        raise ValueError(
            "`Trainer`: `strategy` expected one worker beside the collector "
            f"'compiled'; got {workers.count}; take the collector 'host'"
        )
    with workers.scope():
        count = replicated.n_replicas()
    if n_envs % count:
        fits = [x for x in (n_envs // count * count, -(-n_envs // count) * count) if x]
        raise ValueError(
            f"`Trainer`: `n_envs` expected equally many for each of {count} replicas, "
            f"which play their own; got {n_envs}; take one of {fits}"
        )


def _check_callbacks(callbacks: Sequence[Any]) -> None:
    where, kind = ("Trainer", "callbacks"), keras.callbacks.Callback
    checks.check_type(*where, callbacks, list | tuple, "a list of them")
    for each in callbacks:
        checks.check_type(*where, each, kind, "callbacks of Keras")
        if isinstance(each, _OF_MODELS) or getattr(each, "restore_best_weights", False):
            raise TypeError(
                "`Trainer`: `callbacks` expected those that need no Keras model; got "
                f"{type(each).__name__}; the trainer saves and keeps the best by "
                "itself, and `AgentModel` takes this one in `fit`"
            )
        if type(each) in _OF_BATCHES:
            raise TypeError(
                "`Trainer`: `callbacks` expected those that use epochs alone; got "
                f"{type(each).__name__}; leave it out, since {_OF_BATCHES[type(each)]}"
            )
        if isinstance(each, keras.callbacks.CSVLogger):
            raise TypeError(
                "`Trainer`: `callbacks` expected none that writes the columns of the "
                "first epoch alone; got CSVLogger, which does; read `metrics.csv` of "
                "the run"
            )


def checked_agent(
    config: agents.AgentConfig | None, where: str = "Trainer", name: str = "agent"
) -> agents.AgentConfig:
    """Returns hyper-parameters, those of PPO for None.

    Args:
        config: the hyper-parameters.
        where: function that asks, for the messages.
        name: of its argument.

    Raises:
        TypeError: if they make no agent.
    """
    if config is None:
        return ppo.PPO()
    create = getattr(config, "create", None)
    if isinstance(config, type) or not callable(create):
        raise TypeError(
            f"`{where}`: `{name}` expected hyper-parameters with a `create` method, "
            f"such as PPO(); got {config!r:.200}; give an instance (in gin: @PPO())"
        )
    try:
        inspect.signature(create).bind(None, None, seed=0)
    except TypeError as error:
        raise TypeError(
            f"`{where}`: `{name}` expected hyper-parameters whose `create` takes two "
            f"spaces and seed; got {type(config).__name__}, whose `create` takes "
            f"{inspect.signature(create)}"
        ) from error
    return config


def checked_experience(
    config: agents.AgentConfig, experience: Any, where: str = "Trainer"
) -> Any:
    """Returns what an agent learns from, with its usual settings where they are None.

    Hyper-parameters may say what that is by an attribute `learns_from`, one or several
    of "trajectories", "transitions" (of a replay, or of a data set), "recorded" (the
    same, of a data set first), "sequences" (of a replay) and "batches" (a mapping of a
    data set).

    Args:
        config: that was checked.
        experience: `Trajectories`, `Replayed` or `FromDataset`; None for that which it
            asks for.
        where: function that asks, for the messages.

    Raises:
        TypeError: if it is something else, or of another kind than the agent takes.
        ValueError: if it is a replay of transitions where the agent takes sequences, or
            the reverse.
    """
    asked = _asked(config)
    if experience is None:
        first = asked[0] if asked else "trajectories"
        experience = _KINDS[first][0](**_USUAL_OF.get(first, {}))
    kinds = *_KINDS["trajectories"], *_KINDS["transitions"]
    expected = "Trajectories, Replayed or FromDataset"
    checks.check_type(where, "experience", experience, kinds, expected)
    wanted = _kinds_of(config)
    if not isinstance(experience, wanted):
        raise TypeError(
            f"`{where}`: `experience` expected "
            f"{' or '.join(kind.__name__ for kind in wanted)}, which "
            f"{type(config).__name__} learns from; got {type(experience).__name__}"
        )
    if isinstance(experience, experiences.Replayed):
        _check_sequences(config, asked, experience.sequence_length)
        return experience.for_agent(config)
    return experience


def _check_sequences(
    config: agents.AgentConfig, asked: tuple[str, ...], length: int | None
) -> None:
    """Raises a ValueError if a replay draws what an agent does not learn from."""
    takes, name = "sequences" in asked, type(config).__name__
    if length is None and takes and len(asked) == 1:
        raise ValueError(
            "`Replayed`: `sequence_length` expected a number of steps beside "
            f"{name}, which learns from sequences; got None; give one, such as 40"
        )
    if length is not None and asked and not takes:
        raise ValueError(
            f"`Replayed`: `sequence_length` expected None beside {name}, which does "
            f"not learn from sequences; got {length}; leave it out, or take R2D2"
        )


def check_read(learned: Any) -> None:
    """Raises a ValueError where a new run is given a setting that nothing reads.

    Runs of earlier versions may have such, and go on.

    Args:
        learned: the experience.
    """
    if not isinstance(learned, experiences.Replayed):
        return
    usual = {field.name: field.default for field in dataclasses.fields(learned)}
    for name, other in _BESIDE.items():
        value = getattr(learned, name)
        is_alone = getattr(learned, other) == usual[other]
        if is_alone and value != usual[name]:
            raise ValueError(
                f"`Replayed`: `{name}` expected {usual[name]}, its default, beside "
                f"{other}={usual[other]!r}, with which nothing reads it; got "
                f"{value!r:.80}; leave it out, or give `{other}`"
            )


def needed_columns(config: agents.AgentConfig) -> tuple[str, ...] | None:
    """Returns what a mapping must have for an agent to learn from, as far as known.

    None for agents that learn from a data set as from a replay, not as a mapping.
    """
    asked = _asked(config)
    if asked and "batches" not in asked:
        return None
    return getattr(config, "columns", ())


def check_played(where: str, config: agents.AgentConfig, experience: Any) -> None:
    """Raises a TypeError unless an agent is to learn from what it plays.

    Args:
        where: function that asks, for the messages.
        config: that was checked.
        experience: as of `checked_experience`.
    """
    recorded, kinds = experiences.FromDataset, _kinds_of(config)
    played = [kind.__name__ for kind in kinds if kind is not recorded]
    if not played:
        raise TypeError(
            f"`{where}`: `agent` expected one that learns from environments; got "
            f"{type(config).__name__}, which learns from data alone; train it by "
            "`Trainer`, with a `FromDataset`"
        )
    given = kinds[0] if experience is None else type(experience)
    if given is recorded:
        raise TypeError(
            f"`{where}`: `experience` expected {' or '.join(played)}, as members learn "
            f"from what they play; got {experience!r:.80}"
        )


def check_in_graph(where: str, config: agents.AgentConfig, remedy: str) -> None:
    """Raises a TypeError if an agent plays on the host alone.

    Args:
        where: function and argument that ask for play in a graph, for the message.
        config: that was checked.
        remedy: for the message.
    """
    if isinstance(config, independent.Independent | self_play.SelfPlay):
        raise TypeError(
            f"{where} expected an agent that plays in a graph; got "
            f"{type(config).__name__}, which puts the actions of several policies "
            f"together on the host; {remedy}"
        )


def unused_parts(config: agents.AgentConfig, envs: Any) -> str | None:
    """Tells that a policy acts for all players at once, where only one part counts.

    Args:
        config: that was checked.
        envs: vector environment.
    """
    spaces = envs.single_observation_space, envs.single_action_space
    players = evaluation.agents_of(envs)
    asks = "n_agents" in inspect.signature(config.create).parameters
    if asks and not isinstance(config, self_play.SelfPlay):
        return None
    are_own = all(
        isinstance(space, gym.spaces.Dict) and (*space.spaces,) == players
        for space in spaces
    )
    if not players or not are_own:
        return None
    return (
        f"one policy of {type(config).__name__} acts for all of {players!s:.80} at "
        "once, though in each row one part of its actions counts (`own_spaces=True`), "
        "and learns from the others as noise; take Independent, or leave "
        "`own_spaces` out where spaces are equal"
    )


def _kinds_of(config: agents.AgentConfig) -> tuple[type, ...]:
    """What an agent may learn from, first what it prefers."""
    names = _asked(config) or _KINDS
    return tuple(dict.fromkeys(x for name in names for x in _KINDS[name]))


def _asked(config: agents.AgentConfig) -> tuple[str, ...]:
    asked = getattr(config, "learns_from", None) or ()
    return (asked,) if isinstance(asked, str) else tuple(asked)


def checked_update(learned: Any, where: str = "Trainer") -> tuple[Any, dict[str, Any]]:
    """Returns what the `update` of an agent returned.

    Args:
        learned: the new agent and an info.
        where: function that asks, for the message.

    Raises:
        TypeError: if it is something else.
    """
    is_pair = isinstance(learned, tuple | list) and len(learned) == 2
    is_agent = is_pair and hasattr(learned[0], "policy")
    if not is_agent or not isinstance(learned[1], Mapping):
        raise TypeError(
            f"`{where}`: `agent` expected one whose `update` returns (agent, info), "
            f"the info a dict of scalars; got {learned!r:.80}"
        )
    return learned[0], dict(learned[1])
