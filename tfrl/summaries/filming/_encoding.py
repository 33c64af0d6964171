"""Writes frames as an animated GIF, or as a video in H.264."""

import fractions
import io
import os
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tfrl._internal import arguments, checks, durable

_MOST_FRAMES_PER_SEC = 100.0  # what the hundredths of a second of a GIF can say
_CONSTANT_RATE_FACTOR = "20"  # of 0 (nothing lost) to 51: lines of drawings stay sharp


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
    if _is_video(text):
        _imported_av(where)
    return text


def checked_speed(where: str, env: Any, frames_per_sec: float | None) -> float:
    """Returns how many frames a second shows: those of the environment for None.

    Raises:
        ValueError: if it is out of range.
    """
    name = "frames_per_sec"
    if frames_per_sec is None:
        of_env = (env.metadata or {}).get("render_fps") or 30
        frames_per_sec = min(float(of_env), _MOST_FRAMES_PER_SEC)
    checks.check_positive(where, name, frames_per_sec)
    checks.check_within(where, name, frames_per_sec, 0, _MOST_FRAMES_PER_SEC)
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
            f"{array.dtype} {list(array.shape)}; convert it"
        )
    return array


def write(
    path: str,
    pictures: Iterator[Any],
    frames_per_sec: float,
    where: str = "write",
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
    encoded = _encoded_video if _is_video(path) else _encoded_gif
    data = encoded(pictures, frames_per_sec)
    with durable.explain_refusals(where, name, path):
        durable.replace_file(path, data)


def _is_video(path: str) -> bool:
    return path.lower().endswith(".mp4")


def _imported_av(where: str) -> Any:
    return arguments.imported(where, "av", "av", "video", ", or write a .gif")


def _encoded_gif(pictures: Iterator[Any], frames_per_sec: float) -> bytes:
    data = io.BytesIO()
    next(pictures).save(
        data,
        "GIF",
        save_all=True,
        append_images=pictures,
        duration=1000 / frames_per_sec,
        loop=0,
    )
    return data.getvalue()


def _encoded_video(pictures: Iterator[Any], frames_per_sec: float) -> bytes:
    av, data = _imported_av("write"), io.BytesIO()
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
