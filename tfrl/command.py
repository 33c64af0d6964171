"""The command `tfrl`: what can be asked of runs from a shell.

    tfrl train configs/ppo_cartpole.gin --output_dir=runs/seven
    tfrl --resume runs/seven          # that is: train --resume --output_dir=runs/seven
    tfrl evaluate runs/seven
    tfrl record runs/seven
    tfrl train configs/ppo_cartpole.gin --seeds 0-4 --output_dir=runs/ppo
    tfrl collect runs/seven --minari=pendulum/mixed-v0 --mix random:0.3 best:0.7
    tfrl plot runs/seven runs/eight --output=curves.png
    tfrl compare runs/ppo runs/dqn
    tfrl tune configs/tune_ppo_cartpole.gin --output_dir=runs/tuned
    tfrl zoo pendulum
    tfrl export runs/seven policies/seven
    tfrl verify policies/seven
    tfrl doctor runs/seven
    tfrl check-env CartPole-v1

Each does what a Python function does: `tfrl.rl_trainer.main`; `evaluate`, `record` and
`export` of what `tfrl.rl_trainer.open_run` returns; of `tfrl.summaries`
`plot_learning_curve`, or for several runs `MeanCurveReader` and `CurvesPlotter`;
`tfrl.exporting.verify`; `find_nonfinite` and `list_overrides` of `tfrl.training`;
`tfrl.environments.check_env`.

What resumes without a configuration is made again of what its folder keeps, be it a run
of `Trainer` or one of `AgentModel.fit` with a `RunCheckpoint`; `--config=BINDING` and
`--override` change it as they change others.
"""

import argparse
import atexit
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrl import entry
from tfrl._internal import output
from tfrl.experiments import commands_of_runs

# A command, of its flags; returns the exit status, None for 0.
_Run = Callable[[argparse.Namespace], int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; those of the process by default.

    Returns:
        0 when done, 1 if `doctor` or `check-env` found something wrong, 130 if
        interrupted, 2 for bad input, of which one line on stderr tells; of `train`
        what `tfrl.rl_trainer.main` returns.

    Example:
        >>> main(["doctor", "no/such/run"])
        2
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(given, is_process=argv is None)
    except KeyboardInterrupt:
        output.complain(f"{' '.join(['tfrl', *given[:1]])}: interrupted")
        return 130


def _main(given: list[str], is_process: bool) -> int:
    if given[:1] == ["--resume"] and given[1:] and given[1][:1] != "-":
        given = ["train", "--resume", "--output_dir", *given[1:]]
    # A wrong flag, or --help, has its answer before anything large is loaded.
    if given[:1] == ["train"]:
        flags = entry.train_flags(given[1:], "tfrl train")
    else:
        flags = entry.at_home(_parser().parse_args(given))
    if given[0] == "train" and (flags.seeds or commands_of_runs.resumes_seeds(flags)):
        # Its processes begin by themselves.
        if is_process:
            atexit.register(output.settle)
        return int(entry.load("experiments.seeds").main(flags))
    if is_process:
        # What is said of training is no part of what it does.
        entry.begin(may_lose_output=given[0] in ("train", "tune"))
    if given[0] == "train":
        return int(entry.load("rl_trainer").main(given[1:], prog="tfrl train"))
    try:
        return flags.run(flags) or 0
    except (ValueError, TypeError, OSError, ImportError) as error:
        if isinstance(error, BrokenPipeError) and output.is_unread():
            output.settle()  # nobody reads on, as behind `| head`
            return 0
        told = entry.load("rl_trainer").in_one_line(error)
        print(f"tfrl {flags.command}: error: {told}", file=sys.stderr)
        return 2


def _opened(flags: argparse.Namespace) -> Any:
    return entry.load("rl_trainer").open_run(flags.run_dir, flags.step)


def _evaluate(flags: argparse.Namespace) -> None:
    with _opened(flags) as run:
        played = run.evaluate(flags.episodes, seed=flags.seed)
        print(
            f"after {run.step} environment steps: return {played.returns.mean():.1f} "
            f"(standard deviation {played.returns.std():.1f}, smallest "
            f"{played.returns.min():.1f}, largest {played.returns.max():.1f}, "
            f"{len(played.returns)} episodes)"
        )
        if played.successes.size:
            print(f"success rate {played.successes.mean():.2f}")
        for name, returns in played.returns_by_agent().items():
            print(f"{name}: return {returns.mean():.1f} ({len(returns)} episodes)")


def _record(flags: argparse.Namespace) -> None:
    path = flags.output
    if path is None:
        path = pathlib.Path(flags.run_dir) / "episode.mp4"
    size, most = flags.size and tuple(flags.size), flags.max_episode_steps
    # Nothing is shown, so that no screen needs to be looked for.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    # The software renderer of Mesa that compiles by LLVM crashes beside TensorFlow's.
    os.environ.setdefault("GALLIUM_DRIVER", "softpipe")
    with _opened(flags) as run:
        run.record(path, seed=flags.seed, max_episode_steps=most, resize_to=size)
    print(f"an episode is in {path}")


def _export(flags: argparse.Namespace) -> None:
    with _opened(flags) as run:
        given = {"tolerance": flags.tolerance, "overwrite": flags.overwrite}
        run.export(flags.path, **given)
    print(f"the policy of step {run.step} is in {flags.path}")


def _verify(flags: argparse.Namespace) -> None:
    found = entry.load("exporting").verify(flags.path, flags.tolerance)
    for name, difference in found.items():
        print(f"{name}: as exported, within {difference:.3g}")


def _doctor(flags: argparse.Namespace) -> int:
    found = entry.load("training").find_nonfinite(flags.run_dir)
    for line in entry.load("training").list_overrides(flags.run_dir):
        print(line)
    told = entry.load("training").describe_actors(flags.run_dir)
    if told is not None:
        print(told)
    missing = entry.load("training").list_missing(flags.run_dir)
    for line in missing:
        print(line)
    if not found:
        print(_all_finite(pathlib.Path(flags.run_dir)))
        return int(bool(missing))
    print(f"first {found[0]}")
    for other in found[1:5]:
        print(f"then  {other}")
    if len(found) > 5:
        print(f"and in {len(found) - 5} more tensors")
    return 1


def _all_finite(folder: pathlib.Path) -> str:
    """Tells in how much of a run every number is finite."""
    looked_at, n_rows = [], 0
    if any(path.stat().st_size for path in folder.rglob("events.out.tfevents.*")):
        looked_at.append("events")
    if (folder / "metrics.csv").is_file():
        table = entry.load("summaries").read_metrics(folder / "metrics.csv")
        n_rows = len(table["env_steps"])
        looked_at.append(f"{n_rows} rows of metrics.csv")
    n_steps = len(entry.load("saving").list_steps(folder))
    if not n_steps and not n_rows:
        # A run that broke off early may have left nothing to find.
        return (
            f"there is nothing to look at in {folder}: no row of metrics.csv, no "
            "checkpoint"
        )
    looked_at.append(f"{n_steps} checkpoints")
    return f"every number in {folder} is finite, of {', '.join(looked_at)}"


def _collect(flags: argparse.Namespace) -> None:
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


def _check_env(flags: argparse.Namespace) -> int:
    if flags.render:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    report = entry.load("environments").check_env(
        flags.env_id,
        n_steps=flags.steps,
        seed=flags.seed,
        render=flags.render,
        raise_errors=False,
    )
    print(report)
    return 1 if report.errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = entry.OneLineParser(
        prog="tfrl", description="What can be asked of runs.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "resume this run; flags of `train` may follow"
    parser.add_argument("--resume", metavar="RUN", help=text)
    entry.add_version(parser)
    commands.add_parser("train", help="train what gin files describe")

    def add(name: str, run: _Run, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        added.set_defaults(run=run)
        return added

    def add_run(added: argparse.ArgumentParser, **options: Any) -> None:
        added.add_argument("run_dir", metavar="RUN", help="folder of a run", **options)

    def add_step(added: argparse.ArgumentParser) -> None:
        text = "which checkpoint, by its environment steps, or 'best'; the newest by "
        added.add_argument("--step", type=_step, help=text + "default")

    seeded: dict[str, Any] = {"type": _seed, "default": 0}
    seeded["help"] = "of the environment"
    evaluate = add("evaluate", _evaluate, "play greedy episodes and print the returns")
    add_run(evaluate)
    add_step(evaluate)
    evaluate.add_argument("--episodes", type=int, help="how many; about 20 by default")
    evaluate.add_argument("--seed", **seeded)
    record = add("record", _record, "play an episode and write it as a video")
    add_run(record)
    add_step(record)
    record.add_argument("--output", help=".mp4 or .gif; RUN/episode.mp4 by default")
    record.add_argument("--seed", **seeded)
    text = "when to stop at the latest; at the episode's end by default"
    record.add_argument("--max_episode_steps", type=int, help=text)
    size: dict[str, Any] = {"nargs": 2, "metavar": ("WIDTH", "HEIGHT")}
    record.add_argument("--size", type=int, help="in pixels", **size)
    commands_of_runs.add_commands(add)
    exported = add("export", _export, "write the policy as a SavedModel or for LiteRT")
    add_run(exported)
    exported.add_argument("path", metavar="PATH", help="folder, or .tflite file")
    add_step(exported)
    text = "how far outputs may be apart, beside the larger of 1 and the largest output"
    exported.add_argument("--tolerance", type=float, default=1e-5, help=text)
    exported.add_argument("--overwrite", action="store_true", help="replace PATH")
    verify = add("verify", _verify, "compare an exported model with its original")
    verify.add_argument("path", metavar="PATH", help="what `export` wrote")
    verify.add_argument("--tolerance", type=float, help="that of the export by default")
    text = "find the first number of a run that is not finite"
    add_run(add("doctor", _doctor, text))
    collected = add("collect", _collect, "write a data set of what policies do")
    _add_collect_flags(collected, seeded)
    checked = add("check-env", _check_env, "play an environment to find its faults")
    checked.add_argument("env_id", metavar="ID", help="such as my_module:MyEnv-v0")
    checked.add_argument("--steps", type=int, default=1000, help="how many to look at")
    checked.add_argument("--seed", **seeded)
    checked.add_argument("--render", action="store_true", help="draw a frame too")
    return parser


def _add_collect_flags(
    collected: argparse.ArgumentParser, seeded: dict[str, Any]
) -> None:
    collected.add_argument("run_dir", metavar="RUN", help="folder of a run")
    text = "which checkpoint, or 'best'; the newest by default"
    collected.add_argument("--step", type=_step, help=text)
    collected.add_argument("--seed", **seeded)
    where = collected.add_mutually_exclusive_group(required=True)
    where.add_argument("--minari", metavar="NAME", help="of the Minari set to write")
    where.add_argument("--npz", metavar="FILE", help="the NumPy archive to write")
    collected.add_argument("--overwrite", action="store_true", help="replace FILE")
    collected.add_argument("--steps", type=int, default=100_000, help="how many")
    collected.add_argument(
        "--temperature",
        type=entry.finite,
        default=1.0,
        help="1 acts as the policy learned, 0 greedily",
    )
    collected.add_argument(
        "--epsilon", type=entry.finite, default=0.0, help="share of uniform actions"
    )
    collected.add_argument(
        "--mix",
        type=_share,
        nargs="+",
        metavar="STEP:SHARE",
        help="several policies in place of that of --step: checkpoints, best, random, "
        "in the proportion of their shares",
    )


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


def _step(text: str) -> int | str:
    if text != "best" and not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"expected environment steps or 'best'; got {text!r}"
        )
    return text if text == "best" else int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number >= 0; got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
