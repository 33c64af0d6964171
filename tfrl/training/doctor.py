"""What is wrong with a run: NaN, infinities, damaged files, idle actors."""

import contextlib
import itertools
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl._internal import event_files, plain_paths, sealed_folder
from tfrl.replay.disk import saving
from tfrl.saving import checkpoints, typed_json
from tfrl.summaries import run_log
from tfrl.training import _run_record

# No episode has ended yet: then there is no mean length, and no mean return.
_NO_EPISODES = {"train/length_mean", "train/return_mean"}
_LOOK_AGAIN = "remove it and look again"
# What readers of many kinds make of bytes that nobody wrote.
_DAMAGE = (
    *(sealed_folder.DamageError, tf.errors.OpError, OSError, ValueError),
    *(TypeError, RuntimeError, IndexError),
)


class NonFinite(NamedTuple):
    """A tensor of a run that holds NaN or an infinity.

    Attributes:
        step: environment steps (in other event files whatever they count) at which it
            first does.
        tensor: its name: a column, a tag, or a path in the checkpoint.
        place: index of its first such element; () for a number.
        value: of that element.
        n_bad: how many of its elements are not finite.
        n_all: how many elements it has.
        file: the file that holds it.

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
    """Looks for NaN and infinities in everything that a run has left behind.

    That is `metrics.csv`, every TensorBoard event file in the folder and below it, and
    every tensor of every checkpoint, including that of the best policy. Each tensor is
    named once, at its first step. Within a step, rows of `metrics.csv` come before
    events, and these before the checkpoint, which was saved after them.

    Means over training episodes before the first one has ended are NaN in every run and
    do not count, nor do empty cells. Unfinished writes of a killed run at the end of a
    file are ignored.

    Files with digests are compared with them: `run.json`, `config.gin`, checkpoints,
    replays, and the rows of `metrics.csv` up to the newest checkpoint.

    Args:
        directory: folder of the run.

    Returns:
        The findings, earliest first; none for a healthy run.

    Raises:
        ValueError: if the folder holds nothing of a run, or only its subfolders do, or
            a file is damaged.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> weights = {"w": np.array([1.0, np.nan]), "b": np.zeros(2)}
        >>> _ = tfrl.saving.save_run(folder, 512, weights, {})
        >>> for found in find_nonfinite(folder):
        ...     print(found)
        step 512: state.w[1] is nan (1 of 2 elements are not finite) in \
checkpoints/step-512
    """
    folder = pathlib.Path(directory)
    rows, steps = folder / "metrics.csv", checkpoints.list_steps(folder)
    events = sorted(folder.rglob("events.out.tfevents.*"))
    below = sorted(path.parent.name for path in folder.glob("*/metrics.csv"))
    if below and not (rows.is_file() or steps):
        raise ValueError(
            "`find_nonfinite`: `directory` expected the folder of one run; got "
            f"{str(folder)!r} with {len(below)} in it, such as {below[0]!r}"
        )
    if not (rows.is_file() or steps or events):
        raise ValueError(
            "`find_nonfinite`: `directory` expected the folder of a run, with "
            f"metrics.csv, event files or checkpoints; got {str(folder)!r} without"
        )
    _run_record.read("find_nonfinite", folder)
    saved = [folder / f"checkpoints/step-{step}" for step in steps]
    best = checkpoints.list_steps(folder / "best")
    saved += [folder / f"best/checkpoints/step-{step}" for step in best]
    _check_digests(folder, saved, steps)
    sources = []
    if rows.is_file():
        todo = "resume the run, which writes its last rows anew"
        sources.append(_in_rows(rows, todo if steps else _LOOK_AGAIN))
    sources += [_in_events(path, folder) for path in events]
    sources += [_in_checkpoint(path, folder) for path in saved]
    earliest: dict[str, NonFinite] = {}
    for found in itertools.chain(*sources):
        known = earliest.get(found.tensor)
        if known is None or found.step < known.step:
            earliest[found.tensor] = found
    return sorted(earliest.values(), key=lambda found: found.step)


def list_overrides(directory: str | os.PathLike[str]) -> list[str]:
    """Lists the changed arguments with which a run was resumed.

    Args:
        directory: folder of the run.

    Returns:
        A line for each time that it was resumed with `override=True` (--override).

    Raises:
        ValueError: if `run.json` or `config.gin` is damaged.

    Example:
        >>> list_overrides("no/such/run")
        []
    """
    record = _run_record.read("list_overrides", directory)
    return [] if record is None else [*map(_run_record.told, record.overrides)]


def list_missing(directory: str | os.PathLike[str]) -> list[str]:
    """Lists missing files of a run that its checkpoints rely on.

    Args:
        directory: folder of the run.

    Returns:
        A line for `metrics.csv`, without which no checkpoint is resumed, and one for
        each event file that is missing or ends too early.

    Example:
        >>> list_missing("no/such/run")
        []
    """
    folder, found = pathlib.Path(directory), {}
    for step in checkpoints.list_steps(folder):
        position = _position(folder, step)
        if position.get("csv_bytes") and not (folder / "metrics.csv").exists():
            found["metrics.csv"] = (
                f"metrics.csv is missing, which has rows up to step {step}: restore it "
                "from a copy, or resume by --override, with which a new one begins"
            )
        name, size = position.get("event_file"), position.get("event_bytes", 0)
        there = folder / str(name)
        n_bytes = there.stat().st_size if there.is_file() else 0
        if name and n_bytes < size:
            lacks = f"has {n_bytes:,} of {size:,} bytes" if n_bytes else "is missing"
            found[name] = f"{name} {lacks}: TensorBoard shows less than was written"
    return [*found.values()]


def describe_actors(directory: str | os.PathLike[str]) -> str | None:
    """Describes how busy a run with actors kept its learner and its actors.

    The lag is how many updates old the trajectories learned from were; idle is the
    share of time that the learner waited for actors, or they for it. All numbers are
    from the last epochs before the last row of `metrics.csv`.

    Args:
        directory: folder of the run.

    Returns:
        One line; None for a run without actors, or without rows.

    Raises:
        ValueError: if `metrics.csv` is damaged.

    Example:
        >>> print(describe_actors("runs/by/one/process"))
        None
    """
    path = pathlib.Path(directory) / "metrics.csv"
    if not path.is_file():
        return None
    table = run_log.read_metrics(path)
    names = (
        *("actor_lag", "actor_lag_max", "learner_idle", "actors_idle"),
        *("actors_replaced", "trajectories_discarded"),
    )
    columns: list[Any] = [table.get(f"train/{name}", ()) for name in names]
    if not all(len(column) for column in columns):
        return None
    lag, most, learner, actors, replaced, discarded = (x[-1] for x in columns)
    return (
        f"actors: lag {lag:.1f} updates (at most {most:.0f}), learner idle "
        f"{100 * learner:.0f} %, actors idle {100 * actors:.0f} %, {replaced:.0f} "
        f"replaced, {discarded:.0f} trajectories discarded"
    )


def _check_digests(
    folder: pathlib.Path, saved: list[pathlib.Path], steps: list[int]
) -> None:
    """Raises for the first file that is not as it was written."""
    for path in saved:
        with _damage_named(path):
            manifest = sealed_folder.unseal(path, "manifest.json")
            sealed_folder.compare_files(path, manifest)
    # A kill may have left folders that no checkpoint goes with; they are not read.
    for replay in [folder / f"replay/step-{step}" for step in steps]:
        if replay.is_dir():
            with _damage_named(replay):
                saving.check_saved(replay)
    rows = folder / "metrics.csv"
    if not steps or not rows.is_file():
        return
    data, fitting = rows.read_bytes(), []
    for step in steps:
        position = _position(folder, step)
        # Of old there was no digest.
        if "csv_sha256" not in position or run_log.RunLog.fits(data, position):
            fitting.append(step)
    if steps[-1] not in fitting:
        reason = f"rows that step-{steps[-1]} goes with are not as they were written"
        todo = "restore it from a copy"
        if fitting:
            later = [f"step-{step}" for step in steps if step > fitting[-1]]
            todo += f", or go on from step {fitting[-1]}, with which it agrees: remove "
            todo += f"{', '.join(later)} in {str(folder / 'checkpoints')!r} and resume"
        raise _damaged(rows, reason, todo)


def _position(folder: pathlib.Path, step: int) -> dict[str, Any]:
    """Where the log of a run stood at a checkpoint; nothing of other checkpoints."""
    metadata = (folder / f"checkpoints/step-{step}/metadata.json").read_bytes()
    position = typed_json.from_json(metadata).get("log")
    return position if isinstance(position, dict) else {}


def _in_rows(path: pathlib.Path, todo: str) -> Iterator[NonFinite]:
    with _damage_named(path, todo):
        run_log.read_metrics(path)
        text = path.read_text("utf-8")
        header, *rows = text[: text.rfind("\n") + 1].splitlines()
        names = header.split(",")
        for row in rows:
            cells = dict(zip(names, row.split(","), strict=True))
            values = {name: float(cell) for name, cell in cells.items() if cell}
            step = values.pop("env_steps", math.nan)
            if not math.isfinite(step):
                raise ValueError(f"a row without env_steps, {row!r}")
            yield from _of_row(int(step), values, path.name)


def _in_events(path: pathlib.Path, folder: pathlib.Path) -> Iterator[NonFinite]:
    name = path.relative_to(folder).as_posix()
    with _damage_named(path):
        for event in event_files.read_events(path):
            values = {part.tag: _content(part) for part in event.summary.value}
            yield from _of_row(event.step, values, name)


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


def _in_checkpoint(path: pathlib.Path, folder: pathlib.Path) -> Iterator[NonFinite]:
    name, step = path.relative_to(folder).as_posix(), int(path.name.split("-")[1])
    with _damage_named(path):
        (index,) = path.glob("*.index")
        with plain_paths.plain(path) as plain:
            reader = tf.train.load_checkpoint(os.path.join(plain, index.stem))
            for tensor in sorted(reader.get_variable_to_dtype_map()):
                yield from _of_tensor(step, tensor, reader.get_tensor(tensor), name)


def _of_tensor(step: int, name: str, content: Any, file: str) -> Iterator[NonFinite]:
    values = np.asarray(content)
    kind = tf.as_dtype(values.dtype)
    if kind.is_floating or kind.is_complex:
        bad = ~np.isfinite(values)
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            n_bad, value = int(bad.sum()), values[place].item()
            yield NonFinite(step, name, place, value, n_bad, values.size, file)


@contextlib.contextmanager
def _damage_named(path: pathlib.Path, todo: str = _LOOK_AGAIN) -> Iterator[None]:
    """Names the file or folder in which a block meets damage."""
    try:
        yield
    except _DAMAGE as damage:
        told = getattr(damage, "message", damage)
        raise _damaged(path, told, todo) from damage


def _damaged(path: pathlib.Path, reason: Any, todo: str = _LOOK_AGAIN) -> ValueError:
    return ValueError(
        "`find_nonfinite`: `directory` expected files as they were written; got "
        f"{str(path)!r}, damaged ({reason}); {todo}"
    )
