"""What headers of the zoo say of runs, measured: returns, steps and learning curves."""

import os
import pathlib
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from tfrl.experiments import _run_folders, zoo
from tfrl.summaries import run_log

SHARES = (0.1, 0.25, 0.5, 1.0)


def curve_of(
    runs: Sequence[Mapping[str, np.ndarray]],
    total_env_steps: int,
    shares: Sequence[float] = SHARES,
) -> tuple[zoo.Point, ...]:
    """Returns points of the learning curve of several runs of one configuration.

    They are the last `train/return_mean` at or before a share of the steps; of runs in
    which nothing is played `eval/return_mean`.

    Args:
        runs: of each the columns of `metrics.csv`.
        total_env_steps: all steps of a run.
        shares: of them, in (0, 1].

    Returns:
        The points at which every run had a return.

    Example:
        >>> run = {
        ...     "env_steps": np.array([10.0, 50.0, 100.0]),
        ...     "train/return_mean": np.array([np.nan, 7.0, 9.0]),
        ...     "eval/return_mean": np.array([np.nan, np.nan, 8.0]),
        ... }
        >>> curve_of([run], 100)
        (Point(share=0.5, mean=7.0, low=7.0, high=7.0),
         Point(share=1.0, mean=9.0, low=9.0, high=9.0))
    """
    points = []
    for share in shares:
        found = [_return_at(run, share * total_env_steps) for run in runs]
        if None not in found:
            values = np.array(found, np.float64)
            ends = float(values.min()), float(values.max())
            points.append(zoo.Point(share, float(values.mean()), *ends))
    return tuple(points)


def measured_header(
    folders: Sequence[str | os.PathLike[str]],
    total_env_steps: int | None = None,
    cpu_seconds: float | None = None,
) -> str:
    """Returns the measured lines of a header of the zoo, as text of a gin file.

    Args:
        folders: runs of one configuration, in the order of the seeds, or a folder of
            them, as `tfrl train --seeds` makes it.
        total_env_steps: all steps of a run; None for what it was asked for, or the last
            in `metrics.csv` of a run without words of a gin file.
        cpu_seconds: of a run; None for what the folder of `tfrl train --seeds` says.

    Returns:
        The lines `Steps`, `Measured`, `CPU time`, `Curve`.

    Raises:
        ValueError: if a folder holds no run, one that is not over, or one without an
            evaluation.

    Example:
        >>> measured_header(["no/such/run"])
        Traceback (most recent call last):
        ...
        ValueError: `measured_header`: `folders` expected the folder of a run, or of \
runs; got 'no/such/run', which is none
    """
    where = "measured_header"
    runs = [run for each in folders for run in _run_folders.runs_in(where, each)]
    tables = [run_log.read_metrics(run / "metrics.csv") for run in runs]
    steps = total_env_steps
    if steps is None:
        steps = _run_folders.total_env_steps_of(runs[0])
    reached = [_asked_for(*each) for each in zip(runs, tables, strict=True)]
    if steps is None:
        steps = max(reached)
    short = [
        f"{run} after {n:,}"
        for run, n in zip(runs, reached, strict=True)
        if n < steps or not n
    ]
    if short:
        raise ValueError(
            f"`{where}`: `folders` expected runs of {steps:,} steps that are over; got "
            f"{', '.join(short)}; train on by `tfrl --resume`"
        )
    if cpu_seconds is None:
        cpu_seconds = _run_folders.cpu_seconds_of([pathlib.Path(x) for x in folders])
    returns = [
        final_return(where, run, table) for run, table in zip(runs, tables, strict=True)
    ]
    curve = [
        f"{round(100 * p.share)}% {p.mean:.1f} ({p.low:.1f} to {p.high:.1f})"
        for p in curve_of(tables, steps)
    ]
    spent = "UNKNOWN" if cpu_seconds is None else f"{max(1, round(cpu_seconds))} s"
    lines = {
        "Steps": f"{steps:,}",
        "Measured": ", ".join(f"{each:.1f}" for each in returns),
        "CPU time": spent,
        "Curve": ", ".join(curve),
    }
    return "\n".join(
        textwrap.fill(f"# {name}: {value}", 88, subsequent_indent="#   ")
        for name, value in lines.items()
    )


def _asked_for(run: pathlib.Path, table: Mapping[str, np.ndarray]) -> int:
    """How many steps a run has asked its environments for, resets among them."""
    played = int(max(table["env_steps"], default=0))
    numbers = _run_folders.run_record(run).get("numbers") or {}
    epochs = max(table.get("epoch", ()), default=0)
    size = numbers.get("n_envs", 0) * numbers.get("n_steps", 0)
    return max(played, int(epochs) * int(size))


def final_return(
    where: str, run: pathlib.Path, table: Mapping[str, np.ndarray]
) -> float:
    """Returns the mean return of the last evaluation of a run.

    Args:
        where: function that asks, for the message.
        run: its folder.
        table: the columns of its `metrics.csv`.

    Raises:
        ValueError: if the run has not been evaluated.
    """
    values = table.get("eval/return_mean", np.empty(0))
    values = values[np.isfinite(values)]
    if not values.size:
        raise ValueError(
            f"`{where}`: expected runs that were evaluated; got {run} without an "
            "evaluation in metrics.csv; train it to its end"
        )
    return float(values[-1])


def _return_at(run: Mapping[str, np.ndarray], env_steps: float) -> float | None:
    """The last return at or before a step; None before any."""
    for name in ("train/return_mean", "eval/return_mean"):
        values = run.get(name, np.empty(0))
        if np.isfinite(values).any():
            known = np.isfinite(values) & (run["env_steps"] <= env_steps)
            return float(values[known][-1]) if known.any() else None
    return None
