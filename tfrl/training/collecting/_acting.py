"""What all that play policies share: memory between steps, checks, one environment."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv


def remembered(state: Any, initial: Any, outcome: Any) -> Any:
    """Returns what a policy remembers after a step: nothing of episodes that ended.

    Args:
        state: nest of `[N, ...]`, that the policy returned.
        initial: at the beginning of episodes, likewise.
        outcome: of the step; `terminated` and `truncated` are read.

    Returns:
        Nest of `[N, ...]`.
    """
    if type(state) is tuple and not state:
        return state
    ended = outcome.terminated | outcome.truncated

    def leaf(first: Any, last: Any) -> np.ndarray:
        shape = (len(ended), *[1] * (np.ndim(last) - 1))
        return np.where(ended.reshape(shape), np.asarray(first), np.asarray(last))

    return tf.nest.map_structure(leaf, initial, state)


def check_actions(where: str, actions: Any, envs: VectorEnv, space: Any = None) -> None:
    """Raises a ValueError unless there is a finite action for each environment.

    Args:
        where: the asking function, for the message.
        actions: what a policy returned for all environments.
        envs: the environments.
        space: of a part of the actions; that of all by default.
    """
    space = envs.single_action_space if space is None else space
    fault = f"`{where}`: `policy` expected to return"
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        for key in space if isinstance(space, gym.spaces.Dict) else range(len(space)):
            try:
                part = actions[key]
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"{fault} actions with a part {key!r} for {space}; got {actions!r}"
                ) from error
            check_actions(where, part, envs, space[key])
    elif space.shape is not None:
        shape = (envs.num_envs, *space.shape)
        if np.shape(actions) != shape:
            raise ValueError(
                f"{fault} actions of shape {[*shape]} for {space}; got "
                f"{[*np.shape(actions)]}; return one for each environment"
            )
        numbers = np.asarray(actions)
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise ValueError(f"{fault} actions that are finite numbers; got {actions}")


def of_one(policy: Any, seed: Any = None) -> Callable[[Any], Any]:
    """Returns a greedy policy as a function of one observation, for one episode."""
    memory = policy.initial_state(1)

    def act(observation: Any) -> Any:
        nonlocal memory
        row = tf.nest.map_structure(lambda x: np.asarray(x)[None], observation)
        acted = policy.act(row, memory, seed=seed, temperature=0.0)
        memory = acted.state
        return tf.nest.map_structure(lambda x: x[0], acted.actions)

    return act
