"""Learning from pictures: PPO and DQN of tfrl, Stable-Baselines3 and SBX in turns.

All learn from the same pictures of 84x84x4, by the settings of rl-zoo for Atari and one
network of convolutions, in turns within one process on one core and one thread; see
peers/ppo_images.py and peers/dqn_images.py. tfrl computes with oneDNN, as its commands
do on x86, and without, as TensorFlow does by itself on processors without VNNI
instructions. What it does with oneDNN in mixed precision, beside the same peers in
float32, is a table of its own.

    tools/bench images
    tools/bench images --agents dqn --rounds 21
"""

import argparse
import json
from collections.abc import Mapping, Sequence

import rich.table
from harness import records, trainings, turns

# What a round is, and who plays it.
AGENTS = {
    "ppo": ("PPO, 84x84x4 pixels, 1,024 steps, 16 updates", "peers/ppo_images.py"),
    "dqn": ("DQN, 84x84x4 pixels, 128 steps, 32 updates", "peers/dqn_images.py"),
}
MIXED = "tfrl, mixed_bfloat16"


def rounds_of(script: str, rounds: int, onednn: str) -> dict[str, list[float]]:
    """CPU seconds of every round by contender."""
    command = [str(trainings.HERE / script), f"--rounds={rounds}"]
    printed = trainings.run_alone(command, {"TF_ENABLE_ONEDNN_OPTS": onednn})
    return json.loads(printed.splitlines()[-1])


def table(title: str, seconds: Mapping[str, Sequence[float]]) -> rich.table.Table:
    made = rich.table.Table(
        title=title,
        caption="CPU seconds of a round (collecting, learning): median (min - max)",
    )
    for name in ("", "seconds", "tfrl is\ntimes as fast"):
        made.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, values in seconds.items():
        base = None if name == "tfrl" else seconds["tfrl"]
        told = trainings.spread(values, digits=2), trainings.ratio(values, base)
        made.add_row(name, *told)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=[*AGENTS])
    parser.add_argument("--rounds", type=turns.positive, default=9)
    arguments = parser.parse_args()
    console = turns.console()
    console.print(turns.versions(trainings.PACKAGES), highlight=False)
    for agent in arguments.agents:
        title, script = AGENTS[agent]
        found = rounds_of(script, arguments.rounds, "1")
        mixed = {"tfrl": found.pop(MIXED), "tfrl, float32": found["tfrl"]}
        peers = {name: found[name] for name in found if name != "tfrl"}
        tables = {
            f"{title}, float32": found,
            f"{title}, mixed_bfloat16": mixed | peers,
            f"{title}, without oneDNN": rounds_of(script, arguments.rounds, "0"),
        }
        for named, seconds in tables.items():
            records.keep(named, "seconds", seconds, "tfrl")
            console.print(table(named, seconds))


if __name__ == "__main__":
    main()
