"""Episodes as moving pictures."""

import io
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl.core import checks, durable
from tfrl.environments import attributes
from tfrl.summaries import _gif


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

    The first picture shows the observation of the reset, the last one that after the
    last step. The file appears in one step, when the episode is over.

    Args:
        env: made with `render_mode="rgb_array"`.
        filepath: what to write, ending in `.gif`; replaced if it exists.
        policy: function of one observation that returns an action; None for random
            actions.
        resize_to: width and height of the pictures, in pixels; None leaves them.
        duration: of one picture in milliseconds, which GIF rounds to hundredths of a
            second.
        max_episode_steps: after how many steps to stop; None for the episode's end.
        seed: of the environment and of random actions; None draws one.

    Raises:
        ImportError: if Pillow is missing (extra `tfrl[video]`).
        ValueError: if an argument is out of range, or `env` does not render to arrays.

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
    pillow = _gif.imported_pillow(where)
    path = _gif.checked_path(where, "filepath", filepath)
    checks.check_within(where, "duration", duration, 10, np.inf)
    if max_episode_steps is not None:
        checks.check_whole_number(where, "max_episode_steps", max_episode_steps, low=1)
    if resize_to is not None:
        width, height = resize_to
        checks.check_whole_number(where, "resize_to", width, low=1)
        checks.check_whole_number(where, "resize_to", height, low=1)
    attributes.check_renders(where, env)

    def pictures() -> Iterator[Any]:
        for _ in _played(env, policy, max_episode_steps, seed):
            picture = pillow.fromarray(np.asarray(env.render()))
            yield picture if resize_to is None else picture.resize(resize_to)

    drawn, data = pictures(), io.BytesIO()
    first = next(drawn)
    first.save(
        data, "GIF", save_all=True, append_images=drawn, duration=duration, loop=0
    )
    durable.replace_file(path, data.getvalue())


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
        policy: as of `generate_gif`.
        step_delay_ms: how many milliseconds to wait after each picture.
        seed: as of `generate_gif`.

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
