import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import agent as agents
from tfrl.agents import policy_gradient, ppo
from tfrl.core import pytree

CONFIGS = [ppo.PPO(), policy_gradient.PolicyGradient()]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_every_agent_keeps_the_protocol(config: agents.AgentConfig):
    agent = config.create(
        gym.spaces.Box(-1.0, 1.0, (3,)),
        gym.spaces.Discrete(2, start=5),
        seed=3,
    )
    assert isinstance(agent, pytree.PyTreeNode)
    for member in ("policy", "update"):
        assert hasattr(agent, member)
    observations = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    first = agent.policy.act(observations, seed=1).actions
    assert first.dtype == np.int64 and set(first) == {5, 6}
    np.testing.assert_array_equal(first, agent.policy.act(observations, seed=1).actions)
    assert not np.array_equal(first, agent.policy.act(observations, seed=2).actions)
    greedy = agent.policy.act(observations, temperature=0.0).actions
    best = np.argmax(agent.policy.parameters(observations), -1) + 5
    np.testing.assert_array_equal(greedy, best)
    with pytest.raises(ValueError, match="`temperature` expected"):
        agent.policy.act(observations, temperature=-0.5)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_agents_are_made_alike_from_one_seed(config):
    def leaves(seed):
        agent = config.create(
            gym.spaces.Box(-1.0, 1.0, (3,)),
            gym.spaces.Discrete(2),
            seed=seed,
        )
        return [np.asarray(leaf) for leaf in tf.nest.flatten(agent)]

    for a, b in zip(leaves(0), leaves(0), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(
        not np.array_equal(a, b) for a, b in zip(leaves(0), leaves(1), strict=True)
    )
