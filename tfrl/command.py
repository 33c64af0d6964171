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
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tfrl import entry
from tfrl._internal import help_texts, output
from tfrl.experiments import command_of_collecting, commands_of_runs

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
        done = flags.run(flags) or 0
        print(end="", flush=True)  # or the process fails at its end
        return done
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
        prog="tfrl",
        description="Train agents, and ask what there is to know of their runs.",
        epilog=help_texts.OF_ALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "continue the run in this folder; flags of `train` may follow"
    parser.add_argument("--resume", metavar="RUN", help=text)
    entry.add_version(parser)
    commands.add_parser("train", help=help_texts.summary("train"))

    def add(name: str, run: _Run) -> argparse.ArgumentParser:
        told = {"help": help_texts.summary(name), **help_texts.layout(name)}
        added = commands.add_parser(name, allow_abbrev=False, **told)
        added.set_defaults(run=run)
        return added

    _add_commands_of_a_run(add)
    commands_of_runs.add_commands(add)
    checked = add("check-env", _check_env)
    text = "of an environment of Gymnasium, or my_module:MyEnv-v0"
    checked.add_argument("env_id", metavar="ID", help=text)
    text = "random steps to look at"
    checked.add_argument("--steps", metavar="N", type=int, default=1000, help=text)
    _add_seed(checked)
    checked.add_argument("--render", action="store_true", help="draw a frame as well")
    return parser


def _add_commands_of_a_run(add: Callable[..., argparse.ArgumentParser]) -> None:
    evaluate = add("evaluate", _evaluate)
    _add_run(evaluate)
    _add_step(evaluate)
    text = "episodes to play; 20 by default, or a little more with several agents"
    evaluate.add_argument("--episodes", metavar="N", type=int, help=text)
    _add_seed(evaluate)
    record = add("record", _record)
    _add_run(record)
    _add_step(record)
    text = "the video, .mp4 or .gif; RUN/episode.mp4 by default"
    record.add_argument("--output", metavar="FILE", help=text)
    _add_seed(record)
    text = "steps after which to stop; at the episode's end by default"
    record.add_argument("--max_episode_steps", metavar="N", type=int, help=text)
    size: dict[str, Any] = {"nargs": 2, "metavar": ("WIDTH", "HEIGHT")}
    text = "of the frames, in pixels; as they are drawn by default"
    record.add_argument("--size", type=int, help=text, **size)
    exported = add("export", _export)
    _add_run(exported)
    text = "what to write: a folder of a SavedModel, or a .tflite file"
    exported.add_argument("path", metavar="PATH", help=text)
    _add_step(exported)
    tolerance: dict[str, Any] = {"metavar": "SHARE", "type": float}
    text = "how far an output may be off, as a share of the larger of 1 and the largest"
    exported.add_argument("--tolerance", default=1e-5, help=text, **tolerance)
    text = "replace PATH if it is there"
    exported.add_argument("--overwrite", action="store_true", help=text)
    verify = add("verify", _verify)
    verify.add_argument("path", metavar="PATH", help="what `export` wrote")
    text = "as of `export`; that of the export by default"
    verify.add_argument("--tolerance", help=text, **tolerance)
    _add_run(add("doctor", _doctor))
    collected = add("collect", command_of_collecting.collect)
    _add_run(collected)
    _add_step(collected)
    _add_seed(collected)
    command_of_collecting.add_flags(collected)


def _add_run(added: argparse.ArgumentParser) -> None:
    added.add_argument("run_dir", metavar="RUN", help="folder of a run")


def _add_step(added: argparse.ArgumentParser) -> None:
    text = "environment steps of the checkpoint, or 'best'; the newest by default"
    added.add_argument("--step", type=_step, help=text)


def _add_seed(added: argparse.ArgumentParser) -> None:
    text = "seed of the environments"
    added.add_argument("--seed", metavar="N", type=_seed, default=0, help=text)


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
