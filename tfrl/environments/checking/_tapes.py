"""Environments played on purpose, and records of it that can be compared."""

import contextlib
import copy
import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from tfrl._internal import gym_checks

_LONG = 64
_ACTION_SEED = 7


class Tape(NamedTuple):
    """What an environment answered.

    Attributes:
        rows: to be compared; of each step a tuple of its observation, reward and ends,
            of each reset a tuple of its observation.
        ends: of each finished episode its length, and whether it was truncated.
        raised: what the environment raised, if it did.
    """

    rows: list[Any]
    ends: list[tuple[int, bool]]
    raised: str | None = None


def play(
    env: Any,
    seed: int | None,
    n_steps: int,
    between: Callable[[Any], Any] = lambda _: None,
) -> Tape:
    """Plays actions that are the same each time, through as many episodes as they last.

    Args:
        env: the environment.
        seed: of its first reset.
        n_steps: how many actions.
        between: called with each observation when it has been recorded.
    """
    rows: list[Any] = []
    ends: list[tuple[int, bool]] = []
    length = 0
    try:
        observation, _ = env.reset(seed=seed)
        rows.append((frozen(observation),))
        for action in _actions(env.action_space, n_steps):
            between(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            rows.append((frozen(observation), frozen(reward), terminated, truncated))
            length += 1
            if terminated or truncated:
                ends.append((length, bool(truncated)))
                length = 0
                observation, _ = env.reset()
                rows.append((frozen(observation),))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        return Tape(rows, ends, f"after {len(rows)} observations: {told}")
    return Tape(rows, ends)


def first_difference(one: Tape, other: Tape) -> int | None:
    """Returns the number of the first observation that differs, None if none does."""
    pairs = enumerate(zip(one.rows, other.rows, strict=False))
    differing = (number for number, (a, b) in pairs if a != b)
    if len(one.rows) != len(other.rows):
        return next(differing, min(len(one.rows), len(other.rows)))
    return next(differing, None)


def frozen(nest: Any) -> Any:
    """Returns a value that is equal for equal nests, and shares nothing with them."""
    if isinstance(nest, dict):
        return tuple((key, frozen(nest[key])) for key in sorted(nest, key=str))
    if isinstance(nest, tuple | list):
        return tuple(map(frozen, nest))
    if not isinstance(nest, np.ndarray | np.generic | int | float | bool):
        return repr(nest)
    array = np.asarray(nest)
    if array.dtype.hasobject:  # of which the bytes are addresses
        return repr(nest)
    data = array.tobytes()
    if len(data) > _LONG:
        data = hashlib.blake2b(data).digest()
    return array.dtype.str, array.shape, data


def scribble(nest: Any) -> None:
    """Writes other numbers into all arrays of a nest that can be written to."""
    for leaf in gym_checks.leaves_of(nest):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            if leaf.dtype.kind == "b":
                np.logical_not(leaf, out=leaf)
            elif leaf.dtype.kind in "iuf":
                np.add(leaf, 1, out=leaf, casting="unsafe")


@contextlib.contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Seeds the global generators, and puts them back as they were."""
    state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _actions(space: Any, n_steps: int) -> Iterator[Any]:
    """Yields the corners of a Box, then samples."""
    space = copy.deepcopy(space)
    space.seed(_ACTION_SEED)
    corners = []
    if isinstance(space, spaces.Box) and space.is_bounded("both"):
        corners = [space.low.copy(), space.high.copy()]
    yield from corners[:n_steps]
    for _ in range(n_steps - len(corners)):
        yield space.sample()
