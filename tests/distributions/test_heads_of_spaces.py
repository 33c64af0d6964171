"""Tests of `tfrl.distributions.heads_of_spaces`: what is refused, and by which name."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.distributions import heads_of_spaces

S = gym.spaces
FREE = S.Box(-np.inf, np.inf, (2,))
HALF = S.Box(np.array([0.0, -np.inf], "f"), np.array([np.inf, 0.3], "f"))


@pytest.mark.parametrize(
    "space",
    [
        *(S.Text(3), S.Sequence(S.Discrete(2))),
        *(3, None, tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.string)),
    ],
    ids=str,
)
def test_spaces_without_a_head(space):
    with pytest.raises(TypeError, match="`action_head`: `action_space` expected"):
        heads_of_spaces.action_head(space)


def test_the_part_without_a_head_is_named():
    space = S.Dict(a=S.Discrete(2), b=S.Tuple([S.Box(-1.0, 1.0), S.Text(3)]))
    with pytest.raises(TypeError, match=r"`action_space\['b'\]\[1\]` .*; got Text"):
        heads_of_spaces.action_head(space)
    space = S.Dict(a=S.Discrete(2), b=S.Box(-1.0, 1.0, (0,)))
    with pytest.raises(ValueError, match=r"`action_space\['b'\]` must hold a number"):
        heads_of_spaces.action_head(space)


NOTHING = [S.Box(-1.0, 1.0, (0,)), S.Box(-1, 1, (2, 0)), S.Dict({}), S.Tuple([])]
EMPTY = S.Box(np.zeros(2, "f"), np.array([0, 1], "f"))
NO_BOX = [S.Discrete(2), S.Tuple([S.Discrete(2)]), FREE, HALF, EMPTY]
REFUSED = [
    *((space, {}, "`action_space` must hold a number") for space in NOTHING),
    *((space, {"squash": True}, "`action_space` must hold") for space in NOTHING),
    *((space, {"squash": True}, "`squash` expected a Box with") for space in NO_BOX),
    (HALF, {"squash": None}, "`action_space` expected floats"),
    (EMPTY, {"squash": None}, "`action_space` expected floats with finite bounds"),
    (tf.TensorSpec([None]), {}, "`action_space` expected known dimensions"),
    (S.Box(0, 2**20, (1,), np.int32), {}, "`action_space` .* at most 1048576 options"),
    (S.Discrete(2), {"min_scale": 0.0}, "`min_scale` expected numbers > 0"),
    (S.Discrete(2), {"init_scale": 1e-5}, "`init_scale` expected numbers in"),
]


@pytest.mark.parametrize(("space", "options", "match"), REFUSED)
def test_spaces_that_are_refused(space, options, match):
    with pytest.raises(ValueError, match=f"`action_head`: {match}"):
        heads_of_spaces.action_head(space, **options)
