"""Plays episodes into videos or animated GIFs, and writes frames as such."""

import fractions
import io
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl._internal import arguments, checks, durable, gym_checks

_MOST_FRAMES_PER_SEC = 100.0  # what the hundredths of a second of a GIF can say
_CONSTANT_RATE_FACTOR = "20"  # of 0 (nothing lost) to 51: lines of drawings stay sharp


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
    speed = checked_speed(where, env, frames_per_sec)
    checked = checked_path(where, "path", path)
    pictures = _pictures(where, env, policy, resize_to, max_episode_steps, seed)
    write(checked, pictures, speed, where)


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
    path = checked_path(where, "filepath", filepath, [".gif"])
    pictures = _pictures(where, env, policy, resize_to, max_episode_steps, seed)
    write(path, pictures, 1000 / duration, where, "filepath")


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


def imported_pillow(where: str) -> Any:
    """Returns the module `PIL.Image`; raises an ImportError if Pillow is missing."""
    return arguments.imported(where, "PIL.Image", "pillow", "video")


def checked_path(
    where: str,
    name: str,
    path: str | os.PathLike[str],
    endings: Collection[str] = (".gif", ".mp4"),
) -> str:
    """Returns a path as text.

    Raises:
        ImportError: if what writes such a file is missing.
        ValueError: if it has no such ending, or no file can be written there.
    """
    durable.check_output_file(where, name, path, endings)
    text = os.fspath(path)
    if text.lower().endswith(".mp4"):
        arguments.imported(where, "av", "av", "video", ", or write a .gif")
    return text


def checked_speed(where: str, env: Any, frames_per_sec: float | None) -> float:
    """Returns how many frames a second shows: those of the environment for None.

    Raises:
        ValueError: if it is out of range.
    """
    name, most = "frames_per_sec", _MOST_FRAMES_PER_SEC
    if frames_per_sec is None:
        frames_per_sec = min(float((env.metadata or {}).get("render_fps") or 30), most)
    checks.check_positive(where, name, frames_per_sec)
    checks.check_within(where, name, frames_per_sec, 0, most)
    return frames_per_sec


def checked_frame(where: str, name: str, frame: Any) -> np.ndarray:
    """Returns a frame `[height, width, 3]` of uint8 as an array.

    Raises:
        ValueError: if it is anything else.
    """
    array = np.asarray(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3:
        raise ValueError(
            f"`{where}`: `{name}` expected a frame [height, width, 3] of uint8; got "
            f"{array.dtype} {list(array.shape)}"
        )
    return array


def write(
    path: str,
    pictures: Iterator[Any],
    frames_per_sec: float,
    where: str,
    name: str = "path",
) -> None:
    """Writes a video or GIF in one step, when the last picture came.

    Args:
        path: what `checked_path` returned.
        pictures: of `PIL.Image`, RGB, all of one size; one at least.
        frames_per_sec: what `checked_speed` returned.
        where: name of the asking function, for the error message.
        name: of the argument that names the file, for the error message.

    Raises:
        OSError: if the disk refuses; what was there stays.
    """
    encoded = _encoded_video if path.lower().endswith(".mp4") else _encoded_gif
    data = encoded(pictures, frames_per_sec)
    with durable.explain_refusals(where, name, path):
        durable.replace_file(path, data)


def _pictures(
    where: str,
    env: gym.Env,
    policy: Callable[[Any], Any] | None,
    resize_to: tuple[int, int] | None,
    max_steps: int | None,
    seed: int | None,
) -> Iterator[Any]:
    """Returns the pictures of one episode, which is played as they are taken."""
    pillow = imported_pillow(where)
    if max_steps is not None:
        checks.check_whole_number(where, "max_episode_steps", max_steps, low=1)
    if resize_to is not None:
        checks.check_whole_numbers(where, "resize_to", resize_to, low=1)
    if seed is not None:
        seed = checks.check_whole_number(where, "seed", seed, low=0)
    kinds = Callable | None
    checks.check_type(where, "policy", policy, kinds, "a function of one observation")

    def pictures() -> Iterator[Any]:
        shape = None
        for _ in _played(env, policy, max_steps, seed):
            frame = checked_frame(where, "env", env.render())
            if resize_to is not None:
                frame = np.asarray(pillow.fromarray(frame).resize(resize_to))
            shape = frame.shape if shape is None else shape
            if frame.shape != shape:
                raise ValueError(
                    f"`{where}`: `env` expected frames of one size; got {shape}, then "
                    f"{frame.shape}; give `resize_to`"
                )
            yield pillow.fromarray(frame)

    return pictures()


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


def _encoded_gif(pictures: Iterator[Any], frames_per_sec: float) -> bytes:
    data, first = io.BytesIO(), next(pictures)
    timing = {"duration": 1000 / frames_per_sec, "loop": 0}
    first.save(data, "GIF", save_all=True, append_images=pictures, **timing)
    return data.getvalue()


def _encoded_video(pictures: Iterator[Any], frames_per_sec: float) -> bytes:
    av, data = arguments.imported("write", "av", "av", "video"), io.BytesIO()
    with av.open(data, "w", format="mp4") as video:
        rate = fractions.Fraction(frames_per_sec).limit_denominator(1000)
        stream = video.add_stream(
            "libx264", rate=rate, options={"crf": _CONSTANT_RATE_FACTOR}
        )
        # What all players show: one colour for 2x2 pixels, thus an even size.
        stream.pix_fmt = "yuv420p"
        for number, picture in enumerate(pictures):
            array = np.asarray(picture)
            height, width, _ = array.shape
            array = np.pad(array, [(0, height % 2), (0, width % 2), (0, 0)])
            if number == 0:
                stream.height, stream.width = array.shape[:2]
            video.mux(stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")))
        video.mux(stream.encode(None))
    return data.getvalue()
