"""Tests of `tfrl.environments.attributes`."""

import types

import golden_io
import gymnasium as gym
import pytest

from tfrl.environments import attributes

CASES = [
    case
    for symbol in ("get_env_attr", "has_env_attr")
    for case in golden_io.load("coax/misc", symbol=symbol)
]


def wrapped():
    """The environment of the recordings: an `a` hides another, a `c` itself."""
    bare = types.SimpleNamespace(a=1, b=2)
    return types.SimpleNamespace(c=3, env=types.SimpleNamespace(a=10, c=3, env=bare))


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_recorded(case):
    function = getattr(attributes, case["symbol"].rsplit(".", 1)[-1])
    expected = case["outputs"]["result"]
    if case["id"] == "get_env_attr_default":
        assert function(wrapped(), "zz", default=None) is expected is None
    elif isinstance(expected, golden_io.Raised):
        attr, max_depth = case["inputs"]["args"]
        with pytest.raises(AttributeError, match=f"`env` expected .*'{attr}"):
            function(wrapped(), attr, max_depth=max_depth)
    else:
        attr, max_depth = case["inputs"]["args"]
        assert function(wrapped(), attr, max_depth=max_depth) == expected


def test_all_recordings_are_here():
    assert len(CASES) == 17


def test_gymnasium_wrappers_are_looked_through():
    env = gym.make("CartPole-v1")
    assert attributes.get_env_attr(env, "gravity") == 9.8
    assert attributes.get_env_attr(env, "_max_episode_steps") == 500
    assert attributes.get_env_attr(env, "observation_space") is env.observation_space
    assert not attributes.has_env_attr(env, "wind")


def test_attribute_of_value_none_is_found():
    env = types.SimpleNamespace(wind=None)
    assert attributes.get_env_attr(env, "wind") is None
    assert attributes.has_env_attr(env, "wind")


def test_environment_that_wraps_itself_ends():
    env = types.SimpleNamespace()
    env.env = env
    assert not attributes.has_env_attr(env, "wind")


@pytest.mark.parametrize("name", ["get_env_attr", "has_env_attr"])
def test_bad_input(name):
    for attr, max_depth, error, argument in (
        (3, 1, TypeError, "attr"),
        ("a", 0, ValueError, "max_depth"),
        ("a", 1.0, TypeError, "max_depth"),
        ("a", True, TypeError, "max_depth"),
    ):
        with pytest.raises(error, match=f"`{name}`: `{argument}` expected"):
            getattr(attributes, name)(wrapped(), attr, max_depth=max_depth)
