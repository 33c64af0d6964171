"""The command `tfrl`: what can be asked of runs from a shell.

    tfrl train configs/ppo_cartpole.gin --output_dir=runs/seven
    tfrl --resume runs/seven          # that is: train --resume --output_dir=runs/seven
    tfrl evaluate runs/seven
    tfrl record runs/seven
    tfrl plot runs/seven runs/eight --output=curves.png
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
import importlib
import math
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tfrl import entry

# Those of `mean_curve`, here for flags that load no TensorFlow.
INTERVAL_MODES = ("std", "minmax", "CI_80", "CI_85", "CI_90", "CI_95", "CI_99")
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
    if given[:1] == ["--resume"] and given[1:] and given[1][:1] != "-":
        given = ["train", "--resume", "--output_dir", *given[1:]]
    # A wrong flag, or --help, has its answer before anything large is loaded.
    if given[:1] == ["train"]:
        flags = entry.train_flags(given[1:], "tfrl train")
    else:
        flags = _parser().parse_args(given)
    if argv is None:
        entry.begin()
    if given[0] == "train":
        return _load("rl_trainer").main(given[1:], prog="tfrl train")
    try:
        return flags.run(flags) or 0
    except KeyboardInterrupt:
        print(f"tfrl {flags.command}: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError) as error:
        told = _load("rl_trainer").in_one_line(error)
        print(f"tfrl {flags.command}: error: {told}", file=sys.stderr)
        return 2


def _load(module: str) -> Any:
    """Imports a module of the package, and TensorFlow with it."""
    found = importlib.import_module(f"tfrl.{module}")
    entry.loaded()
    return found


def _opened(flags: argparse.Namespace) -> Any:
    return _load("rl_trainer").open_run(flags.run_dir, flags.step)


def _evaluate(flags: argparse.Namespace) -> None:
    with _opened(flags) as run:
        played = run.evaluate(flags.episodes, seed=flags.seed)
        print(
            f"after {run.step} environment steps: return {played.returns.mean():.1f} "
            f"(standard deviation {played.returns.std():.1f}, smallest "
            f"{played.returns.min():.1f}, largest {played.returns.max():.1f}, "
            f"{len(played.returns)} episodes)"
        )


def _record(flags: argparse.Namespace) -> None:
    path = flags.output
    if path is None:
        path = pathlib.Path(flags.run_dir) / "episode.mp4"
    size = flags.size and tuple(flags.size)
    # Nothing is shown, so that no screen needs to be looked for.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    # The software renderer of Mesa that compiles by LLVM crashes beside TensorFlow's.
    os.environ.setdefault("GALLIUM_DRIVER", "softpipe")
    with _opened(flags) as run:
        run.record(
            path, seed=flags.seed, max_episode_steps=flags.max_steps, resize_to=size
        )
    print(f"an episode is in {path}")


def _plot(flags: argparse.Namespace) -> None:
    folders = [pathlib.Path(folder) for folder in flags.run_dir]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(
                f"`plot`: RUN expected the folder of a run; got {str(folder)!r}, which "
                "is none"
            )
    if flags.critic is not None:
        _plot_critic(flags, folders)
        return
    # The curve of one run is that of its columns, unless something else is asked for.
    is_plain = len(folders) == 1 and flags.tag is None and flags.interval is None
    path = flags.output
    if path is None:
        path = folders[0] / ("learning_curve.png" if is_plain else "mean_curve.png")
    if is_plain:
        if not (folders[0] / "metrics.csv").is_file():
            raise ValueError(
                "`plot`: RUN expected the folder of a run, with metrics.csv; got "
                f"{flags.run_dir[0]!r} without"
            )
        summaries = _load("summaries")
        summaries.plot_learning_curve(
            summaries.read_metrics(folders[0] / "metrics.csv"),
            path,
            title=folders[0].resolve().name if flags.title is None else flags.title,
            target=flags.target,
        )
    else:
        _plot_mean(flags, folders, path)
    print(f"the learning curve is in {path}")


def _plot_mean(
    flags: argparse.Namespace, folders: list[pathlib.Path], path: str | os.PathLike[str]
) -> None:
    environments = {_environment(folder): folder for folder in folders}
    environments.pop(None, None)
    if len(environments) > 1:
        got = ", ".join(f"{name} of {folder}" for name, folder in environments.items())
        raise ValueError(
            f"`plot`: RUN expected runs of one environment; got {got}; draw them apart"
        )
    interval = "minmax" if flags.interval is None else flags.interval
    reader = _load("summaries").MeanCurveReader(
        folders,
        name=f"mean of {len(folders)} runs, {interval}",
        interval_mode=interval,
        tag="train/return_mean" if flags.tag is None else flags.tag,
    )
    plotter = _load("summaries").CurvesPlotter(
        reader(),
        x_label="environment steps",
        y_label=reader.y_label,
        figsize=(8, 5),
        title=flags.title,
    )
    if flags.target is not None:
        (axes,) = plotter.figure.axes
        reached = f"target {flags.target:g}"
        axes.axhline(flags.target, color="grey", linestyle="--", label=reached)
        axes.legend()
    plotter.plot(path, dpi=150)


def _environment(folder: pathlib.Path) -> str | None:
    """The name of the environment that a run was configured with, if it is told."""
    config = folder / "config.gin"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    found = re.search(r"^make_vec\.env_id = (.+)$", text, re.MULTILINE)
    return None if found is None else found[1]


def _plot_critic(flags: argparse.Namespace, folders: list[pathlib.Path]) -> None:
    if len(folders) > 1:
        raise ValueError("`plot`: `--critic` expected one run; got more; name one")
    path = folders[0] / "critic.png" if flags.output is None else flags.output
    i, left, right, j, top, bottom = flags.critic
    if i % 1 or j % 1 or i == j:
        raise ValueError(
            "`plot`: `--critic` expected two different components as I and J, counted "
            f"from 0; got {i:g} and {j:g}; correct them"
        )
    with _load("rl_trainer").open_run(folders[0]) as run:
        run.draw_critic(path, (int(i), left, right), (int(j), top, bottom))
    print(f"what the critic says is in {path}")


def _export(flags: argparse.Namespace) -> None:
    with _opened(flags) as run:
        run.export(flags.path, overwrite=flags.overwrite)
    print(f"the policy is in {flags.path}")


def _verify(flags: argparse.Namespace) -> None:
    found = _load("exporting").verify(flags.path, flags.tolerance)
    for name, difference in found.items():
        print(f"{name}: as exported, within {difference:.3g}")


def _doctor(flags: argparse.Namespace) -> int:
    found = _load("training").find_nonfinite(flags.run_dir)
    for line in _load("training").list_overrides(flags.run_dir):
        print(line)
    if not found:
        # A run that broke off early may have left nothing to find.
        rows = pathlib.Path(flags.run_dir) / "metrics.csv"
        has_rows = rows.is_file()
        table = _load("summaries").read_metrics(rows) if has_rows else {"env_steps": ()}
        n_steps = len(_load("saving").list_steps(flags.run_dir))
        print(
            f"every number in {flags.run_dir} is finite, of events, "
            f"{len(table['env_steps'])} rows of metrics.csv, {n_steps} checkpoints"
        )
        return 0
    print(f"first {found[0]}")
    for other in found[1:5]:
        print(f"then  {other}")
    if len(found) > 5:
        print(f"and in {len(found) - 5} more tensors")
    return 1


def _check_env(flags: argparse.Namespace) -> int:
    if flags.render:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    report = _load("environments").check_env(
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
    parser.add_argument("--resume", metavar="RUN", help="go on with a run: train it on")
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
    evaluate.add_argument("--episodes", type=int, default=20, help="how many")
    evaluate.add_argument("--seed", **seeded)
    record = add("record", _record, "play an episode and write it as a video")
    add_run(record)
    add_step(record)
    record.add_argument("--output", help=".mp4 or .gif; RUN/episode.mp4 by default")
    record.add_argument("--seed", **seeded)
    record.add_argument("--max_steps", type=int, help="when to stop at the latest")
    record.add_argument(
        "--size", type=int, nargs=2, metavar=("WIDTH", "HEIGHT"), help="in pixels"
    )
    plot = add("plot", _plot, "draw returns over environment steps")
    add_run(plot, nargs="+")
    _add_plot_flags(plot)
    exported = add("export", _export, "write the policy as a SavedModel")
    add_run(exported)
    exported.add_argument("path", metavar="PATH", help="folder to create")
    add_step(exported)
    exported.add_argument("--overwrite", action="store_true", help="replace PATH")
    verify = add(
        "verify", _verify, "compare an exported model with what it was made of"
    )
    verify.add_argument("path", metavar="PATH", help="what `export` wrote")
    verify.add_argument("--tolerance", type=float, help="that of the export by default")
    doctored = add(
        "doctor", _doctor, "find the first number of a run that is not finite"
    )
    add_run(doctored)
    checked = add("check-env", _check_env, "play an environment to find its faults")
    checked.add_argument("env_id", metavar="ID", help="such as my_module:MyEnv-v0")
    checked.add_argument("--steps", type=int, default=1000, help="how many to look at")
    checked.add_argument("--seed", **seeded)
    checked.add_argument("--render", action="store_true", help="draw a frame too")
    return parser


def _add_plot_flags(plot: argparse.ArgumentParser) -> None:
    plot.add_argument(
        "--output",
        help="the PNG; by default RUN/learning_curve.png, of several runs "
        "mean_curve.png in the first",
    )
    plot.add_argument("--title", help="written above; of one run its name by default")
    plot.add_argument("--tag", help="what to average; train/return_mean by default")
    plot.add_argument(
        "--interval",
        choices=INTERVAL_MODES,
        help="the region around the mean of several runs, minmax by default",
    )
    plot.add_argument(
        "--critic",
        type=_finite,
        nargs=6,
        metavar=("I", "LEFT", "RIGHT", "J", "TOP", "BOTTOM"),
        help="draw the critic's values over components I and J of observations",
    )
    plot.add_argument("--target", type=_finite, help="a return to reach")


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


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number; got {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
