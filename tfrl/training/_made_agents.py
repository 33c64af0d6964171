"""From hyper-parameters to the agent of a run; both are checked on the way."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from tfrl.agents import actor_critic, ppo
from tfrl.agents import agent as agents


def checked(config: agents.AgentConfig | None) -> agents.AgentConfig:
    """Returns hyper-parameters, those of PPO for None.

    Raises:
        TypeError: if they make no agent that learns from trajectories.
    """
    if config is None:
        return ppo.PPO()
    create = getattr(config, "create", None)
    if isinstance(config, type) or not callable(create):
        raise TypeError(
            "`Trainer`: `agent` expected hyper-parameters with a `create` method, such "
            f"as PPO(); got {config!r}; give an instance (in gin: @PPO())"
        )
    given = dict.fromkeys(("n_envs", "n_steps", "n_updates", "seed"), 1)
    try:
        inspect.signature(create).bind(None, None, **given)
    except TypeError as error:
        raise TypeError(
            "`Trainer`: `agent` expected hyper-parameters of an agent that learns from "
            "trajectories, whose `create` takes two spaces, n_envs, n_steps, n_updates "
            f"and seed, such as PPO(); got {type(config).__name__}, whose `create` "
            f"takes {inspect.signature(create)}; call its agent's `update` with "
            "batches yourself"
        ) from error
    return config


def made(
    config: agents.AgentConfig,
    observation_space: gym.Space,
    action_space: gym.Space,
    numbers: Mapping[str, int],
) -> Any:
    """Creates an agent.

    Args:
        config: that was `checked`.
        observation_space: of one environment.
        action_space: likewise.
        numbers: n_envs, n_steps, n_updates and seed.

    Raises:
        TypeError: if the trainer cannot act by its policy.
        ValueError: if hyper-parameters or spaces fit no agent.
    """
    agent = config.create(observation_space, action_space, **numbers)
    policy = getattr(agent, "policy", None)
    if not isinstance(policy, actor_critic.ActorCriticPolicy):
        raise TypeError(
            "`Trainer`: `agent` expected hyper-parameters of an agent whose `policy` "
            f"is an ActorCriticPolicy; got {type(config).__name__}, of which it is of "
            f"type {type(policy).__name__}; train others by `fit`, or by a loop of "
            "your own around their `update`"
        )
    return agent
