"""The command `tfrl`: what can be asked of runs from a shell.

    tfrl train configs/ppo_cartpole.gin --output_dir=runs/seven
    tfrl evaluate runs/seven
    tfrl record runs/seven
    tfrl plot runs/seven runs/eight --output=curves.png
    tfrl export runs/seven policies/seven
    tfrl verify policies/seven
    tfrl doctor runs/seven

Each does what a Python function does: `tfrl.rl_trainer.main`; `evaluate`, `record` and
`export` of what `tfrl.rl_trainer.open_run` returns; of `tfrl.summaries`
`plot_learning_curve`, or for several runs `MeanCurveReader` and `CurvesPlotter`;
`verify` and `find_nonfinite` of `tfrl.training`.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfrl import rl_trainer
from tfrl.summaries import curves, mean_curve, readers, run_log
from tfrl.training import checkpoints, doctor, export


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; those of the process by default.

    Returns:
        0 when done, 1 if the doctor found something, 2 for bad input, of which one line
        on stderr tells; of `train` what `tfrl.rl_trainer.main` returns.

    Example:
        >>> main(["doctor", "no/such/run"])
        2
    """
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["train"]:
        return rl_trainer.main(_as_flags(given[1:]))
    flags = _parser().parse_args(given)
    try:
        return flags.run(flags)
    except (ValueError, TypeError, OSError, ImportError) as error:
        told = " ".join(str(error).split())
        print(f"tfrl {flags.command}: error: {told}", file=sys.stderr)
        return 2


def _as_flags(given: list[str]) -> list[str]:
    """Gin files may stand before the flags of `tfrl.rl_trainer`."""
    n_files = next(
        (i for i, text in enumerate(given) if text.startswith("-")), len(given)
    )
    return [f"--config_file={path}" for path in given[:n_files]] + given[n_files:]


def _evaluate(flags: argparse.Namespace) -> int:
    with rl_trainer.open_run(flags.run_dir, flags.step) as run:
        played = run.evaluate(flags.episodes, seed=flags.seed)
        print(
            f"after {run.step} environment steps: return {played.returns.mean():.1f} "
            f"(standard deviation {played.returns.std():.1f}, smallest "
            f"{played.returns.min():.1f}, largest {played.returns.max():.1f}, "
            f"{len(played.returns)} episodes)"
        )
    return 0


def _record(flags: argparse.Namespace) -> int:
    path = flags.output or pathlib.Path(flags.run_dir) / "episode.mp4"
    size = flags.size and tuple(flags.size)
    # Nothing is shown, so that no screen needs to be looked for.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with rl_trainer.open_run(flags.run_dir, flags.step) as run:
        run.record(
            path, seed=flags.seed, max_episode_steps=flags.max_steps, resize_to=size
        )
    print(f"an episode is in {path}")
    return 0


def _plot(flags: argparse.Namespace) -> int:
    folders = [pathlib.Path(folder) for folder in flags.run_dir]
    if flags.critic is not None:
        return _plot_critic(flags, folders)
    path = flags.output or folders[0] / "learning_curve.png"
    if len(folders) == 1:
        curves.plot_learning_curve(
            folders[0] / "metrics.csv",
            path,
            title=flags.title or folders[0].resolve().name,
            target=flags.target,
        )
    else:
        name = f"mean of {len(folders)} runs, {flags.interval}"
        reader = readers.MeanCurveReader(
            folders, name=name, interval_mode=flags.interval, tag=flags.tag
        )
        plotter = curves.CurvesPlotter(
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
    print(f"the learning curve is in {path}")
    return 0


def _plot_critic(flags: argparse.Namespace, folders: list[pathlib.Path]) -> int:
    if len(folders) > 1:
        raise ValueError("`plot`: `--critic` expected one run; got more; name one")
    path = flags.output or folders[0] / "critic.png"
    across, down = (
        (int(part), low, high)
        for part, low, high in (flags.critic[:3], flags.critic[3:])
    )
    with rl_trainer.open_run(folders[0]) as run:
        run.draw_critic(path, across, down)
    print(f"what the critic says is in {path}")
    return 0


def _export(flags: argparse.Namespace) -> int:
    with rl_trainer.open_run(flags.run_dir, flags.step) as run:
        run.export(flags.path, overwrite=flags.overwrite)
    print(f"the policy is in {flags.path}")
    return 0


def _verify(flags: argparse.Namespace) -> int:
    for name, difference in export.verify(flags.path, flags.tolerance).items():
        print(f"{name}: as exported, within {difference:.3g}")
    return 0


def _doctor(flags: argparse.Namespace) -> int:
    found = doctor.find_nonfinite(flags.run_dir)
    if not found:
        # A run that broke off early may have left nothing to find.
        rows = pathlib.Path(flags.run_dir) / "metrics.csv"
        table = run_log.read_metrics(rows) if rows.is_file() else {"env_steps": ()}
        n_steps = len(checkpoints.list_steps(flags.run_dir))
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


class _OneLineParser(argparse.ArgumentParser):
    """Reports a wrong flag in one line, as every other bad input is reported."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="tfrl", description="What can be asked of runs.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "train", help="train what gin files describe: tfrl train CONFIG... [FLAGS]"
    )

    def add(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        added.set_defaults(run=run)
        return added

    def add_run(added: argparse.ArgumentParser, **options: Any) -> None:
        added.add_argument("run_dir", metavar="RUN", help="folder of a run", **options)

    def add_step(added: argparse.ArgumentParser) -> None:
        text = "which checkpoint, by its environment steps; the newest by default"
        added.add_argument("--step", type=int, help=text)

    seeded: dict[str, Any] = {"type": int, "default": 0, "help": "of the environment"}
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
    return parser


def _add_plot_flags(plot: argparse.ArgumentParser) -> None:
    plot.add_argument("--output", help="the PNG; RUN/learning_curve.png by default")
    plot.add_argument("--title", help="written above; of one run its name by default")
    plot.add_argument(
        "--tag", default="train/return_mean", help="of several runs: what to average"
    )
    plot.add_argument(
        "--interval",
        default="minmax",
        choices=mean_curve.INTERVAL_MODES,
        help="of several runs: the region around the mean, minmax by default",
    )
    plot.add_argument(
        "--critic",
        type=float,
        nargs=6,
        metavar=("I", "LEFT", "RIGHT", "J", "TOP", "BOTTOM"),
        help="draw the critic's values over components I and J of observations",
    )
    plot.add_argument("--target", type=float, help="a return to reach")
