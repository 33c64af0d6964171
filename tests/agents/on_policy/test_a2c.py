"""Tests of `tfrl.agents.on_policy.a2c`; what others do too is in `test_agent`."""

import gymnasium as gym
import numpy as np
import pytest
from agent_examples import BOX, on_policy_gradients, params_of, trajectory_of

from tfrl.agents.on_policy import a2c

T, N = 5, 3


def test_steps_equal_the_algorithm_written_out():
    settings = {"entropy_coefficient": 0.02, "max_gradient_norm": 0.3}
    config = a2c.A2C(hidden_units=(8,), learning_rate=0.01, eps=1e-4, **settings)
    agent = config.create(BOX, gym.spaces.Discrete(3), n_envs=N, n_steps=T)
    mean_squares = {name: np.ones(x.shape) for name, x in params_of(agent).items()}
    for seed in range(2):
        trajectory = trajectory_of(BOX, gym.spaces.Discrete(3), T, N, seed)

        def targets(_, values, following, seen=trajectory):
            returns, later = np.zeros((T, N)), following[-1]
            for t in reversed(range(T)):
                cut = seen.truncated[t]
                later = np.where(
                    cut, following[t], later if t < T - 1 else following[t]
                )
                alive = 1.0 - seen.terminated[t]
                later = returns[t] = seen.rewards[t] + 0.99 * alive * later
            return returns, returns - values

        loss, grads = on_policy_gradients(agent, trajectory, targets)
        before = params_of(agent)
        agent, info = agent.update(trajectory)
        assert float(info["loss"]) == pytest.approx(loss, abs=1e-4)
        norm = np.sqrt(sum((x**2).sum() for x in grads.values()))
        for name, value in params_of(agent).items():
            grad = grads[name] * min(1.0, 0.3 / norm)
            mean = mean_squares[name] = 0.99 * mean_squares[name] + 0.01 * grad**2
            expected = before[name] - 0.01 * grad / np.sqrt(mean + 1e-4)
            np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=name)
