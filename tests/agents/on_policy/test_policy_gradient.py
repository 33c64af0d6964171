"""Tests of `tfrl.agents.on_policy.policy_gradient`; more are in `test_agent`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import trajectory_of

from tfrl.agents.on_policy import policy_gradient
from tfrl.core import records

T, N = 5, 3
BOX = gym.spaces.Box(-1.0, 1.0, (2,))


def make_agent(**settings):
    config = policy_gradient.PolicyGradient(hidden_units=(8,), **settings)
    return config.create(BOX, gym.spaces.Discrete(2), seed=0)


@pytest.mark.slow
def test_the_loss_is_reinforce_with_a_baseline():
    agent = make_agent(lambda_=1.0, entropy_coefficient=0.1)
    trajectory = trajectory_of(BOX, gym.spaces.Discrete(2), T, N)
    nothing = np.zeros((T, N), bool)
    trajectory = trajectory._replace(terminated=nothing, truncated=nothing)
    model = agent.policy.state.model_def
    values = model.critic(trajectory.observations.reshape(-1, 2)).numpy().reshape(T, N)
    _, info = agent.update(trajectory)
    returns = np.zeros((T, N))
    running = model.critic(trajectory.next_observations[-1]).numpy().astype(np.float64)
    for t in reversed(range(T)):
        running = returns[t] = trajectory.rewards[t] + 0.99 * running
    advantages = returns - values
    advantages = (advantages - advantages.mean()) / advantages.std()
    logits = model.actor(trajectory.observations.reshape(-1, 2))
    log_probs = tf.math.log_softmax(logits).numpy()
    taken = log_probs[np.arange(T * N), trajectory.actions.reshape(-1)]
    expected = {
        "policy_loss": -(taken * advantages.reshape(-1)).mean(),
        "value_loss": 0.5 * ((returns - values) ** 2).mean(),
        "entropy": -(np.exp(log_probs) * log_probs).sum(-1).mean(),
    }
    for name, value in expected.items():
        assert float(info[name]) == pytest.approx(value, abs=1e-5), name
    total = expected["policy_loss"] + 0.5 * expected["value_loss"]
    total -= 0.1 * expected["entropy"]
    assert float(info["loss"]) == pytest.approx(total, abs=1e-5)


@pytest.mark.slow
def test_learns_which_arm_pays():
    agent = make_agent(learning_rate=0.05, lambda_=0.0)
    observations = np.ones((T, N, 2), np.float32)
    ended = np.ones((T, N), bool)

    def paying_share():
        return float(tf.nn.softmax(agent.policy.parameters(observations[0]))[0, 1])

    assert paying_share() == pytest.approx(0.5, abs=0.05)
    for seed in range(40):
        actions = agent.policy.act(observations.reshape(-1, 2), seed=seed).actions
        actions = actions.reshape(T, N).astype(np.int32)
        rewards = actions.astype(np.float32)
        agent, _ = agent.update(
            records.Trajectory(
                observations, actions, rewards, ended, ~ended, observations, ended
            )
        )
    assert paying_share() > 0.9
