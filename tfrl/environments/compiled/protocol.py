"""What a compiled environment is: pure functions of tensors, for many copies."""

import abc
import numbers
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws


class CompiledStep(NamedTuple):
    """What a step of N copies returns.

    Attributes:
        state: nest of `[N, ...]`, for the next step.
        observations: nest of `[N, *shape]`, what is seen now; for copies that began a
            new episode, its first observation.
        rewards: `[N]` float32.
        terminated: `[N]` bool, the episode truly ended.
        truncated: `[N]` bool, the episode was cut off.
        final_observations: nest of `[N, *shape]`, the successors themselves, also at an
            episode's end.

    Example:
        >>> CompiledStep((), [1.0], [0.5], [False], [False], [1.0]).rewards
        [0.5]
    """

    state: Any
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    final_observations: Any


class CompiledEnv(abc.ABC):
    """Base class of compiled environments: N copies, stepped by functions of tensors.

        state, observations = env.reset(seed, n)
        state, observations, ... = env.step(state, actions, noise)

    Both run eagerly, in a `tf.function` and inside XLA, on any device: shapes are
    static and Python is not called. All randomness comes in as an argument, uniform
    numbers drawn for many steps at once:

        noise = env.draw(seed, (n_steps, n))    # of step t: noise[t]

    A subclass has both spaces, `n_noise`, `initial` and `step`, and `frame` if it is to
    be rendered and recorded. By default it continues where an episode has ended, as
    Gymnasium's do: `observations` and `final_observations` are the same. `TimeLimit`
    and `AutoReset` do what their names say.

    Attributes:
        observation_space: of one copy.
        action_space: of one copy.
        n_noise: most random numbers that `initial` and `step` take for each copy.
        n_step_noise: how many of them, the first ones, `step` reads, at most `n_noise`;
            None for all. Where they are fewer, `AutoReset` draws fewer.

    Example:
        >>> class Walk(CompiledEnv):  # ends where it began, one step or more later
        ...     observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
        ...     action_space = gym.spaces.Discrete(2)
        ...     def initial(self, noise):
        ...         zeros = tf.zeros([noise.shape[0], 1])
        ...         return zeros, zeros
        ...     def step(self, state, actions, noise):
        ...         del noise
        ...         state += 2.0 * tf.cast(actions, tf.float32)[:, None] - 1.0
        ...         home = tf.equal(state[:, 0], 0.0)
        ...         rewards = tf.cast(home, tf.float32)
        ...         return CompiledStep(
        ...             state, state, rewards, home, tf.zeros_like(home), state)
        >>> env = Walk()
        >>> state, observations = env.reset(0, 2)
        >>> step = env.step(state, [0, 1], env.draw(1, [2]))
        >>> step.observations.numpy().tolist()
        [[-1.0], [1.0]]
    """

    observation_space: gym.Space
    action_space: gym.Space
    n_noise: int = 0
    n_step_noise: int | None = None
    metadata: ClassVar[dict[str, Any]] = {"render_fps": 30}

    @abc.abstractmethod
    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy.

        Args:
            noise: `[N, n_noise]` float32, uniform in (0, 1).

        Returns:
            The state, and the observations `[N, *shape]`.
        """

    @abc.abstractmethod
    def step(self, state: Any, actions: Any, noise: tf.Tensor) -> CompiledStep:
        """Steps every copy.

        Args:
            state: as `initial` or `step` returned it.
            actions: nest of `[N, *shape]` of the action space; Discrete ones count from
                its `start`.
            noise: `[N, n_noise]` float32, uniform in (0, 1).

        Returns:
            What happened.
        """

    def frame(self, state: Any) -> np.ndarray:
        """Returns a picture of one copy, `[height, width, 3]` uint8, for videos.

        Args:
            state: nest of NumPy arrays without the axis of the copies.

        Raises:
            NotImplementedError: by default.
        """
        raise NotImplementedError(f"{type(self).__name__} draws no pictures")

    def compute_reward(self, achieved_goal: Any, desired_goal: Any) -> tf.Tensor:
        """Returns the reward for achieving one goal where another was desired.

        `Replayed(relabel=...)` needs it, for an environment whose observations are
        Dicts with "achieved_goal" and "desired_goal".

        Args:
            achieved_goal: `[n, *goal_shape]`.
            desired_goal: `[n, *goal_shape]`.

        Returns:
            Rewards `[n]`.

        Raises:
            NotImplementedError: by default.
        """
        raise NotImplementedError(f"{type(self).__name__} does not reward goals")

    def draw(self, seed: Any, shape: Any) -> tf.Tensor:
        """Returns noise for `step`, `[*shape, n_noise]`.

        Args:
            seed: int, int32 `[2]`, or None for one from TensorFlow's generator.
            shape: such as `(n,)`, or `(n_steps, n)` for many steps at once.
        """
        return draws.uniform([*shape, self.n_noise], seed, tf.float32)

    def reset(self, seed: Any, n: int) -> tuple[Any, Any]:
        """Begins an episode in each of `n` copies.

        Args:
            seed: int, int32 `[2]`, or None for one from TensorFlow's generator.
            n: number of copies.

        Returns:
            The state, and the observations `[n, *shape]`.

        Raises:
            ValueError: if `n` is below 1.
        """
        where = f"{type(self).__name__}.reset"
        checks.check_whole_number(where, "n", n, low=1)
        return self.initial(self.draw(seed, [n]))


def noise_counts(where: str, env: CompiledEnv) -> tuple[int, int]:
    """Returns how many numbers `initial` and `step` take at most, and `step` alone.

    Args:
        where: name of the function that asks.
        env: the environment.

    Raises:
        ValueError: if `n_noise` or `n_step_noise` is not what `CompiledEnv` says.
    """
    kind, whole, own = type(env).__name__, env.n_noise, env.n_step_noise
    if not _is_count(whole):
        raise ValueError(
            f"`{where}`: `env` expected `{kind}.n_noise` to be an int of at least 0; "
            f"got {checks.shown(whole)}"
        )
    if own is None:
        return int(whole), int(whole)
    if not _is_count(own) or own > whole:
        raise ValueError(
            f"`{where}`: `env` expected `{kind}.n_step_noise` to be None or an int "
            f"from 0 to `n_noise`, here {whole}; got {checks.shown(own)}"
        )
    return int(whole), int(own)


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_whole and value >= 0
