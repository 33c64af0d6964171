"""Faster steps of Gymnasium's `SyncVectorEnv`, whose infos are not stacked.

Its own `step` copies observations twice and stacks the infos of all environments by
key, which takes as long as a step of a simple environment.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector import utils as batches

from tfrl._internal import gym_checks

_METHODS = SyncVectorEnv.step, SyncVectorEnv.reset


class SerialSteps:
    """Steps the environments of a `SyncVectorEnv` that does not reset them itself.

    `step` and `reset` return what those of the vector do, in new arrays; but infos are
    a list, one of each environment.

    Args:
        vector: for which `can_play` is true.
    """

    def __init__(self, vector: SyncVectorEnv) -> None:
        self._vector = vector
        self._items: list[Any] = []
        self._is_known = False

    @staticmethod
    def can_play(vector: Any) -> bool:
        """Tells whether a vector is one of these, and no variant of it."""
        if type(vector) is not SyncVectorEnv or {"step", "reset"} & set(vars(vector)):
            return False
        is_patched = (SyncVectorEnv.step, SyncVectorEnv.reset) != _METHODS
        return not is_patched and vector.autoreset_mode == AutoresetMode.DISABLED

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Returns what came of an action in each environment, and all their infos."""
        envs, rows = self._vector.envs, actions
        if not isinstance(self._vector.single_action_space, gym_checks.ARRAYS):
            rows = batches.iterate(self._vector.action_space, actions)
        n = len(envs)
        items: list[Any] = [None] * n
        infos: list[Any] = [None] * n
        rewards = np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        is_known, self._is_known = self._is_known, True
        for i, (env, action) in enumerate(zip(envs, rows, strict=True)):
            # `i` tells which one is at fault, if one is.
            items[i], reward, over, cut, info = env.step(action)
            if not is_known:  # arrays take strings, too
                _check_numbers(reward, over, cut)
            rewards[i], terminated[i], truncated[i] = reward, over, cut
            infos[i] = info
            if type(info) is not dict:
                info.items()  # which other infos have, too
        # The vector itself, too, knows what was seen last, for who goes on with it.
        self._items = self._vector._env_obs = items  # noqa: SLF001
        return self._observations(), rewards, terminated, truncated, infos

    def reset(self, options: dict[str, np.ndarray]) -> tuple[Any, list[Any]]:
        """Begins new episodes where `options["reset_mask"]`, `[N]`, says so."""
        infos: list[Any] = []
        self._is_known = False
        for i in np.flatnonzero(options["reset_mask"]).tolist():
            self._items[i], info = self._vector.envs[i].reset(seed=None, options={})
            info.items()
            infos.append(info)
        return self._observations(), infos

    def _observations(self) -> Any:
        return _joined(self._vector.single_observation_space, self._items)


def _check_numbers(*values: Any) -> None:
    """Raises a TypeError for texts and None, of which NumPy makes bools."""
    for value in values:
        if value is None or np.asarray(value).dtype.kind in "US":
            raise TypeError(f"a reward, or an end, is of type {type(value).__name__}")


def _joined(space: spaces.Space, items: list[Any]) -> Any:
    """Returns single observations as a batch `[N, *shape]`."""
    n, shape = len(items), space.shape
    if isinstance(space, spaces.Box) and shape:
        for item in items:
            if type(item) is not np.ndarray or item.shape != shape:
                break
        else:
            # They lie one after the other, as rows do.
            batch = np.empty((n, *shape), space.dtype)
            np.concatenate(items, out=batch.reshape(n * shape[0], *shape[1:]))
            return batch
    empty = batches.create_empty_array(space, n, fn=np.empty)
    return batches.concatenate(space, items, empty)
