"""From hyper-parameters to the agent of a run; both are checked on the way."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from tfrl._internal import named_arrays
from tfrl.agents import agent as agents
from tfrl.agents import ppo
from tfrl.training import experience as experiences

_KINDS = {
    "trajectories": experiences.Trajectories,
    "transitions": experiences.Replayed,
    "batches": experiences.FromDataset,
}


def checked(
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
    of "trajectories", "transitions" and "batches".

    Args:
        config: that was `checked`.
        experience: `Trajectories`, `Replayed`, `FromDataset` or None.

    Raises:
        TypeError: if it is something else, or of another kind than the agent takes.
    """
    asked = getattr(config, "learns_from", None)
    asked = (asked,) if isinstance(asked, str) else asked
    if experience is None:
        return _KINDS[asked[0] if asked else "trajectories"]()
    known = tuple(_KINDS.values())
    if not isinstance(experience, known):
        raise TypeError(
            "`Trainer`: `experience` expected Trajectories, Replayed or FromDataset; "
            f"got {experience!r:.80}"
        )
    wanted = [_KINDS[name].__name__ for name in asked or _KINDS]
    if type(experience).__name__ not in wanted:
        raise TypeError(
            f"`Trainer`: `experience` expected {' or '.join(wanted)}, which "
            f"{type(config).__name__} learns from; got {type(experience).__name__}"
        )
    return experience


def checked_update(learned: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what the `update` of an agent returned.

    Args:
        learned: the new agent and an info.

    Raises:
        TypeError: if it is something else.
    """
    is_pair = isinstance(learned, tuple | list) and len(learned) == 2
    if not is_pair or not isinstance(learned[1], Mapping):
        raise TypeError(
            "`Trainer`: `agent` expected one whose `update` returns (agent, info), the "
            f"info a dict of scalars; got {type(learned).__name__}"
        )
    return learned[0], dict(learned[1])


def made(
    config: agents.AgentConfig,
    observation_space: gym.Space,
    action_space: gym.Space,
    numbers: Mapping[str, int],
    network: Any = None,
) -> Any:
    """Creates an agent.

    Args:
        config: that was `checked`.
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
