"""Tests of `tfrl.training.checking._known_chain`."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tfrl.training.checking import _known_chain


def test_chain_is_an_environment():
    env_checker.check_env(_known_chain.Chain(), skip_render_check=True)


def test_chain_ends_by_turns():
    env, ends = _known_chain.Chain(), []
    for _ in range(4):
        env.reset()
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(0)
            ended = terminated or truncated
        ends.append((env.position[0], terminated, truncated))
    assert ends == [(5, True, False), (11, False, True)] * 2
    with pytest.raises(ValueError, match="`env` expected to end when the chain ends"):
        env.step(0)


def test_neighbours_are_never_in_one_state():
    envs = SyncVectorEnv([_known_chain.Chain] * 2)
    envs.reset(seed=0)
    for _ in range(20):
        shown, *_ = envs.step([0, 0])
        assert (shown[0] != shown[1]).any()


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("copy", [True, False], ids=["copied", "shared"])
def test_steps_of_a_vector(mode, copy):
    envs = SyncVectorEnv([_known_chain.Chain] * 2, copy=copy, autoreset_mode=mode)
    seen = _known_chain.Seen("check_learner")
    count = sum(1 for _ in _known_chain.rows(envs, seen))
    assert count >= 300 / 2
    assert seen.overwrites is not copy
    assert {s: after for s, (after, _) in seen.steps.items()} == {
        s: s + 1 for s in range(11) if s != 5
    }
    rows, states = seen.table()
    np.testing.assert_array_equal(rows, np.eye(12)[states])
    assert len(states) == 12
    seen.check_ends()


def test_steps_that_skip():
    env = gym.wrappers.MaxAndSkipObservation(_known_chain.Chain(), 2)
    seen = _known_chain.Seen("check_learner")
    assert sum(1 for _ in _known_chain.rows(env, seen)) >= 300
    assert {s: after for s, (after, _) in seen.steps.items()} == {
        0: 2,
        2: 4,
        4: 5,
        6: 8,
        8: 10,
        10: 11,
    }
    np.testing.assert_allclose(seen.steps[0][1], 1.0 + 1.37)
