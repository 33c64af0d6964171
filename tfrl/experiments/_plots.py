"""Pictures of runs: the learning curve of one, means of several, what a critic says."""

import argparse
import json
import os
import pathlib

import numpy as np

from tfrl import rl_trainer
from tfrl.experiments import _run_folders
from tfrl.summaries import run_log
from tfrl.summaries.plotting import curves, mean_curve, readers

# Runs whose ends are no farther apart count as equally long.
ALIKE = 0.95


def plot(flags: argparse.Namespace) -> None:
    """Draws what `tfrl plot` asks for.

    Runs of one agent with equal settings become one curve, their mean; each folder of
    runs, as `tfrl train --seeds` leaves it, becomes a curve of its own.

    Args:
        flags: run_dir, output, title, tag, interval, target, critic.

    Raises:
        ValueError: if a folder holds no run, or they are of several environments.
    """
    folders = [pathlib.Path(folder) for folder in flags.run_dir]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(
                f"`plot`: RUN expected the folder of a run; got {str(folder)!r}, which "
                "is none"
            )
    if flags.critic is not None:
        _plot_critic(flags, folders)
        return
    # The curve of one run is that of its columns, unless something else is asked for.
    is_one = len(folders) == 1 and not _is_of_runs(folders[0])
    is_plain = is_one and flags.tag is None and flags.interval is None
    path = flags.output
    if path is None:
        path = folders[0] / ("learning_curve.png" if is_plain else "mean_curve.png")
    if is_plain:
        if not (folders[0] / "metrics.csv").is_file():
            raise ValueError(
                "`plot`: RUN expected the folder of a run, with metrics.csv; got "
                f"{flags.run_dir[0]!r} without"
            )
        curves.plot_learning_curve(
            run_log.read_metrics(folders[0] / "metrics.csv"),
            path,
            title=folders[0].resolve().name if flags.title is None else flags.title,
            target=flags.target,
        )
    else:
        _plot_means(flags, folders, path)
    print(f"the learning curve is in {path}")


def _is_of_runs(folder: pathlib.Path) -> bool:
    """Whether a folder is none of a run, but holds some."""
    is_run = any((folder / name).exists() for name in ("metrics.csv", "config.gin"))
    return not is_run and any(folder.glob("*/metrics.csv"))


def _plot_means(
    flags: argparse.Namespace, folders: list[pathlib.Path], path: str | os.PathLike[str]
) -> None:
    """Draws the mean of the runs of each agent, and that of each folder of runs."""
    alone = [folder for folder in folders if not _is_of_runs(folder)]
    groups = _of_agents(alone)
    for folder in (x for x in folders if x not in alone):
        runs = _drawn(folder, flags.tag)
        groups[f"{folder}: mean of {len(runs)} runs"] = runs
    check_one_environment("plot", [run for runs in groups.values() for run in runs])
    interval = "minmax" if flags.interval is None else flags.interval
    found: list[mean_curve.MeanCurve] = []
    for name, runs in groups.items():
        tag = _tag_of(runs) if flags.tag is None else flags.tag
        named = f"{name}, {interval}"
        try:
            reader = readers.MeanCurveReader(runs, None, named, None, interval, tag=tag)
        except ValueError as error:
            # It names its own arguments, which are others than those of the command.
            told = str(error).replace("`MeanCurveReader`: `event_file`", "`plot`: RUN")
            raise ValueError(told.replace("as `tag`", "as `--tag`")) from error
        found.append(reader())
        _tell_end(name, runs, reader.last_steps)
    plotter = curves.CurvesPlotter(
        found,
        x_label="environment steps",
        y_label=reader.y_label,
        figsize=(8, 5),
        title=flags.title,
    )
    if flags.target is not None:
        (axes,) = plotter.figure.axes
        reached = f"target {flags.target:g}"
        axes.axhline(flags.target, color="grey", linestyle="--", label=reached)
        axes.legend()
    plotter.plot(path, dpi=150)


def _of_agents(runs: list[pathlib.Path]) -> dict[str, list[pathlib.Path]]:
    """Runs by their agents with all settings, named."""
    agents: dict[str, list[pathlib.Path]] = {}
    for run in runs:
        arguments = _run_folders.run_record(run).get("arguments", {})
        key = json.dumps(arguments.get("agent"), sort_keys=True)
        agents.setdefault(key, []).append(run)
    if len(agents) == 1:
        return {f"mean of {len(runs)} runs": runs}
    return {
        f"{each[0]}: mean of {len(each)} runs" if each[1:] else str(each[0]): each
        for each in agents.values()
    }


def _drawn(folder: pathlib.Path, tag: str | None) -> list[pathlib.Path]:
    """The runs of a folder of which there is a line to draw; others are named."""
    runs = _run_folders.runs_in("plot", folder)
    files = {run: run / "metrics.csv" for run in runs}
    tables = {
        run: run_log.read_metrics(path)
        for run, path in files.items()
        if path.stat().st_size
    }
    begun = [run for run, table in tables.items() if len(table["env_steps"])]
    for name in [_tag_of(begun), *curves.RETURNS] if tag is None else [tag]:
        points = {x: np.isfinite(tables[x].get(name, np.nan)).sum() for x in begun}
        drawn = [run for run, count in points.items() if count > 1]
        if drawn:
            lacking = [run for run in runs if run not in drawn]
            for run in [*lacking, *_run_folders.not_in(folder)]:
                print(f"{run}: without two rows that have {name}, not drawn")
            return drawn
    return runs  # an error will tell


def _tell_end(name: str, runs: list[pathlib.Path], ends: list[int]) -> None:
    """Says where a mean ends, if some runs go on well beyond."""
    shortest, longest = min(ends), max(ends)
    if shortest < ALIKE * longest:
        print(
            f"{name}: drawn to step {shortest:,}, where {runs[ends.index(shortest)]} "
            f"ends; the longest has {longest:,}"
        )


def _tag_of(runs: list[pathlib.Path]) -> str:
    """What is known of all runs: of those in which nothing is played, evaluations."""
    tables = [
        run_log.read_metrics(run / "metrics.csv")
        for run in runs
        if (run / "metrics.csv").is_file()
    ]
    for name in curves.RETURNS:
        if all(np.isfinite(table.get(name, np.nan)).any() for table in tables):
            return name
    return curves.RETURNS[0]


def check_one_environment(where: str, runs: list[pathlib.Path]) -> None:
    """Raises a ValueError if runs name several environments.

    Args:
        where: function that asks, for the message.
        runs: folders of runs.
    """
    environments = {_run_folders.environment_of(run): run for run in runs}
    environments.pop(None, None)
    if len(environments) > 1:
        got = ", ".join(f"{name!r} of {run}" for name, run in environments.items())
        raise ValueError(
            f"`{where}`: expected runs of one environment; got {got}; {where} them "
            "separately"
        )


def _plot_critic(flags: argparse.Namespace, folders: list[pathlib.Path]) -> None:
    if len(folders) > 1:
        raise ValueError("`plot`: `--critic` expected one run; got more; name one")
    path = folders[0] / "critic.png" if flags.output is None else flags.output
    i, left, right, j, top, bottom = flags.critic
    if i % 1 or j % 1 or i == j:
        raise ValueError(
            "`plot`: `--critic` expected two different components as I and J, counted "
            f"from 0; got {i:g} and {j:g}"
        )
    with rl_trainer.open_run(folders[0]) as run:
        run.draw_critic(path, (int(i), left, right), (int(j), top, bottom))
    print(f"what the critic says is in {path}")
