import dataclasses

import gymnasium as gym
import pytest

from tfrl.agents import bc, policy_gradient, ppo
from tfrl.policies import actor_critic
from tfrl.training import _made_agents

SPACES = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
NUMBERS = {"n_envs": 2, "n_steps": 8, "n_updates": 1, "seed": 0}


class OfValues:
    """Makes an agent whose policy the trainer cannot play."""

    def create(self, observation_space, action_space, **numbers):
        return dataclasses.make_dataclass("Values", ["policy"])(lambda x: x)


def test_agents_that_trajectories_teach():
    assert _made_agents.checked(None) == ppo.PPO()
    for config in (ppo.PPO(minibatch_size=4), policy_gradient.PolicyGradient()):
        assert _made_agents.checked(config) is config
        agent = _made_agents.made(config, *SPACES, NUMBERS)
        assert isinstance(agent.policy, actor_critic.ActorCriticPolicy)


@pytest.mark.parametrize("config", [3, ppo.PPO, bc.BC, lambda: ppo.PPO()])
def test_what_makes_no_agent(config):
    with pytest.raises(TypeError, match="`Trainer`: `agent` expected hyper-param"):
        _made_agents.checked(config)


def test_agents_of_batches():
    with pytest.raises(
        TypeError, match=r"learns from trajectories.*got BC, whose `cre"
    ):
        _made_agents.checked(bc.BC())


def test_a_policy_that_cannot_be_played():
    config = _made_agents.checked(OfValues())
    with pytest.raises(
        TypeError, match=r"an ActorCriticPolicy; got OfValues, of which"
    ):
        _made_agents.made(config, *SPACES, NUMBERS)
