"""Which of several methods is better, as far as their runs can tell."""

import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import rich.table

from tfrl._internal import checks
from tfrl.experiments import _plots, _run_folders, _tables, measuring
from tfrl.saving import typed_json
from tfrl.summaries import improvement, run_log
from tfrl.summaries.plotting import mean_curve

# Arguments of environments that say nothing else about what is to be done in them.
_NO_TASK = *_run_folders.NAMES, "vectorization"


class Scores(NamedTuple):
    """The final returns of the runs of one folder.

    Attributes:
        name: the folder.
        returns: mean return of the last evaluation of each run.
        env_steps: after how many steps that was, of each run.
        middle: interquartile mean of the returns.
        low: lower end of its interval; None of a single run, which has none.
        high: upper end of it, likewise.
        notes: a line for each run that is not done, is not counted as it was never
            evaluated, or whose last evaluation is not finite.
    """

    name: str
    returns: tuple[float, ...]
    env_steps: tuple[int, ...]
    middle: float
    low: float | None
    high: float | None
    notes: tuple[str, ...] = ()


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
        notes: a line for each argument of `make_envs`, beside the environment, that
            runs have different values of, one if folders end after different numbers
            of steps, by more than 5 %, and one for those with runs of self-play.

    Example:
        >>> Comparison((), ()).improvements
        ()
    """

    scores: tuple[Scores, ...]
    improvements: tuple[Improvement, ...]
    notes: tuple[str, ...] = ()


def compare(
    folders: Sequence[str | os.PathLike[str]],
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compares the final returns of several folders of runs in one environment.

    See `tfrl.summaries.interquartile_mean` and
    `tfrl.summaries.probability_of_improvement`; the intervals are of 95 %. Of three
    seeds they are a rough guess: ten are better. Of one seed there are none. Runs that
    are not done count by their last evaluation, and `Scores.notes` names them.

    Args:
        folders: of runs, as `tfrl train --seeds` leaves them, or of a run each.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        What was found.

    Raises:
        ValueError: if a folder holds no run, or none that was evaluated, or they are of
            several environments.

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
    notes = *_unlike_environments(groups), *_unlike_steps(scores), *_both_sides(groups)
    return Comparison(scores, tuple(improvements), notes)


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
    console = _tables.Tables()
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
    notes = [note for each in comparison.scores for note in each.notes]
    if notes := [*notes, *comparison.notes]:
        console.print()
        for note in notes:
            console.print(note, soft_wrap=True)
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
        "scores": [each._asdict() for each in comparison.scores],
        "improvements": [each._asdict() for each in comparison.improvements],
        "notes": comparison.notes,
    }
    return json.dumps(found, indent=1)


def _scores(
    name: str,
    runs: Sequence[pathlib.Path],
    resamples: int,
    generator: np.random.Generator,
) -> Scores:
    returns: list[float] = []
    steps: list[int] = []
    notes: list[str] = []
    for run in runs:
        found, note = _evaluated(run)
        if found is not None:
            returns.append(found[0])
            steps.append(found[1])
        if note is not None:
            notes.append(f"{run}: {note}")
    for run in _run_folders.not_in(name):
        status = _run_folders.status_of(run)
        told = "" if status == "done" else f"{status}: "
        notes.append(f"{run}: {told}without metrics.csv, not counted")
    if not returns:
        raise ValueError(
            "`compare`: `folders` expected runs that were evaluated; got "
            f"{name!r} without an evaluation in metrics.csv; train on by "
            "`tfrl train --resume`"
        )
    middle, *ends = map(
        float,
        mean_curve.interquartile_mean(
            np.array(returns)[:, None], resamples=resamples, seed=generator
        ),
    )
    low, high = ends if len(returns) > 1 else (None, None)
    counted = tuple(returns), tuple(steps)
    return Scores(name, *counted, middle, low, high, tuple(notes))


def _environment_arguments(run: pathlib.Path) -> dict[str, str]:
    """What else a run makes its environments with, as text, where it is told."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        record = _run_folders.run_record(run)["arguments"]["make_envs"]
        given = typed_json.from_json(json.dumps(record))
        told = {name: x for name, x in given.items() if name[0] != "="}
        return {name: repr(x) for name, x in told.items() if name not in _NO_TASK}
    return {}


def _unlike_environments(groups: Mapping[str, Sequence[pathlib.Path]]) -> list[str]:
    """A line for each argument that runs make their environments with differently."""
    told: dict[str, dict[str, list[str]]] = {}
    for name, runs in groups.items():
        for run in runs:
            for key, text in _environment_arguments(run).items():
                names = told.setdefault(key, {}).setdefault(text, [])
                names += [name] if name not in names else []
    return [
        f"`make_envs` differs in `{key}`: "
        + "; ".join(f"{text:.80} in {', '.join(names)}" for text, names in each.items())
        for key, each in told.items()
        if len(each) > 1
    ]


def _unlike_steps(scores: Sequence[Scores]) -> list[str]:
    """A line that tells after how many steps folders end, if it is not about alike."""
    ends = {each.name: max(each.env_steps) for each in scores}
    if min(ends.values()) >= _plots.ALIKE * max(ends.values()):
        return []
    told = ", ".join(f"{steps:,} in {name}" for name, steps in ends.items())
    return [f"the last evaluations are after different numbers of steps: {told}"]


def _both_sides(groups: Mapping[str, Sequence[pathlib.Path]]) -> list[str]:
    """A line that tells in which folders winners and losers are counted together."""
    names = [
        name
        for name, runs in groups.items()
        if "SelfPlay" in map(_run_folders.agent_of, runs)
    ]
    told = (
        f"returns of self-play are means over winners and losers, in {', '.join(names)}"
        ": they do not tell which run plays better; let one play another, by "
        "`agent.against`"
    )
    return [told] if names else []


def _evaluated(run: pathlib.Path) -> tuple[tuple[float, int] | None, str | None]:
    """The final return of a run and after how many steps; what is to be said of it."""
    path, status = run / "metrics.csv", _run_folders.status_of(run)
    table = run_log.read_metrics(path) if path.stat().st_size else {}
    told = [] if status == "done" else [status]
    values = table.get("eval/return_mean", np.empty(0))
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return None, ": ".join([*told, "without an evaluation, not counted"])
    # Beside a return that is not finite stands a length of episodes that is.
    judged = [~np.isnan(x) for name, x in table.items() if name.startswith("eval/")]
    last, final = known[-1], np.flatnonzero(np.any(judged, 0))[-1]
    steps = table["env_steps"].astype(int).tolist()
    if final > last:
        told.append(
            f"its evaluation after {steps[final]:,} steps is {values[final]}, counted "
            f"by that after {steps[last]:,} steps"
        )
    elif told:
        told.append(f"counted by its evaluation after {steps[last]:,} steps")
    returned = measuring.final_return("compare", run, table)
    return (returned, steps[last]), ": ".join(told) or None


def _interval(found: Scores | Improvement, form: str) -> str:
    if found.low is None or found.high is None:
        return "-"
    return f"{found.low:{form}} to {found.high:{form}}"
