"""Which of several methods is better, as far as their runs can tell."""

import itertools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import rich.console
import rich.table

from tfrl._internal import checks
from tfrl.experiments import _plots, _run_folders, measuring
from tfrl.summaries import improvement, run_log
from tfrl.summaries.plotting import mean_curve


class Scores(NamedTuple):
    """The final returns of the runs of one folder.

    Attributes:
        name: the folder.
        returns: mean return of the last evaluation of each run.
        env_steps: after how many steps, of each run.
        middle: interquartile mean of the returns.
        low: lower end of its interval; None of a single run, which has none.
        high: upper end of it, likewise.
    """

    name: str
    returns: tuple[float, ...]
    env_steps: tuple[int, ...]
    middle: float
    low: float | None
    high: float | None


class Improvement(NamedTuple):
    """How likely a run of one folder is better than one of another.

    Attributes:
        better: name of the folder.
        than: of the other.
        probability: of a greater return.
        low: lower end of its interval; None if a folder has a single run.
        high: upper end of it, likewise.
    """

    better: str
    than: str
    probability: float
    low: float | None
    high: float | None


class Comparison(NamedTuple):
    """What `compare` found.

    Attributes:
        scores: of each folder.
        improvements: of each pair, in the order of the folders.

    Example:
        >>> Comparison((), ()).improvements
        ()
    """

    scores: tuple[Scores, ...]
    improvements: tuple[Improvement, ...]


def compare(
    folders: Sequence[str | os.PathLike[str]],
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compares the final returns of several folders of runs in one environment.

    See `tfrl.summaries.interquartile_mean` and
    `tfrl.summaries.probability_of_improvement`; the intervals are of 95 %. Of three
    seeds they are a rough guess: ten are better. Of one seed there are none.

    Args:
        folders: of runs, as `tfrl train --seeds` leaves them, or of a run each.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        What was found.

    Raises:
        ValueError: if a folder holds no run, or one that was never evaluated, or they
            are of several environments.

    Example:
        >>> compare(["no/such/runs"])
        Traceback (most recent call last):
        ...
        ValueError: `compare`: `folders` expected the folder of a run, or of runs; got \
'no/such/runs', which is none
    """
    where = "compare"
    checks.check_whole_number(where, "resamples", resamples, low=1)
    names = [os.fspath(folder) for folder in folders]
    if not names or len({*names}) < len(names):
        raise ValueError(
            f"`{where}`: `folders` expected different ones, one at least; got {names}"
        )
    groups = {name: _run_folders.runs_in(where, name) for name in names}
    _plots.check_one_environment(where, [x for runs in groups.values() for x in runs])
    generator = np.random.default_rng(seed)
    scores = tuple(
        _scores(name, runs, resamples, generator) for name, runs in groups.items()
    )
    improvements = []
    for one, other in itertools.combinations(scores, 2):
        x, y = (np.array(each.returns)[:, None] for each in (one, other))
        probability, *ends = improvement.probability_of_improvement(
            x, y, resamples=resamples, seed=generator
        )
        low, high = ends if min(len(x), len(y)) > 1 else (None, None)
        improvements.append(Improvement(one.name, other.name, probability, low, high))
    return Comparison(scores, tuple(improvements))


def show(comparison: Comparison) -> None:
    """Prints tables: of the returns, and of who is better than whom.

    Args:
        comparison: what `compare` found.
    """
    table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("runs", no_wrap=True)
    for name in ("seeds", "steps", "IQM", "95 % interval", "mean", "lowest", "highest"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in comparison.scores:
        steps = sorted({*each.env_steps})
        ends = f"{steps[0]:,}" + (f" to {steps[-1]:,}" if len(steps) > 1 else "")
        numbers = [np.mean(each.returns), min(each.returns), max(each.returns)]
        table.add_row(
            *(each.name, str(len(each.returns)), ends, f"{each.middle:,.1f}"),
            _interval(each, ",.1f"),
            *(f"{number:,.1f}" for number in numbers),
        )
    console = rich.console.Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    if comparison.improvements:
        table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("probability that a run of the first is better", no_wrap=True)
        for name in ("P", "95 % interval"):
            table.add_column(name, justify="right", no_wrap=True)
        for pair in comparison.improvements:
            names = f"{pair.better} > {pair.than}"
            table.add_row(names, f"{pair.probability:.2f}", _interval(pair, ".2f"))
        console.print()
        console.print(table)
    if any(len(each.returns) == 1 for each in comparison.scores):
        console.print(
            "\n-: one seed tells nothing about spread; train several, by "
            "`tfrl train --seeds`"
        )


def as_json(comparison: Comparison) -> str:
    """Returns a comparison as JSON text, for programs.

    Args:
        comparison: what `compare` found.
    """
    found = {
        name: [part._asdict() for part in parts]
        for name, parts in comparison._asdict().items()
    }
    return json.dumps(found, indent=1)


def _scores(
    name: str,
    runs: Sequence[pathlib.Path],
    resamples: int,
    generator: np.random.Generator,
) -> Scores:
    tables = [run_log.read_metrics(run / "metrics.csv") for run in runs]
    returns = [
        measuring.final_return("compare", run, table)
        for run, table in zip(runs, tables, strict=True)
    ]
    steps = tuple(int(table["env_steps"][-1]) for table in tables)
    middle, *ends = map(
        float,
        mean_curve.interquartile_mean(
            np.array(returns)[:, None], resamples=resamples, seed=generator
        ),
    )
    low, high = ends if len(returns) > 1 else (None, None)
    return Scores(name, tuple(returns), steps, middle, low, high)


def _interval(found: Scores | Improvement, form: str) -> str:
    if found.low is None or found.high is None:
        return "-"
    return f"{found.low:{form}} to {found.high:{form}}"
