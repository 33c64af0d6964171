"""What can be seen of an environment while it is played."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfrl.environments.checking import _contracts, _tapes


class Watch:
    """Looks at all that an environment returns; of each fault the first is kept.

    Args:
        space: of the observations.
    """

    def __init__(self, space: Any) -> None:
        self.faults: dict[str, str] = {}
        self.n_steps = 0
        self._space = space
        self._kinds: dict[str, str] = {}
        self._shown: tuple[Any, Any] | None = None
        self._info: Any = None
        self._seen: set[Any] = set()

    def reset(self, observation: Any, info: Any) -> None:
        """Looks at what `reset` returned."""
        if not isinstance(info, Mapping):
            self._add("info_type", "`reset` returned an info that is no dict")
        self._look(observation, 0)

    def step(self, answer: Any, is_changed: bool) -> None:
        """Looks at what `step` returned, and whether it changed its action."""
        observation, reward, terminated, truncated, info = answer
        self.n_steps += 1
        outcome = (reward, terminated, truncated, info, self.n_steps)
        for name, told in _contracts.faults_of_outcome(*outcome):
            self._add(name, told)
        if is_changed:
            told = f"step {self.n_steps} changed the array of its action"
            self._add("action_changed", told)
        self._look_at_info(info)
        self._look(observation, self.n_steps)

    def is_constant(self) -> bool:
        """Whether all observations were the same."""
        return len(self._seen) == 1

    def _add(self, name: str, told: str) -> None:
        self.faults.setdefault(name, told)

    def _look(self, observation: Any, step: int) -> None:
        fault = _contracts.fault_of_observation(self._space, observation, step)
        if fault is not None:
            self._add(*fault)
        if self._shown is not None and _tapes.frozen(self._shown[0]) != self._shown[1]:
            told = "has been overwritten when the next was returned"
            self._add("observation_overwritten", f"an array of observations {told}")
        shown = _tapes.frozen(observation)
        self._shown = observation, shown
        if len(self._seen) < 2:
            self._seen.add(shown)

    def _look_at_info(self, info: Any) -> None:
        if not isinstance(info, Mapping):
            return
        if info and info is self._info:
            self._add("info_reused", "one and the same dict is returned in all steps")
        self._info = info
        for key, kind in _kinds(info):
            before = self._kinds.setdefault(key, kind)
            if kind != before:
                told = (
                    f"info[{key!r}] of step {self.n_steps} is {kind}, before {before}"
                )
                self._add("info_changes", told)


def _kinds(info: Mapping[Any, Any]) -> Iterator[tuple[Any, str]]:
    for key, value in info.items():
        if isinstance(value, np.ndarray):
            yield key, f"an array of {value.ndim} axes"
        elif isinstance(value, bool | int | float | np.generic):
            yield key, "a number"
        else:
            yield key, f"of type {type(value).__name__}"
