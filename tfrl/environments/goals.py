"""Environments with goals: how they reward, and bits to flip for a small one.

Their observations are Dicts of `"observation"`, `"achieved_goal"` and `"desired_goal"`,
and `compute_reward(achieved_goal, desired_goal, info)` returns the reward for achieving
one goal where another was desired, as in Gymnasium-Robotics.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tfrl._internal import arguments

_KEYS = ("achieved_goal", "desired_goal")
# Wrappers that change rewards, whatever else they do.
_CHANGING = (
    *(gym.RewardWrapper, gym.wrappers.NormalizeReward),
    *(gym.vector.VectorRewardWrapper, gym.wrappers.vector.NormalizeReward),
)
_ENV_ID = "BitFlipping-v0"


class BitFlipping(gym.Env):
    """Bits, of which each action flips one, until they match the desired ones.

    Every step pays -1, except one that reaches the desired bits, which pays 0 and ends
    the episode; so do `n_bits` steps. `info["is_success"]` says which. Among 2^n goals
    a reward is hardly ever met by chance, and goals in hindsight help.

    Registered as `"tfrl.environments.goals:BitFlipping-v0"`.

    Args:
        n_bits: how many there are, at least 1.
        render_mode: "ansi" for text, or None.

    Example:
        >>> env = BitFlipping(n_bits=3)
        >>> seen, _ = env.reset(seed=3)
        >>> seen["observation"].tolist(), seen["desired_goal"].tolist()
        ([1, 1, 1], [1, 1, 0])
        >>> env.step(0)[1:3], env.step(0)[1:3], env.step(2)[1:3]
        ((-1.0, False), (-1.0, False), (0.0, True))

    References:
        Andrychowicz et al., 2017, Hindsight Experience Replay, section 3.1.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, n_bits: int = 8, render_mode: str | None = None) -> None:
        arguments.check_whole_number("BitFlipping", "n_bits", n_bits, low=1)
        bits = spaces.MultiBinary(n_bits)
        self.observation_space = spaces.Dict(
            observation=bits, achieved_goal=bits, desired_goal=bits
        )
        self.action_space = spaces.Discrete(n_bits)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Draws bits and goal, which differ."""
        super().reset(seed=seed, options=options)
        n_bits = int(self.action_space.n)
        self._bits, self._goal = self.np_random.integers(0, 2, (2, n_bits), np.int8)
        while np.array_equal(self._bits, self._goal):
            self._goal = self.np_random.integers(0, 2, n_bits, np.int8)
        self._n_steps = 0
        return self._seen(), {}

    def step(
        self, action: int
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Flips a bit."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"`BitFlipping.step`: `action` expected one of {self.action_space}; "
                f"got {action!r}"
            )
        self._bits[action] ^= 1
        self._n_steps += 1
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        is_late = bool(self._n_steps >= self.action_space.n)
        is_reached = reward == 0.0
        info = {"is_success": is_reached}
        return self._seen(), reward, is_reached, is_late and not is_reached, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Returns 0 where goals are alike, -1 elsewhere.

        Args:
            achieved_goal: `[..., n_bits]`.
            desired_goal: `[..., n_bits]`.
            info: ignored.
        """
        del info
        unlike = np.not_equal(achieved_goal, desired_goal).any(axis=-1)
        return np.where(unlike, np.float32(-1.0), np.float32(0.0))

    def render(self) -> str | None:
        """Returns the bits above the goal, as text."""
        if self.render_mode is None:
            return None
        return "\n".join("".join(map(str, x)) for x in (self._bits, self._goal))

    def _seen(self) -> dict[str, np.ndarray]:
        bits = self._bits.copy()
        return {
            "observation": bits,
            "achieved_goal": bits.copy(),
            "desired_goal": self._goal.copy(),
        }


if _ENV_ID not in gym.registry:
    gym.register(_ENV_ID, entry_point=BitFlipping)


def goal_rewards(envs: gym.vector.VectorEnv) -> Callable[[Any, Any], np.ndarray]:
    """Returns how an environment rewards goals, for `tfrl.replay.Hindsight`.

    That is `compute_reward` of the vector itself if it has one, else of one of its
    environments; for those in other processes, another is made here.

    Args:
        envs: vector of environments.

    Returns:
        A function of achieved and desired goals, both `[n, *goal_shape]`, that returns
        rewards `[n]`. As the `info` of steps is not kept, it passes an empty dict.

    Raises:
        ValueError: if observations do not have two goals of one space, or no function
            rewards them, or it does not reward the rows of arrays, each by itself; or
            if a wrapper changes rewards of steps, as `ScaleReward` does.

    Example:
        >>> envs = gym.make_vec("tfrl.environments.goals:BitFlipping-v0", 2, n_bits=3)
        >>> goals = np.eye(3, dtype=np.int8)
        >>> goal_rewards(envs)(goals, goals[[0, 0, 2]]).tolist()
        [0.0, -1.0, 0.0]
    """
    where, space = "goal_rewards", envs.single_observation_space
    goals = [space[key] for key in _KEYS if _is_there(space, key)]
    if len(goals) < 2 or goals[0] != goals[1]:
        raise ValueError(
            f"`{where}`: `envs` expected a Dict observation with {list(_KEYS)} of one "
            f"space; got {space}"
        )
    _check_unchanged(where, _layers(envs, gym.vector.VectorWrapper))
    function = getattr(envs.unwrapped, "compute_reward", None)
    if function is None and (one := _one(envs)) is not None:
        _check_unchanged(where, _layers(one, gym.Wrapper))
        function = one.get_wrapper_attr("compute_reward")
    if not callable(function):
        raise ValueError(
            f"`{where}`: `envs` expected environments with a method `compute_reward("
            f"achieved_goal, desired_goal, info)`; got none in {envs}"
        )
    compute: Any = function

    def rewards(achieved: Any, desired: Any) -> np.ndarray:
        return np.asarray(compute(achieved, desired, {}), np.float32)

    _check_rewards(f"`{where}`: `compute_reward` of {envs}", goals[0], rewards)
    return rewards


def _check_rewards(fault: str, space: Any, rewards: Callable[..., Any]) -> None:
    """Raises a ValueError unless rows of goals get a reward each, by themselves."""
    # As many as no axis of a goal is long, so that none is taken for the rows.
    n = next(i for i in itertools.count(16) if i not in (space.shape or ()))
    space = copy.deepcopy(space)
    space.seed(0)
    goals = [np.asarray(space.sample()) for _ in range(2 * n)]
    same = np.stack([goals[0]] * n)
    try:
        with np.errstate(all="ignore"):
            shape: Any = rewards(same, same).shape
    except Exception as error:
        shape = f"{type(error).__name__}: {error}"
    if shape != (n,):
        raise ValueError(
            f"{fault} expected to take arrays of goals {[*same.shape]} and return "
            f"rewards [{n}]; got {shape!s:.200}; reward by the goals alone: no `info` "
            "is kept, so that it is an empty dict here"
        )
    # Goals that are drawn are hardly ever alike: some are made so.
    pairs = goals[:n], goals[: n // 4] + goals[n + n // 4 :]
    try:
        with np.errstate(all="ignore"):
            achieved, desired = map(np.stack, pairs)
            found = [_together_and_alone(rewards, achieved, desired) for _ in range(4)]
    except Exception:
        return  # goals of many lengths, or so far apart as never is met
    alike = functools.partial(np.allclose, rtol=1e-3, atol=1e-5, equal_nan=True)
    together, alone = found[0]
    is_random = not all(alike(found[0], other) for other in found[1:])
    if not is_random and not alike(together, alone):
        raise ValueError(
            f"{fault} expected to reward each row of goals {[*achieved.shape]} by "
            f"itself; got {together[:5]}... for all together and {alone[:5]}... for "
            "one at a time; reduce the axes of a goal only, not the first"
        )


def _together_and_alone(
    rewards: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray
) -> np.ndarray:
    """Rewards of all rows at once, and of each alone, `[2, n]`."""
    rows = zip(achieved[:, None], desired[:, None], strict=True)
    alone = [rewards(*row).ravel() for row in rows]
    return np.stack([rewards(achieved, desired), np.concatenate(alone)])


def _check_unchanged(where: str, layers: Iterable[Any]) -> None:
    """Raises a ValueError if wrappers change rewards, but not `compute_reward`."""
    for layer in layers:
        if isinstance(layer, _CHANGING):
            raise ValueError(
                f"`{where}`: `envs` expected rewards to be those of `compute_reward`; "
                f"got {type(layer).__name__} around it, which changes only the rewards "
                "of steps; leave it out, or give it a `compute_reward` that does alike"
            )


def _layers(envs: Any, kind: type) -> Iterator[Any]:
    """The wrappers around what has a `compute_reward`, or around everything."""
    while isinstance(envs, kind) and "compute_reward" not in dir(type(envs)):
        yield envs
        envs = envs.env  # type: ignore[attr-defined]


def _is_there(space: gym.Space, key: str) -> bool:
    return isinstance(space, spaces.Dict) and key in space.spaces


def _one(envs: gym.vector.VectorEnv) -> Any:
    """One of the environments, None if it does not reward goals."""
    vector: Any = envs.unwrapped
    made = getattr(vector, "envs", None)
    if made is None and hasattr(vector, "env_fns"):
        made = [vector.env_fns[0]()]
    if not made or not made[0].has_wrapper_attr("compute_reward"):
        return None
    return made[0]
