"""The spaces of the recorded cases of `coax/spaces`, by their descriptions."""

import golden_io
import gymnasium as gym
import numpy as np
from gymnasium import spaces

_BOX = spaces.Box(0.0, 1.0, (2, 3), np.float32)
_VECTOR = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 0.5], np.float32))
_SPACES = [
    _BOX,
    _VECTOR,
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(0, 255, (2, 2, 1), np.uint8),
    spaces.Box(-1.0, 1.0, (2,), np.float64),
    spaces.Box(-np.finfo("f").max, np.finfo("f").max, (2,), np.float32),
    spaces.Box(-1.0, 1.0, (), np.float32),
    spaces.Discrete(4),
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([3, 5]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(5),
    spaces.MultiBinary((2, 3)),
    spaces.Tuple([_BOX, spaces.Discrete(4), spaces.MultiDiscrete([3, 5])]),
    spaces.Dict(
        a=spaces.Discrete(4),
        m=spaces.MultiBinary(5),
        md=spaces.MultiDiscrete([3, 5]),
        z=_VECTOR,
    ),
    spaces.Text(4),
    spaces.Graph(spaces.Box(0.0, 1.0, (2,)), None),
]
_SPACES.append(
    spaces.Dict(d=spaces.Dict(x=_VECTOR, y=spaces.Discrete(4)), t=_SPACES[13])
)


def named(description):
    """Returns the space of a recorded description."""
    if description.startswith("Text"):  # The order of its characters is no promise.
        return spaces.Text(4)
    return next(space for space in _SPACES if repr(space) == description)


def cases(symbol):
    """Returns the recorded cases of a function of `coax.utils`."""
    return golden_io.load("coax/spaces", symbol=symbol)


def assert_same(actual, expected, tol):
    """The same structure and, to a tolerance, the same numbers."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, part in expected.items():
            assert_same(actual[key], part, tol)
    elif isinstance(expected, list | tuple):
        assert type(actual) is type(expected)
        for mine, part in zip(actual, expected, strict=True):
            assert_same(mine, part, tol)
    else:
        assert np.shape(actual) == np.shape(expected)
        np.testing.assert_allclose(actual, expected, **tol)


class Shown(gym.Env):
    """An environment that is nothing but its spaces."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
