"""From the start of a process to its first update, and to a mean return of 475.

PPO on CartPole-v1 with the settings of ppo.py, by the commands that people type; each
process on one core and one thread, all in turn. Seconds are those of the CPU, children
left out: what passes on a core of one's own. The first process of tfrl finds no kept
programs, later ones find its own. "update" is the first one of a process.

    tools/bench startup
    tools/bench startup --rounds=3 --seeds=5
"""

import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import rich.table
from harness import one_core, records, trainings, turns

BASE = "import tensorflow, keras"
CONFIG = "configs/ppo_cartpole.gin"
# What stands side by side in the table of all benchmarks.
PAIRS = {
    "import": ("import tfrl.rl_trainer", BASE, "import stable_baselines3"),
    "first update": (
        *("tfrl, update, first process", "tfrl, update, another seed"),
        *("tfrl, update, --resume", "stable_baselines3, update"),
    ),
    "whole process": (
        "tfrl, first process",
        "tfrl, later process",
        "stable_baselines3",
    ),
}


def seconds_of(
    arguments: str | list[str],
    caches: pathlib.Path,
    reached: Callable[[], bool] = lambda: False,
) -> float:
    """CPU seconds of a Python process until it ends, or has reached something."""
    words = shlex.split(arguments) if isinstance(arguments, str) else arguments
    environment = {**os.environ, **one_core.ONE_THREAD, "TFRL_XLA_CACHE": str(caches)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        one_core.pinned([sys.executable, *words]),
        cwd=trainings.ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    ticks = 0.0
    while not reached():
        # Its state is still told when it has ended, until somebody waits for it.
        told = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2]
        state, *numbers = told.split()
        ticks = float(numbers[10]) + float(numbers[11])
        if state == "Z":
            break
        time.sleep(0.005)
    else:
        process.kill()
    error = process.communicate()[1]
    if process.returncode not in (0, -9):
        raise RuntimeError(f"{shlex.join(words)} failed:\n{error[-2000:]}")
    return ticks / os.sysconf("SC_CLK_TCK")


def next_row(run: pathlib.Path) -> Callable[[], bool]:
    """Whether the metrics of a run have a row more than now."""
    metrics = run / "metrics.csv"
    before = metrics.read_text().count("\n") if metrics.exists() else 1
    return lambda: metrics.exists() and metrics.read_text().count("\n") > before


def trained(caches: pathlib.Path, run: pathlib.Path, seed: int, *more: str) -> float:
    """Until the first update, or with `more` to the end."""
    flags = [CONFIG, f"--output_dir={run}", f"--config=train_rl.seed = {seed}"]
    words = ["-m", "tfrl", "train", *flags, "--config=Intervals.log_epochs = 1", *more]
    return seconds_of(words, caches, (lambda: False) if more else next_row(run))


def sb3_update(seed: int) -> float:
    marks = trainings.script_run("peers/ppo_sb3.py")(seed, 256)["marks"]
    return float(marks[-1][1])


def one_round(seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        root, caches = pathlib.Path(folder), pathlib.Path(folder, "kept")
        short = "--config=Trainer.total_env_steps = 1024"
        found = {
            BASE: seconds_of(["-c", BASE], caches),
            "import tfrl.rl_trainer": seconds_of("-c 'import tfrl.rl_trainer'", caches),
            "tfrl --help": seconds_of("-m tfrl --help", caches),
            "tfrl, update, first process": trained(caches, root / "a", seed),
            "tfrl, update, another seed": trained(caches, root / "b", seed + 1),
        }
        trained(caches, root / "c", seed, short)
        again = ["-m", "tfrl", "train", "--resume", f"--output_dir={root / 'c'}"]
        longer = ["--config=Trainer.total_env_steps = 4096"]
        reached = next_row(root / "c")
        found["tfrl, update, --resume"] = seconds_of(again + longer, caches, reached)
        whole = f"-m tfrl evaluate {root / 'c'}"
        found["tfrl evaluate, to its end"] = seconds_of(whole, caches)
        found["import stable_baselines3"] = seconds_of(
            "-c 'import stable_baselines3'", caches
        )
        found["stable_baselines3, update"] = sb3_update(seed)
    return found


def one_goal(seed: int, target: float = 475.0) -> dict[str, float]:
    """Whole processes that end at the first evaluation of such a mean return."""
    with tempfile.TemporaryDirectory() as folder:
        root, caches = pathlib.Path(folder), pathlib.Path(folder, "kept")
        # Judged every 10,240 steps, as the peer is.
        flags = [f"--config=Trainer.stop_at_return = {target}"]
        flags.append("--config=Intervals.eval_epochs = 40")
        found = {
            name: trained(caches, root / name, seed, *flags)
            for name in ("tfrl, first process", "tfrl, later process")
        }
        words = [str(trainings.HERE / "peers/ppo_sb3.py"), f"--seed={seed}"]
        words.append(f"--stop-at={target}")
        found["stable_baselines3"] = seconds_of(words, caches)
    return found


def table(title: str, rounds: list[dict[str, float]], base: str) -> rich.table.Table:
    found = rich.table.Table(title=f"{title}: CPU seconds, one core")
    for work, names in PAIRS.items():
        if names[0] in rounds[0]:
            values = {name: [x[name] for x in rounds] for name in names}
            records.keep(f"{title}: {work}", "CPU s", values, names[0])
    for name in ("", "median (min - max)", f"less `{base}`", f"times `{base}`"):
        found.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        others = [each[base] for each in rounds]
        middle, low, high = statistics.median(values), min(values), max(values)
        pairs = list(zip(values, others, strict=True))
        found.add_row(
            name,
            f"{middle:.2f} ({low:.2f} - {high:.2f})",
            f"{statistics.median(x - y for x, y in pairs):+.2f}",
            f"{statistics.median(x / y for x, y in pairs):.2f}",
        )
    return found


def main() -> None:
    parser = turns.argparse.ArgumentParser(
        description=__doc__,
        formatter_class=turns.argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=turns.positive, default=5)
    parser.add_argument("--seeds", type=int, default=0, help="to 475, from seed 0")
    arguments = parser.parse_args()
    console = turns.console()
    console.print(turns.versions(trainings.PACKAGES), highlight=False)
    one_round(0)  # Python compiles all modules, and keeps that.
    rounds = [one_round(seed) for seed in range(arguments.rounds)]
    console.print(table("PPO, CartPole-v1", rounds, BASE))
    if arguments.seeds:
        goals = []
        for seed in range(arguments.seeds):
            goals.append(one_goal(seed))
            console.print(f"seed {seed} {json.dumps(goals[-1])}", highlight=False)
        console.print(table("to a mean return of 475", goals, "stable_baselines3"))


if __name__ == "__main__":
    main()
