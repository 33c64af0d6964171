"""Tests of `tfrl.environments.uncapturable` with what is not made in Python."""

import gymnasium as gym
import pytest

from tfrl.environments import snapshots


def owner_of(value):
    env = gym.make("CartPole-v1")
    env.unwrapped.other = value
    return env


def test_what_has_no_module_is_named():
    class Homeless(type):
        """Makes types without a module, as SWIG does."""

        __module__ = property(lambda cls: cls.nowhere)

    env = owner_of(Homeless("Body", (), {"__slots__": ()})())
    assert snapshots.capture(env) is None
    assert snapshots.uncapturable(env) == "env.env.env.env.other is of type None.Body"


def test_a_nest_too_deep_is_told():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    env = owner_of(deep)
    assert snapshots.capture(env) is None
    assert snapshots.uncapturable(env) == "env owns too deep a nest"
    env.unwrapped.other = None
    while deep:  # one by one: the end of all at once would be as deep
        (deep,) = deep


def test_environments_of_box2d_are_told():
    pytest.importorskip("Box2D")
    env = gym.make("LunarLander-v3")
    env.reset(seed=0)
    assert snapshots.capture(env) is None
    assert "Box2D" in snapshots.uncapturable(env) or "b2" in snapshots.uncapturable(env)
