"""Actions and the masks of what is allowed, in NumPy, of any space with choices.

A mask holds ones and zeros of all options of all choices, in the order of
`gym_checks.option_counts`. Of a choice of which it allows none, all count as allowed.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from tfrl._internal import gym_checks


def forbidden(space: spaces.Space, actions: Any, masks: Any) -> np.ndarray:
    """Returns which choices the masks forbid, bools `[N, n_choices]`.

    Args:
        space: of one action, with some choice.
        actions: nest of `[N, *shape]`, inside of the space.
        masks: `[N, n_options]`.
    """
    starts = np.cumsum([0, *gym_checks.option_counts(space)[:-1]])
    allowed = np.asarray(masks) != 0
    chosen = [
        np.reshape(leaf, [len(leaf), -1]).astype(np.int64) - _lowest(part)
        for part, leaf in _choices(space, actions)
    ]
    picked = np.take_along_axis(allowed, np.concatenate(chosen, -1) + starts, -1)
    return ~picked & np.logical_or.reduceat(allowed, starts, axis=-1)


def redrawn(
    space: spaces.Space, actions: Any, masks: Any, rng: np.random.Generator
) -> Any:
    """Returns actions with what is forbidden drawn anew, uniform over what is allowed.

    So actions uniform in their space become uniform over what is allowed.

    Args:
        space: of one action, with some choice.
        actions: nest of arrays `[N, *shape]`, inside of the space.
        masks: `[N, n_options]`.
        rng: draws.
    """
    wrong = forbidden(space, actions, masks)
    if not wrong.any():
        return actions
    options = np.split(
        np.asarray(masks) != 0, np.cumsum(gym_checks.option_counts(space)), axis=-1
    )
    others = np.stack(
        [np.argmax(x * (1.0 + rng.random(x.shape)), -1) for x in options[:-1]], -1
    )
    new, start = {}, 0
    for part, leaf in _choices(space, actions):
        size = leaf[0].size
        columns = slice(start, start + size)
        drawn = (others[:, columns] + _lowest(part)).reshape(leaf.shape)
        mended = np.where(wrong[:, columns].reshape(leaf.shape), drawn, leaf)
        new[id(leaf)] = mended.astype(leaf.dtype)
        start += size
    return gym_checks.mapped(lambda leaf: new.get(id(leaf), leaf), actions)


def _choices(space: spaces.Space, actions: Any) -> list[tuple[spaces.Space, Any]]:
    leaves = gym_checks.leaves_of(actions)
    return [
        (part, leaf)
        for (_, part), leaf in zip(gym_checks.parts_of(space), leaves, strict=True)
        if gym_checks.option_counts(part)
    ]


def _lowest(space: spaces.Space) -> Any:
    """The first option of each choice."""
    low = space.low if isinstance(space, spaces.Box) else getattr(space, "start", 0)
    return np.ravel(low).astype(np.int64)
