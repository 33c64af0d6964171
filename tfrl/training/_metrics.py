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
    played: evaluation.Evaluation | None,
    info: Mapping[str, float],
) -> dict[str, float]:
    """Returns one row.

    Args:
        epoch: number of epochs done.
        seconds: of training so far.
        env_steps_per_second: since the row before.
        episodes: returns and lengths of the last training episodes of each worker.
        played: an evaluation of this epoch, if there was one.
        info: of the update.
    """
    judged = {}
    if played is not None:
        judged = {
            "eval/return_mean": float(played.returns.mean()),
            "eval/return_std": float(played.returns.std()),
            "eval/length_mean": float(played.lengths.mean()),
        }
    return {
        "epoch": epoch,
        "seconds": seconds,
        "env_steps_per_second": env_steps_per_second,
        "train/return_mean": mean([x for returns, _ in episodes for x in returns]),
        "train/length_mean": mean([x for _, lengths in episodes for x in lengths]),
        **judged,
        **{f"train/{name}": float(value) for name, value in info.items()},
    }


class Report:
    """Writes `metrics.csv` and TensorBoard events, and shows progress if asked to.

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
        """Opens the files."""
        with contextlib.ExitStack() as undo:
            if self._directory is not None:
                log = run_log.RunLog(
                    self._directory, columns=COLUMNS, resume_at=self._resume_at
                )
                self._log = undo.enter_context(log)
            if self._bar is not None:
                undo.enter_context(self._bar)
            self._open = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Closes them."""
        self._open.__exit__(*error)

    def say(self, notice: str | None) -> None:
        """Shows a line to who looks on."""
        if self._bar is not None and notice is not None:
            self._bar.say(notice)

    def write(self, env_steps: int, values: dict[str, float], done: int) -> None:
        """Writes one row, and shows how much is done."""
        if self._log is not None:
            self._log.write(env_steps, values)
        if self._bar is not None:
            self._bar.update(done, values["train/return_mean"])

    def position(self) -> Any:
        """Where a resumed run is to go on; see `RunLog`."""
        return None if self._log is None else self._log.position()
