"""Records episodes as videos or animated GIFs."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl._internal import checks, gym_checks
from tfrl.summaries.filming import _encoding


def record_episode(
    env: gym.Env,
    path: str | os.PathLike[str],
    policy: Callable[[Any], Any] | None = None,
    *,
    resize_to: tuple[int, int] | None = None,
    frames_per_sec: float | None = None,
    max_episode_steps: int | None = None,
    seed: int | None = None,
) -> None:
    """Plays an episode and writes it as a video or an animated GIF.

    The first picture shows the observation of the reset, the last one that after the
    last step. The file appears in one step, when the episode is over. For several
    episodes, or panels beside the pictures, see `VideoRecorder`.

    Args:
        env: made with `render_mode="rgb_array"`.
        path: what to write: `.mp4` (H.264), or `.gif`, which is larger and loses
            colours; replaced if it exists.
        policy: function of one observation that returns an action; None for random
            actions.
        resize_to: width and height of the pictures, in pixels; None leaves them.
        frames_per_sec: speed, at most 100; None for that of the environment
            (`render_fps`, 30 if it names none, and at most 100).
        max_episode_steps: after how many steps to stop; None for the episode's end.
        seed: of the environment and of random actions; None draws one.

    Raises:
        ImportError: if Pillow, or PyAV for `.mp4`, is missing (extra `tfrl[video]`).
        ValueError: if an argument is out of range, no file can be written at `path`, or
            `env` does not render to arrays.

    Example:
        >>> import pathlib, tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([8, 8, 3], 99, np.uint8)
        >>> env = Grey(gym.make("CartPole-v1"))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "episode.mp4")
        >>> record_episode(env, path, lambda observation: 1, resize_to=(64, 64), seed=0)
        >>> path.read_bytes()[4:12]
        b'ftypisom'
    """
    where = "record_episode"
    gym_checks.check_renders(where, env)
    speed = _encoding.checked_speed(where, env, frames_per_sec)
    checked = _encoding.checked_path(where, "path", path)
    _record(where, env, checked, policy, resize_to, speed, max_episode_steps, seed)


def generate_gif(
    env: gym.Env,
    filepath: str | os.PathLike[str],
    policy: Callable[[Any], Any] | None = None,
    resize_to: tuple[int, int] | None = None,
    duration: float = 50,
    max_episode_steps: int | None = None,
    *,
    seed: int | None = None,
) -> None:
    """Plays an episode and writes it as an animated GIF, over and over again.

    As `record_episode`, with the length of a picture in place of the speed.

    Args:
        env: made with `render_mode="rgb_array"`.
        filepath: what to write, ending in `.gif`; replaced if it exists.
        policy: as of `record_episode`.
        resize_to: as of `record_episode`.
        duration: of one picture in milliseconds, which GIF rounds to hundredths of a
            second.
        max_episode_steps: as of `record_episode`.
        seed: as of `record_episode`.

    Raises:
        ImportError: if Pillow is missing (extra `tfrl[video]`).
        ValueError: if an argument is out of range, no file can be written at
            `filepath`, or `env` does not render to arrays.

    Example:
        >>> import pathlib, tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([8, 8, 3], 99, np.uint8)
        >>> env = Grey(gym.make("CartPole-v1"))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "episode.gif")
        >>> generate_gif(env, path, lambda observation: 1, resize_to=(64, 64), seed=0)
        >>> path.read_bytes()[:6]
        b'GIF89a'
    """
    where = "generate_gif"
    gym_checks.check_renders(where, env)
    checks.check_within(where, "duration", duration, 10, np.inf)
    path = _encoding.checked_path(where, "filepath", filepath, [".gif"])
    _record(
        where, env, path, policy, resize_to, 1000 / duration, max_episode_steps, seed
    )


def render_episode(
    env: gym.Env,
    policy: Callable[[Any], Any] | None = None,
    step_delay_ms: float = 0,
    *,
    seed: int | None = None,
) -> None:
    """Plays an episode and calls `env.render()` after the reset and every step.

    Args:
        env: made with the `render_mode` to look at, such as "human".
        policy: as of `record_episode`.
        step_delay_ms: how many milliseconds to wait after each picture.
        seed: as of `record_episode`.

    Raises:
        ValueError: if `step_delay_ms` is negative.

    Example:
        >>> env = gym.make("FrozenLake-v1", render_mode="ansi")
        >>> render_episode(env, seed=0)
    """
    checks.check_within("render_episode", "step_delay_ms", step_delay_ms, 0, np.inf)
    for _ in _played(env, policy, None, seed):
        env.render()
        time.sleep(step_delay_ms / 1000)


def _record(
    where: str,
    env: gym.Env,
    path: str,
    policy: Callable[[Any], Any] | None,
    resize_to: tuple[int, int] | None,
    frames_per_sec: float,
    max_steps: int | None,
    seed: int | None,
) -> None:
    pillow = _encoding.imported_pillow(where)
    if max_steps is not None:
        checks.check_whole_number(where, "max_episode_steps", max_steps, low=1)
    if resize_to is not None:
        width, height = resize_to
        checks.check_whole_number(where, "resize_to", width, low=1)
        checks.check_whole_number(where, "resize_to", height, low=1)

    def pictures() -> Iterator[Any]:
        shape = None
        for _ in _played(env, policy, max_steps, seed):
            frame = _encoding.checked_frame(where, "env", env.render())
            if resize_to is not None:
                frame = np.asarray(pillow.fromarray(frame).resize(resize_to))
            shape = frame.shape if shape is None else shape
            if frame.shape != shape:
                raise ValueError(
                    f"`{where}`: `env` expected frames of one size; got {shape}, then "
                    f"{frame.shape}; give `resize_to`"
                )
            yield pillow.fromarray(frame)

    name = "filepath" if where == "generate_gif" else "path"
    _encoding.write(path, pictures(), frames_per_sec, where, name)


def _played(
    env: gym.Env,
    policy: Callable[[Any], Any] | None,
    max_steps: int | None,
    seed: int | None,
) -> Iterator[Any]:
    """Yields the observations of one episode, while the environment is there."""
    observation, _ = env.reset(seed=seed)
    if policy is None and seed is not None:
        env.action_space.seed(seed)
    yield observation
    ended, steps = False, 0
    while not ended and (max_steps is None or steps < max_steps):
        action = env.action_space.sample() if policy is None else policy(observation)
        observation, _, terminated, truncated, _ = env.step(action)
        ended, steps = terminated or truncated, steps + 1
        yield observation
