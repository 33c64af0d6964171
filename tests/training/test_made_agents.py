import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from tfrl.agents import bc, dqn, policy_gradient, ppo
from tfrl.policies import actor_critic
from tfrl.training import _made_agents, experience

SPACES = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
NUMBERS = {"n_envs": 2, "n_steps": 8, "seed": 0}


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


@pytest.mark.parametrize("config", [3, ppo.PPO, dqn.DQN, lambda: ppo.PPO()])
def test_what_makes_no_agent(config):
    with pytest.raises(TypeError, match="`Trainer`: `agent` expected hyper-param"):
        _made_agents.checked(config)


def test_agents_of_batches_and_of_transitions():
    for config, kind in [
        (bc.BC(), experience.FromDataset),
        (dqn.DQN(), experience.Replayed),
        (ppo.PPO(), experience.Trajectories),
    ]:
        wanted = rf"expected {kind.__name__}, which {type(config).__name__} learns from"
        for other in (
            experience.Trajectories(),
            experience.Replayed(),
            experience.FromDataset({"actions": np.zeros(300)}),
        ):
            if isinstance(other, kind):
                assert _made_agents.checked_experience(config, other) is other
                continue
            with pytest.raises(TypeError, match=f"`Trainer`: `experience` {wanted}"):
                _made_agents.checked_experience(config, other)
        with pytest.raises(TypeError, match="expected Trajectories, Replayed or From"):
            _made_agents.checked_experience(config, 3)


def test_a_create_that_takes_something_else():
    class Other:
        def create(self, spaces):
            return spaces

    with pytest.raises(TypeError, match="takes two spaces and seed; got Other"):
        _made_agents.checked(Other())


def test_a_network_for_an_agent_that_takes_none():
    class Alone(OfValues):
        def create(self, observation_space, action_space, *, seed=0):
            return None

    with pytest.raises(TypeError, match="`network` expected None, as `create` of Alo"):
        _made_agents.made(Alone(), *SPACES, NUMBERS, network=print)


def test_a_policy_that_cannot_be_played():
    config = _made_agents.checked(OfValues())
    with pytest.raises(
        TypeError, match=r"with `policy`, which has `act`.*; got OfValues, of which"
    ):
        _made_agents.made(config, *SPACES, NUMBERS)
