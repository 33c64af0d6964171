"""Runs of several seeds, in processes side by side, in one folder.

    <output_dir>/seed_<S>/      the run of a seed, as `tfrl train` leaves it
    <output_dir>/seed_<S>.log   what it said
    <output_dir>/seeds.json     what was trained, and how far each seed is

Here is no TensorFlow: the processes that train load it.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import rich.console
import rich.progress
import rich.text

from tfrl import entry
from tfrl._internal import arguments, cores, durable, end_signals, output
from tfrl.experiments import _asked, _run_folders, _seed_process

_Seeds = Sequence[_seed_process.SeedProcess]
_LOOK_SECONDS = 0.2
# What is no success, and how it is told.
_FAULTS = {
    "failed": "failed",
    "running": "still running in another process; resume when it has ended",
}


class _Board:
    """Shows a line per seed: bars on a terminal, elsewhere what the processes say."""

    def __init__(self, seeds: _Seeds) -> None:
        self._console = rich.console.Console(
            file=output.STDOUT,  # type: ignore[arg-type]
            highlight=False,
        )
        self._bars: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}
        if self._console.is_interactive:
            self._bars = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}", markup=False),
                rich.progress.BarColumn(max(8, self._console.width - 72)),
                rich.progress.TextColumn("{task.fields[report]}", markup=False),
                console=self._console,
                auto_refresh=False,
            )
            for each in seeds:
                self._tasks[each.name] = self._bars.add_task(
                    each.name, total=None, report=each.status
                )

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.refresh()
            self._bars.stop()

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(rich.text.Text(text), soft_wrap=True)

    def update(self, seed: _seed_process.SeedProcess) -> None:
        """Shows how far a seed is."""
        lines = seed.said() if seed.log.exists() else []
        told = [line for line in lines if line.startswith(f"{seed.name}  ")]
        if self._bars is None:
            for line in told:
                self.say(line)
            return
        task, row = self._tasks[seed.name], seed.last_row()
        for line in told:
            total = re.search(r"/([\d,]+) steps", line)
            if total:
                self._bars.update(task, total=float(total[1].replace(",", "")))
        report = seed.status
        if row and seed.status in ("running", "done"):
            steps, mean = row.get("env_steps", 0.0), row.get("train/return_mean")
            shown = "" if mean is None else f"  return {mean:.1f}"
            report = f"{steps:,.0f} steps{shown}"
            self._bars.update(task, completed=steps)
        self._bars.update(task, report=report, refresh=True)


def train_seeds(
    train: Sequence[str],
    seeds: Sequence[int],
    output_dir: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    resume: bool = False,
) -> dict[int, str]:
    """Trains a run of each seed, as many at once as there are cores.

    A process per seed does what `tfrl train` does. Ctrl-C (SIGTERM, SIGHUP) at first is
    handed on to all of them, which end with checkpoints, as does a second one; likewise
    they end where this process does, however that happens. Where a
    process fails, the others go on; unless it refused what it was given, as all would:
    then no run has begun, and nothing is left. Who resumes reaches those that failed
    last of all.

    All seeds have the same settings: who resumes with others has each run that was
    saved go on with them, those that are done too, as `tfrl train --resume` does. A run
    refuses what may not change, without `--override`, before any other one begins.

    Each process takes its share of the cores for TensorFlow's threads, where the
    environment does not say otherwise.

    Args:
        train: arguments of `tfrl train` but for seed and folder, such as
            `["configs/ppo_cartpole.gin", "--config=Trainer.n_envs = 4"]`.
        seeds: of the runs.
        output_dir: folder of the runs.
        jobs: processes at once; None for the number of cores.
        resume: go on with those that are not done, and with all if `train` says
            something else than before; `train` may be empty then.

    Returns:
        What became of each seed: "done", "failed", "interrupted", "waiting", or
        "running" if another process is at work on its run.

    Raises:
        ValueError: if an argument is off, the folder is not as `resume` says, or a
            process refused what it was given before any run began.

    Example:
        >>> train_seeds(["configs/ppo_cartpole.gin"], [], "runs/ppo")
        Traceback (most recent call last):
        ...
        ValueError: `train_seeds`: `seeds` expected a seed at least; got []
    """
    given = train, seeds, output_dir, jobs, resume
    return {each.seed: each.status for each in _trained(*given)}


def main(flags: argparse.Namespace) -> int:
    """Does what `tfrl train --seeds` asks for.

    Args:
        flags: of `entry.train_flags`.

    Returns:
        0 if all seeds are done, 130 if they were interrupted, 2 for bad input, 1 if
        another fault ended one, or another process is still at work on one.
    """
    train = [*flags.config, *flags.config_file]
    train += [f"--config={binding}" for binding in flags.binding]
    if flags.strategy is not None:
        train.append(f"--strategy={flags.strategy}")
    if flags.override:
        train.append("--override")
    if flags.log_level != "warning":
        train.append(f"--log_level={flags.log_level}")
    folder, seeds = pathlib.Path(entry.output_dir(flags)), flags.seeds or ()
    try:
        trained = _trained(train, seeds, folder, flags.jobs, flags.resume)
    except (ValueError, OSError) as error:
        output.complain(f"tfrl train: error: {error}")
        return _seed_process.BAD_INPUT
    found = {each.seed: each.status for each in trained}
    counts = collections.Counter(found.values())
    for status, told in _FAULTS.items():
        if counts[status]:
            of = ", ".join(str(seed) for seed, each in found.items() if each == status)
            output.complain(f"tfrl train: error: {told}: seed {of}")
    n_faults = sum(counts[status] for status in _FAULTS)
    if counts["done"] + n_faults < len(found):
        words = ["tfrl", "train", f"--output_dir={folder}", "--resume"]
        again = shlex.join(words + ["--override"] * flags.override)
        output.say(
            f"interrupted: {counts['done']} of {len(found)} done; resume with: {again}"
        )
    if counts["done"] < len(found):
        return 1 if n_faults else 130
    quoted = shlex.quote(str(folder))
    alone = ", ".join(str(each.seed) for each in trained if not each.was_started)
    told = f" (already done: seed {alone})" if alone else ""
    output.say(
        f"{len(found)} runs are in {folder}{told}; draw them: tfrl plot {quoted}; "
        f"compare them: tfrl compare {quoted} OTHER"
    )
    return 0


def _trained(
    train: Sequence[str],
    seeds: Sequence[int],
    output_dir: str | os.PathLike[str],
    jobs: int | None,
    resume: bool,
) -> _Seeds:
    """Does what `train_seeds` tells; returns what there is of each seed."""
    where = "train_seeds"
    folder = arguments.as_path(where, "output_dir", output_dir)
    record = _run_folders.read_record(folder)
    if record is None and resume:
        raise ValueError(
            f"`{where}`: `output_dir` expected a folder of runs of several seeds; got "
            f"{str(folder)!r} without {entry.SEEDS_RECORD}; start without resuming"
        )
    if record is not None and not resume:
        raise ValueError(
            f"`{where}`: `output_dir` expected a folder without runs; got "
            f"{str(folder)!r} with some; resume them (--resume) or choose another one"
        )
    before = record or {"train": [*train], "seeds": {}}
    chosen = [*map(int, before["seeds"])] if resume else []
    chosen += [seed for seed in seeds if seed not in chosen]
    if not chosen:
        raise ValueError(f"`{where}`: `seeds` expected a seed at least; got []")
    for seed in chosen:
        arguments.check_whole_number(where, "seeds", seed, low=0)
    n_cores = cores.n_cores()
    count = n_cores if jobs is None else jobs
    arguments.check_whole_number(where, "jobs", count, low=1)
    all_of = [
        _seed_process.SeedProcess(x, folder, before["seeds"].get(str(x), {}))
        for x in chosen
    ]
    given = _asked.asked(train, before, all_of)
    with _locked(folder):
        _train_all(all_of, given, count, max(1, n_cores // count))
        refused = _refused(all_of, given.again)
        reasons = [f"{each.reason()} (seed {each.seed})" for each in refused]
        if refused and record is None and not any(each.has_run for each in all_of):
            _forget(folder, all_of)
    if refused:
        raise ValueError(reasons[0].partition("error: ")[2] or reasons[0])
    return all_of


def _train_all(seeds: _Seeds, given: _asked.Asked, jobs: int, cores: int) -> None:
    """Starts, watches and ends the processes, `jobs` at once, with `cores` each."""
    folder = seeds[0].run.parent
    done = [each for each in seeds if each.status == "done"]
    left = [each for each in seeds if given.differs or each not in done]
    waiting = _queue(left, given.differs)
    running: list[_seed_process.SeedProcess] = []
    kept: list[dict[str, Any]] = []

    def keep() -> None:
        record = given.record(seeds, left, done)
        if record not in kept:
            kept[:] = [record]
            _run_folders.write_record(folder, record)

    with _forwarded(running) as asked, _Board(seeds) as board:
        keep()

        def is_next() -> bool:
            if not waiting or asked.is_set() or _refused(seeds, given.again):
                return False
            return waiting[0].is_saved or not given.differs or _suits_saved(seeds)

        while running or is_next():
            while len(running) < jobs and is_next():
                each = waiting.popleft()
                running += _started(each, board, given.again, given.anew, cores)
            time.sleep(_LOOK_SECONDS)
            _look(running, board, asked.is_set())
            keep()
        if not _refused(seeds, given.again):  # else an error tells
            for each in (x for x in seeds if x.was_refused):
                board.say(_told(each))
    keep()


def _queue(seeds: _Seeds, differs: bool) -> collections.deque[Any]:
    """Has all of them wait: where settings differ, those that may refuse them first."""

    def late(seed: _seed_process.SeedProcess) -> tuple[bool, bool]:
        return differs and not seed.is_saved, seed.status == "failed"

    waiting = collections.deque(sorted(seeds, key=late))
    for each in seeds:
        each.status = "failed" if each.status == "failed" else "waiting"
    return waiting


def _suits_saved(seeds: _Seeds) -> bool:
    """Whether one goes on with what it was given, where any was saved."""
    return any(x.has_begun for x in seeds) or not any(x.is_saved for x in seeds)


def _look(
    running: list[_seed_process.SeedProcess], board: _Board, is_asked: bool
) -> None:
    """Shows what became of processes; takes out those that have ended."""
    for each in [*running]:
        has_ended = each.has_ended(is_asked)
        board.update(each)
        if has_ended:
            running.remove(each)
            if not each.was_refused:
                board.say(_told(each))


def _started(
    seed: _seed_process.SeedProcess, board: _Board, *given: Any
) -> list[_seed_process.SeedProcess]:
    """Starts the process of a seed; none where another one is at work on its run."""
    holder = seed.holder()
    if holder is None:
        seed.start(*given)
        return [seed]
    seed.status = "running"
    board.say(f"{seed.name}: still running, by {holder}")
    return []


def _refused(seeds: _Seeds, given: Sequence[str]) -> list[_seed_process.SeedProcess]:
    """Those that refused what they were given, if it suited no other one either."""
    suits = any(x.has_begun if given else x.has_run for x in seeds)
    return [] if suits else [each for each in seeds if each.was_refused]


def _told(seed: _seed_process.SeedProcess) -> str:
    """What became of a seed, in a line."""
    if seed.status == "done":
        row = seed.last_row()
        mean = row.get("eval/return_mean")
        shown = "" if mean is None else f", final evaluation {mean:.1f}"
        return f"{seed.name}: done{shown}, {seed.cpu_seconds:,.0f} CPU seconds"
    if seed.status == "interrupted":
        return f"{seed.name}: interrupted"
    return f"{seed.name}: failed with {seed.exit}, see {seed.log}: {seed.reason()}"


@contextlib.contextmanager
def _forwarded(
    running: _Seeds,
) -> Iterator[threading.Event]:
    """Hands signals on to processes; yields whether there was one."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _: Any) -> None:
        asked.set()
        for each in running:
            each.signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, *end_signals.hangups())
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    except BaseException:
        for each in running:
            each.signal(signal.SIGTERM)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Keeps others out of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "seeds.lock", "ab") as lock:
        try:
            durable.lock_file(lock.fileno(), wait=False)
        except BlockingIOError as error:
            raise ValueError(
                "`train_seeds`: `output_dir` expected no others at work in it; got "
                f"{str(folder)!r}, where some are; stop them or choose another one"
            ) from error
        yield


def _forget(folder: pathlib.Path, seeds: _Seeds) -> None:
    """Bad input leaves nothing."""
    for path in (
        *(each.log for each in seeds),
        *(folder / name for name in (entry.SEEDS_RECORD, "seeds.lock")),
    ):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
