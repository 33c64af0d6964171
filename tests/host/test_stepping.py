"""Tests of `tfrl.host.stepping`."""

import collections

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from toy_envs import LAYOUTS, MODES, Walk, act, vector

from tfrl._internal import gym_checks
from tfrl.host import stepping


def played(mode, layout="box", n_steps=60):
    """Valid transitions of each environment: before, action, reward, flags, after."""
    stepper = stepping.Stepper(vector(mode, layout=layout), seed=5)
    found = [[] for _ in range(3)]
    for _ in range(n_steps):
        before = gym_checks.mapped(np.copy, stepper.observations)
        actions = act(before).astype(np.int64)
        outcome = stepper.step(actions)
        for n in np.flatnonzero(outcome.valid):
            row = (before, actions, *outcome[:3], outcome.next_observations)
            leaves = [leaf for x in row for leaf in gym_checks.leaves_of(x)]
            found[n].append([np.array(leaf[n]) for leaf in leaves])
    return found


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_steps_are_those_of_a_single_environment(mode):
    for n, rows in enumerate(played(mode)):
        env = Walk()
        seen, _ = env.reset(seed=5 + n)
        for before, action, reward, terminated, truncated, after in rows:
            np.testing.assert_array_equal(before, seen)
            seen, expected, *ends, _ = env.step(int(action))
            np.testing.assert_array_equal(after, seen)
            assert (reward, [terminated, truncated]) == (expected, ends)
            if any(ends):
                seen, _ = env.reset()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_modes_give_the_same_steps(layout):
    runs = [played(mode, layout) for mode in MODES]
    for rows in zip(*runs, strict=True):
        count = min(map(len, rows))
        assert count > 30
        for other in rows[1:]:
            for one, two in zip(rows[0][:count], other[:count], strict=True):
                np.testing.assert_array_equal(np.hstack(one), np.hstack(two))


def test_reset_begins_anew():
    stepper = stepping.Stepper(vector(MODES[2]), seed=5)
    first = stepper.observations.copy()
    while not stepper.resetting.any():
        stepper.step(np.zeros(3, np.int64))
    stepper.reset(5)
    np.testing.assert_array_equal(stepper.observations, first)
    assert not stepper.resetting.any()


NESTS = [1, (1, 2), {"b": 1, "a": (2, {"z": 3, "y": 4})}, (), {}]


@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_nests_are_those_of_tensorflow(nest):
    assert gym_checks.leaves_of(nest) == tf.nest.flatten(nest)
    assert gym_checks.mapped(float, nest) == tf.nest.map_structure(float, nest)


def test_mapped_keeps_the_order_of_keys():
    nest = collections.OrderedDict(b=1, a=2)
    found = gym_checks.mapped(str, nest)
    assert list(found.items()) == [("b", "1"), ("a", "2")]
    assert type(found) is collections.OrderedDict


def test_numbers_are_checked():
    rows = np.zeros((3, 2))
    gym_checks.check_numbers("play", "rewards", [rows, np.zeros((3, 2), int)])
    rows[1, 1] = -np.inf
    with pytest.raises(
        ValueError, match="`play`: `rewards` .* got -inf at step 2 in environment 1"
    ):
        gym_checks.check_numbers("play", "rewards", [np.ones((3, 2)), rows])
    # Large numbers whose sum alone is infinite are finite.
    gym_checks.check_numbers("play", "rewards", [np.full((3, 2), 1e308)])


def test_choices_are_checked():
    space = gym.spaces.Dict(
        a=gym.spaces.Tuple([gym.spaces.Discrete(2, start=3)]), b=gym.spaces.Box(0, 1)
    )
    nest = {"a": (np.full((4, 2), 3),), "b": np.full((4, 2, 1), 7.0)}
    gym_checks.check_choices("play", "observations", space, nest)
    nest["a"][0][2, 1] = 5
    message = r"`observations` expected .*Discrete\(2, start=3\); got 5 at step 2"
    with pytest.raises(ValueError, match=f"`play`: {message} in environment 1"):
        gym_checks.check_choices("play", "observations", space, nest)
