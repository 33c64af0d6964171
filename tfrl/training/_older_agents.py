"""Agents of earlier versions, which kept less, in checkpoints."""

import os
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.agents.multi_agent import self_play
from tfrl.core import spaces
from tfrl.saving import checkpoints

# What leagues of earlier versions did not keep.
_OF_LEAGUES = "former", "numbers", "ended_by"


def load_run(
    directory: str | os.PathLike[str],
    agent: Any,
    observation_space: gym.Space,
    **options: Any,
) -> tuple[Any, dict[str, Any], int]:
    """Does what `tfrl.saving.load_run` does, for agents of earlier versions too.

    They go on as they were: integers are not normalized, and a league has the members
    that it had.

    Args:
        directory: of the run.
        agent: of the same architecture.
        observation_space: of one environment.
        **options: of `tfrl.saving.load_run`.

    Raises:
        ValueError: as of `tfrl.saving.load_run`.
    """
    try:
        return checkpoints.load_run(directory, agent, **options)
    except ValueError:
        older = _older(agent, observation_space)
        is_league = isinstance(agent, self_play.SelfPlayAgent)
        if is_league:
            older = agent.replace(**dict.fromkeys(_OF_LEAGUES, ()))
        if older is None:
            raise
        try:
            found, *rest = checkpoints.load_run(directory, older, **options)
        except ValueError:
            pass
        else:
            if is_league:
                new = {name: getattr(agent, name) for name in _OF_LEAGUES}
                found = found.replace(**new)
            return found, *rest
        raise


def _older(agent: Any, observation_space: gym.Space) -> Any:
    """The agent without moments of integers; None if it has none."""
    policy = vars(agent).get("policy")
    kept = getattr(policy, "observation_moments", ())
    if not kept:
        return None
    specs = tf.nest.flatten(spaces.spec_from_space(observation_space))
    moments = tuple(
        each if spec.dtype.is_floating else ()
        for each, spec in zip(kept, specs, strict=True)
    )
    if sum(map(bool, moments)) == sum(map(bool, kept)):
        return None
    return agent.replace(policy=policy.replace(observation_moments=moments))
