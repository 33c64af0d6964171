"""How often a run reports, is evaluated and saved, and what it reports.

That is `Intervals`, rows of `metrics.csv`, TensorBoard events, the progress bar.
"""

import contextlib
import dataclasses
import math
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.summaries import progress, run_log
from tfrl.training import evaluation

COLUMNS = (
    "epoch",
    "seconds",
    "env_steps_per_second",
    "train/return_mean",
    "train/length_mean",
    "eval/return_mean",
    "eval/return_std",
    "eval/length_mean",
)


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How often a `Trainer` reports, evaluates and saves, in epochs.

    Attributes:
        log_epochs: epochs between rows of `metrics.csv`. A row has the info of the
            update in its own epoch, not of those before it.
        eval_epochs: epochs between evaluations; None for only the final one.
        eval_episodes: greedy episodes per evaluation, at least 1, as a run ends with
            one. Tasks that have no end need a time limit, see `make_vec`.
        checkpoint_epochs: epochs between checkpoints.
        checkpoints_kept: number of newest checkpoints that stay on disk.

    Example:
        >>> Intervals(log_epochs=1).checkpoints_kept
        3
    """

    log_epochs: int = 10
    eval_epochs: int | None = None
    eval_episodes: int = 20
    checkpoint_epochs: int = 100
    checkpoints_kept: int = 3

    def __post_init__(self) -> None:
        if self.eval_episodes == 0:
            raise ValueError(
                "`Intervals`: `eval_episodes` expected an int of at least 1, as each "
                "run ends with an evaluation; got 0; take 1, and limit what has no "
                "end, as by `max_episode_steps` of `make_vec`"
            )
        for name, value in dataclasses.asdict(self).items():
            if value is not None or name != "eval_epochs":
                checks.check_whole_number("Intervals", name, value, low=1)

    def until_due(self, epoch: int, n_epochs: int) -> int:
        """Returns the number of epochs until something is due or the run ends.

        Args:
            epoch: epochs done so far.
            n_epochs: of the run.

        Example:
            >>> Intervals(log_epochs=10, checkpoint_epochs=25).until_due(20, 100)
            5
        """
        cycles = self.log_epochs, self.eval_epochs, self.checkpoint_epochs
        due = [each - epoch % each for each in cycles if each is not None]
        return min(n_epochs - epoch, *due)


def mean(values: Sequence[float]) -> float:
    """Returns the mean; NaN of nothing."""
    return float(np.mean(values)) if values else float("nan")


def row(
    epoch: int,
    seconds: float,
    env_steps_per_second: float,
    episodes: Sequence[tuple[Sequence[float], Sequence[int]]],
    info: Mapping[str, Any],
) -> dict[str, float]:
    """Returns one row, up to what `judged` adds.

    Args:
        epoch: number of epochs done.
        seconds: of training so far.
        env_steps_per_second: since the row before.
        episodes: returns and lengths of the last training episodes of each worker.
        info: of the update.

    Raises:
        TypeError: if something in `info` is no scalar.
        ValueError: if something in `info` has the name of another column.
    """
    return {
        "epoch": epoch,
        "seconds": seconds,
        "env_steps_per_second": env_steps_per_second,
        "train/return_mean": mean([x for returns, _ in episodes for x in returns]),
        "train/length_mean": mean([x for _, lengths in episodes for x in lengths]),
        **_numbers(info),
    }


def judged(played: evaluation.Evaluation) -> dict[str, float]:
    """Returns what an evaluation adds to the row of its epoch."""
    of_agents, told = played.returns_by_agent().items(), played.successes
    return {
        "eval/return_mean": float(played.returns.mean()),
        "eval/return_std": float(played.returns.std()),
        "eval/length_mean": float(played.lengths.mean()),
        **({"eval/success_rate": told.mean().item()} if told.size else {}),
        **{f"eval/return_mean/{name}": float(x.mean()) for name, x in of_agents},
    }


@dataclasses.dataclass
class Standing:
    """What evaluations have said of a run so far.

    Attributes:
        stop_at: mean return at which the run ends; None for no such end.
        best: the highest mean return.
        last: the epoch that was evaluated last, and its mean return.
        row: that of an epoch whose evaluation has not been played to its end.

    Example:
        >>> standing = Standing(stop_at=7.0)
        >>> standing.judge(3, 8.5), standing.is_reached(3), standing.is_reached(4)
        (True, True, False)
    """

    stop_at: float | None
    best: float = -math.inf
    last: tuple[int, float] | None = None
    row: dict[str, float] | None = None

    def judge(self, epoch: int, mean: float) -> bool:
        """Takes note of the mean return after an epoch; returns if it is the best."""
        is_best = mean > self.best
        self.best = mean if is_best else self.best
        self.last, self.row = (epoch, mean), None
        return is_best

    def is_reached(self, epoch: int) -> bool:
        """Whether an evaluation after this epoch has ended the run."""
        if self.stop_at is None or self.last is None:
            return False
        return self.knows(epoch) and self.last[1] >= self.stop_at

    def knows(self, epoch: int) -> bool:
        """Whether the last evaluation was after this epoch."""
        return self.last is not None and self.last[0] == epoch

    def facts(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of it."""
        return {"best": self.best, "judged": self.last, "unjudged": self.row}

    def take_up(self, facts: Mapping[str, Any]) -> None:
        """Takes up what a checkpoint kept; those of old kept less."""
        self.best = facts.get("best", self.best)
        self.last, self.row = facts.get("judged"), facts.get("unjudged")


def _numbers(info: Mapping[str, Any]) -> dict[str, float]:
    numbers = {f"train/{k}": number("Trainer", k, x) for k, x in info.items()}
    taken = [name.removeprefix("train/") for name in numbers if name in COLUMNS]
    if taken:
        raise ValueError(
            "`Trainer`: `agent` expected an `update` whose info has no names of the "
            f"trainer's own; got {taken}; rename them"
        )
    return numbers


def number(where: str, name: str, value: Any) -> float:
    """Returns a scalar of an info; raises a TypeError if it is none."""
    # NumPy does not convert a bfloat16 tensor, nor lists of unequal lengths.
    value = value.numpy() if hasattr(value, "numpy") else value
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(value, object)
    if array.shape or not np.can_cast(array.dtype, np.float64, "same_kind"):
        kind = f"{array.dtype} of shape {list(array.shape)}"
        raise _no_scalar(where, name, kind, isinstance(value, Mapping))
    return float(array)


def check_scalar(where: str, name: str, value: Any) -> None:
    """Raises a TypeError unless what an info has in a graph is a scalar.

    Args:
        where: the asking function, for the message.
        name: of the value.
        value: what the info has.

    Example:
        >>> check_scalar("Trainer", "loss", tf.constant(1.0))
    """
    if tf.nest.is_nested(value):
        raise _no_scalar(where, name, f"{value!s:.80}", nested=True)
    if shape := [*np.shape(value)]:
        raise _no_scalar(where, name, f"shape {shape}", nested=False)


def _no_scalar(where: str, name: str, kind: str, nested: bool) -> TypeError:
    """Returns the error about something in an info that is no scalar, of a kind."""
    return TypeError(
        f"`{where}`: `agent` expected an `update` whose info holds scalars; got {kind} "
        f"for {name!r}; {'flatten the dictionary' if nested else 'reduce it'}"
    )


class Callbacks(keras.callbacks.CallbackList):
    """Callbacks of Keras, of which those that monitor something wait until it is known.

    At evaluations all of them are called, so that one which monitors something missing
    from every row reports that.
    """

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Tells of the end of an epoch, and the row that was written, if one was."""
        row = dict(logs or {})
        for each in self.callbacks:
            name = getattr(each, "monitor", None)
            is_known = not math.isnan(row.get(str(name), math.nan))
            if name is None or is_known or (name not in row and COLUMNS[-1] in row):
                each.on_epoch_end(epoch, row)


class Report:
    """Writes `metrics.csv` and TensorBoard events, and shows progress if asked to.

    Columns are those of `COLUMNS`, then what the updates inform about, in the order in
    which the names come up; of a resumed run first those that it has. What an update
    does not inform about is an empty cell.

    Args:
        directory: folder of the run; None writes nothing, as workers but the chief do.
        resume_at: see `RunLog`.
        bar: shows the progress; None for nobody.
        record: of the run, whose hyper-parameters a new run shows; None for none.
    """

    def __init__(
        self,
        directory: pathlib.Path | None,
        resume_at: Any,
        bar: progress.Progress | None,
        record: Any = None,
    ) -> None:
        self._directory, self._resume_at, self._bar = directory, resume_at, bar
        self._record = record
        self._log: run_log.RunLog | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Opens the files that a resumed run has."""
        with contextlib.ExitStack() as undo:
            undo.push(self._open)
            if self._resume_at["csv_bytes"]:
                self._log_with([])
            if self._bar is not None:
                self._open.enter_context(self._bar)
            known = self._resume_at
            if known["env_steps"] is not None and not known["csv_bytes"]:
                self.say(
                    "metrics.csv is gone: a new one begins, without the rows up to "
                    f"{known['env_steps']:,} environment steps"
                )
            undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Closes them."""
        self._open.__exit__(*error)

    def expect(self, info: Mapping[str, Any]) -> None:
        """Makes sure that there are columns for what an update informs about.

        Raises:
            TypeError: if something in `info` is no scalar.
            ValueError: if something in `info` has the name of another column.
        """
        self._log_with([*_numbers(info)])

    def _log_with(self, names: list[str]) -> run_log.RunLog | None:
        """Returns the log, made if there is none, with columns of these names."""
        if self._directory is None:
            return None
        if self._log is None:
            columns: Sequence[str] = [*dict.fromkeys([*COLUMNS, *names])]
            if self._resume_at["csv_bytes"]:
                columns = _columns_of(self._directory / "metrics.csv")
            log = run_log.RunLog(self._directory, columns, self._resume_at)
            self._log = self._open.enter_context(log)
            if self._record is not None and not self._resume_at["csv_bytes"]:
                log.hyperparameters(self._record.hyperparameters)
        self._log.widen(names)
        return self._log

    def say(self, *notices: str | None, hint: str | None = None) -> None:
        """Shows lines to who looks on, and warns where nobody does.

        Args:
            *notices: None is none.
            hint: shown to who looks on alone, in place of a first notice of None.
        """
        if self._bar is not None:
            notices = notices[0] or hint, *notices[1:]
        for notice in notices:
            if notice is None:
                continue
            if self._bar is not None:
                self._bar.say(notice)
            elif self._directory is not None:
                warnings.warn(f"`Trainer.run`: {notice}", stacklevel=3)

    def write(self, env_steps: int, values: dict[str, float], done: int) -> None:
        """Writes one row, and shows how much is done."""
        log = self._log_with([*values])
        if log is not None:
            log.write(env_steps, values)
        if self._bar is not None:
            self._bar.update(done, values["train/return_mean"])

    def position(self) -> Any:
        """Where a resumed run is to go on; see `RunLog`."""
        log = self._log_with([])
        return None if log is None else log.position()


def without_rows(directory: pathlib.Path, position: Any) -> Any:
    """Returns where a log goes on whose `metrics.csv` may be gone.

    Args:
        directory: of the run.
        position: where it stood.

    Returns:
        The same; without `metrics.csv` one from which a new file begins.
    """
    if (directory / "metrics.csv").exists():
        return position
    kept = ("env_steps", "event_file", "event_bytes")
    return {**run_log.RunLog.START, **{name: position[name] for name in kept}}


def _columns_of(path: pathlib.Path) -> Sequence[str]:
    if not path.is_file():
        return COLUMNS
    with path.open("rb") as rows:
        header = rows.readline().decode("utf-8", "replace")
    return header.rstrip("\n").split(",")[1:]
