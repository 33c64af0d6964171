"""What is said of trajectories that a graph collected, and what ends a run."""

import types

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import records
from tfrl.training.collecting import _rollouts

S = gym.spaces
T, N = 3, 2
PRESS = S.Discrete(2)
NEST = S.Dict(
    k=S.Discrete(3, start=5),
    more=S.Tuple([S.MultiDiscrete([2, 4]), S.MultiBinary(2)]),
    x=S.Box(-1.0, 1.0, (2,)),
)


def trajectory_of(space, changes=()):
    """Zeros, or the least of each choice, but for `(name, path, place, value)`."""

    def filled(part):
        if isinstance(part, S.Dict):
            return {key: filled(part[key]) for key in part}
        if isinstance(part, S.Tuple):
            return tuple(map(filled, part))
        least = np.asarray(getattr(part, "start", 0))
        dtype = part.dtype or np.int64
        return np.broadcast_to(least, (T, N, *part.shape)).astype(dtype)

    made = {name: filled(space) for name in ("observations", "next_observations")}
    for name, path, place, value in changes:
        leaf = made[name]
        for key in path:
            leaf = leaf[key]
        leaf[place] = value
    tensors = tf.nest.map_structure(tf.constant, made)
    zeros, never = tf.zeros([T, N]), tf.zeros([T, N], tf.bool)
    return records.Trajectory(
        tensors["observations"],
        never,
        zeros,
        never,
        never,
        tensors["next_observations"],
        ~never,
    )


def checked(space, *changes, actions=PRESS):
    env = types.SimpleNamespace(observation_space=space, action_space=actions)
    numbers = _rollouts.numbers_of(trajectory_of(space, changes), env)
    _rollouts.check_numbers("run", env, np.asarray(numbers))
    return numbers.shape[0]


def test_what_is_as_it_should_passes():
    assert checked(NEST) == 4
    assert checked(NEST["x"]) == 3 and checked(S.Discrete(2)) == 4


FAULTS = {
    "below": (
        ("observations", ["k"], (1, 0), 4),
        r"\['k'\]. .* Discrete\(3, start=5\)",
    ),
    "above": (("next_observations", ["k"], (1, 0), 8), r"\['k'\]. .* Discrete\(3, sta"),
    "each": (
        ("next_observations", ["more", 0], (2, 1, 1), 4),
        r"\['more'\]\[0\]. .* MultiDiscrete.* at step 3 .* environment 1",
    ),
    "binary": (
        ("observations", ["more", 1], (2, 1, 0), 2),
        r"\['more'\]\[1\]. .* MultiBinary\(2\).* at step 2 .* environment 1",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_choices_that_are_none_are_told(kind):
    change, match = FAULTS[kind]
    with pytest.raises(ValueError, match=f"`run`: `{change[0]}{match}"):
        checked(NEST, change)


def test_numbers_that_are_not_finite_are_told_too():
    with pytest.raises(ValueError, match="`run`: `next_observations` expected finite"):
        checked(NEST, ("next_observations", ["x"], (0, 1, 1), np.nan))


def test_of_several_the_first_step_is_told():
    faults = [("observations", ["k"], (t, 1), 99) for t in (2, 1)]
    with pytest.raises(ValueError, match="at step 1 .* in environment 1; fix the env"):
        checked(NEST, *faults)


@pytest.mark.parametrize(
    "part",
    [S.MultiBinary(5), S.Box(0, 1, (5,), np.uint8), S.Box(0, 1, (5,), np.bool_)],
)
def test_masks_allow_an_option_of_each_choice(part):
    space, kept = S.Dict(action_mask=part), S.MultiDiscrete([2, 3])
    open_masks = [
        (name, ["action_mask"], ..., [0, 1, 0, 0, 1])
        for name in ("observations", "next_observations")
    ]
    assert checked(space, *open_masks, actions=kept) == 4
    shut = [
        (open_masks[i][0], ["action_mask"], (1, 0), [1, 1, 0, 0, 0]) for i in (0, 1)
    ]
    assert checked(space, *open_masks, shut[1], actions=kept) == 4  # of an end
    message = r"`run`: `observations\['action_mask'\]` .* at step 1 .* environment 0"
    with pytest.raises(ValueError, match=message):
        checked(space, *open_masks, shut[0], actions=kept)
