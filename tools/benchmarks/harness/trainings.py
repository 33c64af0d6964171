"""Whole training runs of tfrl and its peers, seed by seed, in processes of their own.

Two speeds are shown. "training" counts the seconds of the training loop alone, without
imports and compilation; "whole process" is everything from start to exit: imports,
compilation, training, evaluation.
"""

import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import rich.console
import rich.table
from harness import one_core

HERE = pathlib.Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
PACKAGES = ("tensorflow-cpu", "keras", "torch", "stable-baselines3", "gymnasium")
Contender = Callable[[int, int], dict[str, float]]


def run_alone(arguments: Sequence[str]) -> str:
    """Runs Python with `arguments` on one core, one thread; returns what it printed."""
    command = one_core.pinned([sys.executable, *arguments])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **one_core.ONE_THREAD},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


# ---------------------------------------------------------------------------------
# How tfrl is run: the one place that knows its trainer, its bindings and its columns.
# ---------------------------------------------------------------------------------
def tfrl_run(config: str, seed: int, steps: int) -> dict[str, float]:
    """Trains what a configuration says and reads the metrics.csv it leaves."""
    bindings = [f"train_rl.seed = {seed}", f"Trainer.total_env_steps = {steps}"]
    with tempfile.TemporaryDirectory() as directory:
        run_alone(
            [
                "-m",
                "tfrl.rl_trainer",
                f"--config_file=configs/{config}.gin",
                f"--output_dir={directory}/run",
                *(f"--config={binding}" for binding in bindings),
            ]
        )
        (path,) = pathlib.Path(directory).rglob("metrics.csv")
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    # The first row holds the compilation, so seconds are counted from there on.
    steps_done = [float(row["env_steps"]) for row in rows]
    speeds = [float(row["env_steps_per_second"] or "nan") for row in rows]
    timed = [
        (now - before, speed)
        for before, now, speed in zip(
            steps_done[:-1], steps_done[1:], speeds[1:], strict=True
        )
        if math.isfinite(speed) and speed > 0
    ]
    seconds = sum(count / speed for count, speed in timed)
    returns = [float(row["eval/return_mean"] or "nan") for row in rows]
    return {
        "env_steps_per_second": sum(count for count, _ in timed) / seconds,
        "return_mean": [value for value in returns if math.isfinite(value)][-1],
    }


def script_run(name: str) -> Contender:
    def run(seed: int, steps: int) -> dict[str, float]:
        printed = run_alone([str(HERE / name), f"--seed={seed}", f"--steps={steps}"])
        return json.loads(printed.splitlines()[-1])

    return run


def spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def ratio(values: Sequence[float], base: Sequence[float] | None) -> str:
    """Median over pairs of what tfrl's is multiplied by."""
    if base is None:
        return "-"
    paired = [value / other for value, other in zip(values, base, strict=True)]
    return f"{statistics.median(paired):.2f}"


def report(
    title: str, results: dict[str, list[dict[str, float]]], steps: int
) -> rich.table.Table:
    seeds = len(next(iter(results.values())))
    table = rich.table.Table(
        title=f"{title}, {steps:,} env steps, {seeds} seeds, one core",
        caption="steps/s: median (min - max) over seeds",
    )
    table.add_column("", no_wrap=True)
    table.add_column("training\nsteps/s", justify="right", no_wrap=True)
    table.add_column("times\ntfrl", justify="right")
    table.add_column("whole process\nsteps/s", justify="right", no_wrap=True)
    table.add_column("times\ntfrl", justify="right")
    table.add_column("return\nmean", justify="right")
    table.add_column("by seed")
    columns = {
        name: {key: [run[key] for run in runs] for key in runs[0]}
        for name, runs in results.items()
    }
    base = columns.get("tfrl", {})
    for name, values in columns.items():
        training = values["env_steps_per_second"]
        whole = [steps / seconds for seconds in values["process_seconds"]]
        base_whole = [steps / seconds for seconds in base.get("process_seconds", [])]
        returns = values["return_mean"]
        table.add_row(
            name,
            spread(training),
            ratio(training, base.get("env_steps_per_second")),
            spread(whole),
            ratio(whole, base_whole or None),
            f"{statistics.mean(returns):.1f}",
            " ".join(f"{value:.0f}" for value in returns),
        )
    return table


def compare(
    console: rich.console.Console,
    title: str,
    contenders: Mapping[str, Contender],
    seeds: int,
    steps: int,
) -> None:
    """Runs all contenders in turn, seed by seed, and prints the table."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for seed in range(seeds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            result = contender(seed, steps)
            result["process_seconds"] = time.perf_counter() - start
            results[name].append(result)
            console.print(
                f"seed {seed}  {name:18}"
                f"{result['env_steps_per_second']:8,.0f} steps/s  "
                f"{result['process_seconds']:6.1f} s  "
                f"return {result['return_mean']:5.1f}",
                highlight=False,
            )
    console.print(report(title, results, steps))
