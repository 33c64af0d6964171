"""Whole training runs of tfrl and its peers, seed by seed, in processes of their own.

Two speeds are shown. "training" counts the training loop alone, after as many steps of
warm-up for everybody; "whole process" is everything from start to exit: imports,
compilation, training, evaluation. Seconds are those of the CPU: what passes on a core
of one's own, whoever else is at work.
"""

import functools
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.console
import rich.table
from harness import one_core, records

HERE = pathlib.Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
PACKAGES = (
    *("tensorflow-cpu", "keras", "torch", "stable-baselines3", "sbx-rl", "jax"),
    *("gymnasium", "mujoco"),
)
# From seed, steps and, where asked for, the mean return at which to stop: `marks`,
# environment steps and seconds of the process so far, and `return_mean` of the end.
Contender = Callable[..., dict[str, Any]]


def run_alone(arguments: Sequence[str], settings: Mapping[str, str] = {}) -> str:
    """Runs Python with `arguments` on one core, one thread; returns what it printed.

    `settings` are environment variables beside those of one thread.
    """
    command = one_core.pinned([sys.executable, *arguments])
    env = {**os.environ, **one_core.ONE_THREAD, **settings}
    # As everybody's packages are, tfrl is read as bytecode from the second run on.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def tfrl_run(config: str, given: Sequence[str] = ()) -> Contender:
    """Trains what a configuration and bindings say."""

    def run(seed: int, steps: int, stop_at: float | None = None) -> dict[str, Any]:
        bindings = [f"train_rl.seed = {seed}", f"Trainer.total_env_steps = {steps}"]
        bindings.append(f"Trainer.stop_at_return = {stop_at}")
        # 40 epochs of 256 steps; without a return to stop at only the end is judged.
        every = None if stop_at is None else 40
        bindings.append(f"Intervals.eval_epochs = {every}")
        flags = [f"--config={binding}" for binding in [*given, *bindings]]
        with tempfile.TemporaryDirectory() as folder:
            arguments = [f"{folder}/run", f"--config_file=configs/{config}.gin", *flags]
            return _printed("peers/tfrl_run.py", arguments)

    return run


def script_run(name: str, *given: str) -> Contender:
    def run(seed: int, steps: int, stop_at: float | None = None) -> dict[str, Any]:
        options = [f"--seed={seed}", f"--steps={steps}", *given]
        if stop_at is not None:
            options.append(f"--stop-at={stop_at}")
        return _printed(name, options)

    return run


def _printed(name: str, options: Sequence[str]) -> dict[str, Any]:
    return json.loads(run_alone([str(HERE / name), *options]).splitlines()[-1])


def timed(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a contender returns, with the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {**result, "process_seconds": spent}


def speed(marks: Sequence[Sequence[float]], warm_up: int) -> float:
    """Environment steps a second after those of the warm-up."""
    steps, seconds = next(mark for mark in marks if mark[0] >= warm_up)
    return (marks[-1][0] - steps) / (marks[-1][1] - seconds)


def spread(values: Sequence[float], digits: int = 0) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"


def ratio(values: Sequence[float], base: Sequence[float] | None) -> str:
    """Median over pairs of the quotients."""
    if not base:
        return "-"
    paired = [value / other for value, other in zip(values, base, strict=True)]
    return f"{statistics.median(paired):.2f}"


def report(
    title: str, results: Mapping[str, Sequence[Mapping[str, Any]]], caption: str
) -> rich.table.Table:
    """The contenders' `speed`, `process_seconds`, `target_seconds`, `return_mean`."""
    table = rich.table.Table(title=title, caption=caption)
    table.add_column("", no_wrap=True)
    measured = {
        "speed": "training\nsteps/s",
        "process_seconds": "whole process\nseconds",
        "target_seconds": "start to target\nseconds",
    }
    columns = {
        name: {key: [run[key] for run in runs] for key in runs[0]}
        for name, runs in results.items()
    }
    # The first of ours, of which there may be more than one.
    ours_first = next((name for name in columns if name.startswith("tfrl")), "")
    base = columns.get(ours_first, {})
    shown = [key for key in measured if key in next(iter(columns.values()))]
    for key in shown:
        values = {name: column[key] for name, column in columns.items()}
        about, unit = measured[key].split("\n")
        records.keep(f"{title}: {about}", unit, values, "tfrl", key == "speed")
        table.add_column(measured[key], justify="right", no_wrap=True)
        table.add_column("tfrl is\ntimes as fast", justify="right")
    table.add_column("return mean\nby seed")
    for name, values in columns.items():
        cells = []
        for key in shown:
            own, ours = values[key], base.get(key)
            is_speed = key == "speed"
            pair = (ours, own) if is_speed else (own, ours)
            quotient = ratio(*pair) if ours and name != ours_first else "-"
            cells += [spread(own, 0 if is_speed else 1), quotient]
        returns = values["return_mean"]
        each = " ".join(f"{value:.0f}" for value in returns)
        table.add_row(name, *cells, f"{statistics.mean(returns):.1f}: {each}")
    return table


def compare(
    console: rich.console.Console,
    title: str,
    contenders: Mapping[str, Contender],
    seeds: int,
    steps: int,
    warm_up: int,
    target: float | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Runs all contenders in turn, seed by seed; prints the table and returns it."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for seed in range(seeds):
        for name, contender in contenders.items():
            result = timed(functools.partial(contender, seed, steps))
            result["speed"] = speed(result["marks"], warm_up)
            said = f"{result['speed']:8,.0f} steps/s {result['process_seconds']:6.1f} s"
            if target is not None:
                stopped = timed(functools.partial(contender, seed, steps, target))
                reached = stopped["return_mean"] >= target
                spent = stopped["process_seconds"] if reached else math.inf
                result["target_seconds"] = spent
                said += f"  {target:.0f} after {spent:5.1f} s"
            results[name].append(result)
            said += f"  return {result['return_mean']:.1f}"
            console.print(f"seed {seed}  {name:18}{said}", highlight=False)
    empty = min(timed(_empty)["process_seconds"] for _ in range(5))
    caption = (
        f"median (min - max) over {seeds} seeds of {steps:,} environment steps, one "
        f"core, CPU seconds; training is timed from step {warm_up:,} on; an empty "
        f"process takes {empty:.2f} s"
    )
    console.print(report(title, results, caption))
    return results


def _empty() -> dict[str, Any]:
    run_alone(["-c", ""])
    return {}
