"""Wrappers that show agents which actions an environment allows."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

from tfrl._internal import arguments, gym_checks

_MASK = gym_checks.MASK


class ActionMasks(gym.Wrapper, RecordConstructorArgs):
    """Shows the mask of allowed actions as a part of the observation.

    An environment reports what it allows in a method `action_masks()`, or else in
    `info["action_mask"]` of `reset` and `step`: ones and zeros, or bools, for all
    options of its choices, one choice after the other. Observations become

        {"action_mask": mask, "observation": observation}

    or, if they are a Dict, get `"action_mask"` as one more part. Policies never do what
    such a mask forbids, and agents respect it in learning; see
    `tfrl.policies.NetworkPolicy`.

    Args:
        env: environment whose actions are choices, at least some of them.

    Raises:
        TypeError: if `env` is not an environment.
        ValueError: if there is nothing to choose, or the observation has a part of this
            name; by `reset` and `step`, if there is no mask, or one of another shape.

    Example:
        >>> env = ActionMasks(gym.make("Taxi-v4"))
        >>> seen, _ = env.reset(seed=0)
        >>> {key: np.shape(part) for key, part in seen.items()}
        {'action_mask': (6,), 'observation': ()}
    """

    def __init__(self, env: gym.Env) -> None:
        arguments.check_type("ActionMasks", "env", env, gym.Env, "an environment")
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        seen, actions = env.observation_space, env.action_space
        self.observation_space = _space("ActionMasks", seen, actions)
        self._has_method = env.has_wrapper_attr("action_masks")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environment."""
        seen, info = self.env.reset(seed=seed, options=options)
        return self._shown(seen, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(seen, info), reward, terminated, truncated, info

    def _shown(self, seen: Any, info: dict[str, Any]) -> dict[str, Any]:
        if self._has_method:
            mask = self.env.get_wrapper_attr("action_masks")()
        else:
            mask = info.get(_MASK)
        return _joined("ActionMasks", seen, mask, self.observation_space[_MASK].shape)


class VectorActionMasks(VectorWrapper):
    """The same for environments that are a vector of their own.

    They report what they allow in `info["action_mask"]`, `[N, n_options]`.

    Args:
        env: a vector environment.

    Raises:
        TypeError: if `env` is no vector environment.
        ValueError: as in `ActionMasks`.

    Example:
        >>> envs = gym.make_vec("Taxi-v4", 2, vectorization_mode="sync")
        >>> seen, _ = VectorActionMasks(envs).reset(seed=0)
        >>> seen["action_mask"].shape
        (2, 6)
    """

    def __init__(self, env: VectorEnv) -> None:
        gym_checks.check_vector("VectorActionMasks", "env", env)
        super().__init__(env)
        seen, actions = env.single_observation_space, env.single_action_space
        space = _space("VectorActionMasks", seen, actions)
        self.single_observation_space = space
        self.observation_space = gym.vector.utils.batch_space(space, env.num_envs)
        self._masks = np.zeros((env.num_envs, *space[_MASK].shape), np.int8)

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environments."""
        seen, info = self.env.reset(seed=seed, options=options)
        begun = (options or {}).get("reset_mask")
        waiting = getattr(self.unwrapped, "waiting", None)
        if begun is not None and waiting is not None and waiting[begun].all():
            # Of those that ended none began anew, and none was told anything.
            return _joined(
                "VectorActionMasks", seen, self._masks, self._masks.shape
            ), info
        return self._shown(seen, info), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments."""
        seen, reward, terminated, truncated, info = self.env.step(actions)
        if "final_obs" in info:
            info = {**info, "final_obs": self._final(info)}
        return self._shown(seen, info), reward, terminated, truncated, info

    def _shown(self, seen: Any, info: dict[str, Any]) -> dict[str, Any]:
        masks = np.asarray(info.get(_MASK))
        told = np.asarray(info.get(f"_{_MASK}", True))
        if masks.shape == self._masks.shape:
            masks = np.where(told[..., None], masks, self._masks)
        joined = _joined("VectorActionMasks", seen, masks, self._masks.shape)
        # A reset of some environments tells the masks of these alone.
        self._masks = joined[_MASK]
        return joined

    def _final(self, info: dict[str, Any]) -> np.ndarray:
        """Last observations of episodes, an array of dicts, None where none ended."""
        masks = np.asarray(info.get("final_info", {}).get(_MASK))
        final = np.full(self.num_envs, None, object)
        for index, seen in enumerate(info["final_obs"]):
            if seen is not None:
                mask = masks[index] if masks.ndim else None
                shape = self._masks.shape[1:]
                final[index] = _joined("VectorActionMasks", seen, mask, shape)
        return final


def _space(where: str, seen: spaces.Space, actions: spaces.Space) -> spaces.Dict:
    n_options = sum(gym_checks.option_counts(actions))
    if not n_options:
        raise ValueError(
            f"`{where}`: `env` expected actions that are choices; got {actions}"
        )
    parts = (
        dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"observation": seen}
    )
    if _MASK in parts:
        raise ValueError(
            f"`{where}`: `env` expected observations without a part {_MASK!r}; got "
            f"{seen}; leave the wrapper out"
        )
    return spaces.Dict({_MASK: spaces.MultiBinary(n_options), **parts})


def _joined(where: str, seen: Any, mask: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    allowed = np.asarray(mask)
    if allowed.shape != shape or allowed.dtype.kind not in "biuf":
        got = f"{mask!r:.80}"
        if allowed.shape == () and allowed.item() is None:
            got = (
                "None, as the environment reports no masks; report them there (what is "
                "no vector may by a method `action_masks()`), or leave out this "
                "wrapper, or `action_masks=True` of `make_vec`"
            )
        raise ValueError(
            f"`{where}`: `env` expected a mask of shape {[*shape]} in "
            f"info[{_MASK!r}], one for each option; got {got}"
        )
    parts = seen if isinstance(seen, dict) else {"observation": seen}
    return {_MASK: (allowed != 0).astype(np.int8), **parts}
