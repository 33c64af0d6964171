"""DQN: tfrl, Stable-Baselines3 and a plain PyTorch file side by side.

On CartPole-v1 all three train with the settings of configs/dqn_cartpole.gin, each in a
process of its own on one core and one thread, in turn seed by seed, and then play 20
greedy episodes.
"""

import argparse

from harness import trainings, turns

CONTENDERS: dict[str, trainings.Contender] = {
    "tfrl": trainings.tfrl_run("dqn_cartpole"),
    "stable-baselines3": trainings.script_run("peers/dqn_sb3.py"),
    "torch": trainings.script_run("peers/dqn_torch.py"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=turns.positive, default=3, help="from 0 on")
    parser.add_argument(
        "--steps", type=turns.positive, default=50_000, help="env steps each"
    )
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS)
    )
    arguments = parser.parse_args()
    console = turns.console()
    console.print(turns.versions(trainings.PACKAGES), highlight=False)
    chosen = {name: CONTENDERS[name] for name in arguments.only}
    trainings.compare(
        console, "DQN, CartPole-v1", chosen, arguments.seeds, arguments.steps, 5_120
    )


if __name__ == "__main__":
    main()
