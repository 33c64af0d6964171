"""What policies return to be played: checked, and as arrays."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import gym_checks


class Seen(NamedTuple):
    """Observations that actions are chosen for, to be named in a message.

    Attributes:
        observations: nest of `[N, *shape]`.
        step: how many were played before.
    """

    observations: Any
    step: int


def checked(
    where: str,
    actions: Any,
    envs: VectorEnv,
    seen: Seen,
    space: Any = None,
    counts: np.ndarray | slice = slice(None),
) -> Any:
    """Returns what a policy chose as arrays; lists and tensors become such.

    Choices that are floats or bools become integers; integers floats, for a Box of
    these.

    Args:
        where: the asking function, for the message.
        actions: what a policy returned for all environments.
        envs: the environments.
        seen: which is looked at first where actions are not finite.
        space: of a part of the actions; that of all by default.
        counts: `[N]` bool, where it makes a difference what is done.

    Raises:
        ValueError: unless there is an action for each environment, finite, and one of
            those that there are to choose from.
    """
    space = envs.single_action_space if space is None else space
    fault = f"`{where}`: `policy` expected to return"
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = {}
        for key in space if isinstance(space, gym.spaces.Dict) else range(len(space)):
            try:
                part = actions[key]
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"{fault} actions with a part {key!r} for {space}; got {actions!r}"
                ) from error
            given = envs, seen, space[key], counts
            parts[key] = checked(where, part, *given)
        is_dict = isinstance(space, gym.spaces.Dict)
        return parts if is_dict else tuple(parts.values())
    if space.shape is None:
        return actions
    return _checked_array(fault, actions, envs.num_envs, (where, seen), space, counts)


def _checked_array(
    fault: str, actions: Any, n_envs: int, asked: tuple, space: Any, counts: Any
) -> np.ndarray:
    array, shape = _numbers(actions), (n_envs, *space.shape)
    if array is None or array.shape != shape:
        got = f"{actions!r:.80}" if array is None else [*array.shape]
        raise ValueError(
            f"{fault} actions of shape {[*shape]} for {space}; got {got}; return one "
            "for each environment"
        )
    numbers = array[counts]
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        where, seen = asked
        rows = gym_checks.mapped(lambda x: np.asarray(x)[None], seen.observations)
        gym_checks.check_numbers(where, "observations", rows, np.float32, seen.step)
        raise ValueError(f"{fault} actions that are finite numbers; got {actions}")
    impossible = gym_checks.outside(space, numbers)
    if impossible is not None and numbers.dtype.kind == "f":
        impossible |= numbers % 1 != 0
    if impossible is not None and impossible.any():
        odd = numbers[impossible][0]
        raise ValueError(f"{fault} actions of {space}; got {odd} among them")
    is_choice, is_float = impossible is not None, space.dtype.kind == "f"
    others = "fb" if is_choice else "biu" if is_float else ""
    if array.dtype.kind not in others:
        return array
    with np.errstate(invalid="ignore"):  # where it makes no difference
        return array.astype(space.dtype)


def _numbers(actions: Any) -> np.ndarray | None:
    """Actions as an array; None if they are none of numbers."""
    try:
        array = np.asarray(actions)
    except ValueError:  # of lists that are not of one length
        return None
    return None if array.dtype.kind in "OSU" else array
