"""Tests of `tfrl.datasets.scores`."""

import numpy as np
import pytest

from tfrl.datasets import scores


@pytest.mark.parametrize(
    ("env", "low", "high"),
    [
        ("hopper-medium-replay-v2", -20.272305, 3234.3),
        ("HalfCheetah-v5", -280.178953, 12135.0),
        ("mujoco/walker2d/expert-v0", 1.629008, 4592.3),
        ("D4RL/antmaze/umaze-v1", 0.0, 1.0),
        ("Ant-v5", -325.6, 3879.7),
        ("hopper", -20.272305, 3234.3),
        ("halfcheetah-medium-expert-v2", -280.178953, 12135.0),
        ("mujoco/ant/simple-v0", -325.6, 3879.7),
        ("D4RL/door/human-v2", -56.512833, 2880.5693087298737),
        ("door-human-v1", -56.512833, 2880.5693087298737),
        ("pen-human-longhorizon-v0", 96.262799, 3076.8331017826877),
        ("antmaze-medium-play-v0", 0.0, 1.0),
        ("antmaze-eval-umaze-diverse-v0", 0.0, 1.0),
        ("D4RL/antmaze/large-diverse-v1", 0.0, 1.0),
        ("D4RL/kitchen/mixed-v2", 0.0, 4.0),
    ],
)
def test_references_are_0_and_100(env, low, high):
    middle = (low + high) / 2
    found = scores.normalized_score([low, middle, high], env)
    np.testing.assert_allclose(found, [0.0, 50.0, 100.0], atol=1e-9)


def test_references_may_be_given():
    assert float(scores.normalized_score(3.0, low=1.0, high=2.0)) == 200.0
    shape = scores.normalized_score(np.zeros((2, 3)), low=-1, high=0).shape
    assert shape == (2, 3)


def test_bad_references():
    where = "`normalized_score`: "
    for env in (
        *("CartPole-v1", "bullet-hopper-random-v0", "dmc/hopper-hop-v0", ""),
        *("brax/hopper", "my_door-v0", "HopperBulletEnv-v0", "hopper_hardcore-v0"),
        *("mine/hopper-v0", "hopper-hop-v0", "Hopper-v5-v1", "AdroitHandDoor-v1"),
    ):
        with pytest.raises(ValueError, match=where + "`env` expected one of"):
            scores.normalized_score(1.0, env)
    with pytest.raises(TypeError, match=where + "`env` expected the name"):
        scores.normalized_score(1.0, low=0.0)
    with pytest.raises(TypeError, match=where + "`env` expected the name"):
        scores.normalized_score(1.0, 5)
    for low in (1.0, 2.0, np.nan):
        with pytest.raises(ValueError, match=where + "`low` expected less"):
            scores.normalized_score(1.0, low=low, high=1.0)
