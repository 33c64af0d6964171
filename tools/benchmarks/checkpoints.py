"""Saving and loading: replays of images, and the networks of a run.

A replay is filled, saved, and loaded in another process: first into memory that nobody
has touched, then once more into the same. Each contender has processes of its own. The
files were just written, so that loading reads them from memory, not from the disk.
Shown are MB/s of what is on the disk, and how much memory was taken at most beside that
in use before, in times of the bytes on the disk: who loads into fresh memory needs 1.

tfrl's `save` returns when the disk has everything, and `load` compares digests of all
bytes. Others return while the system still writes: "+ sync" waits until it is done. The
floor is the bytes of five arrays by `write` and `readinto`, and the time that the first
touch of as much memory takes.

The networks are arrays of float32 in one process, contenders in turns, milliseconds.

    tools/bench checkpoints
    tools/bench checkpoints --sizes 2048 --rounds 1 --groups replay
"""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from harness import one_core

HERE = pathlib.Path(__file__).resolve()
SHAPE, WIDTH = (84, 84, 4), 8
# By name: module of `peers` and class; all but the first four hold both observations.
REPLAYS = {
    "tfrl EpisodeStore": ("replay_tfrl", "Episodes"),
    "cpprb, next_of": ("replay_cpprb", "CpprbOnce"),
    "Stable-Baselines3, optimize_memory": ("replay_torch", "StableBaselines3Once"),
    "TF-Agents, tf.train.Checkpoint": ("replay_tf_agents", "TfAgents"),
    "tfrl DataBuffer": ("replay_tfrl", "Rows"),
    "Stable-Baselines3": ("replay_torch", "StableBaselines3"),
    "torchrl": ("replay_torch", "Torchrl"),
    "torch.save of arrays": ("replay_arrays", "TorchArrays"),
    "numpy.save of arrays": ("replay_arrays", "NumpyArrays"),
    "floor: write, readinto": ("replay_arrays", "PlainFiles"),
}
NETWORKS = {"2 x 64": [(4, 64), (64,), (64, 64), (64,), (64, 2), (2,)] * 3}
NETWORKS["256 MiB"] = [(1024, 1024)] * 64


def made(name, mebibytes):
    """A contender that takes so many MiB of observations, and its case."""
    import numpy as np  # noqa: PLC0415
    from peers import replay_steps  # noqa: PLC0415

    module, kind = REPLAYS[name]
    make = getattr(importlib.import_module(f"peers.{module}"), kind)
    case = replay_steps.Case(SHAPE, np.uint8, 0)
    once = list(REPLAYS).index(name) < 4
    capacity = (mebibytes << 20) // (case.bytes * (1 if once else 2))
    case = case._replace(capacity=capacity // WIDTH * WIDTH)
    return make(case, WIDTH), case


def alone(name, mebibytes, folder, stage):
    """Prints what a stage of a contender took, as JSON."""
    from peers import replay_steps  # noqa: PLC0415

    contender, case = made(name, mebibytes)
    found = []

    def taken(function):
        replay_steps.forget_peak()
        before, start = replay_steps.memory("VmRSS"), time.perf_counter()
        function(folder)
        seconds = time.perf_counter() - start
        found.append((seconds, replay_steps.memory("VmHWM") - before))

    if stage == "save":
        if hasattr(contender, "fill"):
            contender.fill()
        else:
            replay_steps.filled(contender, case, WIDTH)
        os.sync()
        taken(contender.save)
        taken(lambda _: os.sync())
    else:
        taken(contender.load)
        taken(contender.load)
    print(json.dumps(found))


def replay_row(name, mebibytes, root):
    """Figures of a contender: bytes, and seconds and MiB of each stage."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        found = []
        for stage in ("save", "load"):
            done = subprocess.run(
                [sys.executable, HERE, "--alone", stage, name, str(mebibytes), folder],
                env={**os.environ, **one_core.ONE_THREAD},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                return done.stderr.strip().splitlines()[-1][:100]
            found += json.loads(done.stdout.splitlines()[-1])
        files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files), found


def replays(console, sizes, rounds, root, only):
    import rich.table  # noqa: PLC0415

    for size in sizes:
        table = rich.table.Table(title=f"replay, {size} MiB of images: MB/s (memory)")
        for head in ("", "save", "+ sync", "load, fresh memory", "load again"):
            table.add_column(head, justify="right" if head else "left")
        rows = {name: [] for name in only}
        for _ in range(rounds):
            for name, some in rows.items():
                some.append(replay_row(name, size, root))
        for name, some in rows.items():
            refusals = [row for row in some if isinstance(row, str)]
            if refusals:
                table.add_row(name, refusals[0])
                continue
            stored = some[0][0] / 1e6
            stages = [
                tuple(map(statistics.median, zip(*stage, strict=True)))
                for stage in zip(*(found for _, found in some), strict=True)
            ]
            (save, beside), (sync, _), fresh, again = stages
            cells = [(save, beside), (save + sync, beside), fresh, again]
            table.add_row(
                name,
                *(
                    f"{stored / seconds:,.0f} ({memory * 1.048576 / stored:.2f})"
                    for seconds, memory in cells
                ),
            )
        console.print(table)


def networks(console, rounds, root):
    import numpy as np  # noqa: PLC0415
    import rich.table  # noqa: PLC0415
    from harness import records, turns  # noqa: PLC0415
    from peers import networks_saved  # noqa: PLC0415

    for size, shapes in NETWORKS.items():
        rng = np.random.default_rng(0)
        arrays = [rng.random(shape, np.float32) for shape in shapes]
        table = rich.table.Table(title=f"network, {size}: milliseconds")
        for head in ("", "save", "save, on the disk", "load"):
            table.add_column(head, justify="right" if head else "left")
        with tempfile.TemporaryDirectory(dir=root) as folder:
            made = {
                name: make(arrays, pathlib.Path(folder, str(k)))
                for k, (name, make) in enumerate(networks_saved.CONTENDERS.items())
            }
            times = {name: [] for name in made}
            for _ in range(rounds + 1):
                for name, contender in made.items():
                    contender.clear()
                    os.sync()
                    save = turns.seconds(contender.save)
                    flush = 0.0 if contender.lasting else turns.seconds(os.sync)
                    load = turns.seconds(contender.load)
                    times[name].append((save, save + flush, load))
        for stage, work in enumerate(("save", "save, on the disk", "load")):
            values = {
                name: [each[stage] * 1e3 for each in some[1:]]
                for name, some in times.items()
            }
            records.keep(f"network, {size}: {work}", "ms", values, "tfrl Checkpointer")
        for name, some in times.items():
            cells = (statistics.median(each) for each in zip(*some[1:], strict=True))
            table.add_row(name, *(f"{seconds * 1e3:,.1f}" for seconds in cells))
        console.print(table)


def main():
    if sys.argv[1:2] == ["--alone"]:
        stage, name, mebibytes, folder = sys.argv[2:]
        alone(name, int(mebibytes), folder, stage)
        return
    from harness import turns  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = ("replay", "networks")
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups)
    parser.add_argument("--sizes", nargs="+", type=int, default=[512], metavar="MiB")
    parser.add_argument("--rounds", type=turns.positive, default=3)
    parser.add_argument("--only", nargs="+", choices=REPLAYS, default=list(REPLAYS))
    parser.add_argument("--folder", help="where to save; None for the temporary folder")
    arguments = parser.parse_args()
    console = turns.console()
    packages = ("tensorflow", "torch", "stable-baselines3", "cpprb", "torchrl")
    console.print(turns.versions((*packages, "numpy", "tf-agents")), highlight=False)
    if "replay" in arguments.groups:
        sizes, rounds = arguments.sizes, arguments.rounds
        replays(console, sizes, rounds, arguments.folder, arguments.only)
    if "networks" in arguments.groups:
        networks(console, arguments.rounds, arguments.folder)


if __name__ == "__main__":
    main()
