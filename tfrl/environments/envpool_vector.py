"""Vectors of environments that EnvPool steps in C++ threads."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tfrl._internal import arguments
from tfrl.environments import _drawn_env

_WHERE = "EnvPoolVector"
# Which environment a row belongs to, and its players: not of interest to who plays one.
_BOOKKEEPING = ("env_id", "players")
_OWN = ("num_envs", "batch_size", "env_type", "seed")


class EnvPoolVector(VectorEnv):
    """N copies of an EnvPool environment, as a Gymnasium vector.

    EnvPool (Weng et al., 2022, "EnvPool: A Highly Parallel Reinforcement Learning
    Environment Execution Engine") steps all copies in C++ threads, as many as there are
    cores by default. `envpool.list_all_envs()` lists its environments.

    Nothing resets automatically (`AutoresetMode.DISABLED`): at the end of an episode
    `step` returns its true last observation, and `reset(options={"reset_mask": ended})`
    begins anew where it ended.

    Episodes depend only on the seed, not on threads; they differ from Gymnasium's for
    the same seed. The inner state cannot be captured, so a resumed run begins new
    episodes.

    Args:
        task_id: EnvPool's name, such as "HalfCheetah-v5" or "Pong-v5".
        n_envs: number of copies, at least 1.
        render_mode: "rgb_array" to draw, or None.
        **options: of the environment in EnvPool, such as `max_episode_steps`,
            `num_threads` or, for Atari, `stack_num`.

    Raises:
        ImportError: without EnvPool.
        TypeError: if an argument is of another type.
        ValueError: if EnvPool does not know the environment or an option.

    Example:
        >>> envs = EnvPoolVector("CartPole-v1", 3)
        >>> envs.reset(seed=0)[0].shape, envs.step(np.array([0, 1, 0]))[1].tolist()
        ((3, 4), [1.0, 1.0, 1.0])
        >>> envs.close()
    """

    def __init__(
        self, task_id: str, n_envs: int, render_mode: str | None = None, **options: Any
    ) -> None:
        arguments.check_type(_WHERE, "task_id", task_id, str, "what EnvPool calls it")
        self.num_envs = arguments.check_whole_number(_WHERE, "n_envs", n_envs, low=1)
        modes = (None, "rgb_array")
        arguments.check_one_of(_WHERE, "render_mode", render_mode, modes)
        taken = sorted({*_OWN} & options.keys())
        if taken:
            raise ValueError(
                f"`{_WHERE}`: `options` expected those of the environment; got "
                f"{taken}, which the vector chooses; see `n_envs` and `reset`"
            )
        self._envpool = arguments.imported(_WHERE, "envpool", "EnvPool", "envpool")
        known, listed = self._envpool.list_all_envs(), "`envpool.list_all_envs()`"
        arguments.check_listed(_WHERE, "task_id", task_id, known, listed)
        self._task = {**options, "task_id": task_id, "render_mode": render_mode}
        try:
            # With any seeds: `reset` is told them later, and makes it anew.
            self._pool = self._made(None)
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"`{_WHERE}`: `options` expected those of {task_id!r} in EnvPool; got "
                f"{options}: {str(error)[:300]}"
            ) from error
        seen, action_space = self._pool.observation_space, self._pool.action_space
        if not isinstance(action_space, gym.spaces.Box | gym.spaces.Discrete):
            raise ValueError(
                f"`{_WHERE}`: `task_id` expected an environment of one agent, whose "
                f"actions are a Box or Discrete; got {task_id!r} with {action_space}"
            )
        if isinstance(action_space, gym.spaces.Box):  # as Gymnasium's
            low, high = (
                bound.astype(np.float32)
                for bound in (action_space.low, action_space.high)
            )
            action_space = gym.spaces.Box(low, high)
        self.render_mode = render_mode
        self.metadata = {
            "autoreset_mode": AutoresetMode.DISABLED,
            "render_modes": ["rgb_array"],
        }
        self.single_observation_space, self.single_action_space = seen, action_space
        self.observation_space = batch_space(seen, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        self._seen: Any = None

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every copy, or in those that a mask chooses.

        Args:
            seed: of all chance from now on: an int, with which copy i has seed + i, or
                a list of one for each copy; None continues.
            options: `"reset_mask"`, `[N]` bool, where episodes begin anew.

        Returns:
            Observations of all copies, `[N, *shape]`, and EnvPool's info.

        Raises:
            ValueError: if an argument is invalid.
        """
        mask = (options or {}).get("reset_mask")
        if mask is None:
            if seed is not None:
                made = self._made(seed)
                self._pool.close()
                self._pool = made
            self._seen, info = self._pool.reset()
            return self._seen, _told(info, None)
        mask = np.asarray(mask)
        fits = mask.shape == (self.num_envs,) and mask.dtype == bool and mask.any()
        if seed is not None or self._seen is None or not fits:
            raise ValueError(
                f"`{_WHERE}.reset`: `options` expected a reset_mask of {self.num_envs} "
                "bools, at least one True, after a reset of all, and no seed; got "
                f"{arguments.shown(mask)}, seed={seed}"
            )
        begun, info = self._pool.reset(np.flatnonzero(mask).astype(np.int32))
        rows = info["env_id"]
        self._seen = _with_rows(self._seen, rows, begun)
        return self._seen, _told(info, mask)

    def _made(self, seed: Any) -> Any:
        """Makes the environments, with seeds of 31 bits."""
        if seed is None:
            seed = np.random.default_rng().integers(2**31)
        given = np.asarray(seed)
        fits = given.dtype.kind in "iu" and given.shape in ((), (self.num_envs,))
        if not fits or given.min() < 0:
            raise ValueError(
                f"`{_WHERE}.reset`: `seed` expected an int from 0 on, or "
                f"{self.num_envs} of them; got {arguments.shown(seed)}"
            )
        seeds = given if given.ndim else given + np.arange(self.num_envs)
        made = self._envpool.make(
            **self._task,
            env_type="gymnasium",
            num_envs=self.num_envs,
            seed=(seeds % 2**31).tolist(),
        )
        with warnings.catch_warnings():  # of bounds that it rounds, once
            warnings.filterwarnings("ignore", ".*precision lowered")
            _ = made.observation_space, made.action_space
        return made

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every copy.

        Args:
            actions: `[N, *shape]`.

        Returns:
            Observations, rewards, terminated, truncated and info, as in `VectorEnv`.

        Raises:
            ValueError: if the actions do not fit the space, or before a `reset`.
        """
        seen, rewards, terminated, truncated, info = self._pool.step(
            self._checked(actions)
        )
        self._seen = seen
        return seen, rewards, terminated, truncated, _told(info, None)

    def _checked(self, actions: Any) -> np.ndarray:
        """Raises for what would end the process inside of EnvPool."""
        space = self.action_space
        given = np.asarray(actions)
        is_box = isinstance(self.single_action_space, gym.spaces.Box)
        fits = given.shape == space.shape and given.dtype.kind in "iuf"[: 2 + is_box]
        if fits and not is_box:
            first = given - self.single_action_space.start
            fits = bool(((first >= 0) & (first < self.single_action_space.n)).all())
        if fits and self._seen is not None:
            return given.astype(space.dtype)
        raise ValueError(
            f"`{_WHERE}.step`: `actions` expected an element of {space}, after a "
            f"reset; got {arguments.shown(actions)}"
        )

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns a picture of each copy, `[height, width, 3]` uint8, if it renders."""
        if self.render_mode is None:
            return None
        return tuple(self._pool.render(env_ids=list(range(self.num_envs))))

    def drawable(self) -> gym.Env:
        """Returns one such environment that draws to arrays."""
        task = {**self._task, "render_mode": "rgb_array"}
        return _drawn_env.DrawnEnv(EnvPoolVector(n_envs=1, **task))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Ends the threads."""
        self._pool.close()


def _with_rows(batch: Any, rows: np.ndarray, new: Any) -> Any:
    """Returns a copy of a batch in which some rows are others."""
    if isinstance(batch, dict):
        return {name: _with_rows(part, rows, new[name]) for name, part in batch.items()}
    batch = batch.copy()
    batch[rows] = new
    return batch


def _told(info: dict[str, Any], mask: np.ndarray | None) -> dict[str, Any]:
    """Returns an info as Gymnasium's vectors give it, of the copies of a mask."""
    found: dict[str, Any] = {}
    told = np.ones(len(info["env_id"]), bool) if mask is None else mask
    for name, value in info.items():
        if name in _BOOKKEEPING or not isinstance(value, np.ndarray):
            continue
        if mask is not None:
            whole = np.zeros((len(mask), *value.shape[1:]), value.dtype)
            whole[info["env_id"]] = value
            value = whole
        found[name] = value
        found[f"_{name}"] = told
    return found
