"""The command `tfrl collect`: a data set of what policies of a run do."""

import argparse
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfrl import entry


def add_flags(collected: argparse.ArgumentParser) -> None:
    """Adds the flags that `tfrl collect` alone has.

    Args:
        collected: parser of that command.
    """
    where = collected.add_mutually_exclusive_group(required=True)
    text = "the new Minari set, such as pendulum/mixed-v0"
    where.add_argument("--minari", metavar="NAME", help=text)
    where.add_argument("--npz", metavar="FILE", help="the NumPy archive to write")
    text = "replace FILE if it is there"
    collected.add_argument("--overwrite", action="store_true", help=text)
    text = "environment steps to play"
    collected.add_argument("--steps", metavar="N", type=int, default=100_000, help=text)
    number: dict[str, Any] = {"metavar": "X", "type": entry.finite}
    text = "how random actions are: 1 as the policy learned, 0 greedy"
    collected.add_argument("--temperature", default=1.0, help=text, **number)
    text = "share of actions drawn uniformly, from 0 to 1"
    collected.add_argument("--epsilon", default=0.0, help=text, **number)
    collected.add_argument(
        "--mix",
        type=_share,
        nargs="+",
        metavar="STEP:SHARE",
        help="several policies in place of that of --step, in the proportion of their "
        "shares; each is environment steps, best or random",
    )


def collect(flags: argparse.Namespace) -> None:
    """Plays the policies of a run and writes the data set.

    Args:
        flags: run_dir, step, seed and those of `add_flags`.

    Raises:
        ValueError: if they do not fit together, or the set is there already.
    """
    if flags.steps < 1:
        raise ValueError(f"`tfrl collect`: `--steps` expected > 0; got {flags.steps}")
    entry.load("datasets.recorded").check_new(
        flags.npz, flags.minari, overwrite=flags.overwrite
    )
    parts = flags.mix or [(flags.step, 1.0)]
    total, played, cut = sum(share for _, share in parts), [], []
    spaces = env_spec = None
    shares = itertools.accumulate((share for _, share in parts), initial=0.0)
    ends = [round(flags.steps * share / total) for share in shares]
    for i, (step, _) in enumerate(parts):
        if ends[i + 1] == ends[i]:
            continue
        options: dict[str, Any] = {} if step != "random" else {"policy": None}
        known = None if step == "random" else step
        with entry.load("rl_trainer").open_run(flags.run_dir, known) as run:
            rows, broken_off = run.collect(
                ends[i + 1] - ends[i],
                seed=flags.seed + i,
                temperature=flags.temperature,
                epsilon=flags.epsilon,
                tell_cut=True,
                **options,
            )
            played.append(rows)
            cut.extend(broken_off.tolist())
            spaces, env_spec = run.spaces, run.env_spec
    datasets = entry.load("datasets")
    rows = datasets.join_rows(played)
    path = flags.npz
    if path is None:
        mixed = ", ".join(f"{share:g} of {step or 'newest'}" for step, share in parts)
        path = datasets.write_minari(
            flags.minari,
            rows,
            spaces,
            env_spec=env_spec,
            algorithm=f"tfrl run {pathlib.Path(flags.run_dir).name}",
            description=f"Policies: {mixed}; temperature {flags.temperature:g}, "
            f"epsilon {flags.epsilon:g}, seed {flags.seed}.",
        )
    else:
        datasets.write_npz(path, rows)
    print(f"{_episodes_told(rows, cut)}, are in {path}")


def _episodes_told(rows: Mapping[str, Any], cut: Sequence[bool]) -> str:
    """Tells how many steps and episodes rows are, and the mean return of whole ones."""
    returns, total = [], 0.0
    ended = rows["terminated"] | rows["truncated"]
    for reward, is_end, is_cut in zip(
        rows["rewards"].tolist(), ended, cut, strict=True
    ):
        total += reward
        if is_end:
            returns += [] if is_cut else [total]
            total = 0.0
    n_episodes = int(ended.sum())
    told = f"{len(cut)} steps of {n_episodes} episode{'s' * (n_episodes != 1)}"
    if not returns:
        return f"{told}, none of them whole, which takes more --steps"
    mean = f"{sum(returns) / len(returns):.1f}"
    if any(cut):
        return (
            f"{told}, {sum(cut)} cut off at the end, mean return of the others {mean}"
        )
    return f"{told}, mean return {mean}"


def _share(text: str) -> tuple[int | str, float]:
    step, colon, share = text.rpartition(":")
    if not colon or not (step in ("best", "random") or step.isdecimal()):
        raise argparse.ArgumentTypeError(
            "expected environment steps, 'best' or 'random', a colon and a share, such "
            f"as random:0.5; got {text!r}"
        )
    known = int(step) if step.isdecimal() else step
    number = entry.finite(share)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"expected a share > 0; got {text!r}")
    return known, number
