"""What can be seen of an environment while it is played."""

import contextlib
import copy
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl.environments.checking import _contracts, _tapes


class Watch:
    """Plays an environment and looks at all that it returns.

    Args:
        env: the environment.
        space: of its observations.
        action_space: of it.

    Attributes:
        faults: of each kind the first.
        n_steps: how many steps there were.
    """

    def __init__(self, env: Any, space: Any, action_space: Any) -> None:
        self.faults: dict[str, str] = {}
        self.n_steps = 0
        self.action_space = copy.deepcopy(action_space)
        self.action_space.seed(0)
        self._env, self._space = env, space
        self._kinds: dict[str, str] = {}
        self._shown: tuple[Any, Any] | None = None
        self._info: Any = None
        self._seen: set[Any] = set()
        # The step after the first true end is to be looked at, too.
        self._has_ended, self._is_over = False, False

    def reset(self, **kwargs: Any) -> tuple[Any, Any]:
        """Resets the environment."""
        if self._is_over and not self._has_ended:
            self._has_ended = True
            self._look_beyond_the_end()
        observation, info = self._env.reset(**kwargs)
        self._add(*_contracts.faults_of_info(info, "`reset`"))
        self._look(observation, 0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the environment."""
        before = _tapes.frozen(action)
        answer = self._env.step(action)
        observation, reward, terminated, truncated, info = answer
        self.n_steps += 1
        outcome = (reward, terminated, truncated, info, self.n_steps)
        self._add(*_contracts.faults_of_outcome(*outcome))
        if _tapes.frozen(action) != before:
            told = f"step {self.n_steps} changed the array of its action"
            self._add(("action_changed", told))
        self._look_at_info(info)
        self._look(observation, self.n_steps)
        self._is_over = bool(terminated) and not truncated
        return answer

    def is_constant(self) -> bool:
        """Whether all observations were the same."""
        return len(self._seen) == 1

    def _add(self, *faults: _contracts.Fault) -> None:
        for name, told in faults:
            self.faults.setdefault(name, told)

    def _look(self, observation: Any, step: int) -> None:
        fault = _contracts.fault_of_observation(self._space, observation, step)
        self._add(*([] if fault is None else [fault]))
        if self._shown is not None and _tapes.frozen(self._shown[0]) != self._shown[1]:
            told = "has been overwritten when the next was returned"
            self._add(("observation_overwritten", f"an array of observations {told}"))
        self._shown = observation, _tapes.frozen(observation)
        if len(self._seen) < 2:
            self._seen.add(self._shown[1])

    def _look_at_info(self, info: Any) -> None:
        if not isinstance(info, Mapping):
            return
        if info and info is self._info:
            self._add(("info_reused", "one dict is returned in all steps"))
        self._info = info
        for key, value in info.items():
            kind = _kind(value)
            before = self._kinds.setdefault(key, kind)
            if kind != before:
                told = f"of step {self.n_steps} is {kind}, before {before}"
                self._add(("info_changes", f"info[{key!r}] {told}"))

    def _look_beyond_the_end(self) -> None:
        with contextlib.suppress(Exception):
            *_, terminated, truncated, _ = self._env.step(self.action_space.sample())
            if not terminated and not truncated:
                told = "the step after an end says that nothing has ended"
                self._add(("plays_on", told))


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.ndim} axes"
    is_number = isinstance(value, numbers.Real | np.generic)
    return "a number" if is_number else f"of type {type(value).__name__}"
