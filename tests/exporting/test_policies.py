"""Tests of `tfrl.exporting.policies`: what does not fit is refused."""

import gymnasium as gym
import pytest

from tfrl.agents import ppo
from tfrl.exporting import export, policies

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))
PARTS = S.Dict(a=BOX, b=S.Discrete(4))


def agent_of(observation_space, action_space, **settings):
    return ppo.PPO(minibatch_size=4, hidden_units=(8,), **settings).create(
        observation_space, action_space, n_envs=1, n_steps=4, seed=0
    )


@pytest.mark.parametrize(
    "agent", [None, "agent", ppo.PPO()], ids=["none", "text", "ppo"]
)
def test_agents_without_a_policy(agent, tmp_path):
    match = "`agent` expected a policy of `tfrl.policies`, or an agent.*; for other"
    with pytest.raises(TypeError, match=f"`export_policy`: {match}"):
        export.export_policy(agent, tmp_path / "policy", BOX, S.Discrete(2))
    with pytest.raises(TypeError, match=f"`value_endpoint`: {match}"):
        policies.value_endpoint(agent, BOX)
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (BOX, S.Box(-1.0, 1.0, (4,))),
        (BOX, S.Box(-1.0, 1.0, (6,))),
        (BOX, S.Dict(a=BOX)),
        (PARTS, BOX),
        (PARTS, S.Dict(a=BOX)),
    ],
    ids=["4-for-3", "6-for-3", "dict-for-box", "box-for-dict", "part-missing"],
)
def test_observations_of_another_policy(right, wrong, tmp_path):
    agent = agent_of(right, S.Discrete(2))
    with pytest.raises(
        ValueError, match="`observation_space` expected that of the pol"
    ):
        export.export_policy(agent, tmp_path / "policy", wrong, S.Discrete(2))
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "settings"),
    [
        (S.Discrete(2), S.Discrete(3), {}),
        (S.Discrete(2), S.Discrete(2, start=1), {}),
        (S.Discrete(2), BOX, {}),
        (BOX, S.Discrete(2), {"squash": True}),
        (BOX, S.Box(-1.0, 2.0, (3,)), {}),
        (BOX, S.Box(-1.0, float("inf"), (3,)), {"squash": True}),
    ],
    ids=["size", "start", "box", "discrete", "bounds", "unbounded"],
)
def test_actions_of_another_policy(right, wrong, settings):
    agent = agent_of(BOX, right, **settings)
    with pytest.raises(ValueError, match="`action_space` expected that of the policy"):
        policies.policy_endpoints(agent, BOX, wrong)
