"""What a run reports, and where: the rows of `metrics.csv`, the progress bar."""

import contextlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

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
    "train/loss",
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/explained_variance",
    "train/learning_rate",
    "train/gradient_steps",
)


def mean(values: Sequence[float]) -> float:
    """Returns the mean; NaN of nothing."""
    return float(np.mean(values)) if values else float("nan")


def row(
    epoch: int,
    seconds: float,
    env_steps_per_second: float,
    episodes: Sequence[tuple[Sequence[float], Sequence[int]]],
    info: Mapping[str, float],
) -> dict[str, float]:
    """Returns one row, up to what `judged` adds.

    Args:
        epoch: number of epochs done.
        seconds: of training so far.
        env_steps_per_second: since the row before.
        episodes: returns and lengths of the last training episodes of each worker.
        info: of the update.

    Raises:
        TypeError: if something in `info` is no number.
    """
    return {
        "epoch": epoch,
        "seconds": seconds,
        "env_steps_per_second": env_steps_per_second,
        "train/return_mean": mean([x for returns, _ in episodes for x in returns]),
        "train/length_mean": mean([x for _, lengths in episodes for x in lengths]),
        **{f"train/{name}": _number(name, value) for name, value in info.items()},
    }


def judged(played: evaluation.Evaluation) -> dict[str, float]:
    """Returns what an evaluation adds to the row of its epoch."""
    return {
        "eval/return_mean": float(played.returns.mean()),
        "eval/return_std": float(played.returns.std()),
        "eval/length_mean": float(played.lengths.mean()),
    }


def _number(name: str, value: Any) -> float:
    if np.ndim(value):
        raise TypeError(
            "`Trainer`: `agent` expected an `update` whose info holds numbers beside "
            f"`parameters`; got shape {list(np.shape(value))} for {name!r}; reduce it"
        )
    return float(value)


class Report:
    """Writes `metrics.csv` and TensorBoard events, and shows progress if asked to.

    Columns are those of `COLUMNS` and what else the first update informs about; of a
    resumed run those that it has.

    Args:
        directory: folder of the run; None writes nothing, as workers but the chief do.
        resume_at: see `RunLog`.
        bar: shows the progress; None for nobody.
    """

    def __init__(
        self,
        directory: pathlib.Path | None,
        resume_at: Any,
        bar: progress.Progress | None,
    ) -> None:
        self._directory, self._resume_at, self._bar = directory, resume_at, bar
        self._log: run_log.RunLog | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Opens the files that a resumed run has."""
        with contextlib.ExitStack() as undo:
            if self._directory is not None and self._resume_at["csv_bytes"]:
                columns = _columns_of(self._directory / "metrics.csv")
                self._log = undo.enter_context(self._opened(columns))
            if self._bar is not None:
                undo.enter_context(self._bar)
            self._open = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Closes them."""
        self._open.__exit__(*error)

    def expect(self, info: Mapping[str, Any]) -> None:
        """Makes sure that there are columns for what an update informs about.

        Raises:
            ValueError: if there are not, and rows have been written already.
        """
        names = [f"train/{name}" for name in info]
        if self._log is None and self._directory is not None:
            further = sorted(set(names) - set(COLUMNS))
            self._log = self._open.enter_context(self._opened([*COLUMNS, *further]))
        elif self._log is not None and not set(names) <= set(self._log.columns):
            raise ValueError(
                "`Trainer`: `agent` expected an `update` whose info always has the "
                "keys of the first one; got "
                f"{sorted(set(names) - set(self._log.columns))} beside them; give all "
                "of them each time"
            )

    def _opened(self, columns: Sequence[str]) -> run_log.RunLog:
        return run_log.RunLog(self._directory or "", columns, self._resume_at)

    def say(self, notice: str | None) -> None:
        """Shows a line to who looks on."""
        if self._bar is not None and notice is not None:
            self._bar.say(notice)

    def write(self, env_steps: int, values: dict[str, float], done: int) -> None:
        """Writes one row, and shows how much is done."""
        self.expect({})
        if self._log is not None:
            self._log.write(env_steps, values)
        if self._bar is not None:
            self._bar.update(done, values["train/return_mean"])

    def position(self) -> Any:
        """Where a resumed run is to go on; see `RunLog`."""
        self.expect({})
        return None if self._log is None else self._log.position()


def _columns_of(path: pathlib.Path) -> Sequence[str]:
    if not path.is_file():
        return COLUMNS
    with path.open("rb") as rows:
        header = rows.readline().decode("utf-8", "replace")
    return header.rstrip("\n").split(",")[1:]
