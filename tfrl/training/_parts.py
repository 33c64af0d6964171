"""Builds the parts of a run: environments, the agent, and who plays."""

import contextlib
import functools
import inspect
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import keras
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import dtype_policies, named_arrays, registered_envs
from tfrl.agents import agent as agents
from tfrl.agents import chosen_optimizers
from tfrl.agents.multi_agent import self_play
from tfrl.configuring import gin_calls
from tfrl.policies import host_policy
from tfrl.saving import checkpoints
from tfrl.training import (
    _environments,
    _kept_names,
    _plan,
    _processes,
    _run_checkpoints,
    _run_record,
    _settings_checks,
    evaluation,
)
from tfrl.training import experience as experiences
from tfrl.training.collecting import (
    _actor_policies,
    _compiled_collection,
    actor_collection,
    collection,
)


def made_agent(
    config: agents.AgentConfig,
    observation_space: gym.Space,
    action_space: gym.Space,
    numbers: Mapping[str, int],
    network: Any = None,
    where: str = "Trainer",
) -> Any:
    """Creates an agent.

    Args:
        config: that was checked.
        observation_space: of one environment.
        action_space: likewise.
        numbers: seed, and n_envs, n_steps, n_agents and burn_in for a `create` that
            takes them.
        network: for a `create` that takes it; None for the agent's own.
        where: whose agent it is, for messages.

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
                f"`{where}`: `network` expected None, as `create` of "
                f"{type(config).__name__} takes none; got {network!r:.80}"
            )
        given["network"] = network
    agent = config.create(observation_space, action_space, **given)
    policy = getattr(agent, "policy", None)
    if not (callable(getattr(policy, "act", None)) and hasattr(agent, "update")):
        raise TypeError(
            f"`{where}`: `agent` expected hyper-parameters of an agent with `policy`, "
            f"which has `act`, and `update`; got {type(config).__name__}, of which "
            f"`policy` is of type {type(policy).__name__}"
        )
    try:
        named_arrays.name_arrays(agent, "agent")
    except TypeError as error:
        raise TypeError(
            f"`{where}`: `agent` expected hyper-parameters of an agent that can be "
            f"saved, such as a `tfrl.core.PyTreeNode` of arrays; got {error}"
        ) from error
    return agent


class Made(NamedTuple):
    """What a run is made of.

    Attributes:
        eval_envs: to evaluate in.
        spaces: of observations and actions of one environment.
        agent: what learns.
        host: its policy, on the host.
        rng: by which actions are drawn there.
        collector: who plays.
        source: where what is learned from comes from.
        record: of the run.
        checkpoints: what saves and loads all of it.
    """

    eval_envs: VectorEnv
    spaces: tuple[gym.Space, gym.Space]
    agent: Any
    host: host_policy.HostPolicy
    rng: np.random.Generator
    collector: collection.Collector
    source: Any
    record: _run_record.RunRecord
    checkpoints: _run_checkpoints.RunCheckpoints


def made(
    plan: _plan.Plan,
    workers: _processes.Workers,
    undo: contextlib.ExitStack,
    directory: pathlib.Path,
    resume: bool,
) -> Made:
    """Makes environments and agent, who plays, and what keeps them.

    Args:
        plan: of the run.
        workers: who train.
        undo: closes the environments.
        directory: of the run.
        resume: whether there is a run, of which the networks are to be.

    Raises:
        ConnectionError: if another worker is lost meanwhile.
    """
    precision = _run_record.dtype_policy_of(directory, resume)
    # Old runs go on, and are opened, as they began.
    is_new = not resume and checkpoints.latest_step(directory) is None
    if is_new:
        _plan.check_read(plan.arguments["experience"])
        for name in ("agent", "experience"):
            _settings_checks.check_shares(plan.arguments[name])
    known = contextlib.nullcontext() if is_new else chosen_optimizers.going_on()
    with workers.guarded(), dtype_policies.used(precision), known:
        return _made(plan, workers, undo, directory, is_new)


def _made(
    plan: _plan.Plan,
    workers: _processes.Workers,
    undo: contextlib.ExitStack,
    directory: pathlib.Path,
    is_new: bool,
) -> Made:
    given, rank = plan.arguments, workers.rank
    config, learned, seed = given["agent"], given["experience"], given["seed"]
    n_envs = given["n_envs"]
    pool, eval_episodes = given["collector"], given["intervals"].eval_episodes
    has_pool = isinstance(pool, actor_collection.ActorPool)
    # Where nothing is played here, those to evaluate in show the spaces.
    is_here = plan.is_played and not has_pool
    counts = [*([n_envs] if is_here else []), eval_episodes]
    found = _environments.made_envs(given["make_envs"], counts, undo, is_new)
    envs = found[0]
    spaces = envs.single_observation_space, envs.single_action_space
    numbers = {"n_envs": plan.n_envs, "n_steps": plan.n_steps, "seed": seed}
    if getattr(learned, "sequence_length", None) is not None:
        numbers["burn_in"] = learned.burn_in
    if players := evaluation.agents_of(envs):
        numbers["n_agents"] = len(players)
        if has_pool:
            _check_whole(n_envs, pool.n_actors, len(players), config)
    # Runs of old go on where there is nobody to play against.
    alone = {"n_agents": 1} if is_new else {}
    with workers.scope():
        agent = made_agent(config, *spaces, {**alone, **numbers}, given["network"])
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
                envs, learned, agent, seed
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
            needed=_plan.needed_columns(config),
        )
    rng = np.random.default_rng(streams)
    told = {**given, "experience": experiences.recorded(learned)}
    record = _run_record.of_trainer(told, numbers, collector.envs)
    kept = _run_checkpoints.RunCheckpoints(
        *(directory, workers, source, rng, collector, seed),
        *(given["intervals"].checkpoints_kept, agent),
    )
    parts = found[-1], spaces, agent, host, rng, collector, source
    return Made(*parts, record, kept)


def _check_whole(n_envs: int, n_actors: int, n_agents: int, config: Any) -> None:
    """Raises a ValueError unless each actor has whole environments.

    In self-play each agent must learn in as many of them.
    """
    factors, why = "n_actors * n_agents", "with a row for each agent"
    rows = n_actors * n_agents
    if isinstance(config, self_play.SelfPlay):
        factors, rows = f"{factors} * n_agents", rows * n_agents
        why += ", of which each learns in one copy"
    if n_envs % rows:
        raise ValueError(
            f"`Trainer`: `n_envs` expected a multiple of {factors} = {rows}, "
            f"as each actor plays whole environments {why}; got "
            f"{n_envs}; take {-(-n_envs // rows) * rows}"
        )


def _check_corrects(agent: Any, is_on_policy: bool) -> None:
    """Raises a TypeError if an agent takes what actors played as its own policy's."""
    if is_on_policy and not getattr(agent, "needs_log_probs", False):
        raise TypeError(
            "`Trainer`: `agent` expected one that corrects for older policies beside "
            "the collector 'actors', such as IMPALA() or PPO(vtrace=True), or one that "
            f"learns from a replay; got {type(agent).__name__}, which does not ask for "
            "log-probabilities (`needs_log_probs`)"
        )


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
    imports = [x for x in _kept_names.kept_name(envs) if isinstance(x, str)]
    return actor_collection.ActorCollector(
        envs,
        learned.n_steps,
        seed,
        pool=pool,
        n_envs=given["n_envs"],
        make_env=functools.partial(
            registered_envs.made_after,
            imports,
            _kept_names.registration_of(envs),
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
def blaming_overrides(overrides: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Names what was overridden last where what was saved does not load with it."""
    try:
        yield
    except ValueError as error:
        if not overrides:
            raise
        raise ValueError(
            "`Trainer`: `override` expected changes that what was saved can be loaded "
            f"with; got {_run_record.changes_of(overrides[-1])}: {error}; give the old "
            "values of what does not fit, or train anew in another "
            "`output_dir`"
        ) from error
