"""All benchmarks that have peers, one after the other, and one table of them.

The table is the page of benchmarks of the site, and its head is that of the README:
figures of speed stand nowhere else. With --only these parts of it are measured anew.
Left out are those without a peer to be faster than: curves, memory, zoo.
"""

import argparse
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

from harness import records, trainings, turns

PAGE = trainings.ROOT / "tools" / "site" / "benchmarks.md"
README = trainings.ROOT / "README.md"
BEGIN, END = "<!-- head of tools/bench all -->", "<!-- end of the head -->"
COMMANDS = (
    "ppo --seeds 2",
    "dqn --seeds 1",
    "images",
    "sac",
    "iql",
    "compiled",
    "startup --rounds 3 --seeds 2",
    "acting",
    "collecting",
    "environments",
    "actors",
    "replay",
    "trees",
    "value_ops",
    "losses",
    "distributions",
    "stats",
    "layers",
    "calls",
    "checkpoints --groups networks",
)
# Of the README: how the work begins, and the peer.
HEAD = (
    ("PPO, cartpole: training", "stable-baselines3"),
    ("PPO in one graph, cartpole: training", "JAX, one graph"),
    ("PPO, pendulum: training", "stable-baselines3"),
    ("PPO, halfcheetah: training", "stable-baselines3"),
    ("DQN, CartPole-v1: training", "stable-baselines3"),
    ("PPO, 84x84x4 pixels, 1,024 steps, 16 updates, float32", "stable-baselines3"),
    ("PPO, 84x84x4 pixels, 1,024 steps, 16 updates, mixed", "stable-baselines3"),
    ("a gradient step, SAC", "stable-baselines3"),
    ("a gradient step, SAC", "sbx"),
    ("a rollout of ant", "JAX"),
    ("advantages, 512x1024", "rlax in XLA"),
)
HEADS = (
    "| work | tfrl | peer | its figure | tfrl is times as fast |",
    "| --- | ---: | --- | ---: | ---: |",
)
PACKAGES = (
    *("tensorflow-cpu", "keras", "tensorflow-probability", "numpy", "gymnasium"),
    *("stable-baselines3", "sbx-rl", "torch", "torchrl", "jax", "rlax", "distrax"),
    *("flax", "optax", "cpprb", "tf-agents", "gymnax", "brax", "envpool", "mujoco"),
)
ABOUT = """\
# Benchmarks

Here you find how fast tfrl is beside other libraries, and the command that measured it.
Contenders take turns on one machine, round by round, with one thread each and the same
inputs; what is compiled was compiled before. "Times as fast" is the median over rounds
of the peer's time divided by that of tfrl, with the lowest and the highest: below 1 the
peer is faster. Other ways of tfrl itself are among the peers. `inf` stands for a target
that was not reached.
"""
SECTION = "## `tools/bench "


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [command.split()[0] for command in COMMANDS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--quick", action="store_true", help="one round; writes nothing"
    )
    parser.add_argument(
        "--records",
        type=pathlib.Path,
        metavar="FOLDER",
        help="keep what each measured here, and take what is here already",
    )
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as emptied:
        folder = options.records or pathlib.Path(emptied)
        folder.mkdir(parents=True, exist_ok=True)
        for command in COMMANDS:
            if command.split()[0] in options.only:
                found[command] = section(measured(command, options.quick, folder))
    if options.quick:
        print("\n".join(page(found)))
        return
    kept = sections(PAGE.read_text(encoding="utf-8")) | found
    PAGE.write_text("\n".join(page(kept)) + "\n", encoding="utf-8")
    told = README.read_text(encoding="utf-8")
    before, after = told.split(BEGIN)[0], told.split(END)[1]
    README.write_text(
        "\n".join([before + BEGIN, *head(kept), END + after]), encoding="utf-8"
    )


def measured(command: str, quick: bool, folder: pathlib.Path) -> list[records.Row]:
    """Runs a benchmark, whose tables are shown meanwhile, and returns its rows."""
    name, *words = command.split()
    if quick:
        words = ["--rounds", "1"] if "--seeds" not in words else ["--seeds", "1"]
    done = folder / f"{name}.records"
    if not done.exists():
        path = folder / f"{name}.part"
        path.write_text("", encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, trainings.HERE / f"{name}.py", *words],
            env={**os.environ, records.VARIABLE: str(path.resolve())},
        )
        if ran.returncode:
            raise RuntimeError(f"{command} failed")
        path.rename(done)
    rows = records.rows(done.read_text(encoding="utf-8").splitlines())
    if not rows:
        raise RuntimeError(f"{command} kept nothing of tfrl beside a peer")
    return rows


def sections(text: str) -> dict[str, list[str]]:
    """Command -> lines, of a page."""
    parts = text.split(SECTION)[1:]
    commands = (part.split("`", 1) for part in parts)
    return {command: lines.strip().splitlines() for command, lines in commands}


def section(rows: list[records.Row]) -> list[str]:
    """Lines about a benchmark that was measured now."""
    commit = ["git", "rev-parse", "--short=10", "HEAD"]
    told = subprocess.run(commit, cwd=trainings.ROOT, capture_output=True, text=True)
    when = f"Measured on {datetime.date.today().isoformat()}, at {told.stdout.strip()}."
    return [when, "", *HEADS, *map(line, rows)]


def page(found: dict[str, list[str]]) -> list[str]:
    """Its lines: what measured the newest part, the head, and all parts."""
    lines = [
        *ABOUT.splitlines(),
        "",
        f"Its newest part was measured on {machine()}: {turns.versions(PACKAGES)}.",
        "",
        *head(found),
    ]
    for command in COMMANDS:
        if command in found:
            lines += ["", f"{SECTION}{command}`", "", *found[command]]
    return lines


def machine() -> str:
    """The processor, how many cores the machine has, and the system."""
    told = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = told.split("model name")[1].split("\n")[0].strip("\t :")
    return f"{os.cpu_count()} cores of {model}, {platform.system()}"


def head(found: dict[str, list[str]]) -> list[str]:
    """The rows of the README."""
    rows = [row for lines in found.values() for row in lines if row.startswith("| ")]
    chosen = [
        row
        for work, peer in HEAD
        for row in rows
        if row.startswith(f"| {work}") and row.split(" | ")[2] == peer
    ]
    return [*HEADS, *chosen]


def line(row: records.Row) -> str:
    """A row in Markdown."""
    digits = 1 if row.ours < 1000 else 0
    return (
        f"| {row.work} | {row.ours:,.{digits}f} {row.unit} | {row.peer} "
        f"| {row.theirs:,.{digits}f} | **{row.faster:.2f}** "
        f"({row.low:.2f} to {row.high:.2f}) |"
    )


if __name__ == "__main__":
    main()
