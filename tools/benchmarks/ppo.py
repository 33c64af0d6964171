"""PPO on CartPole-v1: tfrl, Stable-Baselines3 and a plain PyTorch file side by side.

All three train with the settings of rl-zoo (8 envs, 32 steps each, batch 256, 20
epochs, gamma 0.98, lambda 0.8, learning rate 1e-3 and clip 0.2 decaying to 0, two MLPs
of 64 x 64 tanh), each in a process of its own on one core and one thread, in turn seed
by seed, and then play 20 greedy episodes.

Two speeds are shown. "training" counts the seconds of the training loop alone, without
imports and compilation; "whole process" is everything from start to exit: imports,
compilation, training, evaluation.

With --images tfrl and Stable-Baselines3 learn from pictures of 84x84x4 instead, by one
network of convolutions, in turns within one process; see peers/ppo_images.py.
"""

import argparse
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
from collections.abc import Callable, Sequence

import rich.table
from harness import one_core, turns

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("tensorflow-cpu", "keras", "torch", "stable-baselines3", "gymnasium")


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
def tfrl_run(seed: int, steps: int) -> dict[str, float]:
    """Trains through the public trainer and reads the metrics.csv it leaves."""
    bindings = [f"train_rl.seed = {seed}", f"Trainer.total_env_steps = {steps}"]
    with tempfile.TemporaryDirectory() as directory:
        run_alone(
            [
                "-m",
                "tfrl.rl_trainer",
                "--config_file=configs/ppo_cartpole.gin",
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


def script_run(name: str) -> Callable[[int, int], dict[str, float]]:
    def run(seed: int, steps: int) -> dict[str, float]:
        printed = run_alone([str(HERE / name), f"--seed={seed}", f"--steps={steps}"])
        return json.loads(printed.splitlines()[-1])

    return run


CONTENDERS: dict[str, Callable[[int, int], dict[str, float]]] = {
    "tfrl": tfrl_run,
    "stable-baselines3": script_run("peers/ppo_sb3.py"),
    "torch": script_run("peers/ppo_torch.py"),
}


def spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def ratio(values: Sequence[float], base: Sequence[float] | None) -> str:
    """Median over pairs of what tfrl's is multiplied by."""
    if base is None:
        return "-"
    paired = [value / other for value, other in zip(values, base, strict=True)]
    return f"{statistics.median(paired):.2f}"


def report(results: dict[str, list[dict[str, float]]], steps: int) -> rich.table.Table:
    seeds = len(next(iter(results.values())))
    table = rich.table.Table(
        title=f"PPO, CartPole-v1, {steps:,} env steps, {seeds} seeds, one core",
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


def images_table(rounds: int) -> rich.table.Table:
    printed = run_alone([str(HERE / "peers/ppo_images.py"), f"--rounds={rounds}"])
    seconds = json.loads(printed.splitlines()[-1])
    table = rich.table.Table(
        title=f"PPO, 84x84x4 pixels, {rounds} epochs of 1,024 steps, one core",
        caption="CPU seconds of an epoch (collecting, learning): median (min - max)",
    )
    for name in ("", "seconds", "times\ntfrl"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, values in seconds.items():
        middle, low, high = statistics.median(values), min(values), max(values)
        base = None if name == "tfrl" else seconds["tfrl"]
        spent = f"{middle:.2f} ({low:.2f} - {high:.2f})"
        table.add_row(name, spent, ratio(values, base))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--steps", type=int, default=100_000, help="env steps each")
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS)
    )
    parser.add_argument("--images", action="store_true", help="learn from pictures")
    parser.add_argument("--rounds", type=int, default=9, help="epochs with --images")
    arguments = parser.parse_args()
    if min(arguments.seeds, arguments.steps, arguments.rounds) < 1:
        parser.error("--seeds, --steps and --rounds expect at least 1")
    console = turns.console()
    console.print(turns.versions(PACKAGES), highlight=False)
    if arguments.images:
        console.print(images_table(arguments.rounds))
        return
    results: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.only}
    for seed in range(arguments.seeds):
        for name in arguments.only:
            start = time.perf_counter()
            result = CONTENDERS[name](seed, arguments.steps)
            result["process_seconds"] = time.perf_counter() - start
            results[name].append(result)
            console.print(
                f"seed {seed}  {name:18}"
                f"{result['env_steps_per_second']:8,.0f} steps/s  "
                f"{result['process_seconds']:6.1f} s  "
                f"return {result['return_mean']:5.1f}",
                highlight=False,
            )
    console.print(report(results, arguments.steps))


if __name__ == "__main__":
    main()
