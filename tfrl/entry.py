"""What the commands need before TensorFlow is loaded: flags, a quiet, quick start."""

import argparse
import atexit
import contextlib
import datetime
import gc
import importlib
import math
import os
import pathlib
import platform
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from tfrl._internal import help_texts, kept_programs, output, parents, zoo_files

# What a folder of runs of several seeds has of them.
SEEDS_RECORD = "seeds.json"
_PATHS = ("output_dir", "run_dir", "path", "output", "npz", "folder", "measured")
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_PREFIX = rb"(?:[IWEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IWEF] )\S+:\d+\] "
_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called are written"
    rb"|To enable the following instructions: "
    rb"|(?=I\d{4} |\d{4}-\d\d-\d\d [\d:.]+: I )" + _PREFIX + rb"|" + _PREFIX + rb"(?:"
    # Said as an error, of machines on which nothing is wrong.
    rb"oneDNN supports DT_INT32 only on platforms with AVX-512"
    rb"|Unable to register cu\w+ (?:factory|plugin): Attempting to register factory"
    rb"|computation placer already registered"
    rb"|failed call to cuInit: (?:INTERNAL: )?CUDA_ERROR_NO_DEVICE"
    rb"|failed call to cuInit: (?:INTERNAL: CUDA error: Failed call to cuInit: )?"
    rb"UNKNOWN ERROR \(303\)"
    rb"|Could not find cuda drivers on your machine"
    rb"|Cannot dlopen some GPU libraries"
    # Of kept programs: they are no text, and were compiled on this very machine.
    rb"|Error parsing text-format tensorflow\.XlaSerializedCacheEntry"
    rb"|Loading XLA:CPU AOT result. Target machine feature \+prefer-no-)"
    # Of Ray, where the part that collects its metrics is not installed.
    rb"|\[[^\]]+\] core_worker_process\.cc:\d+: Failed to establish connection to the "
    rb"metrics exporter agent"
)


class OneLineParser(argparse.ArgumentParser):
    """Reports a wrong flag in one line, as every other bad input is reported.

    The help of a flag tells its default, if that is a number.

    Example:
        >>> OneLineParser(prog="tfrl").parse_args(["--loud"])
        Traceback (most recent call last):
        ...
        SystemExit: 2
    """

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Adds a flag, as of `argparse`."""
        default = options.get("default")
        if isinstance(default, int | float):
            options["help"] = f"{options['help']}; {default} by default"
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        """Writes the line and ends the process with 2."""
        self.exit(2, f"{short(self.prog)}: error: {message}; see --help\n")


def add_version(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that prints the version of the package.

    Args:
        parser: of a command.

    Example:
        >>> parser = OneLineParser(prog="tfrl")
        >>> add_version(parser)
        >>> "--version" in parser.format_usage()
        True
    """
    version = f"tfrl {importlib.import_module('tfrl').__version__}"
    told = "print the version"
    parser.add_argument("--version", action="version", version=version, help=told)


def short(prog: str) -> str:
    """Returns a program's name as messages begin with it.

    Args:
        prog: how the program is called.

    Returns:
        The name.

    Example:
        >>> short("python -m tfrl.rl_trainer")
        'tfrl.rl_trainer'
    """
    return prog.removeprefix("python -m ")


def train_flags(argv: Sequence[str] | None, prog: str) -> argparse.Namespace:
    """Reads the flags of a training run; a wrong one ends the process.

    Args:
        argv: arguments without the program's name; those of the process by default.
        prog: how the program is called, for its messages.

    Returns:
        The flags.

    Example:
        >>> train_flags(["ppo.gin", "--strategy=auto"], "tfrl train").config
        ['ppo.gin']
    """
    parser = _train_parser(prog)
    flags = at_home(parser.parse_intermixed_args(argv))
    if flags.auto_resume:
        flags.resume = _resumes(parser, flags)
    others = (flags.resume, flags.output_dir, flags.strategy)
    if flags.rehearse is not None and any(others):
        parser.error(
            "--rehearse trains nothing: leave out --resume, --output_dir, --strategy"
        )
    if flags.override and not (flags.resume or flags.auto_resume):
        parser.error(
            "--override changes a run that goes on: add --resume or --auto_resume"
        )
    if flags.resume and flags.output_dir is None:
        parser.error("--resume goes on with a run: add --output_dir, its folder")
    is_recorded = flags.resume and flags.output_dir
    if not (flags.config or flags.config_file or flags.binding or is_recorded):
        of_run = f"; {flags.output_dir!r} holds no run yet" if flags.auto_resume else ""
        parser.error(f"CONFIG expected a gin file; got none{of_run}")
    if flags.output_dir == "":
        parser.error("--output_dir expected a folder; got ''")
    _check_seeds(parser, flags, prog)
    if flags.address is not None and flags.actors != "ray":
        parser.error("--address is that of a Ray cluster: add --actors=ray")
    flags.binding = [*_actor_bindings(flags), *flags.binding]
    for files in (flags.config, flags.config_file):
        files[:] = [*map(zoo_files.found, files)]
    return flags


def _resumes(parser: OneLineParser, flags: argparse.Namespace) -> bool:
    """Whether the folder has a checkpoint of a run, or runs of several seeds."""
    if flags.resume or not flags.output_dir:
        parser.error(
            "--auto_resume begins or continues the run in --output_dir: add that, and "
            "leave out --resume"
        )
    folder = pathlib.Path(flags.output_dir)
    sealed = folder.glob("checkpoints/step-[0-9]*/manifest.json")
    return any(sealed) or (folder / SEEDS_RECORD).is_file()


def _check_seeds(parser: OneLineParser, flags: argparse.Namespace, prog: str) -> None:
    """Ends the process where what is said of several seeds does not fit."""
    if flags.seeds is not None and flags.rehearse is not None:
        parser.error("--rehearse trains nothing: leave out --seeds")
    if flags.seeds is not None and short(prog) != "tfrl train":
        parser.error("--seeds trains in several processes: use `tfrl train`")
    if flags.jobs is not None and (flags.jobs < 1 or flags.seeds is None):
        parser.error("--jobs expected a number of processes >= 1, beside --seeds")


def _actor_bindings(flags: argparse.Namespace) -> list[str]:
    """What the flags of actors say, as gin has it."""
    if flags.actors is None:
        return []
    found = ["Trainer.collector = @ActorPool()", f"ActorPool.engine = {flags.actors!r}"]
    if flags.address is not None:
        found.append(f"ActorPool.address = {flags.address!r}")
    return found


def seeds(text: str) -> tuple[int, ...]:
    """Reads the seeds of several runs.

    Args:
        text: numbers and ranges, both ends included, joined by commas.

    Returns:
        The seeds, in their order.

    Raises:
        argparse.ArgumentTypeError: if it is something else, or has one twice.

    Example:
        >>> seeds("0-2,7")
        (0, 1, 2, 7)
    """
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (
            (int(x) for x in (ends[1], ends[2] or ends[1])) if ends else (0, 0)
        )
        if ends is None or not 0 <= last - first < 10_000:
            raise argparse.ArgumentTypeError(
                f"expected seeds such as 0-4 or 0,3,7; got {text!r}"
            )
        found += range(first, last + 1)
    if len({*found}) < len(found):
        raise argparse.ArgumentTypeError(f"expected each seed once; got {text!r}")
    return tuple(found)


def at_home(flags: argparse.Namespace) -> argparse.Namespace:
    """Puts the home in place of `~` in paths, which no shell does after `=`.

    Args:
        flags: of any command; changed in place.

    Returns:
        The flags.

    Example:
        >>> flags = at_home(argparse.Namespace(output_dir="~/run"))
        >>> flags.output_dir == os.path.expanduser("~/run")
        True
    """
    for name in _PATHS:
        value = getattr(flags, name, None)
        if isinstance(value, str):
            setattr(flags, name, os.path.expanduser(value))
        elif value is not None:
            setattr(flags, name, [*map(os.path.expanduser, value)])
    return flags


def finite(text: str) -> float:
    """Reads a finite number of a flag.

    Args:
        text: the number.

    Returns:
        It.

    Raises:
        argparse.ArgumentTypeError: if it is something else.

    Example:
        >>> finite("1e3")
        1000.0
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number; got {text!r}")
    return number


def output_dir(flags: argparse.Namespace) -> str:
    """Returns the folder of a run: what flags name, or one named by the time.

    Args:
        flags: of `train_flags`.

    Example:
        >>> output_dir(train_flags(["ppo.gin", "--output_dir=runs/one"], "tfrl train"))
        'runs/one'
    """
    if flags.output_dir is not None:
        return str(flags.output_dir)
    files = [*flags.config, *flags.config_file]
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = pathlib.Path(files[0]).stem if files else "run"
    return str(pathlib.Path("runs") / f"{name}-{stamp}")


def _train_parser(prog: str) -> OneLineParser:
    parser = OneLineParser(prog=prog, allow_abbrev=False, **help_texts.layout("train"))
    repeated: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument(
        "config",
        nargs="*",
        metavar="CONFIG",
        help="gin file, or name of the zoo (`tfrl zoo`); later ones override",
    )
    parser.add_argument(
        "--config_file", metavar="CONFIG", help="the same as CONFIG", **repeated
    )
    parser.add_argument(
        "--config",
        dest="binding",
        metavar="BINDING",
        help="one more binding, such as 'train_rl.seed = 7'; repeatable",
        **repeated,
    )
    _add_folder(parser)
    parser.add_argument(
        "--rehearse",
        nargs="?",
        type=int,
        const=8,
        metavar="REPLICAS",
        help="train nothing: check that a TPU can run it, with 8 virtual replicas by "
        "default",
    )
    parser.add_argument(
        "--strategy",
        metavar="NAME",
        help="devices to train on: auto, tpu, multi_worker (see TF_CONFIG), mirrored, "
        "gpu, cpu, or rehearsal:N for N replicas on this CPU; by default TensorFlow's "
        "first device",
    )
    _add_actors(parser)
    _add_seeds(parser)
    parser.add_argument(
        "--log_level",
        default="warning",
        choices=["debug", "info", "warning", "error"],
        help="the least important messages of Python's logging that are shown; "
        "warning by default; debug also shows where an error came from",
    )
    return parser


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output_dir",
        metavar="FOLDER",
        help="folder of the run; runs/CONFIG-TIME by default",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --output_dir; without CONFIG as it was recorded",
    )
    parser.add_argument(
        "--auto_resume",
        action="store_true",
        help="begin the run in --output_dir, or continue it if it has a checkpoint, so "
        "that the same command can be started again",
    )
    parser.add_argument(
        "--override",
        action="store_true",
        help="with --resume or --auto_resume: go on with other hyper-parameters; the "
        "run records them",
    )


def _add_actors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--actors",
        choices=["processes", "ray"],
        help="who plays while the agent learns: processes of this machine or of a Ray "
        "cluster; by default what the configuration says, else this process",
    )
    parser.add_argument(
        "--address",
        help="with --actors=ray: address of the Ray cluster; auto finds one running "
        "here",
    )


def _add_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds",
        type=seeds,
        help="such as 0-4 or 0,3,7: a run of each in a process of its own, in folders "
        "of --output_dir",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="with --seeds: processes at once; as many as CPU cores by default",
    )


def begin(*, may_lose_output: bool = False) -> None:
    """Makes this process ready to be a command; before TensorFlow is loaded.

    What TensorFlow says of itself while it loads and compiles stays out of stderr;
    everything else comes through, be it the last word of a process that crashes. What
    `TF_CPP_MIN_LOG_LEVEL` asks for, if it is set below 2, is not touched. Modules in
    the working directory can be imported, as by `python -m`.

    On every x86 processor TensorFlow uses oneDNN, which computes the gradients of
    convolutions several times as fast; by itself it does so only where there are VNNI
    instructions. What `TF_ENABLE_ONEDNN_OPTS` asks for is not touched.

    What XLA compiles is kept for later processes, see `kept_programs.keep`; and no
    garbage is collected until `loaded` is called, nor when the process ends: Python
    would look through all traces of functions for a second, to free what ends with it.

    A process that `tfrl train --seeds` started ends where that one does.

    Args:
        may_lose_output: what can no longer be written when the process ends is no
            fault of it.

    Example:
        >>> begin()  # doctest: +SKIP
    """
    with contextlib.suppress(FileNotFoundError):  # it was removed
        folder = os.getcwd()
        if folder not in sys.path and "" not in sys.path:
            sys.path.append(folder)
    is_asked_for = os.environ.setdefault(_LEVEL, "2") in ("0", "1")
    if sys.stderr is not None and not is_asked_for and hasattr(os, "fork"):
        _filter_stderr()
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault(_ONEDNN, "1")
    # Programs are kept by their settings, of which oneDNN is one.
    kept_programs.keep()
    gc.disable()
    atexit.register(gc.freeze)
    if may_lose_output:
        atexit.register(output.settle)
    parents.watch()


def loaded() -> None:
    """Collects garbage again, after the imports that followed `begin`.

    They make 600,000 objects that stay. To look through them again and again takes a
    quarter of the time of the imports, and some of all that comes later.

    Example:
        >>> loaded()
        >>> gc.isenabled()
        True
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def load(module: str) -> Any:
    """Imports a module of the package, and with most of them TensorFlow.

    Args:
        module: its name within the package.

    Returns:
        The module.

    Example:
        >>> load("entry").__name__
        'tfrl.entry'
    """
    found = importlib.import_module(f"tfrl.{module}")
    loaded()
    return found


def is_noise(line: bytes) -> bool:
    """Whether a line is what TensorFlow says where nothing is wrong.

    Args:
        line: of stderr.

    Returns:
        True of its notes, and of a few warnings and errors known to be none.

    Example:
        >>> is_noise(b"I0000 00:00:17.5 20143 port.cc:153] oneDNN operations are on.")
        True
        >>> is_noise(b"E0000 00:00:17.5 20143 bfc_allocator.cc:12] out of memory")
        False
    """
    return _NOISE.match(line) is not None


def _filter_stderr() -> None:
    """Puts a process between this one and stderr.

    TensorFlow's first lines are written before any setting of its log is read, from
    libraries that hold the interpreter: no thread could take them.
    """
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(reading)
        atexit.register(_end_filter, child, os.dup(2))
        os.dup2(writing, 2)
        os.close(writing)
        return
    try:
        # It ends with the last one who can write, not when all are asked to stop.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(writing)
        os.close(0)
        os.close(1)
        with open(reading, "rb") as lines:
            for line in lines:
                if not is_noise(line):
                    # Nobody may read on; what writes to the pipe still does.
                    with contextlib.suppress(OSError):
                        os.write(2, line)
    finally:
        os._exit(0)


def _end_filter(child: int, stderr: int) -> None:
    """Waits until the last line is out, before a shell writes its prompt."""
    sys.stderr.flush()
    os.dup2(stderr, 2)
    end = time.monotonic() + 1
    # Whoever this process started and left behind may keep the filter at work.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(0.005)
