"""What a trainer is asked for, checked; with the agent and environments made of it."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import keras
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import acting, checks, gym_checks, named_arrays
from tfrl.agents import agent as agents
from tfrl.agents import replicated
from tfrl.agents.on_policy import ppo
from tfrl.configuring import gin_calls
from tfrl.policies import host_policy
from tfrl.training import _processes, _run_record, cadence
from tfrl.training import experience as experiences
from tfrl.training.collecting import (
    _actor_policies,
    _compiled_collection,
    actor_collection,
    collection,
)

# The first of each is what is taken where nothing is said.
_KINDS: dict[str, tuple[type, ...]] = {
    "trajectories": (experiences.Trajectories,),
    "transitions": (experiences.Replayed, experiences.FromDataset),
    "recorded": (experiences.FromDataset, experiences.Replayed),
    "batches": (experiences.FromDataset,),
}
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
    for name, low in {"n_epochs": 1, "n_envs": 1, "seed": 0}.items():
        checks.check_whole_number(where, name, given[name], low=low)
    if limit is not None:
        checks.check_whole_number(where, "total_env_steps", limit, low=1)
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
        _check_replicas(given["n_envs"], workers)
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


def _check_corrects(agent: Any, is_on_policy: bool) -> None:
    """Raises a TypeError if an agent takes what actors played as its own policy's."""
    if is_on_policy and not getattr(agent, "needs_log_probs", False):
        raise TypeError(
            "`Trainer`: `agent` expected one that corrects for older policies beside "
            "the collector 'actors', such as IMPALA() or PPO(vtrace=True), or one that "
            f"learns from a replay; got {type(agent).__name__}, which does not ask for "
            "log-probabilities (`needs_log_probs`)"
        )


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
                "`Trainer`: `callbacks` expected such as need no Keras model; got "
                f"{type(each).__name__}; the trainer saves and keeps the best by "
                "itself, and `AgentModel` takes this one in `fit`"
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


def checked_experience(config: agents.AgentConfig, experience: Any) -> Any:
    """Returns what an agent learns from; the default of what it asks for, for None.

    Hyper-parameters may say what that is by an attribute `learns_from`, one or several
    of "trajectories", "transitions" (of a replay, or of a data set), "recorded" (the
    same, of a data set first) and "batches" (a mapping of a data set).

    Args:
        config: that was checked.
        experience: `Trajectories`, `Replayed`, `FromDataset` or None.

    Raises:
        TypeError: if it is something else, or of another kind than the agent takes.
    """
    asked = _asked(config)
    if experience is None:
        return _KINDS[asked[0] if asked else "trajectories"][0]()
    kinds = *_KINDS["trajectories"], *_KINDS["transitions"]
    expected = "Trajectories, Replayed or FromDataset"
    checks.check_type("Trainer", "experience", experience, kinds, expected)
    wanted = dict.fromkeys(x for name in asked or _KINDS for x in _KINDS[name])
    if not isinstance(experience, tuple(wanted)):
        raise TypeError(
            f"`Trainer`: `experience` expected "
            f"{' or '.join(kind.__name__ for kind in wanted)}, which "
            f"{type(config).__name__} learns from; got {type(experience).__name__}"
        )
    return experience


def takes_transitions(config: agents.AgentConfig) -> bool:
    """Whether an agent learns from a data set as from a replay, not as a mapping."""
    asked = _asked(config)
    return bool(asked) and "batches" not in asked


def _asked(config: agents.AgentConfig) -> tuple[str, ...]:
    asked = getattr(config, "learns_from", None) or ()
    return (asked,) if isinstance(asked, str) else tuple(asked)


def checked_update(learned: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what the `update` of an agent returned.

    Args:
        learned: the new agent and an info.

    Raises:
        TypeError: if it is something else.
    """
    is_pair = isinstance(learned, tuple | list) and len(learned) == 2
    is_agent = is_pair and hasattr(learned[0], "policy")
    if not is_agent or not isinstance(learned[1], Mapping):
        raise TypeError(
            "`Trainer`: `agent` expected one whose `update` returns (agent, info), the "
            f"info a dict of scalars; got {learned!r:.80}"
        )
    return learned[0], dict(learned[1])


def made_agent(
    config: agents.AgentConfig,
    observation_space: gym.Space,
    action_space: gym.Space,
    numbers: Mapping[str, int],
    network: Any = None,
) -> Any:
    """Creates an agent.

    Args:
        config: that was checked.
        observation_space: of one environment.
        action_space: likewise.
        numbers: seed, and n_envs and n_steps for a `create` that takes them.
        network: for a `create` that takes it; None for the agent's own.

    Raises:
        TypeError: if it is no agent, or takes no network and one is given.
        ValueError: if hyper-parameters or spaces fit no agent.
    """
    known = inspect.signature(config.create).parameters
    # Old runs have kept numbers that no agent asks for any more.
    asked = {"seed", *known} - {"n_updates"}
    given: dict[str, Any] = {k: x for k, x in numbers.items() if k in asked}
    if network is not None:
        if "network" not in known:
            raise TypeError(
                "`Trainer`: `network` expected None, as `create` of "
                f"{type(config).__name__} takes none; got {network!r:.80}"
            )
        given["network"] = network
    agent = config.create(observation_space, action_space, **given)
    policy = getattr(agent, "policy", None)
    if not (callable(getattr(policy, "act", None)) and hasattr(agent, "update")):
        raise TypeError(
            "`Trainer`: `agent` expected hyper-parameters of an agent with `policy`, "
            f"which has `act`, and `update`; got {type(config).__name__}, of which "
            f"`policy` is of type {type(policy).__name__}"
        )
    try:
        named_arrays.name_arrays(agent, "agent")
    except TypeError as error:
        raise TypeError(
            "`Trainer`: `agent` expected hyper-parameters of an agent that can be "
            f"saved, such as a `tfrl.core.PyTreeNode` of arrays; got {error}"
        ) from error
    return agent


class Made(NamedTuple):
    """What a run is made of.

    Attributes:
        eval_envs: to evaluate in.
        spaces: of observations and actions of one environment.
        numbers: what the agent was created with beside spaces.
        agent: what learns.
        host: its policy, on the host.
        rng: by which actions are drawn there.
        collector: who plays.
        source: where what is learned from comes from.
    """

    eval_envs: VectorEnv
    spaces: tuple[gym.Space, gym.Space]
    numbers: dict[str, int]
    agent: Any
    host: host_policy.HostPolicy
    rng: np.random.Generator
    collector: collection.Collector
    source: Any


def made(plan: Plan, workers: _processes.Workers, undo: contextlib.ExitStack) -> Made:
    """Makes environments and agent, and who plays.

    Args:
        plan: of the run.
        workers: who train.
        undo: closes the environments.
    """
    given, rank = plan.arguments, workers.rank
    config, learned, seed = given["agent"], given["experience"], given["seed"]
    n_envs = given["n_envs"]
    pool, eval_episodes = given["collector"], given["intervals"].eval_episodes
    has_pool = isinstance(pool, actor_collection.ActorPool)
    # Where nothing is played here, those to evaluate in show the spaces.
    is_here = plan.is_played and not has_pool
    counts = [*([n_envs] if is_here else []), eval_episodes]
    found = made_envs(given["make_envs"], counts, undo)
    envs = found[0]
    spaces = envs.single_observation_space, envs.single_action_space
    numbers = {"n_envs": plan.n_envs, "n_steps": plan.n_steps, "seed": seed}
    with workers.scope():
        agent = made_agent(config, *spaces, numbers, given["network"])
    needed = getattr(agent, "needs_log_probs", False)
    host = host_policy.HostPolicy(agent.policy, log_probs=needed)
    # The chief draws what one worker alone would.
    streams = np.random.SeedSequence(seed, spawn_key=(rank,) if rank else ())
    collector: collection.Collector
    source: Any = experiences.Latest()
    first = seed + rank * n_envs
    if given["collector"] == "compiled":
        with workers.scope():
            collector = _compiled_collection.CompiledCollector(
                envs, learned, agent.policy, seed
            )
    else:
        if has_pool:
            network = given["network"]
            if isinstance(network, keras.Model):
                network = _actor_policies.SentNetwork(network)
            parts = gin_calls.without_gin((config, network))
            make_policy = functools.partial(
                _made_policy, parts[0], spaces, numbers, parts[1]
            )
            collector = _of_actors(given, agent, make_policy, (envs, first, workers))
            undo.callback(collector.close)
        else:
            collector = collection.Collector(envs, plan.n_steps, first)
        source = experiences.source_of(
            *(learned, host, collector, plan.n_envs, seed),
            as_transitions=takes_transitions(config),
        )
    rng = np.random.default_rng(streams)
    return Made(found[-1], spaces, numbers, agent, host, rng, collector, source)


def _of_actors(
    given: Mapping[str, Any],
    agent: Any,
    make_policy: Callable[[], Any],
    place: tuple[VectorEnv, int, _processes.Workers],
) -> actor_collection.ActorCollector:
    """Returns what collects what actors play.

    Args:
        given: the arguments of the trainer.
        agent: what learns.
        make_policy: makes a policy as that of the agent.
        place: environments of the same spaces, a seed, and who train.
    """
    learned, needed = given["experience"], getattr(agent, "needs_log_probs", False)
    is_on_policy = isinstance(learned, experiences.Trajectories)
    _check_corrects(agent, is_on_policy)
    envs, seed, workers = place
    pool, make_envs = given["collector"], gin_calls.without_gin(given["make_envs"])
    width = given["n_envs"] // pool.n_actors
    registering = [
        (x if isinstance(x, str) else [*x.values()][0]).partition(":")[0]
        for x in _run_record.registered_by(envs)
    ]
    return actor_collection.ActorCollector(
        envs,
        learned.n_steps,
        seed,
        pool=pool,
        n_envs=given["n_envs"],
        make_env=functools.partial(
            acting.made_after,
            registering,
            functools.partial(make_envs, n_envs=width),
        ),
        workers=workers,
        make_acting=functools.partial(
            _actor_policies.acting_of, agent.policy, make_policy, needed
        ),
        is_on_policy=is_on_policy,
    )


def _made_policy(
    config: Any, spaces: tuple[gym.Space, gym.Space], numbers: Any, network: Any
) -> Any:
    """Makes a policy as the learner's is, for who acts elsewhere."""
    return made_agent(config, *spaces, numbers, network).policy


@contextlib.contextmanager
def blaming_n_envs(overrides: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Names `n_envs` where what was saved does not load as it was overridden."""
    try:
        yield
    except ValueError as error:
        changes = overrides[-1]["changes"] if overrides else {}
        if "n_envs" not in changes:
            raise
        before, after = changes["n_envs"]
        raise ValueError(
            f"`Trainer`: `n_envs` expected {before}, as the run goes on with its "
            f"environments; got {after} ({error!s:.200}); give the old value, or train "
            "anew in another `output_dir`"
        ) from error


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
