"""Steps of vector environments, with the successors as they truly were.

What goes wrong inside a vector is told with the environment and the step it was in.
"""

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tfrl._internal import gym_checks
from tfrl.host import _faults, _serial


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
    mode = _named_mode(envs)
    if mode is None:
        return AutoresetMode.NEXT_STEP
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        raise ValueError(
            "`autoreset_mode`: `envs` expected a mode among "
            f"{[known.value for known in AutoresetMode]} in its metadata; got "
            f"{mode!r}"
        ) from error


def _named_mode(envs: VectorEnv) -> Any:
    # The attribute first: Gymnasium before 1.2 shares metadata between vectors.
    mode = getattr(envs.unwrapped, "autoreset_mode", None)
    return envs.metadata.get("autoreset_mode") if mode is None else mode


class Outcome(NamedTuple):
    """What came of the actions in N environments.

    Attributes:
        rewards: `[N]`.
        terminated: `[N]` bool, the episode truly ended.
        truncated: `[N]` bool, the episode was cut off.
        next_observations: nest of `[N, *shape]`, the true successor: at an episode's
            end its last observation, never the reset one.
        valid: `[N]` bool, False where an environment only reset itself, or waited.
        successes: `[N]` bool, what `info["is_success"]` said where episodes ended,
            False elsewhere; None where it said nothing.

    Example:
        >>> Outcome([1.0], [True], [False], [0.5], [True]).valid
        [True]
    """

    rewards: Any
    terminated: Any
    truncated: Any
    next_observations: Any
    valid: Any
    successes: Any = None


def kept(last: Any, first: Any, outcome: Any) -> np.ndarray:
    """Returns a part of what a policy remembers: nothing of episodes that ended.

    Args:
        last: `[N, ...]`, that the policy returned.
        first: at the beginning of episodes, likewise.
        outcome: of the step; `terminated`, `truncated` and `valid` are read, as what
            is seen where an environment only resets is of the episode before.

    Returns:
        `[N, ...]`.

    Example:
        >>> false, true = np.zeros(2, bool), np.ones(2, bool)
        >>> outcome = Outcome(0, np.array([True, False]), false, 0, true)
        >>> kept(np.array([3, 4]), np.zeros(2, int), outcome).tolist()
        [0, 4]
    """
    ended = outcome.terminated | outcome.truncated | ~outcome.valid
    shape = (len(ended), *[1] * (np.ndim(last) - 1))
    return np.where(ended.reshape(shape), np.asarray(first), np.asarray(last))


# What tells a success, if it is one.
_FLAGS = bool, int, float, np.bool_, np.number, np.ndarray

# What a step returns beside observations, and the kinds of dtypes it may have.
_COLUMNS = ("rewards", "biuf"), ("terminated", "b"), ("truncated", "b")


class _Turn:
    """Belongs to who plays an environment, and lives as long."""


# Whose turn it is in an environment, by its id: of whoever reset it last.
_turns: weakref.WeakValueDictionary[int, _Turn] = weakref.WeakValueDictionary()


class Stepper:
    """Plays a vector environment; all three autoreset modes give the same transitions.

    A vector that does not reset by itself may have an attribute `waiting`, `[N]` bool:
    rows in which nothing is played until it says otherwise, as those of agents that
    ended while others play on. They are not `valid`.

    Args:
        envs: vector environment of N.
        seed: of the environments.

    Attributes:
        envs: the environments.
        observations: what they show now, nest of `[N, *shape]`.
        resetting: `[N]` bool, which of them only reset, or wait, in the next step.

    Raises:
        TypeError: if `envs` is no vector environment.
        ValueError: here and by `step`, if an environment returns other tuples, or
            arrays of other shapes or dtypes, than it should, or shows an `action_mask`
            that allows none of the options of a choice; by `step`, if another has
            begun to play the same environments.
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
        self._is_taken_for_next = _named_mode(envs) is None
        self._vector = envs.unwrapped
        self._is_serial = _serial.SerialSteps.can_play(envs)
        self._played: Any = _serial.SerialSteps(envs) if self._is_serial else envs
        self._nobody = np.zeros(envs.num_envs, bool)
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Starts new episodes everywhere.

        Args:
            seed: of the environments.
        """
        self._n_steps = 0
        self._take_turn()
        # Gymnasium takes none of NumPy.
        seed = int(seed) if isinstance(seed, np.integer) else seed
        seen = self._reset(self.envs, seed=seed)
        self.resetting = self._waiting()
        _check_observations(self.envs, seen)
        self._shapes = _shapes(seen)
        self._choices = gym_checks.masked_choices(
            self.envs.single_observation_space, self.envs.single_action_space
        )
        self.observations = self._allowing(seen)

    def step(self, actions: Any) -> Outcome:
        """Plays one step in every environment.

        Args:
            actions: nest of `[N, ...]`, as the environments take them.

        Returns:
            What came of it; environments may overwrite it in the next step.
        """
        if _turns.get(id(self._vector)) is not self._turn:
            raise ValueError(
                "`Stepper`: `envs` expected environments that nobody else plays; got "
                f"{self.envs}, which another has reset after step {self._n_steps}, "
                "within episodes; make a second vector for the other, such as to "
                "evaluate in"
            )
        try:
            after, rewards, terminated, truncated, info = self._played.step(actions)
        except BaseException as error:
            _faults.explain(self.envs, error, self._n_steps + 1)
            raise
        self._n_steps += 1
        if not self._is_serial:
            self._check(after, rewards, terminated, truncated)
        ended = terminated | truncated
        last, valid, is_end = after, ~self.resetting, np.count_nonzero(ended)
        successes = _successes(info, ended) if is_end else None
        if is_end and self._mode != AutoresetMode.NEXT_STEP:
            if not self._is_serial:
                last = gym_checks.mapped(np.copy, after)
            if self._mode == AutoresetMode.DISABLED:
                after = self._reset(self._played, options={"reset_mask": ended})
            elif "final_obs" not in info:
                raise ValueError(
                    "`Stepper`: `envs` expected info['final_obs'] where an episode "
                    f"ends, as AutoresetMode.SAME_STEP promises; got {list(info)} at "
                    f"step {self._n_steps}"
                )
            else:
                _put(last, np.flatnonzero(ended), info["final_obs"])
        is_next = self._mode == AutoresetMode.NEXT_STEP
        if self._is_taken_for_next:
            self._check_next_step(rewards, ended, info)
        self.resetting = ended if is_next else self._waiting()
        self.observations = self._allowing(after)
        return Outcome(rewards, terminated, truncated, last, valid, successes)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes a copy, which has copies of the environments."""
        self.__dict__.update(state)
        self._take_turn()

    def _take_turn(self) -> None:
        self._turn = _Turn()
        _turns[id(self._vector)] = self._turn

    def _waiting(self) -> np.ndarray:
        """Which rows only wait now."""
        waiting = getattr(self._vector, "waiting", None)
        return self._nobody if waiting is None else np.array(waiting, bool)

    def _reset(self, envs: Any, **kwargs: Any) -> Any:
        try:
            observations, _ = envs.reset(**kwargs)
        except BaseException as error:
            _faults.explain(self.envs, error, self._n_steps)
            raise
        return observations

    def _allowing(self, observations: Any) -> Any:
        """Observations to act upon, whose masks allow something.

        Where one only resets or waits, what is done does not count, so that all may.
        """
        if not self._choices:
            return observations
        masks, name = observations[gym_checks.MASK], gym_checks.MASK
        if self.resetting.any():
            masks = np.where(self.resetting[:, None], np.ones_like(masks), masks)
            observations = {**observations, name: masks}
        fault = gym_checks.all_forbidden(masks, self._choices)
        if fault is not None:
            row, choice = fault
            raise ValueError(
                f"`Stepper`: `envs` expected an {name} that allows an option of each "
                f"choice; got none of {self._choices[choice]} of choice {choice} from "
                f"{_faults.name_of(self.envs.unwrapped, row)} at step {self._n_steps}"
            )
        return observations

    def _check_next_step(self, rewards: Any, ended: np.ndarray, info: Any) -> None:
        """Raises where steps show that they are not those of NEXT_STEP.

        They are taken for such where nothing is said. In another mode the first step
        of each episode would be lost, and the last observation.
        """
        came = "info['final_obs']" if "final_obs" in (info or ()) else None
        if np.count_nonzero(ended & self.resetting):
            came = "the end of an episode right after that of another"
        elif np.count_nonzero(np.asarray(rewards)[self.resetting]):
            came = "a reward in the step after the end of an episode"
        if came is not None:
            raise ValueError(
                "`Stepper`: `envs` expected steps that only reset after the end of an "
                "episode, as of AutoresetMode.NEXT_STEP, which is assumed of vectors "
                f"that name no mode; got {came} at step {self._n_steps}; name it in "
                '`metadata["autoreset_mode"]`'
            )

    def _check(self, after: Any, *columns: Any) -> None:
        """Raises unless all arrays are as they were; numpy would stretch others."""
        if _shapes(after) != self._shapes:
            raise ValueError(
                "`Stepper`: `envs` expected observations of shapes and dtypes "
                f"{self._shapes} as at their reset; got {_shapes(after)} at step "
                f"{self._n_steps}"
            )
        shape = self.resetting.shape
        for (name, kinds), column in zip(_COLUMNS, columns, strict=True):
            given = np.asarray(column)
            if given.shape != shape or given.dtype.kind not in kinds:
                what = "number" if name == "rewards" else "bool"
                raise ValueError(
                    f"`Stepper`: `envs` expected {name} that are {shape[0]} {what}s; "
                    f"got {gym_checks.described(column)} at step {self._n_steps}; let "
                    f"each environment return one {what}"
                )


def _shapes(nest: Any) -> list[tuple[tuple[int, ...], Any]]:
    if isinstance(nest, np.ndarray):  # by far the most frequent nest
        return [(nest.shape, nest.dtype)]
    return [
        (np.shape(x), getattr(x, "dtype", None)) for x in gym_checks.leaves_of(nest)
    ]


def _successes(info: Any, ended: np.ndarray) -> np.ndarray | None:
    """What the infos of episodes that ended say of success, if they say something."""
    # With SAME_STEP that of the step itself lies within that of the reset.
    told = info.get("final_info", info) if isinstance(info, Mapping) else info
    said: Any = told.get("is_success") if isinstance(told, Mapping) else told
    is_array = isinstance(said, np.ndarray) and said.ndim > 0
    if not is_array and not isinstance(said, list | tuple):
        return None
    found, is_told = np.zeros(len(ended), bool), False
    for index in np.flatnonzero(ended[: len(said)]):
        flag = said[index]
        if isinstance(flag, Mapping):  # an info for each
            flag = flag.get("is_success")
        # Others may be ragged, of which NumPy makes no array.
        known = np.ravel(flag if isinstance(flag, _FLAGS) else ())
        if known.size == 1 and known.dtype.kind in "biuf":
            number = float(known[0])
            found[index], is_told = number == number and number != 0.0, True
    return found if is_told else None


def _put(batch: Any, indices: np.ndarray, rows: Any) -> None:
    """Writes nests of single observations into a nest of batches."""
    for index in indices:
        leaves = zip(
            gym_checks.leaves_of(batch), gym_checks.leaves_of(rows[index]), strict=True
        )
        for leaf, value in leaves:
            leaf[index] = value


def _check_observations(envs: Any, observations: Any) -> None:
    """Raises a ValueError unless first observations are as the vector declares them."""
    space = envs.observation_space
    fault = gym_checks.misfit(space, observations, form_only=True)
    if fault is not None:
        raise ValueError(
            f"`Stepper`: `envs` expected observations{fault.place} to be "
            f"{fault.expected}, as `observation_space` says; got {fault.got} from "
            f"{_faults.kind_of(envs)} at step 0; {_faults.ADVICE}"
        )
