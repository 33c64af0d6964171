"""Tests of `tfrl.agents.on_policy.impala`; what others do too is in `test_agent`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, on_policy_gradients, params_of, trajectory_of

from tfrl.agents.on_policy import a2c, impala

T, N = 5, 3
CHOICES = gym.spaces.Discrete(3)


def make_agent(config=impala.IMPALA, seed=0, **settings):
    made = config(hidden_units=(8,), learning_rate=0.01, **settings)
    agent = made.create(BOX, CHOICES, n_envs=N, n_steps=T, seed=seed)
    # The last layer starts small: all policies would be much alike.
    params = dict(agent.policy.state.params)
    params["actor_critic/actor/output/kernel"] *= 60.0
    state = agent.policy.state.replace(params=params)
    return agent.replace(policy=agent.policy.replace(state=state))


def played_by(agent, seed=0):
    """A trajectory with the log-probabilities that its actions had for an agent."""
    trajectory = trajectory_of(BOX, CHOICES, T, N, seed)
    logits = agent.policy.parameters(trajectory.observations.reshape(-1, 3))
    known = tf.math.log_softmax(logits).numpy().reshape(T, N, 3)
    taken = np.take_along_axis(known, trajectory.actions[..., None], -1)[..., 0]
    return trajectory._replace(log_probs=taken)


@pytest.mark.parametrize(
    "clips", [pytest.param((1.0, 1.0), marks=pytest.mark.slow), (0.7, 1.4)]
)
def test_an_older_policy_is_corrected_for_as_the_paper_says(clips):
    names = {"clip_rho": clips[0], "clip_pg_rho": clips[1]}
    agent = make_agent(**names, lambda_=0.9, max_gradient_norm=None)
    trajectory = played_by(make_agent(seed=5))
    ratios = []

    def targets(log_probs, values, following):
        """Equation 1 and section 4.2, sums and products as they stand there."""
        rhos = np.exp(log_probs - trajectory.log_probs)
        ratios.extend(rhos.reshape(-1))
        factor = 0.99 * (1.0 - trajectory.terminated)
        deltas = trajectory.rewards + factor * following - values
        deltas *= np.minimum(clips[0], rhos)
        traces = 0.9 * np.minimum(1.0, rhos) * (1.0 - trajectory.truncated)
        corrected, gains = np.zeros((T, N)), np.zeros((T, N))
        for s in range(T):
            weight = np.ones(N)
            corrected[s] = values[s]
            for t in range(s, T):
                corrected[s] += weight * deltas[t]
                weight = weight * factor[t] * traces[t]
        for s in range(T):
            later = following[s]
            if s < T - 1:  # v[s + 1], of the same episode
                same = 0.9 * (1.0 - trajectory.truncated[s])
                later = later + same * (corrected[s + 1] - values[s + 1])
            gains[s] = trajectory.rewards[s] + factor[s] * later - values[s]
        return corrected, np.minimum(clips[1], rhos) * gains

    loss, grads = on_policy_gradients(agent, trajectory, targets)
    assert min(ratios) < 0.7 and max(ratios) > 1.4
    before = params_of(agent)
    updated, info = agent.update(trajectory)
    assert float(info["loss"]) == pytest.approx(loss, abs=1e-4)
    for name, value in params_of(updated).items():
        mean = 0.01 * grads[name] ** 2
        expected = before[name] - 0.01 * grads[name] / np.sqrt(mean + 1e-5)
        np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_its_own_trajectories_are_learned_from_as_by_a2c():
    agent, other = make_agent(), make_agent(a2c.A2C)
    trajectory = played_by(agent)
    (_, info), (_, known) = (x.update(trajectory) for x in (agent, other))
    for name, value in info.items():
        if name != "learning_rate":
            assert float(value) == pytest.approx(float(known[name]), abs=1e-5), name


def test_without_log_probabilities_nothing_is_learned():
    agent = make_agent()
    assert agent.needs_log_probs
    trajectory = trajectory_of(BOX, CHOICES, T, N)
    for given in ((), np.zeros((T, N - 1), np.float32)):
        with pytest.raises(
            ValueError, match=r"`IMPALA.update`: .*`log_probs` of shape"
        ):
            agent.update(trajectory._replace(log_probs=given))
    with pytest.raises(ValueError, match="`IMPALA`: `clip_rho` expected"):
        impala.IMPALA(clip_rho=0.0)
