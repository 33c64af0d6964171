"""Steps of vector environments, with the successors as they truly were."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tfrl._internal import gym_checks
from tfrl.host import _vector_faults


def autoreset_mode(envs: VectorEnv) -> AutoresetMode:
    """Returns how a vector environment starts the next episode.

    Args:
        envs: a vector environment.

    Returns:
        `NEXT_STEP` (the step after an end only resets), `SAME_STEP` (the reset
        observation comes at once, the last one in `info["final_obs"]`) or `DISABLED`
        (the caller resets). `NEXT_STEP` where the environment does not say.

    Raises:
        ValueError: if the environment names an unknown mode.

    Example:
        >>> autoreset_mode(tfrl.environments.make_vec("Pendulum-v1", 1)).name
        'DISABLED'
    """
    # The attribute first: Gymnasium before 1.2 shares metadata between vectors.
    mode = getattr(envs.unwrapped, "autoreset_mode", None)
    if mode is None:
        mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        raise ValueError(
            "`autoreset_mode`: `envs` expected a mode among "
            f"{[known.value for known in AutoresetMode]} in its metadata; got "
            f"{mode!r}; mend the environment"
        ) from error


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
        gym_checks.check_vector("Stepper", "envs", envs)
        self.envs = envs
        self._mode = autoreset_mode(envs)
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
            last = gym_checks.mapped(np.copy, after)
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
                    f"got {gym_checks.described(column)} at step {self._n_steps}; mend "
                    "the environment"
                )


def _shapes(nest: Any) -> list[tuple[tuple[int, ...], Any]]:
    if isinstance(nest, np.ndarray):  # by far the most frequent nest
        return [(nest.shape, nest.dtype)]
    return [
        (np.shape(x), getattr(x, "dtype", None)) for x in gym_checks.leaves_of(nest)
    ]


def _put(batch: Any, indices: np.ndarray, rows: Any) -> None:
    """Writes nests of single observations into a nest of batches."""
    for index in indices:
        leaves = zip(
            gym_checks.leaves_of(batch), gym_checks.leaves_of(rows[index]), strict=True
        )
        for leaf, value in leaves:
            leaf[index] = value
