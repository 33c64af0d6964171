"""Steps of vector environments, with the successors as they truly were."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tfrl.environments import _elements, _vector_faults, vector


class Outcome(NamedTuple):
    """What came of the actions in N environments.

    Attributes:
        rewards: `[N]`.
        terminated: `[N]` bool, the episode truly ended.
        truncated: `[N]` bool, the episode was cut off.
        next_observations: nest of `[N, *shape]`, the true successor: at an episode's
            end its last observation, never the reset one.
        valid: `[N]` bool, False where an environment only reset itself.

    Example:
        >>> Outcome([1.0], [True], [False], [0.5], [True]).valid
        [True]
    """

    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any
    valid: Any


class Stepper:
    """Plays a vector environment; all three autoreset modes give the same transitions.

    Args:
        envs: vector environment of N.
        seed: of the environments.

    Attributes:
        envs: the environments.
        observations: what they show now, nest of `[N, *shape]`.
        resetting: `[N]` bool, which of them only reset in the next step.

    Raises:
        TypeError: if `envs` is no vector environment.
        ValueError: here and by `step`, if an environment returns other tuples, or
            arrays of other shapes or dtypes, than it should.
        ConnectionError: if a worker process of the environments is gone.

    Example:
        >>> stepper = Stepper(tfrl.environments.make_vec("CartPole-v1", 2), seed=0)
        >>> seen = stepper.observations
        >>> outcome = stepper.step(np.array([0, 1]))
        >>> outcome.rewards.tolist(), outcome.valid.tolist()
        ([1.0, 1.0], [True, True])
    """

    def __init__(self, envs: VectorEnv, seed: int) -> None:
        vector.check_vector("Stepper", "envs", envs)
        self.envs = envs
        self._mode = vector.autoreset_mode(envs)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Starts new episodes everywhere.

        Args:
            seed: of the environments.
        """
        self._n_steps = 0
        self.observations = self._reset(seed=seed)
        _vector_faults.check_observations(self.envs, self.observations)
        self._shapes = _shapes(self.observations)
        self.resetting = np.zeros(self.envs.num_envs, bool)

    def step(self, actions: Any) -> Outcome:
        """Plays one step in every environment.

        Args:
            actions: nest of `[N, ...]`, as the environments take them.

        Returns:
            What came of it; environments may overwrite it in the next step.
        """
        try:
            after, rewards, terminated, truncated, info = self.envs.step(actions)
        except Exception as error:
            _vector_faults.explain(self.envs, error, self._n_steps + 1)
            raise
        self._n_steps += 1
        self._check(after, rewards, terminated, truncated)
        ended = terminated | truncated
        last, valid = after, ~self.resetting
        if ended.any() and self._mode != AutoresetMode.NEXT_STEP:
            last = mapped(np.copy, after)
            if self._mode == AutoresetMode.DISABLED:
                after = self._reset(options={"reset_mask": ended})
            elif "final_obs" not in info:
                raise ValueError(
                    "`Stepper`: `envs` expected info['final_obs'] where an episode "
                    f"ends, as AutoresetMode.SAME_STEP promises; got {list(info)} at "
                    f"step {self._n_steps}; mend the vector environment"
                )
            else:
                _put(last, np.flatnonzero(ended), info["final_obs"])
        if self._mode == AutoresetMode.NEXT_STEP:
            self.resetting = ended
        self.observations = after
        return Outcome(rewards, terminated, truncated, last, valid)

    def _reset(self, **kwargs: Any) -> Any:
        try:
            observations, _ = self.envs.reset(**kwargs)
        except Exception as error:
            _vector_faults.explain(self.envs, error, self._n_steps)
            raise
        return observations

    def _check(self, after: Any, *columns: Any) -> None:
        """Raises unless all arrays are as they were; numpy would stretch others."""
        if _shapes(after) != self._shapes:
            raise ValueError(
                "`Stepper`: `envs` expected observations of shapes and dtypes "
                f"{self._shapes} as at their reset; got {_shapes(after)} at step "
                f"{self._n_steps}; mend the environment"
            )
        shape = (len(self.resetting),)
        names = ("rewards", "terminated", "truncated")
        for name, column in zip(names, columns, strict=True):
            kinds = "biuf" if name == "rewards" else "b"
            given = np.asarray(column)
            if given.shape != shape or given.dtype.kind not in kinds:
                what = "numbers" if name == "rewards" else "bools"
                raise ValueError(
                    f"`Stepper`: `envs` expected {name} that are {shape[0]} {what}; "
                    f"got {_elements.described(column)} at step {self._n_steps}; mend "
                    "the environment"
                )


def leaves_of(nest: Any) -> list[Any]:
    """Returns what a nest of dicts and tuples holds, dicts in the order of their keys.

    Args:
        nest: observations or actions; the order is that of `tf.nest`.

    Returns:
        The leaves.

    Example:
        >>> leaves_of({"b": 1, "a": (2, 3)})
        [2, 3, 1]
    """
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves_of(nest[key])]
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in leaves_of(part)]
    return [nest]


def mapped(function: Callable[[Any], Any], nest: Any) -> Any:
    """Returns a nest of dicts and tuples of what a function makes of the leaves.

    Args:
        function: of a leaf.
        nest: observations or actions.

    Returns:
        A nest of the same structure.

    Example:
        >>> mapped(abs, {"b": -1, "a": (-2, 3)})
        {'b': 1, 'a': (2, 3)}
    """
    if isinstance(nest, dict):
        return type(nest)((key, mapped(function, nest[key])) for key in nest)
    if isinstance(nest, tuple):
        return tuple(mapped(function, part) for part in nest)
    return function(nest)


def check_numbers(where: str, name: str, leaves: list[np.ndarray]) -> None:
    """Raises unless all numbers are finite.

    Args:
        where: name of the function that asks.
        name: name of what is checked.
        leaves: arrays `[T, N, ...]`; those that hold no floats pass.

    Raises:
        ValueError: with the first that is not, its step and environment. Steps count
            from 1, as `check_env` counts them; step 0 are the "observations" before.

    Example:
        >>> check_numbers("play", "rewards", [np.array([[0.0], [np.nan]])])
        Traceback (most recent call last):
        ValueError: `play`: `rewards` expected finite numbers; got nan at step 2 in
        environment 0; mend the environment
    """
    for leaf in leaves:
        if leaf.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            # One pass without a temporary array; only what it finds is looked for.
            suspicious = not np.isfinite(leaf.sum())
        if not suspicious:
            continue
        for place in np.argwhere(~np.isfinite(leaf)):
            raise ValueError(
                f"`{where}`: `{name}` expected finite numbers; got "
                f"{leaf[tuple(place)]} at step {_step(name, place[0])} in environment "
                f"{place[1]}; mend the environment"
            )


def check_choices(where: str, name: str, space: gym.Space, nest: Any) -> None:
    """Raises unless the integers of Discrete, MultiDiscrete and MultiBinary are inside.

    Others would become one-hots of zeros. Numbers of a Box are not looked at.

    Args:
        where: name of the function that asks.
        name: name of what is checked.
        space: that of a single element.
        nest: arrays `[T, N, *shape]`.

    Raises:
        ValueError: with the first that is outside, its step and environment; see
            `check_numbers` for how steps count.

    Example:
        >>> check_choices("play", "actions", gym.spaces.Discrete(2), np.array([[7]]))
        Traceback (most recent call last):
        ValueError: `play`: `actions` expected elements of Discrete(2); got 7 at
        step 1 in environment 0; mend the environment
    """
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        keyed = isinstance(space, gym.spaces.Dict)
        for key in space.spaces if keyed else range(len(space.spaces)):
            check_choices(where, name, space[key], nest[key])
        return
    wrong = _elements.outside(space, nest)
    if wrong is not None and wrong.any():
        step, number = np.argwhere(wrong)[0][:2]
        raise ValueError(
            f"`{where}`: `{name}` expected elements of {space}; got "
            f"{nest[step, number]} at step {_step(name, step)} in environment "
            f"{number}; mend the environment"
        )


def _step(name: str, row: int) -> int:
    return row if name == "observations" else row + 1


def _shapes(nest: Any) -> list[tuple[tuple[int, ...], Any]]:
    if isinstance(nest, np.ndarray):  # by far the most frequent nest
        return [(nest.shape, nest.dtype)]
    return [(np.shape(x), getattr(x, "dtype", None)) for x in leaves_of(nest)]


def _put(batch: Any, indices: np.ndarray, rows: Any) -> None:
    """Writes nests of single observations into a nest of batches."""
    for index in indices:
        leaves = zip(leaves_of(batch), leaves_of(rows[index]), strict=True)
        for leaf, value in leaves:
            leaf[index] = value
