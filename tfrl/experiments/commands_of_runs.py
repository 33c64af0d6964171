"""Flags of the commands for many runs; what is large is loaded when one is called."""

import argparse
import pathlib
from collections.abc import Callable

from tfrl import entry
from tfrl._internal import zoo_files

# Those of `mean_curve`, here for flags that load no TensorFlow.
INTERVAL_MODES = ("std", "minmax", "CI_80", "CI_85", "CI_90", "CI_95", "CI_99")


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds `plot`, `compare`, `tune` and `zoo`.

    Args:
        add: takes name and function of the flags of a command; returns where its flags
            go.
    """
    _add_plot_flags(add("plot", _plot))
    _add_compare_flags(add("compare", _compare))
    _add_tune_flags(add("tune", _tune))
    _add_zoo_flags(add("zoo", _zoo))


def resumes_seeds(flags: argparse.Namespace) -> bool:
    """Whether flags of `train` go on with a folder of runs of several seeds.

    Args:
        flags: of `entry.train_flags`.
    """
    record = pathlib.Path(flags.output_dir or "", entry.SEEDS_RECORD)
    return bool(flags.resume) and record.is_file()


def _plot(flags: argparse.Namespace) -> None:
    entry.load("experiments._plots").plot(flags)


def _compare(flags: argparse.Namespace) -> None:
    comparison = entry.load("experiments.comparison")
    found = comparison.compare(flags.run_dir, resamples=flags.resamples)
    print(comparison.as_json(found)) if flags.json else comparison.show(found)


def _tune(flags: argparse.Namespace) -> int:
    flags.config = [*map(zoo_files.found, flags.config)]
    return int(entry.load("experiments.tuning").main(flags))


def _zoo(flags: argparse.Namespace) -> None:
    if flags.measured is not None:
        measuring = entry.load("experiments.measuring")
        print(measuring.measured_header(flags.measured))
        return
    zoo = entry.load("experiments.zoo")
    found = zoo.list_zoo(flags.folder)
    words = [word.lower() for word in flags.word]
    found = [x for x in found if all(word in x.words for word in words)]
    if not found:
        raise ValueError(
            "`tfrl zoo`: `WORD` expected words of a configuration's name, agent, "
            f"environment or extra, all of one; got {' '.join(flags.word)!r}, which "
            "none has; `tfrl zoo` lists all"
        )
    if flags.json:
        print(zoo.as_json(found))
        return
    zoo.show(found)
    print(f"\nthey are in {found[0].path.parent}")


def _add_plot_flags(plot: argparse.ArgumentParser) -> None:
    text = "folder of a run, or of runs as `train --seeds` leaves it"
    plot.add_argument("run_dir", metavar="RUN", nargs="+", help=text)
    plot.add_argument(
        "--output",
        metavar="FILE",
        help="the picture; RUN/learning_curve.png by default, of several runs "
        "mean_curve.png in the first",
    )
    text = "written above the picture; of one run its name by default"
    plot.add_argument("--title", metavar="TEXT", help=text)
    plot.add_argument(
        "--tag",
        help="name of the scalar to draw; the mean return by default, of training or, "
        "where nothing is played, of evaluations",
    )
    plot.add_argument(
        "--interval",
        choices=INTERVAL_MODES,
        help="the region around the mean of several runs; minmax by default",
    )
    plot.add_argument(
        "--critic",
        type=entry.finite,
        nargs=6,
        metavar=("I", "LEFT", "RIGHT", "J", "TOP", "BOTTOM"),
        help="draw the critic's values over components I and J of observations",
    )
    text = "a return to reach, drawn as a line"
    plot.add_argument("--target", metavar="RETURN", type=entry.finite, help=text)


def _add_compare_flags(compare: argparse.ArgumentParser) -> None:
    text = "folder of runs as `train --seeds` leaves it, or of one run"
    compare.add_argument("run_dir", metavar="FOLDER", nargs="+", help=text)
    text = "resamples of the bootstrap"
    compare.add_argument("--resamples", metavar="N", type=int, default=2000, help=text)
    compare.add_argument("--json", action="store_true", help="print JSON, not a table")


def _add_tune_flags(tune: argparse.ArgumentParser) -> None:
    text = "gin file that binds `Tuning`, or name of the zoo; later ones override"
    tune.add_argument("config", metavar="CONFIG", nargs="+", help=text)
    tune.add_argument(
        "--config",
        dest="binding",
        metavar="BINDING",
        action="append",
        default=[],
        help="one more binding, such as 'Tuning.n_trials = 9'; repeatable",
    )
    tune.add_argument(
        "--output_dir",
        metavar="FOLDER",
        help="folder of the study, which goes on if there is one; several processes "
        "may share it; runs/CONFIG by default",
    )


def _add_zoo_flags(zoo: argparse.ArgumentParser) -> None:
    text = "of a name, agent, environment or extra; what has all of them is listed"
    zoo.add_argument("word", metavar="WORD", nargs="*", help=text)
    text = "folder of gin files; that of tfrl by default"
    zoo.add_argument("--folder", metavar="FOLDER", help=text)
    zoo.add_argument("--json", action="store_true", help="print JSON, not a table")
    zoo.add_argument(
        "--measured",
        nargs="+",
        metavar="RUN",
        help="print the measured lines of a header, of these runs or of those in this "
        "folder",
    )
