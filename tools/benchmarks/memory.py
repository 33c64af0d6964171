"""Memory of replays: bytes of a transition, and of the process that holds them.

Each contender is filled in a process of its own, by steps of 8 environments:

    floats   4 float32, 1,000,000 transitions
    images   84x84x4 uint8, 100,000 transitions

Bytes a transition are what the process grew by while the replay was made and filled;
MiB of the process are with all that it had imported, at the end. Whole transitions hold
both observations; where a documented setting keeps them once, or each frame of stacked
ones, it has a row.

    tools/bench memory
    tools/bench memory --sizes floats
"""

import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys

from harness import one_core

HERE = pathlib.Path(__file__).resolve()
WIDTH = 8
CASES = {
    "floats": ((4,), "float32", 1_000_000),
    "images": ((84, 84, 4), "uint8", 100_000),
}
REPLAYS = {
    "tfrl EpisodeStore": ("replay_tfrl", "Episodes"),
    "tfrl EpisodeStore by priority": ("replay_tfrl", "ByPriority"),
    "tfrl EpisodeStore, frame_stack": ("replay_tfrl", "Frames"),
    "tfrl DataBuffer": ("replay_tfrl", "Rows"),
    "Stable-Baselines3": ("replay_torch", "StableBaselines3"),
    "Stable-Baselines3, optimize_memory": ("replay_torch", "StableBaselines3Once"),
    "cpprb": ("replay_cpprb", "Cpprb"),
    "cpprb, next_of": ("replay_cpprb", "CpprbOnce"),
    "cpprb, next_of, stack_compress": ("replay_cpprb", "CpprbFrames"),
    "cpprb by priority": ("replay_cpprb", "CpprbPrioritized"),
    "torchrl": ("replay_torch", "Torchrl"),
    "TF-Agents": ("replay_tf_agents", "TfAgents"),
    "flashbax": ("replay_jax", "Flashbax"),
}


def alone(name, size):
    """Prints bytes of a transition and MiB of the process, as JSON."""
    import numpy as np  # noqa: PLC0415
    from peers import replay_steps  # noqa: PLC0415

    module, kind = REPLAYS[name]
    make = getattr(importlib.import_module(f"peers.{module}"), kind)
    shape, dtype, capacity = CASES[size]
    case = replay_steps.Case(shape, np.dtype(dtype).type, capacity)
    # What is made once, however much is kept, is made here.
    small = case._replace(capacity=64 * WIDTH)
    replay_steps.filled(make(small, WIDTH), small, WIDTH)
    before = replay_steps.memory("VmRSS")
    contender = make(case, WIDTH)
    replay_steps.filled(contender, case, WIDTH)
    after = replay_steps.memory("VmRSS")
    print(json.dumps([(after - before) * 2**20 / case.capacity, after]))


def row(name, size):
    done = subprocess.run(
        [sys.executable, HERE, "--alone", name, size],
        env={**os.environ, **one_core.ONE_THREAD},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return [done.stderr.strip().splitlines()[-1][:60], ""]
    transition, process = json.loads(done.stdout.splitlines()[-1])
    return [f"{transition:,.0f}", f"{process:,.0f}"]


def main():
    if sys.argv[1:2] == ["--alone"]:
        alone(*sys.argv[2:])
        return
    import rich.table  # noqa: PLC0415
    from harness import turns  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--only", nargs="+", choices=REPLAYS, default=list(REPLAYS))
    arguments = parser.parse_args()
    console = turns.console()
    packages = ("stable-baselines3", "cpprb", "torchrl", "tf-agents", "flashbax")
    console.print(turns.versions(packages), highlight=False)
    for size in arguments.sizes:
        table = rich.table.Table(title=f"{size}: {CASES[size]}")
        for head in ("", "bytes a transition", "MiB of the process"):
            table.add_column(head, justify="right" if head else "left")
        for name in arguments.only:
            table.add_row(name, *row(name, size))
        console.print(table)


if __name__ == "__main__":
    main()
