"""Checks of settings: of what agents learn from, and of the schedules in them."""

import dataclasses
import inspect
import os
from collections.abc import Mapping
from typing import Any

from tfrl._internal import checks

# Settings of a replay that are of transitions alone.
_OF_TRANSITIONS = ("gamma", "n_step_returns", "relabel", "frame_stack", "prior_data")
# Settings of schedules that name a progress, alone or in pairs.
_PROGRESS = ("schedule", "schedules", "period", "duration", "start", "half_cycle_size")


def check_data(where: str, name: str, data: Any) -> None:
    """Raises unless it is a mapping, or a function.

    Args:
        where: whose setting it is, for the message.
        name: of the setting.
        data: its value.
    """
    if not callable(data) and not isinstance(data, Mapping):
        expected = "a mapping of arrays, or a function that returns one"
        error = checks.wrong_type(where, name, data, expected)
        if isinstance(data, str | os.PathLike):
            read = f"tfrl.datasets.NpzDataset({os.fspath(data)!r})"
            raise TypeError(f"{error}; read the file by {read}")
        if isinstance(data, list | tuple) and any(isinstance(x, Mapping) for x in data):
            made = "tfrl.datasets.rows_from_episodes"
            raise TypeError(f"{error}; make rows of logged episodes by {made}")
        raise error


def check_sequences(replayed: Any) -> None:
    """Raises a ValueError unless settings fit sequences, or the lack of them.

    Args:
        replayed: the `Replayed`.
    """
    if replayed.sequence_length is None:
        if replayed.burn_in:
            raise ValueError(
                "`Replayed`: `burn_in` expected 0 beside sequence_length=None, as "
                f"transitions warm up nothing; got {replayed.burn_in}"
            )
        return
    for name in _OF_TRANSITIONS:
        value, usual = getattr(replayed, name), getattr(type(replayed), name)
        if value != usual:
            raise ValueError(
                f"`Replayed`: `{name}` expected {usual}, its default, beside "
                f"`sequence_length`, as it is of transitions; got {value!r:.80}; leave "
                "it out; agents of sequences discount and sum rewards by settings of "
                "their own"
            )


def check_beta(beta: Any) -> None:
    """Raises unless it is a number in [0, 1], or a function without arguments.

    Args:
        beta: of a `Replayed`.
    """
    if not callable(beta):
        checks.check_within("Replayed", "beta", beta, 0.0, 1.0)
        return
    try:
        inspect.signature(beta).bind()
    except TypeError:
        expected = "a number, or a schedule of `tfrl.schedules`"
        raise checks.wrong_type("Replayed", "beta", beta, expected) from None


def check_shares(settings: Any) -> None:
    """Raises a ValueError if a schedule of shares of the run names more than all of it.

    Runs of earlier versions may have such, and go on.

    Args:
        settings: a dataclass of them, with schedules and others among them.
    """
    if not dataclasses.is_dataclass(settings) or isinstance(settings, type):
        return
    where, kind = type(settings).__name__, getattr(settings, "progress_type", None)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        is_pairs = field.name in _PROGRESS and isinstance(value, tuple)
        for found in (x for pair in value for x in pair) if is_pairs else (value,):
            check_shares(found)
        if field.name in _PROGRESS and kind == "percent":
            for found in [x for x, _ in value] if is_pairs else [value]:
                if isinstance(found, int | float) and found > 1:
                    raise ValueError(
                        f"`{where}`: `{field.name}` expected shares of the run, in "
                        f"[0, 1], as its progress is 'percent'; got {found}; write 0.5 "
                        "for 50 %"
                    )
