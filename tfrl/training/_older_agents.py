"""Agents of earlier versions, which kept no moments of integers, in checkpoints."""

import os
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.core import spaces
from tfrl.saving import checkpoints


def load_run(
    directory: str | os.PathLike[str],
    agent: Any,
    observation_space: gym.Space,
    **options: Any,
) -> tuple[Any, dict[str, Any], int]:
    """Does what `tfrl.saving.load_run` does, for agents of earlier versions too.

    They go on as they were: integers are not normalized.

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
        if older is None:
            raise
        try:
            return checkpoints.load_run(directory, older, **options)
        except ValueError:
            pass
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
