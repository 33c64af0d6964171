"""Folders of runs: one run of each seed in a folder, and what is known of them all."""

import contextlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, cast

from tfrl import entry
from tfrl._internal import arguments, durable, natural_sort

_METRICS = "metrics.csv"
# Arguments by which functions that make environments take the name of one.
NAMES = "env_id", "game", "env"


def runs_in(where: str, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Returns a run, or the runs in a folder of them, `seed_2` before `seed_10`.

    Args:
        where: function that asks, for the message.
        folder: of a run, with `metrics.csv`, or with such folders in it.

    Raises:
        ValueError: if it is neither.
    """
    path = arguments.as_path(where, "folders", folder)
    if (path / _METRICS).is_file():
        return [path]
    runs = [each.parent for each in path.glob(f"*/{_METRICS}")]
    if not runs:
        raise ValueError(
            f"`{where}`: `folders` expected the folder of a run, or of runs; got "
            f"{str(folder)!r}, which is none"
        )
    return sorted(runs, key=lambda path: natural_sort.key(path.name))


def not_in(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Returns where runs of seeds are expected in a folder, but have no `metrics.csv`.

    Args:
        folder: of a run, or of runs.
    """
    path = pathlib.Path(folder)
    if (path / _METRICS).is_file():
        return []
    known = (path / f"seed_{seed}" for seed in _statuses(path))
    there = (each for each in path.glob("seed_*") if each.is_dir())
    lacking = {x for x in itertools.chain(known, there) if not (x / _METRICS).is_file()}
    return sorted(lacking, key=lambda path: natural_sort.key(path.name))


def status_of(run: pathlib.Path) -> str:
    """Returns what became of a run of `tfrl train --seeds`; of any other one "done".

    Args:
        run: its folder.
    """
    return _statuses(run.parent).get(run.name.removeprefix("seed_"), "done")


def _statuses(folder: pathlib.Path) -> dict[str, str]:
    """What became of each seed, where that was written."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        record = read_record(folder) or {"seeds": {}}
        return {seed: str(each["status"]) for seed, each in record["seeds"].items()}
    return {}


def read_record(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns what `tfrl train --seeds` wrote into a folder; None of another folder.

    Args:
        folder: of the runs.

    Raises:
        ValueError: if it cannot be read.
    """
    path = folder / entry.SEEDS_RECORD
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
        is_whole = record["train"] is not None and record["seeds"] is not None
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise ValueError(
            f"`train_seeds`: `output_dir` expected {path} as it was written; got "
            "something else; restore it, or train in another folder"
        )
    return dict(record)


def write_record(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """Writes what is known of the runs, all of it or nothing.

    Args:
        folder: of the runs.
        record: plain values.
    """
    text = json.dumps(record, indent=1) + "\n"
    durable.replace_file(folder / entry.SEEDS_RECORD, text.encode("utf-8"))


def total_env_steps_of(run: pathlib.Path) -> int | None:
    """Returns how many steps a run was asked for, where its `config.gin` tells.

    Args:
        run: its folder.
    """
    config = run / "config.gin"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    found = re.search(r"^Trainer\.total_env_steps = ([\d_]+)$", text, re.MULTILINE)
    return None if found is None else int(found[1])


def environment_of(run: pathlib.Path) -> str | None:
    """Returns the name of the environment of a run, where its folder tells it.

    Args:
        run: its folder.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        record = run_record(run)
        make_envs = record["arguments"]["make_envs"]
        for key in NAMES:
            if (found := _named(key, make_envs.get(key))) is not None:
                return found
        # What was made by other functions may have been registered.
        for part in record["environment"]:
            if isinstance(part, dict) and "entry_point" in part:
                return cast(str, part["id"])
    config = run / "config.gin"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    names = r"^(?:make_vec|make_compiled|make_atari)\.(env_id|game) = ([\"'])(.+?)\2"
    told = re.search(names, text, re.MULTILINE)
    return None if told is None else _named(told[1], told[3])


def agent_of(run: pathlib.Path) -> str | None:
    """Returns the name of the agent of a run, where its folder tells it.

    Args:
        run: its folder.
    """
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        agent = run_record(run)["arguments"]["agent"]
        marked = (item for mark, item in agent.items() if mark.startswith("="))
        return str(next(marked)).rpartition(":")[2]
    config = run / "config.gin"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    told = re.search(r"^Trainer\.agent = @(?:\w+[./])*(\w+)\(\)", text, re.MULTILINE)
    return None if told is None else told[1]


def run_record(run: pathlib.Path) -> dict[str, Any]:
    """Returns what a run keeps of itself; nothing of one that keeps nothing.

    Args:
        run: its folder.
    """
    with contextlib.suppress(OSError, ValueError):
        text = (run / "run.json").read_text("utf-8")
        return cast(dict[str, Any], json.loads(text)["manifest"]["run"])
    return {}


def _named(key: str, value: Any) -> str | None:
    """The name that an argument gives: a text, or that of what makes environments."""
    if isinstance(value, dict):
        marked = (item for mark, item in value.items() if mark.startswith("="))
        value = next(marked, None)
    if not isinstance(value, str) or "<lambda>" in value:
        return None
    if key == "game":
        return f"ALE/{value}-v5"
    # An id may name the module that registers it; a class has the module it is of.
    return re.sub(r"^[\w.]+:(?=.*-v\d+$)", "", value)


def cpu_seconds_of(folders: Sequence[pathlib.Path]) -> float | None:
    """Returns the mean of the CPU seconds of runs that are done, where it is known.

    Args:
        folders: of runs of several seeds.
    """
    records = [record for x in folders if (record := read_record(x)) is not None]
    known = [
        each["cpu_seconds"]
        for record in records
        for each in record["seeds"].values()
        if each["status"] == "done"
    ]
    return sum(known) / len(known) if known else None
