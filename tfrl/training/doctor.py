"""What went wrong in a run first: its earliest number that is none."""

import hashlib
import itertools
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorboard.compat.proto import event_pb2

from tfrl.replay.disk import saving
from tfrl.summaries import run_log
from tfrl.training import _run_record
from tfrl.training.checkpointing import _sealed_folder, checkpoints
from tfrl.training.serializing import _typed_json

# No episode has ended yet: then there is no mean length, and no mean return.
_NO_EPISODES = {"train/length_mean", "train/return_mean"}
_LOOK_AGAIN = "remove it and look again"


class NonFinite(NamedTuple):
    """A tensor of a run that holds NaN or an infinity.

    Attributes:
        step: environment steps (of other event files whatever they count) at which
            it does so first.
        tensor: its name: a column, a tag, or a path in the checkpoint.
        place: index of its first such element; () of a number.
        value: of that element.
        n_bad: how many of its elements are such.
        n_all: how many elements it has.
        file: where it lies.

    Example:
        >>> print(NonFinite(512, "w", (0, 3), math.nan, 2, 8, "step-512"))
        step 512: w[0, 3] is nan (2 of 8 elements are not finite) in step-512
    """

    step: int
    tensor: str
    place: tuple[int, ...]
    value: Any
    n_bad: int
    n_all: int
    file: str

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.place))}]" if self.place else ""
        counted = f" ({self.n_bad} of {self.n_all} elements are not finite)"
        return (
            f"step {self.step}: {self.tensor}{where} is {self.value}"
            f"{counted if self.place else ''} in {self.file}"
        )


def find_nonfinite(directory: str | os.PathLike[str]) -> list[NonFinite]:
    """Looks for NaN and infinities in all that a run has left behind.

    That is `metrics.csv`, every TensorBoard event file in the folder and below it, and
    every tensor of every checkpoint, that of the best policy too. Each tensor is named
    once, at its first step. Of one step the rows of `metrics.csv` come before events,
    and those before the checkpoint, which was saved after them.

    Means over training episodes before the first one has ended are NaN in every run and
    do not count, nor do empty cells. What a run that was killed had begun to write at
    the end of a file is left out.

    Files with digests are held against them: `run.json`, `config.gin`, checkpoints,
    replays, and the rows of `metrics.csv` up to the newest checkpoint.

    Args:
        directory: folder of the run.

    Returns:
        What was found, the earliest first; nothing of a healthy run.

    Raises:
        ValueError: if the folder holds nothing of a run, or not itself but folders in
            it do, or a file is damaged.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> weights = {"w": np.array([1.0, np.nan]), "b": np.zeros(2)}
        >>> _ = tfrl.training.save_run(folder, 512, weights, {})
        >>> for found in find_nonfinite(folder):
        ...     print(found)
        step 512: state/w[1] is nan (1 of 2 elements are not finite) in \
checkpoints/step-512
    """
    folder = pathlib.Path(directory)
    rows, steps = folder / "metrics.csv", checkpoints.list_steps(folder)
    events = sorted(folder.rglob("events.out.tfevents.*"))
    below = sorted(path.parent.name for path in folder.glob("*/metrics.csv"))
    if below and not (rows.is_file() or steps):
        raise ValueError(
            "`find_nonfinite`: `directory` expected the folder of one run; got "
            f"{str(folder)!r} with {len(below)} in it, such as {below[0]!r}; look into "
            "each"
        )
    if not (rows.is_file() or steps or events):
        raise ValueError(
            "`find_nonfinite`: `directory` expected the folder of a run, with "
            f"metrics.csv, event files or checkpoints; got {str(folder)!r} without; "
            "correct the path"
        )
    _run_record.read("find_nonfinite", folder)
    _check_digests(folder, steps)
    todo = "resume the run, which writes its last rows anew" if steps else _LOOK_AGAIN
    sources = [_in_rows(rows, todo)] if rows.is_file() else []
    sources += [_in_events(path, folder) for path in events]
    sources += [_in_checkpoint(folder, "", step) for step in steps]
    best = checkpoints.list_steps(folder / "best")
    sources += [_in_checkpoint(folder, "best/", step) for step in best]
    earliest: dict[str, NonFinite] = {}
    for found in itertools.chain(*sources):
        known = earliest.get(found.tensor)
        if known is None or found.step < known.step:
            earliest[found.tensor] = found
    return sorted(earliest.values(), key=lambda found: found.step)


def list_overrides(directory: str | os.PathLike[str]) -> list[str]:
    """Lists with which other arguments a run went on than it was made with.

    Args:
        directory: folder of the run.

    Returns:
        A line for each time that it was resumed so, by `override=True` (--override).

    Raises:
        ValueError: if `run.json` or `config.gin` is damaged.

    Example:
        >>> list_overrides("no/such/run")
        []
    """
    record = _run_record.read("list_overrides", directory)
    return [] if record is None else [*map(_run_record.told, record.overrides)]


def _check_digests(folder: pathlib.Path, steps: list[int]) -> None:
    """Raises for the first file that is not as it was written."""
    folders = [folder / f"checkpoints/step-{step}" for step in steps]
    best = checkpoints.list_steps(folder / "best")
    folders += [folder / f"best/checkpoints/step-{step}" for step in best]
    for saved in folders:
        try:
            manifest = _sealed_folder.unseal(saved, "manifest.json")
            _sealed_folder.compare_files(saved, manifest)
        except _sealed_folder.DamageError as damage:
            raise _damaged(saved, damage) from damage
    # A kill may have left folders that no checkpoint goes with; they are not read.
    for replay in [folder / f"replay/step-{step}" for step in steps]:
        if replay.is_dir():
            try:
                saving.check_saved(replay)
            except (OSError, ValueError) as damage:
                raise _damaged(replay, damage) from damage
    rows = folder / "metrics.csv"
    if not steps or not rows.is_file():
        return
    data = rows.read_bytes()
    fitting = [step for step in steps if _fits(folder, step, data)]
    if steps[-1] not in fitting:
        reason = f"rows that step-{steps[-1]} goes with are not as they were written"
        todo = "restore it from a copy"
        if fitting:
            later = [f"step-{step}" for step in steps if step > fitting[-1]]
            todo += f", or go on from step {fitting[-1]}, with which it agrees: remove "
            todo += f"{', '.join(later)} in {str(folder / 'checkpoints')!r} and resume"
        raise _damaged(rows, reason, todo)


def _fits(folder: pathlib.Path, step: int, rows: bytes) -> bool:
    """Whether `metrics.csv` up to a checkpoint is as it was written."""
    saved = folder / f"checkpoints/step-{step}"
    metadata = _typed_json.from_json((saved / "metadata.json").read_bytes())
    position = metadata.get("log")
    # Positions of old have no digest.
    if not isinstance(position, dict) or "csv_sha256" not in position:
        return True
    kept = rows[: position["csv_bytes"]]
    return hashlib.sha256(kept).hexdigest() == position["csv_sha256"]


def _in_rows(path: pathlib.Path, todo: str) -> Iterator[NonFinite]:
    try:
        run_log.read_metrics(path)
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise _damaged(path, error, todo) from error
    header, *rows = text[: text.rfind("\n") + 1].splitlines()
    names = header.split(",")
    for row in rows:
        cells = dict(zip(names, row.split(","), strict=True))
        values = {name: float(cell) for name, cell in cells.items() if cell}
        step = values.pop("env_steps", math.nan)
        if not math.isfinite(step):
            raise _damaged(path, f"a row without env_steps, {row!r}", todo)
        yield from _of_row(int(step), values, path.name)


def _in_events(path: pathlib.Path, folder: pathlib.Path) -> Iterator[NonFinite]:
    name = path.relative_to(folder).as_posix()
    for record in _records(path):
        try:
            event = event_pb2.Event.FromString(record)
            values = {part.tag: _content(part) for part in event.summary.value}
        except (ValueError, TypeError, message.DecodeError) as error:
            raise _damaged(path, error) from error
        yield from _of_row(event.step, values, name)


def _records(path: pathlib.Path) -> Iterator[bytes]:
    records = iter(tf.data.TFRecordDataset(os.fspath(path)).as_numpy_iterator())
    while True:
        try:
            record = next(records, None)
        except tf.errors.DataLossError as error:
            if "truncated record" in error.message:
                return
            raise _damaged(path, error.message) from error
        except tf.errors.OpError as error:
            raise _damaged(path, error.message) from error
        if record is None:
            return
        yield record


def _content(part: Any) -> Any:
    """What a tag says, of TensorFlow 2 or before; 0 of what is no number."""
    if part.HasField("simple_value"):
        return part.simple_value
    return tf.make_ndarray(part.tensor) if part.HasField("tensor") else 0.0


def _of_row(step: int, values: dict[str, Any], file: str) -> Iterator[NonFinite]:
    waiting = all(np.isnan(values.get(name, 0.0)).all() for name in _NO_EPISODES)
    for name, value in values.items():
        if not (waiting and name in _NO_EPISODES):
            yield from _of_tensor(step, name, value, file)


def _in_checkpoint(folder: pathlib.Path, within: str, step: int) -> Iterator[NonFinite]:
    name = f"{within}checkpoints/step-{step}"
    try:
        reader = tf.train.load_checkpoint(os.fspath(folder / name / "state"))
        for tensor in sorted(reader.get_variable_to_dtype_map()):
            yield from _of_tensor(step, tensor, reader.get_tensor(tensor), name)
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        raise _damaged(folder / name, error) from error


def _of_tensor(step: int, name: str, content: Any, file: str) -> Iterator[NonFinite]:
    values = np.asarray(content)
    kind = tf.as_dtype(values.dtype)
    if kind.is_floating or kind.is_complex:
        bad = ~np.isfinite(values)
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            n_bad, value = int(bad.sum()), values[place].item()
            yield NonFinite(step, name, place, value, n_bad, values.size, file)


def _damaged(path: pathlib.Path, reason: Any, todo: str = _LOOK_AGAIN) -> ValueError:
    return ValueError(
        "`find_nonfinite`: `directory` expected files as they were written; got "
        f"{str(path)!r}, damaged ({reason}); {todo}"
    )
