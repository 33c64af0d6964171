"""Wrappers that Gymnasium lacks: stacked channels, hidden entries, scaled rewards.

`gymnasium.wrappers` has many others: it stacks frames along a new first axis
(`FrameStackObservation`), rescales and clips actions (`RescaleAction`, `ClipAction`),
shows the time left before a time limit (`TimeAwareObservation`), normalises
(`NormalizeObservation`, `NormalizeReward`), and preprocesses Atari games
(`AtariPreprocessing`). Those are not repeated here.
"""

import collections
import numbers
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tfrl._internal import arguments, gym_checks


class StackChannels(gym.ObservationWrapper, RecordConstructorArgs):
    """Shows the last frames side by side along the channels, as networks convolve them.

    `[H, W, C]` becomes `[H, W, C * n_frames]`, oldest first; a vector `[D]` becomes
    `[D * n_frames]`. Images of uint8 whose last axis is their width, as `SpaceEncoder`
    tells it by the two long axes, are stacked along the first: `[C, H, W]` becomes
    `[C * n_frames, H, W]`. At the start of an episode its first frame fills the earlier
    places. Agents here also convolve the stacks of
    `gymnasium.wrappers.FrameStackObservation`, `[n_frames, H, W]` and
    `[n_frames, H, W, C]`; Keras networks do not.

    Args:
        env: environment whose observations are a Box of at least one axis.
        n_frames: how many frames, at least 1.

    Raises:
        TypeError: if the observations are no Box or `n_frames` is no int.
        ValueError: if the Box has no axis or `n_frames` is not positive.

    Example:
        >>> env = StackChannels(gym.make("CartPole-v1"), n_frames=3)
        >>> seen, _ = env.reset(seed=0)
        >>> seen.shape, bool((seen[:4] == seen[8:]).all())
        ((12,), True)
    """

    def __init__(self, env: gym.Env, n_frames: int = 4) -> None:
        space: Any = getattr(env, "observation_space", None)
        where, box = "StackChannels", "observations in a Box"
        arguments.check_type(where, "env", space, spaces.Box, box)
        # As specs of environments are written: an int, also of a number of numpy.
        n_frames = arguments.check_whole_number(where, "n_frames", n_frames, low=1)
        if not space.shape:
            raise ValueError(
                f"`{where}`: `env` expected observations of at least one axis; got "
                "scalars"
            )
        RecordConstructorArgs.__init__(self, n_frames=n_frames)
        super().__init__(env)
        self._axis = gym_checks.stacking_axis(space)
        low, high = (
            np.concatenate([bound] * n_frames, axis=self._axis)
            for bound in (space.low, space.high)
        )
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)
        self._frames: collections.deque = collections.deque(maxlen=n_frames)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environment and shows its first frame `n_frames` times."""
        self._frames.clear()
        return super().reset(seed=seed, options=options)

    def observation(self, observation: Any) -> np.ndarray:
        """Adds a frame and returns the stack, a new array."""
        self._frames.append(np.array(observation))
        missing = [self._frames[0]] * ((self._frames.maxlen or 0) - len(self._frames))
        return np.concatenate([*missing, *self._frames], axis=self._axis)


class PartialObservation(gym.ObservationWrapper, RecordConstructorArgs):
    """Shows some entries of a vector and hides the others, such as velocities.

    Inferring the hidden entries takes a memory, see `tfrl.policies.RecurrentPolicy`.

    Args:
        env: environment whose observations are a Box of one axis.
        indices: of the entries that are shown, in this order.

    Raises:
        TypeError: if the observations are no Box, or an index is no int.
        ValueError: if the Box does not have one axis, or an index is outside it.

    Example:
        >>> env = PartialObservation(gym.make("CartPole-v1"), [0, 2])
        >>> env.observation_space.shape, env.reset(seed=0)[0].shape
        ((2,), (2,))
    """

    def __init__(self, env: gym.Env, indices: Sequence[int]) -> None:
        space: Any = getattr(env, "observation_space", None)
        where, box = "PartialObservation", "observations in a Box"
        arguments.check_type(where, "env", space, spaces.Box, box)
        listed = arguments.check_whole_numbers(where, "indices", indices, low=0)
        if len(space.shape) != 1 or not listed or max(listed) >= space.shape[0]:
            raise ValueError(
                f"`{where}`: `indices` expected entries of observations of one axis; "
                f"got {[*listed]} of shape {[*space.shape]}"
            )
        RecordConstructorArgs.__init__(self, indices=[*listed])
        super().__init__(env)
        self._indices = np.array(listed)
        low, high = space.low[self._indices], space.high[self._indices]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> np.ndarray:
        """Returns the entries that are shown."""
        return np.asarray(observation)[self._indices]


class ScaleReward(gym.RewardWrapper, RecordConstructorArgs):
    """Multiplies rewards by a number.

    Unlike `TransformReward` with a lambda it can be sent to another process and is
    written into the environment's spec. The original reward is in `info["raw_reward"]`.

    Args:
        env: the environment.
        factor: the number, not 0.

    Raises:
        TypeError: if `factor` is no number.
        ValueError: if it is 0 or not finite.

    Example:
        >>> env = ScaleReward(gym.make("CartPole-v1"), 0.1)
        >>> _ = env.reset(seed=0)
        >>> _, reward, _, _, info = env.step(0)
        >>> reward, info["raw_reward"]
        (0.1, 1.0)
    """

    def __init__(self, env: gym.Env, factor: float) -> None:
        number = isinstance(factor, numbers.Real) and not isinstance(factor, bool)
        if not number or factor == 0 or not np.isfinite(factor):
            raise (ValueError if number else TypeError)(
                "`ScaleReward`: `factor` expected a finite number other than 0; got "
                f"{arguments.shown(factor)}"
            )
        factor = float(factor)  # as specs of environments are written
        RecordConstructorArgs.__init__(self, factor=factor)
        super().__init__(env)
        self.factor = factor

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment and scales the reward."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        info = {**info, "raw_reward": reward}
        return seen, self.reward(reward), terminated, truncated, info

    def reward(self, reward: Any) -> Any:
        """Returns `factor * reward`."""
        return self.factor * reward
