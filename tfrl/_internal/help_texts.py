"""What `--help` says of each command before and behind its flags."""

import argparse
from typing import Any

# What a command does, more of it, and examples.
_TEXTS = {
    "train": (
        "train an agent as gin files describe",
        "A configuration is code: what it imports runs.\n"
        "Exit status: 0 complete, 1 an error with its traceback, 2 an error in one\n"
        "line, 75 a process or host was lost, 130 asked to end, and saved.",
        [
            "tfrl train ppo_cartpole --output_dir=runs/seven",
            "tfrl train ppo_cartpole --config='train_rl.seed = 7'",
            "tfrl train --resume --output_dir=runs/seven",
            "tfrl train ppo_cartpole --seeds 0-4 --output_dir=runs/ppo",
        ],
    ),
    "evaluate": (
        "play greedy episodes and print their returns",
        "",
        ["tfrl evaluate runs/seven --step=best --episodes=100"],
    ),
    "record": (
        "play a greedy episode and write it as a video",
        "",
        ["tfrl record runs/seven --output=episode.gif"],
    ),
    "plot": (
        "draw returns over environment steps",
        "",
        [
            "tfrl plot runs/seven --target=475",
            "tfrl plot runs/ppo runs/dqn --output=curves.png --interval=CI_95",
        ],
    ),
    "compare": (
        "compare the final returns of folders of seeds",
        "Prints their interquartile means, each with an interval of 95 %.",
        ["tfrl compare runs/ppo runs/dqn"],
    ),
    "tune": (
        "search for hyper-parameters",
        "A configuration is code: what it imports runs.",
        ["tfrl tune tune_ppo_cartpole --output_dir=runs/tuned"],
    ),
    "zoo": (
        "list configurations with the returns that were measured",
        "",
        ["tfrl zoo sac pendulum", "tfrl zoo --measured runs/ppo"],
    ),
    "export": (
        "write the policy as a SavedModel or for LiteRT",
        "",
        [
            "tfrl export runs/seven policies/seven",
            "tfrl export runs/seven seven.tflite --step=best",
        ],
    ),
    "verify": (
        "compare an exported model with its original",
        "Calls the model with the inputs that are kept in it.",
        ["tfrl verify policies/seven"],
    ),
    "doctor": (
        "find the first number of a run that is not finite",
        "",
        ["tfrl doctor runs/seven"],
    ),
    "collect": (
        "play policies and write a data set of their steps",
        "",
        [
            "tfrl collect runs/seven --npz=cartpole.npz --steps=20000",
            "tfrl collect runs/seven --minari=cartpole/mixed-v0 "
            "--mix random:0.3 best:0.7",
        ],
    ),
    "check-env": (
        "play an environment and report its faults",
        "Exit status: 0 without errors, 1 with some.",
        [
            "tfrl check-env CartPole-v1 --render",
            "tfrl check-env my_module:MyEnv-v0 --steps=5000",
        ],
    ),
}
OF_ALL = """`tfrl COMMAND --help` tells the flags of a command and gives an example.
Exit status: 0 done, 1 `doctor` or `check-env` found something wrong,
2 an error in one line, 130 interrupted; `tfrl train --help` tells that of training."""


def summary(command: str) -> str:
    """Returns what a command does, as the list of commands says it.

    Args:
        command: its name.

    Example:
        >>> summary("tune")
        'search for hyper-parameters'
    """
    return _TEXTS[command][0]


def layout(command: str) -> dict[str, Any]:
    """Returns the options of a parser by which its help has these texts.

    Args:
        command: its name.

    Example:
        >>> print(argparse.ArgumentParser(**layout("doctor")).description)
        Find the first number of a run that is not finite.
    """
    does, more, examples = _TEXTS[command]
    lines = "\n".join(f"  {line}" for line in examples)
    return {
        "description": f"{does[0].upper()}{does[1:]}.\n{more}".rstrip(),
        "epilog": f"example{'s' * (len(examples) > 1)}:\n{lines}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
