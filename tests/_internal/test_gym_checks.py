"""Tests of `tfrl._internal.gym_checks`."""

import types

import numpy as np
import pytest
from gymnasium import spaces

from tfrl._internal import gym_checks

BOX = spaces.Box(-1.0, 2.0, (2,), np.float32)
NEST = spaces.Dict(
    a=spaces.Tuple([spaces.Discrete(3, start=5), BOX]), b=spaces.MultiBinary(2)
)
PLAIN = [
    BOX,
    spaces.Box(0, 255, (2, 2), np.uint8),
    spaces.Box(-np.inf, np.inf, (), np.float64),
    spaces.Discrete(3, start=-4),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[3, -3], [0, 10]]),
    spaces.MultiBinary((2, 2)),
    spaces.Text(3),
    NEST,
]


@pytest.mark.parametrize("space", PLAIN, ids=str)
def test_samples_fit(space):
    space.seed(0)
    for _ in range(20):
        assert gym_checks.misfit(space, space.sample()) is None


def floats(*values):
    return np.array(values, np.float32)


def nested(integer=5, box=None, bits=(0, 1)):
    box = floats(0, 1) if box is None else box
    return {"a": (integer, box), "b": np.array(bits, np.int8)}


@pytest.mark.parametrize(
    ("space", "value", "kind", "place", "got"),
    [
        (BOX, [0.0, 1.0], "type", "", "a list of length 2"),
        (BOX, floats(1, 2, 3), "shape", "", "an array of shape (3,), float32"),
        (BOX, np.zeros(2), "dtype", "", "an array of shape (2,), float64"),
        (BOX, floats(0, np.nan), "numbers", "[1]", "nan"),
        (BOX, floats(0, 3), "bounds", "[1]", "3.0"),
        (spaces.Discrete(2), 2, "bounds", "", "2 (int)"),
        (spaces.Discrete(2), True, "type", "", "True (bool)"),
        (spaces.Discrete(2), 1.0, "type", "", "1.0 (float)"),
        (spaces.Discrete(2), np.array([1]), "type", "", "an array of shape (1,)"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "bounds", "[1]", "3"),
        (spaces.Text(2), "long", "type", "", "'long' (str)"),
        (NEST, 3, "structure", "", "3 (int)"),
        (NEST, {"a": 1}, "structure", "", "a dict of ['a']"),
        (NEST, {"a": (5,), "b": 1}, "structure", "['a']", "a tuple of length 1"),
        (NEST, nested(integer=0), "bounds", "['a'][0]", "0 (int)"),
        (NEST, nested(box=floats(0)), "shape", "['a'][1]", "an array of shape (1,)"),
        (NEST, nested(bits=(0, 2)), "bounds", "['b'][1]", "2"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(space, value, kind, place, got):
    fault = gym_checks.misfit(space, value)
    assert (fault.kind, fault.place) == (kind, place)
    assert fault.got.startswith(got)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([np.nan, 7.0]), None),
        (np.array([1, 2]), None),
        (floats(0), "shape"),
        (np.array(["a", "b"]), "dtype"),
        (np.zeros(2, complex), "dtype"),
    ],
    ids=str,
)
def test_form_alone(value, kind):
    fault = gym_checks.misfit(BOX, value, form_only=True)
    assert (fault and fault.kind) == kind


def test_choices_outside():
    space = spaces.Discrete(3, start=2)
    assert gym_checks.outside(space, np.array([1, 2, 4, 5])).tolist() == [1, 0, 0, 1]
    several = spaces.MultiDiscrete([2, 3], start=[0, 1])
    values = np.array([[[0, 1], [1, 0]], [[2, 3], [0, 4]]])
    expected = [[[0, 0], [0, 1]], [[1, 0], [0, 1]]]
    np.testing.assert_array_equal(gym_checks.outside(several, values), expected)
    assert gym_checks.outside(BOX, values) is None


def test_who_renders_arrays():
    env = types.SimpleNamespace(render_mode="rgb_array")
    assert gym_checks.check_renders("film", env) is None
    for other in (types.SimpleNamespace(render_mode="human"), object()):
        with pytest.raises(ValueError, match="`film`: `env` expected render_mode 'rgb"):
            gym_checks.check_renders("film", other)
