"""PPO on CartPole-v1: tfrl, Stable-Baselines3 and a plain PyTorch file side by side.

All three train with the settings of rl-zoo (8 envs, 32 steps each, batch 256, 20
epochs, gamma 0.98, lambda 0.8, learning rate 1e-3 and clip 0.2 decaying to 0, two MLPs
of 64 x 64 tanh), each in a process of its own on one core and one thread, in turn seed
by seed, and then play 20 greedy episodes.

With --images tfrl and Stable-Baselines3 learn from pictures of 84x84x4 instead, by one
network of convolutions, in turns within one process; see peers/ppo_images.py.
"""

import argparse
import functools
import json
import statistics

import rich.table
from harness import trainings, turns

CONTENDERS: dict[str, trainings.Contender] = {
    "tfrl": functools.partial(trainings.tfrl_run, "ppo_cartpole"),
    "stable-baselines3": trainings.script_run("peers/ppo_sb3.py"),
    "torch": trainings.script_run("peers/ppo_torch.py"),
}


def images_table(rounds: int) -> rich.table.Table:
    printed = trainings.run_alone(
        [str(trainings.HERE / "peers/ppo_images.py"), f"--rounds={rounds}"]
    )
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
        table.add_row(name, spent, trainings.ratio(values, base))
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
    console.print(turns.versions(trainings.PACKAGES), highlight=False)
    if arguments.images:
        console.print(images_table(arguments.rounds))
        return
    chosen = {name: CONTENDERS[name] for name in arguments.only}
    title = "PPO, CartPole-v1"
    trainings.compare(console, title, chosen, arguments.seeds, arguments.steps)


if __name__ == "__main__":
    main()
