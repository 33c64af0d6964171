"""Tests of `tfrl._internal.allowed_actions`."""

import numpy as np
import pytest
from gymnasium import spaces

from tfrl._internal import allowed_actions, gym_checks

SPACES = [
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([[2, 3], [1, 4]], start=[[3, -3], [0, 10]]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 2, (2,), np.int16),
    spaces.Dict(
        b=spaces.Discrete(3),
        a=spaces.Tuple([spaces.Box(0.0, 1.0, (2,)), spaces.MultiDiscrete([2, 2])]),
    ),
]


def options_of(space, action):
    """The options that an action takes, one at a time, as its mask would have them."""
    ones = []
    for (_, part), leaf in zip(
        gym_checks.parts_of(space), gym_checks.leaves_of(action), strict=True
    ):
        low = part.low if isinstance(part, spaces.Box) else getattr(part, "start", 0)
        counts = gym_checks.option_counts(part)
        if counts:
            numbers = np.ravel(np.asarray(leaf).astype(int) - low)
            ones += [np.eye(n)[i] for i, n in zip(numbers, counts, strict=True)]
    return ones


def batch_of(space, n):
    batched = [space.sample() for _ in range(n)]
    leaves = [
        np.stack(x) for x in zip(*map(gym_checks.leaves_of, batched), strict=True)
    ]
    order = iter(leaves)
    if isinstance(space, spaces.Dict):
        return batched, {"a": (next(order), next(order)), "b": next(order)}
    return batched, leaves[0]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_only_what_is_allowed_is_drawn_uniformly(space):
    space.seed(0)
    rng, n = np.random.default_rng(1), 4000
    counts = gym_checks.option_counts(space)
    pieces = [rng.integers(0, 2, k) for k in counts]
    pieces[0][:] = 0  # of which nothing is allowed: all count as allowed
    mask = np.concatenate(pieces)
    single, actions = batch_of(space, n)
    wrong = allowed_actions.forbidden(space, actions, np.tile(mask, [n, 1]))
    expected = [
        [
            not one @ piece and piece.any()
            for one, piece in zip(taken, pieces, strict=True)
        ]
        for taken in (options_of(space, action) for action in single)
    ]
    assert wrong.tolist() == expected
    drawn = allowed_actions.redrawn(space, actions, np.tile(mask, [n, 1]), rng)
    pairs = map(gym_checks.leaves_of, (actions, drawn))
    for old, new in zip(*pairs, strict=True):
        assert new.dtype == old.dtype and new.shape == old.shape
    rows = [gym_checks.mapped(lambda x, i=i: x[i], drawn) for i in range(n)]
    taken = zip(*(options_of(space, row) for row in rows), strict=True)
    for piece, ones in zip(pieces, taken, strict=True):
        allowed = piece if piece.any() else np.ones(len(piece))
        np.testing.assert_allclose(np.mean(ones, 0), allowed / allowed.sum(), atol=0.05)


def test_what_is_allowed_stays():
    actions = np.array([1, 2, 0])
    mask = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1]])
    rng = np.random.default_rng(0)
    space = spaces.Discrete(3)
    assert allowed_actions.redrawn(space, actions, mask, rng) is actions
    drawn = allowed_actions.redrawn(space, np.array([0, 2, 0]), mask, rng)
    assert drawn.tolist() == [1, 2, 0]
