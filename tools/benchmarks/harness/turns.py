"""Contenders that take turns: a machine shared with others slows all of them alike."""

import argparse
import functools
import importlib.metadata
import itertools
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import rich.console
import rich.table
from harness import records

Times = Mapping[str, Sequence[float]]


def parser(description: str | None, sizes: Sequence[str], form: str):
    """The options that every benchmark has; `form` is what a size looks like."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--rounds", type=positive, default=21)
    found.add_argument("--sizes", nargs="+", default=list(sizes), metavar=form)
    return found


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def console() -> rich.console.Console:
    """Prints tables in full where nobody watches."""
    found = rich.console.Console()
    if not found.is_terminal:
        found.width = 120
    return found


def versions(packages: Sequence[str]) -> str:
    """What is measured; packages that are not installed are left out."""
    found = [f"python {platform.python_version()}"]
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def prepared(
    call: Callable[..., object], batches: Sequence[tuple] | itertools.cycle
) -> tuple[Callable[[], object], int]:
    """A function that calls with the next batch each time, some of them a run."""
    goes_on = isinstance(batches, itertools.cycle)
    around = batches if goes_on else itertools.cycle(batches)

    def run(repeats: int) -> None:
        for _ in range(repeats):
            call(*next(around))

    run(3)
    repeats = 2
    while (taken := seconds(functools.partial(run, repeats))) < 0.005:
        repeats *= 2
    repeats = max(2, int(repeats * 0.01 / taken))
    return functools.partial(run, repeats), repeats


def measure(
    runs: Mapping[str, tuple[Callable[[], object], int]], rounds: int
) -> dict[str, list[float]]:
    """Microseconds of one computation, for each contender and round.

    `runs` gives each contender's function, and how many computations it does a call.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for index in range(rounds):
        # Nobody always comes after the same one, whose threads may still spin.
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            run, repeats = runs[name]
            times[name].append(seconds(run) / repeats * 1e6)
    return times


def table(title: str, results: Mapping[str, Times], base: str) -> rich.table.Table:
    """Medians, and how many times the time of `base` they are, round by round.

    `results` gives the times of every contender for each size.
    """
    found = rich.table.Table(
        title=f"{title}: microseconds, median (times `{base}`, round by round)"
    )
    found.add_column("", no_wrap=True)
    for size, times in results.items():
        found.add_column(size, justify="right", no_wrap=True)
        records.keep(f"{title}, {size}", "us", times, base)
    for name in next(iter(results.values())):
        cells = []
        for times in results.values():
            pairs = zip(times[name], times[base], strict=True)
            ratio = statistics.median(mine / other for mine, other in pairs)
            cells.append(f"{statistics.median(times[name]):,.1f} ({ratio:,.2f})")
        found.add_row(name, *cells)
    return found
