"""Recorded rows as agents learn from them: checked, and batches of them in turn.

Also what all sources of experience have in common.
"""

import functools
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import gym_checks, row_checks
from tfrl.core import records
from tfrl.replay.sampling import transitions

_WHERE = "`FromDataset`: `data` expected"
_COLUMNS = ("observations", "actions", "rewards", "next_observations")


class Source:
    """Base class of what gives an agent the experience that it learns from.

    Subclasses say what is `gathered`; what they need to go on, they save.
    """

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        """Gathers experience for one update.

        Args:
            collect: plays.
            env_steps: steps of the run so far.

        Returns:
            What the agent is to learn from, None if it is too early; and the steps.
        """
        raise NotImplementedError

    def learned(self, priorities: Any) -> None:
        """Takes the priorities that an agent gave to what was drawn."""

    def state(self) -> Any:
        """Returns what a resumed run needs, as plain values."""
        return None

    def set_state(self, state: Any) -> None:
        """Takes up where `state` was returned."""

    def cut(self) -> None:
        """Ends all episodes: those that follow are others."""

    def save(self, directory: pathlib.Path, step: int) -> None:
        """Saves what is no plain value, before the checkpoint of that step."""

    def load(self, directory: pathlib.Path, step: int) -> None:
        """Loads what `save` saved."""

    def prune(self, directory: pathlib.Path, steps: list[int]) -> None:
        """Removes what belongs to none of the checkpoints."""


class Batches(Source):
    """Batches of recorded rows, shuffled anew for each pass.

    Of fewer rows than a batch they are drawn with replacement.

    Args:
        data: nest of arrays `[rows, ...]`; of transitions an agent gets a `Sample`.
        batch_size: rows of a batch.
        n_batches: of an update.
        seed: of the order.
    """

    def __init__(self, data: Any, batch_size: int, n_batches: int, seed: int) -> None:
        self._data, self._n_rows = data, len(tf.nest.flatten(data)[0])
        self._size, self._count = batch_size, n_batches
        self._seed, self._n_drawn = seed, 0

    def gathered(
        self, collect: Callable[[], records.Trajectory], env_steps: int
    ) -> tuple[Any, int]:
        del collect  # nothing is played
        per_pass = self._n_rows // self._size
        picked: list[np.ndarray] = []
        for _ in range(self._count):
            if per_pass:
                number, place = divmod(self._n_drawn, per_pass)
                if not picked or not place:
                    chance = np.random.default_rng([self._seed, number])
                    order = chance.permutation(self._n_rows)
                start = place * self._size
                picked.append(order[start : start + self._size])
            else:
                chance = np.random.default_rng([self._seed, self._n_drawn])
                picked.append(chance.integers(self._n_rows, size=self._size))
            self._n_drawn += 1
        rows = np.stack(picked)
        given = tf.nest.map_structure(lambda x: x.take(rows, 0), self._data)
        if isinstance(given, records.Transition):
            weights = np.ones(rows.shape, np.float32)
            given = transitions.Sample(given, rows, weights, weights / self._n_rows)
        return given, env_steps + rows.size

    def state(self) -> Any:
        return self._n_drawn

    def set_state(self, state: Any) -> None:
        self._n_drawn = int(state)


def arrays_of(data: Any, least: int) -> dict[str, Any]:
    """Returns a mapping of arrays `[rows, ...]`, all of one length.

    Args:
        data: the mapping, or a function that returns it.
        least: the fewest rows.

    Raises:
        TypeError: if it is something else.
        ValueError: if lengths differ, or there are too few rows.
    """
    data = data() if callable(data) else data
    if not isinstance(data, Mapping):
        raise TypeError(f"{_WHERE} a mapping of arrays; got {data!r:.80}")
    for name, part in data.items():
        if isinstance(part, list):
            raise TypeError(f"{_WHERE} arrays; got a list for {name!r}")
    columns = tf.nest.map_structure(np.asarray, dict(data))
    lengths = {len(x) if x.ndim else 0 for x in tf.nest.flatten(columns)}
    if len(lengths) != 1 or min(lengths) < least:
        raise ValueError(
            f"{_WHERE} arrays of one length, of {least} rows at least; got "
            f"{sorted(lengths)}"
        )
    return columns


def check_batches(
    columns: Mapping[str, Any],
    spaces: tuple[gym.Space, gym.Space],
    needed: Collection[str],
) -> None:
    """Raises a ValueError unless what was seen and done is finite and of the spaces.

    Args:
        columns: arrays `[rows, ...]` by name, with `observations` and `actions` or not.
        spaces: of the observations and the actions of one environment.
        needed: names of columns without which nothing is learned.
    """
    row_checks.check_names(_WHERE, columns, needed)
    played = {x: columns[x] for x in ("observations", "actions") if x in columns}
    row_checks.check_played(_WHERE, played, spaces)


def transitions_of(
    columns: Mapping[str, Any], gamma: float, spaces: tuple[gym.Space, gym.Space]
) -> records.Transition:
    """Returns the transitions `[rows, ...]` of columns, floats as float32.

    Args:
        columns: observations, actions as environments take them, rewards,
            next_observations, and discounts or terminated, or both if they agree.
        gamma: of discounts that are not given.
        spaces: of the observations and the actions of one environment.

    Raises:
        ValueError: if one is missing, is of another space or not finite, or the rows do
            not tell where episodes end.
    """
    row_checks.check_names(_WHERE, columns, _COLUMNS)
    given = {name: columns[name] for name in _COLUMNS}
    given["discounts"] = _discounts_of(columns, gamma)
    row_checks.check_played(_WHERE, columns, spaces)
    for name in ("rewards", "discounts"):
        if given[name].ndim != 1 or given[name].dtype.kind not in "fiu":
            got = gym_checks.described(given[name])
            raise ValueError(f"{_WHERE} a number a row as {name}; got {got}")
        if given[name].dtype.kind != "f":
            given[name] = given[name].astype(np.float32)
    for name, nest in given.items():
        plain = functools.partial(row_checks.as_float32, _WHERE, name)
        given[name] = gym_checks.mapped(plain, nest)
    discounts = given["discounts"]
    if not np.all((discounts >= 0) & (discounts <= 1)):
        got = f"some in [{discounts.min():g}, {discounts.max():g}]"
        raise ValueError(f"{_WHERE} discounts in [0, 1]; got {got}")
    _check_ends(columns, discounts)
    return records.Transition(**given)


def _check_ends(columns: Mapping[str, Any], discounts: np.ndarray) -> None:
    """Raises unless rows tell where episodes end, in one way."""
    ends = [columns[name] for name in ("terminated", "truncated") if name in columns]
    if "discounts" not in columns and not any(np.any(flags) for flags in ends):
        raise ValueError(
            f"{_WHERE} an end of an episode, in `terminated` or `truncated`; got none "
            f"in {len(discounts)} rows; mark where they are cut off as `truncated`, "
            "or give `discounts` of tasks without end"
        )
    if "discounts" in columns and "terminated" in columns:
        ended = np.reshape(columns["terminated"], [len(discounts), -1])[:, 0] != 0
        wrong = np.flatnonzero(ended & (discounts > 0))
        if len(wrong):
            raise ValueError(
                f"{_WHERE} discounts of 0 where `terminated`; got "
                f"{discounts[wrong[0]]:g} in row {wrong[0]}; leave one of both out"
            )


def _discounts_of(columns: Mapping[str, Any], gamma: float) -> np.ndarray:
    """What is given, or gamma where an episode did not truly end."""
    if "discounts" in columns:
        return columns["discounts"]
    if "terminated" not in columns:
        raise ValueError(
            f"{_WHERE} `terminated`, or `discounts`, to know where episodes end; got "
            f"columns {sorted(columns)}"
        )
    ends: dict[str, Any] = {
        name: columns.get(name) for name in ("terminated", "truncated")
    }
    for name, flags in ends.items():
        is_flags = flags is None or (flags.ndim == 1 and flags.dtype.kind in "biu")
        if not is_flags:
            got = gym_checks.described(flags)
            remedy = "cast them by astype(bool)"
            raise ValueError(f"{_WHERE} a bool a row as {name}; got {got}; {remedy}")
        if flags is not None and not np.all((flags == 0) | (flags == 1)):
            got = gym_checks.described(flags[(flags != 0) & (flags != 1)][0])
            raise ValueError(f"{_WHERE} 0 and 1 as {name}; got {got}")
    return gamma * (1.0 - ends["terminated"].astype(np.float32))
