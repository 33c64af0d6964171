"""Rows of transitions, made of logged episodes and put together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrl._internal import arguments, gym_checks, row_checks
from tfrl.datasets import _row_columns

_OF_STEPS = ("actions", "rewards")
_ENDS = ("terminated", "truncated")
_NAMES = ("observations", *_OF_STEPS, *_ENDS, "next_observations")


def join_rows(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the rows of several sets of one kind, one set after the other.

    Args:
        parts: nests of arrays `[rows, ...]` by the same names.

    Returns:
        The nests of all rows.

    Raises:
        ValueError: if there are no parts, they have other names, or the columns of one
            are not of the same length.

    Example:
        >>> join_rows([{"actions": np.arange(2)}, {"actions": np.arange(1)}])
        {'actions': array([0, 1, 0])}
    """
    names = [sorted(part) for part in parts]
    if not names or any(other != names[0] for other in names):
        raise ValueError(
            f"`join_rows`: `parts` expected sets with the same columns; got {names}"
        )
    for part in parts:
        _row_columns.check("join_rows", "parts", part)
    joined = {}
    for name in parts[0]:
        try:
            joined[name] = _row_columns.joined([part[name] for part in parts])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"`join_rows`: `parts` expected {name} of the same shape and parts in "
                f"each set; got {error}"
            ) from error
    return joined


def rows_from_episodes(episodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the rows of logged episodes, one episode after the other.

    Row t of an episode of T steps is the transition of its action t,

        (observations[t], actions[t], rewards[t], observations[t + 1])

    Its last row is `terminated` or, if not, `truncated`; no other row is.

    Args:
        episodes: mappings with arrays, or lists with an element for each step.
            `observations` are a nest of `[T + 1, *shape]`, with what was seen last; or
            of `[T, *shape]`, beside `next_observations` or of an episode that
            terminated. `actions`, a nest of `[T, *shape]`, are as environments take
            them, `rewards` are `[T]`. `terminated` says whether it truly ended, as by
            success or failure: a bool, or `[T]` of which only the last may be True.
            `truncated` says whether it was cut off, as by a time limit, likewise; it
            may be left out, as what does not terminate was cut off.
            `next_observations`, a nest of `[T, *shape]`, may be left out: of the last
            step of an episode that terminated, after which nothing is worth anything,
            `observations[T - 1]` then stands for it if nothing is known.

    Returns:
        Nests of arrays `[rows, ...]` by these names, as `FromDataset`, `prior_data` of
        `Replayed`, `write_npz` and `write_minari` take them. Numbers keep their dtypes.

    Raises:
        TypeError: if `episodes` are no mappings.
        ValueError: if there are none; if one has other names, or arrays of other
            lengths; if it ends before its last step; if it was cut off and does not
            have what was seen last, from which its last step would be learned.

    Example:
        >>> logged = {"observations": [[0.0], [1.0], [2.0]], "actions": [1, 0],
        ...           "rewards": [0.0, 1.0], "terminated": True}
        >>> rows = rows_from_episodes([logged, logged])
        >>> rows["next_observations"].ravel().tolist(), rows["terminated"].tolist()
        ([1.0, 2.0, 1.0, 2.0], [False, True, False, True])
    """
    where, expected = "rows_from_episodes", "mappings, one for each episode"
    if isinstance(episodes, Mapping) or not isinstance(episodes, Iterable):
        raise arguments.wrong_type(where, "episodes", episodes, expected)
    parts = []
    for i, episode in enumerate(episodes):
        name = f"episodes[{i}]"
        arguments.check_type(where, name, episode, Mapping, "a mapping of arrays")
        parts.append(_rows_of(f"`{where}`: `{name}` expected", episode))
    if not parts:
        raise ValueError(f"`{where}`: `episodes` expected one at least; got none")
    try:
        return join_rows(parts)
    except ValueError as error:  # which names its own argument
        told = str(error).replace("`join_rows`: `parts`", f"`{where}`: `episodes`")
        raise ValueError(told) from error


def _rows_of(expected: str, episode: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of one logged episode."""
    row_checks.check_names(expected, episode, ("observations", *_OF_STEPS))
    if "terminated" not in episode:
        raise ValueError(
            f"{expected} `terminated`, as where a log is done does not tell whether an "
            "episode truly ended or was cut off by a time limit; got "
            f"{sorted(episode)}; say which"
        )
    unknown = sorted({*episode} - {*_NAMES})
    if unknown:
        raise ValueError(
            f"{expected} {[*_NAMES]}; got {unknown} besides; leave them out"
        )
    given = episode["rewards"]
    given = [*given] if isinstance(given, tuple) else given
    rewards = np.asarray(_arrays(expected, "rewards", given))
    n_steps = len(rewards)
    if not n_steps or rewards.ndim != 1:
        raise ValueError(
            f"{expected} rewards `[T]` of a step at least; got shape {rewards.shape}"
        )
    actions = _arrays(expected, "actions", episode["actions"], n_steps)
    ends = [_ends(expected, x, episode.get(x, False), n_steps) for x in _ENDS]
    counts, following = [n_steps, n_steps + 1], episode.get("next_observations")
    if following is not None:
        counts = [n_steps]
        following = _arrays(expected, "next_observations", following, *counts)
    seen = _arrays(expected, "observations", episode["observations"], *counts)
    if following is None:
        if {len(x) for x in gym_checks.leaves_of(seen)} == {n_steps}:
            seen = _with_last(expected, seen, n_steps, bool(ends[0][-1]))
        following = gym_checks.mapped(lambda x: x[1:], seen)
        seen = gym_checks.mapped(lambda x: x[:-1], seen)
    return _row_columns.of_episode(seen, following, actions, rewards, *ends)


def _with_last(expected: str, seen: Any, n_steps: int, terminated: bool) -> Any:
    """Observations `[T + 1]` of those that lack the last."""
    if not terminated:
        raise ValueError(
            f"{expected} {n_steps + 1} observations of {n_steps} steps that did not "
            f"terminate, of which the last leads to one more; got {n_steps}; add what "
            "was seen last, or leave out the last of `actions` and `rewards`"
        )
    return gym_checks.mapped(lambda x: np.concatenate([x, x[-1:]]), seen)


def _arrays(expected: str, name: str, nest: Any, *counts: int) -> Any:
    """A nest of arrays, each of one of some lengths."""

    def array(leaf: Any) -> np.ndarray:
        try:
            found = np.asarray(leaf)
        except ValueError:  # lists of several lengths
            found = np.asarray(None)
        if found.dtype.kind in "OSU" or not found.ndim:
            got = gym_checks.described(leaf)
            raise ValueError(f"{expected} {name} that are arrays of numbers; got {got}")
        if counts and len(found) not in counts:
            steps = " or ".join(map(str, counts))
            raise ValueError(
                f"{expected} {name} of length {steps}, as `rewards` are; got "
                f"{len(found)}"
            )
        return found

    try:
        parts = _of_steps(nest) if isinstance(nest, list) else nest
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{expected} {name} with the same parts in each step; got {error!r}"
        ) from error
    return gym_checks.mapped(array, parts)


def _of_steps(steps: list) -> Any:
    """A nest of lists, of a list of nests."""
    if steps and isinstance(steps[0], Mapping):
        return {key: _of_steps([step[key] for step in steps]) for key in steps[0]}
    if steps and isinstance(steps[0], tuple):
        return tuple(_of_steps([*part]) for part in zip(*steps, strict=True))
    return steps


def _ends(expected: str, name: str, given: Any, n_steps: int) -> np.ndarray:
    """Where an episode ended in one of both ways, `[T]` bool."""
    flags = np.asarray(given)
    fits = flags.dtype.kind in "biuf" and flags.shape in ((), (n_steps,))
    if not fits or not np.all((flags == 0) | (flags == 1)):
        got = gym_checks.described(given)
        raise ValueError(f"{expected} {name} that is a bool, or [{n_steps}]; got {got}")
    whole = np.zeros(n_steps, bool)
    if flags.ndim:
        whole |= flags != 0
    else:
        whole[-1] = flags
    early = np.flatnonzero(whole[:-1])
    if len(early):
        raise ValueError(
            f"{expected} {name} in its last step alone, {n_steps - 1}; got it in step "
            f"{early[0]}; part the log there"
        )
    return whole
