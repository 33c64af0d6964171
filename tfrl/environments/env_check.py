"""Diagnostics of environments: mistakes that make learning wrong without an error."""

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from tfrl._internal import arguments, gym_checks
from tfrl.environments import _contracts, _episodes, snapshots

_SHORT = 200
_SLOW = 100.0
_MANY, _LONG = 3, 10  # episodes of one length, and their steps, are no chance


def check_env(
    env: str | gym.Env | Callable[[], gym.Env],
    *,
    n_steps: int = 1000,
    seed: int = 0,
    render: bool = False,
    raise_errors: bool = True,
) -> _contracts.EnvReport:
    """Plays an environment and reports what is wrong with it.

    Besides what the checkers of Gymnasium and Stable-Baselines3 look for (spaces,
    arguments and returned tuples, shapes, dtypes, bounds, NaN, rewards, ends, infos,
    seeds, rendering) it finds what shows only when episodes are compared: observations
    that are overwritten later or are the state itself, actions changed in place, state
    that `reset` leaves or that two instances share, use of the global random generator,
    a `reset` that seeds itself, a time limit reported as a true end, spaces that
    change, episodes that continue after their end or never end, infos that change their
    types, what cannot be captured for resumed runs or sent to processes, slow steps.

    Errors make learning wrong or stop it; warnings may be intended. Several hundred to
    thousand steps are played in up to ten instances.

    Args:
        env: id of a registered environment, a function that makes one (best, as all
            comparisons use fresh ones), or an environment, which is played and compared
            with copies of it.
        n_steps: how many random actions to look at closely, at least 1.
        seed: of the episodes.
        render: whether to draw a frame too; drawing libraries may kill the process
            where there is no screen.
        raise_errors: whether to raise if there are errors.

    Returns:
        The report; print it.

    Raises:
        TypeError: if `env` neither is nor makes a single environment.
        ValueError: if there are errors and `raise_errors`; the report is its text.
            Also if the environment cannot be made, or an argument is invalid.

    Example:
        >>> report = check_env("CartPole-v1", n_steps=100)
        >>> report.errors
        ()
        >>> class Bad(gym.Env):
        ...     observation_space = gym.spaces.Discrete(3)
        ...     action_space = gym.spaces.Discrete(2)
        ...     def reset(self, *, seed=None, options=None):
        ...         return 0, {}
        ...     def step(self, action):
        ...         return 3, 1.0, True, False, {}
        >>> report = check_env(Bad, raise_errors=False)
        >>> [found.name for found in report.errors], report.errors[0].what
        (['observation_choice'], 'the observation of step 1 is 3 (int), not an int in \
[0, 2] as `observation_space` says')
    """
    n_steps = arguments.check_whole_number("check_env", "n_steps", n_steps, 1)
    seed = arguments.check_whole_number("check_env", "seed", seed, 0)
    examination = _Examination(env, n_steps, seed, render)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examination.run()
    report = examination.report()
    if raise_errors and report.errors:
        raise ValueError(
            f"`check_env`: `env` expected an environment without errors; got {report}"
        )
    return report


class _Examination:
    """Collects faults; of each name the first counts."""

    def __init__(self, env: Any, n_steps: int, seed: int, render: bool) -> None:
        self._given, self._n_steps, self._seed = env, n_steps, seed
        self._is_drawn = render
        self._faults: dict[str, str] = {}
        self._skipped: list[str] = []
        self._speed = math.nan
        make = self._make = _maker(env)
        self._env: Any = env if make is None or isinstance(env, gym.Env) else make()
        _check_is_one(self._env)
        spec = self._env.spec
        self._name = type(self._env.unwrapped).__name__ if spec is None else spec.id

    def run(self) -> None:
        """Looks from the outside in; what breaks the basic rules is not played."""
        env, faults = self._env, self._faults
        self._add(_contracts.faults_of_spaces(env))
        spaces: Any = ()
        if "no_space" not in faults:
            spaces = copy.deepcopy((env.observation_space, env.action_space))
            self._add(_contracts.faults_of_signature(env))
            self._add(_contracts.faults_of_metadata(env))
        basic = {"no_space", "bounds", "reset_arguments"}
        if not basic & set(faults):
            self._add(_contracts.faults_of_returns(env, self._seed))
        if not (basic | {"reset_return", "step_return", "raises"}) & set(faults):
            self._add(self._played(*spaces))
            self._compare()
            self._add(self._left_behind())
            if self._is_drawn:
                self._add(self._drawn())
            if env is not self._given:
                self._add(self._closed())
        else:
            self._skipped.append("episodes, as long as the errors above stand")
        if env is not self._given:
            with contextlib.suppress(Exception):
                env.close()

    def report(self) -> _contracts.EnvReport:
        """Returns what was found."""
        findings, skipped = _contracts.findings_of(self._faults), tuple(self._skipped)
        return _contracts.EnvReport(self._name, findings, skipped, self._speed)

    def _add(self, faults: Iterable[_contracts.Fault]) -> None:
        try:
            for name, told in faults:
                self._faults.setdefault(name, told)
        except Exception as error:
            self._faults.setdefault("raises", _in_words(error))

    def _played(self, *spaces: gym.Space) -> Iterator[_contracts.Fault]:
        env = self._env
        watch = _episodes.Watch(env, *spaces)
        start = time.perf_counter()
        tape = _episodes.play(watch, self._seed, self._n_steps)
        seconds = time.perf_counter() - start
        yield from watch.faults.items()
        if tape.raised is not None:
            yield "raises", tape.raised
        now = env.observation_space, env.action_space
        if spaces != now:
            told = f"{spaces[0]}, {spaces[1]} became {now[0]}, {now[1]}"
            yield "space_changes", told
        if watch.n_steps:
            self._speed = watch.n_steps / max(seconds, 1e-9)
        if self._speed < _SLOW:
            yield "slow", f"about {self._speed:.3g} steps a second"
        if watch.n_steps >= 20 and watch.n_different == 1:
            told = f"all observations of {watch.n_steps} steps are the same"
            yield "observation_constant", told
        # Equal ones: all of one length, and none of them truncated.
        if len(tape.ends) >= _MANY and set(tape.ends) == {(tape.ends[0][0], False)}:
            told = f"all {len(tape.ends)} episodes were terminated, and not truncated"
            if tape.ends[0][0] >= _LONG:
                yield "time_limit", f"{told}, after {tape.ends[0][0]} steps"
        if not tape.ends and watch.n_steps >= 1000 and not _has_time_limit(env):
            yield "endless", f"no episode ended within {watch.n_steps} steps"

    def _compare(self) -> None:
        if self._make is None:
            told = "as the environment cannot be copied; pass a function that makes it"
            self._skipped.append(f"whether episodes repeat, {told}")
            return
        n_steps = min(self._n_steps, _SHORT)
        compared = _episodes.Comparisons(self._make, self._seed, n_steps)
        self._add(compared.faults_of_sharing())
        if getattr(self._env.spec, "nondeterministic", False):
            self._skipped.append("whether episodes repeat: it is registered as not so")
        elif "shared_state" not in self._faults:
            self._add(compared.faults_of_repeating())
            self._add(compared.faults_of_reseeding())

    def _left_behind(self) -> Iterator[_contracts.Fault]:
        reason = snapshots.uncapturable(self._env)
        if reason is not None:
            yield "not_capturable", reason
        if callable(self._given):
            try:
                cloudpickle.dumps(self._given)
            except Exception as error:
                yield "not_sendable", _in_words(error)

    def _closed(self) -> Iterator[_contracts.Fault]:
        try:
            self._env.close()
            self._env.close()
        except Exception as error:
            yield "close_fails", _in_words(error)

    def _drawn(self) -> Iterator[_contracts.Fault]:
        modes, env = self._env.metadata.get("render_modes") or (), self._env
        if env.render_mode != "rgb_array":
            if not isinstance(self._given, str) or "rgb_array" not in modes:
                self._skipped.append("rendering: `render_mode` is not 'rgb_array'")
                return
            env = _made(self._given, render_mode="rgb_array")
        try:
            env.reset(seed=self._seed)
            image = env.render()
        except Exception as error:
            yield "render", _in_words(error)
            return
        is_image = isinstance(image, np.ndarray) and image.dtype == np.uint8
        if not is_image or image.ndim != 3 or image.shape[-1] != 3:
            told = gym_checks.described(image)
            yield "render", f"in mode 'rgb_array' it returned {told}"


def _check_is_one(env: Any) -> None:
    if isinstance(env, gym.Env):
        return
    expected = "one gymnasium.Env, not a vector, or a function that makes it"
    error = arguments.wrong_type("check_env", "env", env, expected)
    if hasattr(getattr(env, "compiled", env), "n_noise"):
        remedy = "`tfrl.environments.compiled.check_compiled`"
        raise TypeError(f"{error}; of compiled environments ask {remedy}")
    if hasattr(env, "possible_agents"):
        remedy = "`ParallelEnvVector`, which checks it while it is played"
        raise TypeError(f"{error}; make an environment of several agents a {remedy}")
    raise error


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _maker(env: Any) -> Callable[[], Any] | None:
    """Returns what makes further instances, None if nothing does."""
    if isinstance(env, str):
        return lambda: _made(env)
    if not isinstance(env, gym.Env):
        return env if callable(env) else lambda: env
    try:
        pristine = copy.deepcopy(env)
    except Exception:
        return None
    return lambda: copy.deepcopy(pristine)


def _made(env_id: str, **kwargs: Any) -> gym.Env:
    try:
        return gym.make(env_id, disable_env_checker=True, **kwargs)
    except (gym.error.Error, ImportError) as error:
        module, _, name = env_id.rpartition(":")
        told = f"{error}"
        if module and isinstance(error, gym.error.UnregisteredEnv):
            told = f"{module!r} was imported, and registers no {name!r}"
        raise ValueError(
            "`check_env`: `env` expected an environment that can be made, whose module "
            f"stands before a colon ('module:Name-v0'); got {env_id!r}: {told}"
        ) from error


def _has_time_limit(env: Any) -> bool:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False
