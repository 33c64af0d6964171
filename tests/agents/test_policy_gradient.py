import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import policy_gradient
from tfrl.core import records

T, N = 5, 3


def make_agent(**settings):
    return policy_gradient.PolicyGradient(**settings).create(
        gym.spaces.Box(-1.0, 1.0, (2,)),
        gym.spaces.Discrete(2),
        seed=0,
    )


def make_trajectory(seed=0):
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(T + 1, N, 2)).astype(np.float32)
    nothing = np.zeros((T, N), bool)
    return records.Trajectory(
        observations=observations[:-1],
        actions=rng.integers(0, 2, (T, N)).astype(np.int32),
        rewards=rng.normal(size=(T, N)).astype(np.float32),
        terminated=nothing,
        truncated=nothing,
        next_observations=observations[1:],
        valid=~nothing,
    )


def test_loss_is_reinforce_with_a_baseline():
    agent, trajectory = (
        make_agent(lambda_=1.0, entropy_coefficient=0.1),
        make_trajectory(),
    )
    model = agent.policy.state.model_def
    for variable in model.variables:
        variable.assign(agent.policy.state.params[variable.path])
    _, info = agent.update(trajectory)
    values = model.critic(trajectory.observations.reshape(-1, 2)).numpy().reshape(T, N)
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


def test_learns_which_arm_pays_and_leaves_the_old_agent():
    first = agent = make_agent(learning_rate=0.05, lambda_=0.0)
    observations = np.ones((T, N, 2), np.float32)
    ended = np.ones((T, N), bool)
    for seed in range(40):
        actions = agent.policy.act(observations.reshape(-1, 2), seed=seed).actions
        actions = actions.reshape(T, N).astype(np.int32)
        rewards = actions.astype(np.float32)
        agent, _ = agent.update(
            records.Trajectory(
                observations, actions, rewards, ended, ~ended, observations, ended
            )
        )

    def paying_share(agent):
        return float(tf.nn.softmax(agent.policy.parameters(observations[0]))[0, 1])

    assert paying_share(first) == pytest.approx(0.5, abs=0.05)
    assert paying_share(agent) > 0.9


@pytest.mark.parametrize("name", ["learning_rate", "max_gradient_norm"])
def test_bad_settings_are_refused(name):
    with pytest.raises(ValueError, match=f"`PolicyGradient`: `{name}` expected"):
        policy_gradient.PolicyGradient(**{name: 0.0})
    with pytest.raises(ValueError, match="`PolicyGradient`: `gamma` expected"):
        policy_gradient.PolicyGradient(gamma=-0.1)


@pytest.mark.parametrize(("units", "error"), [(8, TypeError), ((0,), ValueError)])
def test_widths_are_checked_at_construction(units, error):
    with pytest.raises(error, match="`PolicyGradient`: `hidden_units` expected"):
        policy_gradient.PolicyGradient(hidden_units=units)
