"""The numbers of a run, on disk: `metrics.csv` and TensorBoard scalars."""

import contextlib
import errno
import hashlib
import operator
import os
import pathlib
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import summary_v2 as hparams_summary
from tensorboard.plugins.scalar import summary_v2 as scalar_summary
from tensorboard.plugins.text import summary_v2 as text_summary

from tfrl._internal import arguments, durable
from tfrl.summaries import _metrics_file

_EVENTS = "events.out.tfevents.{}.run_log"
# What TensorBoard's library takes long to make anew.
_SCALAR = scalar_summary.scalar_pb("", 0.0).value[0]
_RECORD_FRAME_BYTES = 16  # length and two checksums around each TensorBoard event


def read_metrics(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    r"""Reads a `metrics.csv` into one array per column.

    A last line that has no line end yet (the run is still writing it) is left out.

    Args:
        path: the file, as `RunLog` writes it.

    Returns:
        Column name to `[rows]` float64, in the order of the file; an empty cell is nan.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is no text or has no header, or a row has another number
            of cells than the header, or a cell is not a number.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     path = pathlib.Path(directory, "metrics.csv")
        ...     _ = path.write_text("env_steps,train/loss\n256,0.5\n512,\n")
        ...     read_metrics(path)
        {'env_steps': array([256., 512.]), 'train/loss': array([0.5, nan])}
    """
    try:
        text = arguments.as_path("read_metrics", "path", path).read_text(
            encoding="utf-8"
        )
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`read_metrics`: `path` expected a text file; got {path}"
        ) from error
    header, *rows = text[: text.rfind("\n") + 1].splitlines() or [""]
    if not header:
        raise ValueError(
            f"`read_metrics`: `path` expected a file with a header line; got {path}"
        )
    names = header.split(",")
    table = np.empty((len(rows), len(names)))
    for index, row in enumerate(rows):
        try:
            numbers = [float(cell) if cell else np.nan for cell in row.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != len(names):
            raise ValueError(
                f"`read_metrics`: `path` expected {len(names)} numbers in each row; "
                f"got {row!r} in line {index + 2} of {path}"
            )
        table[index] = numbers
    return dict(zip(names, table.T, strict=True))


class RunLog:
    """Writes one row of numbers per call, for programs and for TensorBoard.

    `metrics.csv` has the column `env_steps` and then `columns`; missing values are
    empty cells, floats are written by `repr`, so that they come back bit for bit.
    The same values become TensorBoard scalars with step = env_steps and tag = column.
    A row is handed to the operating system before `write` returns, so a killed run
    keeps every row. About 12 microseconds a value; not for use inside `tf.function`.

    To resume, store `position()` with each checkpoint and give it back as `resume_at`:
    rows and TensorBoard points after it are dropped, for the resumed run makes them
    again. `resume_at=RunLog.START` drops everything: for a run which was killed before
    its first checkpoint. Columns that `widen` added after the position stay, empty in
    the rows that are kept.

    Args:
        directory: where `metrics.csv` and the event file go; made if missing.
        columns: names of the values after `env_steps`, for example `train/loss`; of a
            resumed run those at the position, or all that `metrics.csv` has.
        resume_at: a `position()` of the earlier run, or None for a new run.

    Attributes:
        columns: all that `metrics.csv` has after `env_steps`.
        path: of `metrics.csv`.

    Raises:
        ValueError: if `columns` are not distinct plain names; if there is a
            `metrics.csv` already and `resume_at` is None; if `resume_at` does not fit
            the `metrics.csv` found (shorter, inside a row, other columns, not as it was
            written). Nothing has been changed then.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with RunLog(directory, ["train/loss", "eval/return_mean"]) as log:
        ...         log.write(256, {"train/loss": 0.5})
        ...         position = log.position()
        ...         log.write(512, {"train/loss": 0.4})
        ...     with RunLog(
        ...         directory, ["train/loss", "eval/return_mean"], resume_at=position
        ...     ) as log:
        ...         log.write(512, {"train/loss": 0.25})
        ...     read_metrics(log.path)["train/loss"]
        array([0.5 , 0.25])
    """

    START: Mapping[str, Any] = types.MappingProxyType(
        {
            "csv_bytes": 0,
            _metrics_file.COLUMNS: 0,
            _metrics_file.DIGEST: hashlib.sha256().hexdigest(),
            _metrics_file.STEPS: None,
            "event_file": "",
            "event_bytes": 0,
        }
    )

    def __init__(
        self,
        directory: str | os.PathLike[str],
        columns: Sequence[str],
        resume_at: Mapping[str, Any] | None = None,
    ) -> None:
        header = _metrics_file.header_of(tuple(columns), "`RunLog`: `columns`")
        directory = pathlib.Path(directory)
        self.path = directory / "metrics.csv"
        resume_at, kept = _metrics_file.checked_position(
            self.path, header, resume_at, self.START
        )
        self.columns = _metrics_file.names_in(kept or header)
        self._digest = hashlib.sha256(kept)
        self._last: int | None = resume_at[_metrics_file.STEPS]
        self._events: Any = None
        self._event_file, self._event_bytes = "", 0
        directory.mkdir(parents=True, exist_ok=True)
        _drop_events(directory, resume_at)
        if self.path.exists():
            os.truncate(self.path, len(kept))
        self._csv = open(self.path, "ab", buffering=0)
        try:
            self._start(directory, b"" if kept else header)
        except BaseException:
            self.close()
            if not kept:
                self.path.unlink()
            if self._event_file:
                (directory / self._event_file).unlink(missing_ok=True)
            raise

    def _start(self, directory: pathlib.Path, header: bytes) -> None:
        if header:
            self._write_row(header)
        # Readers take event files in the order of their names.
        self._event_file = _EVENTS.format(f"{time.time_ns():019d}")
        self._events = tf.io.TFRecordWriter(os.fspath(directory / self._event_file))
        self._event_bytes = 0
        self._write_event(file_version="brain.Event:2")
        # A TensorBoard that has read the dropped points already forgets them at a
        # START record of their step. It ignores the first one of a directory, so a
        # new run has to write one as well.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        step = 0 if self._last is None else self._last + 1
        self._write_event(step=step, session_log=start)

    @staticmethod
    def fits(rows: bytes, position: Mapping[str, Any]) -> bool:
        """Returns whether a `metrics.csv` agrees with a position.

        Args:
            rows: what the file holds.
            position: what `position()` returned.

        Returns:
            Whether the rows up to there are those that were written, but for columns
            that were added later. A position of old, without a digest, only says where
            a row of which `env_steps` ended.
        """
        kept = _metrics_file.kept_of(rows, position)
        return _metrics_file.is_as_written(kept, position)

    def widen(self, names: Sequence[str]) -> None:
        """Adds columns at the end; they are empty in the rows so far.

        `metrics.csv` is replaced in one step: a run killed meanwhile has all its rows,
        with the new columns or without. Every position taken before stays good.

        Args:
            names: of the values to come. Those that are columns already stay as they
                are.

        Raises:
            ValueError: if `names` are not distinct plain names, `metrics.csv` is not
                as it was written or the log is closed. Nothing has been changed then.
            OSError: if the disk refuses; the rows are as they were, and the log is
                closed.
        """
        self._check_open("widen")
        columns = (*self.columns, *(x for x in names if x not in self.columns))
        further = len(columns) - len(self.columns)
        if not further:
            return
        header = _metrics_file.header_of(columns, "`RunLog.widen`: `names`")
        try:
            text = self.path.read_bytes()
        except OSError as error:
            self._refused(error.errno, str(error.strerror), error)
        if hashlib.sha256(text).digest() != self._digest.digest():
            raise ValueError(
                f"`RunLog.widen`: expected {self.path} as it was written; got "
                "something else; restore it from a copy and resume"
            )
        _, _, rows = text.partition(b"\n")
        text = header + rows.replace(b"\n", b"," * further + b"\n")
        # Whatever breaks in here leaves a closed log: rows written to the file that was
        # replaced, or in other columns, would be lost.
        self._csv.close()
        try:
            durable.replace_file(self.path, text)
            self.columns, self._digest = columns, hashlib.sha256(text)
            self._csv = open(self.path, "ab", buffering=0)
        except OSError as error:
            self._refused(error.errno, str(error.strerror), error)

    def write(self, env_steps: int, values: Mapping[str, Any]) -> None:
        """Adds a row.

        Args:
            env_steps: environment steps of the whole run so far; never decreasing.
            values: column name to number (Python, numpy or tensor scalar); nan is
                allowed. Columns which are not there stay empty.

        Raises:
            ValueError: if a name is not a column, `env_steps` goes back or beyond int64
                or the log is closed.
            TypeError: if a value is not one real number. Nothing has been written then.
            OSError: if the disk refuses; the row is not there, and the log is closed.
        """
        self._check_open("write")
        env_steps = operator.index(env_steps)
        if not (0 if self._last is None else self._last) <= env_steps < 1 << 63:
            raise ValueError(
                "`RunLog.write`: `env_steps` expected at least the "
                f"{self._last} of the last row (0 at first); got {env_steps}"
            )
        unknown = sorted(set(values) - set(self.columns))
        if unknown:
            raise ValueError(
                f"`RunLog.write`: `values` expected names among {list(self.columns)}; "
                f"got {unknown}; declare them as `columns`, or `widen`"
            )
        given = [name for name in self.columns if name in values]
        numbers = {name: _number(name, values[name]) for name in given}
        cells = [repr(numbers[x]) if x in numbers else "" for x in self.columns]
        summary = summary_pb2.Summary()
        # TensorBoard's float32 may overflow, to an infinity.
        with np.errstate(over="ignore"):
            for name, number in numbers.items():
                added = summary.value.add()
                added.CopyFrom(_SCALAR)
                added.tag, added.tensor.float_val[0] = name, float(np.float32(number))
        end = self._csv.tell()
        self._write_row((",".join([str(env_steps), *cells]) + "\n").encode())
        try:
            self._write_event(step=env_steps, summary=summary)
        except OSError:
            # Both files tell the same.
            os.truncate(self.path, end)
            raise
        self._last = env_steps

    def text(self, tag: str, text: str) -> None:
        """Shows a text, as Markdown, in TensorBoard: for example the configuration.

        Args:
            tag: its name.
            text: what to show. Indent by four spaces what is to be shown as it is.

        Raises:
            ValueError: if the log is closed.
        """
        self._check_open("text")
        step = 0 if self._last is None else self._last
        self._write_event(step=step, summary=text_summary.text_pb(tag, text))

    def hyperparameters(self, values: Mapping[str, bool | int | float | str]) -> None:
        """Shows hyper-parameters in TensorBoard's HPARAMS; runs with the same are one.

        Args:
            values: plain values by name.

        Raises:
            TypeError: if one is something else.
            ValueError: if the log is closed.
        """
        self._check_open("hyperparameters")
        step = 0 if self._last is None else self._last
        self._write_event(step=step, summary=hparams_summary.hparams_pb(dict(values)))

    def position(self) -> dict[str, int | str | None]:
        """Returns where the log stands, for `resume_at`.

        The rows before it are on the disk when this returns, whatever happens next.

        Returns:
            The lengths of both files, the number of columns after `env_steps` and the
            digest of `metrics.csv`, the name of the event file and the `env_steps` of
            the last row (None without rows); plain values that go into JSON.

        Raises:
            ValueError: if the log is closed.
        """
        self._check_open("position")
        os.fsync(self._csv.fileno())
        return {
            "csv_bytes": self._csv.tell(),
            _metrics_file.COLUMNS: len(self.columns),
            _metrics_file.DIGEST: self._digest.hexdigest(),
            _metrics_file.STEPS: self._last,
            "event_file": self._event_file,
            "event_bytes": self._event_bytes,
        }

    def close(self) -> None:
        """Closes both files; a second call does nothing."""
        self._csv.close()
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self, method: str) -> None:
        if self._csv.closed:
            raise ValueError(
                f"`RunLog.{method}`: expected an open log; got one that was closed; "
                "open a new one with `resume_at`"
            )

    def _write_row(self, row: bytes) -> None:
        end = self._csv.tell()
        try:
            written = self._csv.write(row)
            if written != len(row):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.truncate(self.path, end)
            self._refused(error.errno, str(error.strerror), error)
        self._digest.update(row)

    def _write_event(self, **fields: Any) -> None:
        event = event_pb2.Event(wall_time=time.time(), **fields).SerializeToString()
        try:
            self._events.write(event)
            self._events.flush()
        except tf.errors.OpError as error:
            self._refused(errno.ENOSPC, error.message, error)
        self._event_bytes += len(event) + _RECORD_FRAME_BYTES

    def _refused(self, number: int | None, reason: str, cause: Exception) -> NoReturn:
        with contextlib.suppress(tf.errors.OpError):
            self.close()
        with contextlib.suppress(OSError):
            os.truncate(self.path.parent / self._event_file, self._event_bytes)
        raise OSError(
            number,
            f"`RunLog`: `directory` expected a disk that takes more; got "
            f"{reason}; make room and resume; the rows before are as they were",
            str(self.path),
        ) from cause


def _drop_events(directory: pathlib.Path, position: Mapping[str, Any]) -> None:
    """Removes what earlier logs wrote to event files after `position`."""
    for path in directory.glob(_EVENTS.format("*")):
        if path.name > position["event_file"]:
            path.unlink()
        elif path.name == position["event_file"]:
            size = path.stat().st_size
            os.truncate(path, min(size, position["event_bytes"]))


def _number(name: str, value: Any) -> int | float:
    if tf.is_tensor(value) and tf.as_dtype(value.dtype) == tf.bfloat16:
        value = tf.cast(value, tf.float32)
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in "biuf":
        expected = f"one real number for {name!r}"
        raise arguments.wrong_type("RunLog.write", "values", value, expected)
    return float(array) if array.dtype.kind == "f" else int(array)
