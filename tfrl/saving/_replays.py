"""Replay buffers as a part of a checkpoint: a folder in its folder."""

import pathlib
from collections.abc import Mapping

import tensorflow as tf

from tfrl.replay.disk import saving

_REPLAY = "replay"


def write(
    folder: pathlib.Path,
    replays: Mapping[str, tf.Module],
    before: pathlib.Path | None = None,
) -> list[str]:
    """Saves buffers to a folder in a folder.

    Args:
        folder: with none yet.
        replays: by name; none is possible.
        before: folder to which others were written this way, or the same earlier; what
            did not change since is shared with it.

    Returns:
        The files whose digests `seal` has to know; they hold those of the others.
    """
    if not replays:
        return []
    base = None if before is None else before / _REPLAY
    saving.save(folder / _REPLAY, _without_slashes(replays), base)
    return [f"{_REPLAY}/manifest.json"]


def read(folder: pathlib.Path, replays: Mapping[str, tf.Module]) -> None:
    """Loads what `write` saved, or raises and changes nothing.

    Args:
        folder: of the checkpoint.
        replays: by name; none is possible.

    Raises:
        OSError: if there is nothing, or the disk refuses.
        ValueError: if they were saved otherwise; a `DamageError` if a file is
            not as it was written.
    """
    if replays:
        saving.load(folder / _REPLAY, _without_slashes(replays))


def _without_slashes(replays: Mapping[str, tf.Module]) -> dict[str, tf.Module]:
    return {
        name.replace("~", "~0").replace("/", "~1"): each
        for name, each in replays.items()
    }
