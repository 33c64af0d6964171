"""Checks of settings of what agents learn from."""

import inspect
import os
from collections.abc import Mapping
from typing import Any

from tfrl._internal import checks

# Settings of a replay that are of transitions alone.
_OF_TRANSITIONS = ("gamma", "n_step_returns", "relabel", "frame_stack", "prior_data")


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
