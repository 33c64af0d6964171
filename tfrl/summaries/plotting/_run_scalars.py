"""The scalars of one tag, out of the event files of runs."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import types_pb2

from tfrl._internal import event_files

_SHOWN_TAGS = 20

Path = str | os.PathLike[str]


def read_scalars(
    where: str, runs: Sequence[Path], tag: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns steps (int64, increasing) and values (float64) of one tag in each run.

    A run is an event file or a folder of some, taken in the order of their names. What
    a run wrote before it went back to an earlier step is dropped, as is a record at
    the end of a file that is not all there (the run is still writing, or was killed).
    """
    folders = [(run, _files(where, run)) for run in runs]
    return [_scalars(where, run, files, tag) for run, files in folders]


def _files(where: str, run: Path) -> list[pathlib.Path]:
    path = pathlib.Path(run)
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob("*tfevents*") if p.is_file())
    if files:
        return files
    found = "which has none" if path.is_dir() else "which does not exist"
    # Not further down: the path may be wrong, and all of a disk below it.
    near = (path.glob(f"{folders}*tfevents*") for folders in ("*/", "*/*/"))
    below = sorted({os.fspath(p.parent) for found in near for p in found})
    if below:
        found += f", but there are some in {', '.join(below[:8])}"
    raise ValueError(
        f"`{where}`: `event_file` expected folders with event files (*tfevents*); got "
        f"{path}, {found}; give the folder that TensorBoard shows as a run"
    )


def _scalars(
    where: str, run: Path, files: list[pathlib.Path], tag: str
) -> tuple[np.ndarray, np.ndarray]:
    steps, numbers, tags = [], [], set()
    for path in files:
        for step, value in _values(where, path):
            tags.add(value.tag)
            if value.tag == tag:
                steps.append(step)
                numbers.append(_number(where, tag, value))
    if not steps:
        shown = str(sorted(tags)[:_SHOWN_TAGS]) if tags else "nothing in it"
        if len(tags) > _SHOWN_TAGS:
            shown += f" and {len(tags) - _SHOWN_TAGS} more"
        raise ValueError(
            f"`{where}`: `event_file` expected runs with scalars {tag!r}; got {run} "
            f"with {shown}; give one of its tags as `tag`, or leave the run out"
        )
    # What was written before the run went back to its step or an earlier one is gone.
    order = np.array(steps, np.int64)
    lowest_later = np.minimum.accumulate(order[::-1])[::-1]
    kept = np.append(order[:-1] < lowest_later[1:], True)
    return order[kept], np.array(numbers, np.float64)[kept]


def _values(where: str, path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    try:
        for event in event_files.read_events(path):
            for value in event.summary.value:
                yield event.step, value
    except ValueError as error:
        raise ValueError(
            f"`{where}`: `event_file` expected event files of TensorBoard; got {path}, "
            "which is damaged or something else; take it out of the folder"
        ) from error


def _number(where: str, tag: str, value: Any) -> float:
    """The one number of a summary value, of TensorFlow 2 or before."""
    if value.HasField("simple_value"):
        return value.simple_value
    tensor = value.tensor
    # A few bytes may declare any shape: look before it is filled.
    if not tensor.tensor_shape.dim:
        if tensor.dtype == types_pb2.DT_FLOAT and len(tensor.float_val) == 1:
            return tensor.float_val[0]  # by far the most frequent one
        with contextlib.suppress(TypeError, ValueError):
            kind = tf.as_dtype(tensor.dtype)
            if kind.is_floating or kind.is_integer or kind.is_bool:
                return float(tf.make_ndarray(tensor))
    raise ValueError(
        f"`{where}`: `tag` expected that of real scalars; got {tag!r}, under which "
        "lies something else (a histogram, a text, an image); give another"
    )
