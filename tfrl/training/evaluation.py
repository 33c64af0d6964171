"""Whole episodes, played to judge a policy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tfrl.core import checks
from tfrl.environments import vector


class Evaluation(NamedTuple):
    """What whole episodes brought.

    Attributes:
        returns: `[n_episodes]` float64, undiscounted sums of rewards.
        lengths: `[n_episodes]` int64, in steps.

    Example:
        >>> Evaluation(np.array([1.0, 3.0]), np.array([5, 7])).returns.mean().item()
        2.0
    """

    returns: np.ndarray
    lengths: np.ndarray


def evaluate(
    act: Callable[[Any], np.ndarray],
    envs: VectorEnv,
    n_episodes: int,
    *,
    seed: int,
) -> Evaluation:
    """Plays `n_episodes` episodes, the same number in each environment.

    Each environment counts its first episodes only, `n_episodes / N` of them rounded up
    for the first ones: long episodes are as likely to be counted as short ones.

    Args:
        act: maps a nest of observations `[N, *shape]` to the environment's actions.
        envs: vector environment of N; reset here and left where it ends.
        n_episodes: at least 1.
        seed: of the environments.

    Returns:
        Returns and lengths of the counted episodes, environment by environment.

    Raises:
        ValueError: if `n_episodes` is not positive.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> played = evaluate(lambda obs: np.zeros(2, np.int64), envs, 4, seed=0)
        >>> played.returns.shape, bool((played.returns == played.lengths).all())
        ((4,), True)
    """
    checks.check_whole_number("evaluate", "n_episodes", n_episodes, low=1)
    mode = vector.autoreset_mode(envs)
    n_envs = envs.num_envs
    quota = (n_episodes + n_envs - 1 - np.arange(n_envs)) // n_envs
    returns: list[list[float]] = [[] for _ in range(n_envs)]
    lengths: list[list[int]] = [[] for _ in range(n_envs)]
    running, steps = np.zeros(n_envs), np.zeros(n_envs, np.int64)
    resetting = np.zeros(n_envs, bool)
    observations, _ = envs.reset(seed=seed)
    while any(len(done) < wanted for done, wanted in zip(returns, quota, strict=True)):
        observations, rewards, terminated, truncated, _ = envs.step(act(observations))
        running += np.where(resetting, 0.0, rewards)
        steps += ~resetting
        ended = terminated | truncated
        if mode == AutoresetMode.NEXT_STEP:
            resetting = ended
        if not ended.any():
            continue
        for index in np.flatnonzero(ended):
            if len(returns[index]) < quota[index]:
                returns[index].append(float(running[index]))
                lengths[index].append(int(steps[index]))
        running[ended], steps[ended] = 0.0, 0
        if mode == AutoresetMode.DISABLED:
            observations, _ = envs.reset(options={"reset_mask": ended})
    return Evaluation(
        np.array([value for done in returns for value in done]),
        np.array([value for done in lengths for value in done], np.int64),
    )
