"""Records episodes frame by frame, with what the agent predicted beside."""

import io
import itertools
import os
from collections.abc import Iterator
from typing import Any, Self

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, gym_checks
from tfrl.summaries.filming import panels, video


class VideoRecorder:
    """Collects the frames of episodes and writes them as a video or an animated GIF.

    Pictures in `pred_info` (see `render_bars`, `render_heatmap`) stand right of the
    frame or below it, whichever takes less room. Frames are kept compressed, one after
    the other; frames smaller than the largest one have black margins. The file appears
    in one step when the recorder is closed, in a `with` statement at its end, unless
    that ends by an exception.

    There are two ways: `capture_frame` after the reset and every step; or
    `cache_frame_and_pred_info` and, where the episode turns out to be worth it,
    `generate_video_from_cache`, else `clear_cache`.

    Args:
        env: made with `render_mode="rgb_array"`.
        frame_max_width: wider frames are scaled down to it, in pixels.
        frames_per_sec: speed, at most 100; None for that of the environment
            (`render_fps`, 30 if it names none, and at most 100).
        last_step_repeats: how many more times `capture_frame` shows the last frame of
            an episode.
        append_blank_frames: how many black frames follow an episode; negative for
            none.
        path: what to write: `.mp4` (H.264), or `.gif`, which is larger and loses
            colours; replaced if it exists.

    Raises:
        ImportError: if Pillow, or PyAV for `.mp4`, is missing (extra `tfrl[video]`).
        TypeError: if a number of frames or pixels is no int.
        ValueError: if an argument is out of range, no file can be written at `path`, or
            `env` does not render to arrays.

    Example:
        >>> import pathlib, tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([200, 200, 3], 99, np.uint8)
        >>> env = Grey(gym.make("CartPole-v1"))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "episode.gif")
        >>> _ = env.reset(seed=0)
        >>> with VideoRecorder(env, append_blank_frames=5, path=path) as recorder:
        ...     for step in range(3):
        ...         panel = tfrl.summaries.render_bars("action", [0.2, 0.8])
        ...         recorder.capture_frame({"pi": panel}, is_last_step=step == 2)
        >>> path.read_bytes()[:6]
        b'GIF89a'
    """

    def __init__(
        self,
        env: gym.Env,
        frame_max_width: int = 2560,
        frames_per_sec: float | None = None,
        last_step_repeats: int = 0,
        append_blank_frames: int = 0,
        *,
        path: str | os.PathLike[str],
    ) -> None:
        where = "VideoRecorder"
        check = checks.check_whole_number
        self._image = video.imported_pillow(where)
        self._env = env
        self._max_width = check(where, "frame_max_width", frame_max_width, low=1)
        self._repeats = check(where, "last_step_repeats", last_step_repeats, low=0)
        blanks = check(where, "append_blank_frames", append_blank_frames, low=-(2**31))
        self._blanks = max(blanks, 0)
        gym_checks.check_renders(where, env)
        self._frames_per_sec = video.checked_speed(where, env, frames_per_sec)
        self.path = video.checked_path(where, "path", path)
        # Compressed pictures; None is a black one.
        self._frames: list[bytes | None] = []
        self._cache: list[bytes | None] = []
        self._is_open = True

    def capture_env_frame(self) -> np.ndarray:
        """Returns the picture of the environment as it is now.

        Returns:
            `[height, width, 3]` uint8.

        Raises:
            ValueError: if the environment renders anything else.
        """
        where = "VideoRecorder.capture_env_frame"
        return video.checked_frame(where, "env", self._env.render())

    def capture_frame(self, pred_info: Any = None, is_last_step: bool = False) -> None:
        """Adds the environment as it is now to the video.

        Args:
            pred_info: nest; its pictures (`PIL.Image.Image`, or figures of matplotlib)
                are shown beside the frame, all else is not.
            is_last_step: whether the episode ends here; repeated and black frames
                follow then.

        Raises:
            ValueError: if the environment does not render to an RGB array, or the
                recorder is closed.
        """
        self._check_open("capture_frame")
        frame = self._composed(self.capture_env_frame(), pred_info)
        self._frames.append(frame)
        if is_last_step:
            self._frames += [frame] * self._repeats + [None] * self._blanks

    def cache_frame_and_pred_info(self, frame: Any, pred_info: Any = None) -> None:
        """Keeps a frame for `generate_video_from_cache`.

        Args:
            frame: `[height, width, 3]` uint8, as `capture_env_frame` returns it.
            pred_info: as of `capture_frame`.

        Raises:
            ValueError: if `frame` is anything else, or the recorder is closed.
        """
        self._check_open("cache_frame_and_pred_info")
        where = "VideoRecorder.cache_frame_and_pred_info"
        frame = video.checked_frame(where, "frame", frame)
        self._cache.append(self._composed(frame, pred_info))

    def clear_cache(self) -> None:
        """Forgets the frames that were kept."""
        self._cache = []

    def generate_video_from_cache(self) -> None:
        """Adds the frames that were kept to the video, then black ones.

        The cache is empty afterwards.

        Raises:
            ValueError: if it is before, or the recorder is closed.
        """
        self._check_open("generate_video_from_cache")
        if not self._cache:
            raise ValueError(
                "`VideoRecorder.generate_video_from_cache`: expected cached frames; "
                "got none; call `cache_frame_and_pred_info` before"
            )
        self._frames += [*self._cache, *[None] * self._blanks]
        self.clear_cache()

    def close(self) -> None:
        """Writes the video; a second call does nothing.

        Raises:
            ValueError: if there is no frame: an empty video shows nothing.
        """
        if not self._is_open:
            return
        if not self._frames:
            raise ValueError(
                "`VideoRecorder.close`: expected a frame at least; got none; call "
                "`capture_frame` before"
            )
        sizes = [self._opened(frame).size for frame in self._frames if frame]
        size = tuple(max(lengths) for lengths in zip(*sizes, strict=True))
        frames, speed = self._framed(size), self._frames_per_sec
        video.write(self.path, frames, speed, "VideoRecorder.close")
        self._is_open, self._frames = False, []
        self.clear_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        self._is_open = False

    def _check_open(self, method: str) -> None:
        if not self._is_open:
            raise ValueError(
                f"`VideoRecorder.{method}`: expected an open recorder; got one that "
                "was closed"
            )

    def _composed(self, frame: np.ndarray, pred_info: Any) -> bytes:
        """Returns the frame and the pictures beside it, compressed."""
        picture = self._image.fromarray(frame)
        shown = []
        for leaf in tf.nest.flatten(pred_info):
            if hasattr(leaf, "savefig"):
                shown.append(panels.render_figure(leaf))
            elif isinstance(leaf, self._image.Image):
                shown.append(leaf.convert("RGB"))
        if shown:
            sizes = [picture.size, *(panel.size for panel in shown)]
            (width, height), places = _layout(sizes)
            sheet = self._image.new("RGB", (width, height))
            for part, place in zip([picture, *shown], places, strict=True):
                sheet.paste(part, place)
            picture = sheet
        if picture.width > self._max_width:
            height = max(1, round(picture.height * self._max_width / picture.width))
            picture = picture.resize((self._max_width, height))
        data = io.BytesIO()
        picture.save(data, "PNG", compress_level=1)
        return data.getvalue()

    def _opened(self, frame: bytes) -> Any:
        return self._image.open(io.BytesIO(frame))

    def _framed(self, size: tuple[int, ...]) -> Iterator[Any]:
        for frame in self._frames:
            sheet = self._image.new("RGB", size)
            if frame:
                sheet.paste(self._opened(frame), (0, 0))
            yield sheet


def _layout(
    sizes: list[tuple[int, int]],
) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Where the first picture and the others, right of it or below it, are put."""
    (width, height), *others = sizes
    widths, heights = zip(*others, strict=True)
    beside = width + max(widths), max(height, sum(heights))
    below = max(width, sum(widths)), height + max(heights)
    if beside[0] * beside[1] <= below[0] * below[1]:
        tops = itertools.accumulate(heights[:-1], initial=0)
        return beside, [(0, 0), *((width, top) for top in tops)]
    lefts = itertools.accumulate(widths[:-1], initial=0)
    return below, [(0, 0), *((left, height) for left in lefts)]
