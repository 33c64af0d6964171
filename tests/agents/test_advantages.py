"""Tests of `tfrl.agents.advantages`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import new_policy, trajectory_of

from tfrl.agents import advantages
from tfrl.core import records

S = gym.spaces


def experience(weights, **columns):
    rows = {
        name: tf.constant(columns.get(name, np.zeros(len(weights))))
        for name in advantages.Experience._fields
    }
    return advantages.Experience(**{**rows, "weights": tf.constant(weights)})


def test_experience_statistics():
    rng = np.random.default_rng(0)
    returns, values = rng.normal(size=(2, 50))
    weights = (rng.random(50) < 0.7).astype(np.float64)
    rows = experience(weights, returns=returns, values=values)
    known, error = returns[weights > 0], (returns - values)[weights > 0]
    np.testing.assert_allclose(rows.mean(rows.returns), known.mean(), rtol=1e-10)
    np.testing.assert_allclose(rows.variance(rows.returns), known.var(), rtol=1e-10)
    np.testing.assert_allclose(
        rows.explained_variance(), 1 - error.var() / known.var(), rtol=1e-10
    )


def test_experience_without_weight_or_spread():
    empty = experience(np.zeros(3), returns=np.arange(3.0))
    assert float(empty.mean(empty.returns)) == 0.0
    assert float(empty.explained_variance()) == 0.0
    flat = experience(np.ones(3), returns=np.ones(3), values=np.arange(3.0))
    assert float(flat.explained_variance()) == 0.0


def returns_slowly(rewards, terminated, truncated, next_values, gamma, lambda_):
    """Lambda-returns of one environment, by their definition, backwards."""
    returns = np.zeros(len(rewards))
    following = next_values[-1]
    for t in reversed(range(len(rewards))):
        if terminated[t]:
            returns[t] = rewards[t]
        elif truncated[t]:
            returns[t] = rewards[t] + gamma * next_values[t]
        else:
            mixed = (1 - lambda_) * next_values[t] + lambda_ * following
            returns[t] = rewards[t] + gamma * mixed
        following = returns[t]
    return returns


@pytest.mark.parametrize(
    ("jit", "normalize"),
    [
        pytest.param(None, False, marks=pytest.mark.slow),
        (None, True),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, True, marks=pytest.mark.slow),
    ],
    ids=["eager", "eager normalized", "graph normalized", "XLA normalized"],
)
def test_estimate_advantages(normalize, jit):
    space = S.Dict(x=S.Box(-np.inf, np.inf, (2,)), kind=S.Discrete(3))
    policy = new_policy(space, S.Discrete(4), normalize_observations=normalize)
    trajectory = trajectory_of(space, S.Discrete(4), 9, 3)
    valid = np.random.default_rng(2).random((9, 3)) < 0.8
    trajectory = trajectory._replace(valid=valid)
    if normalize:
        policy = policy.update_moments(
            trajectory.observations, tf.constant(trajectory.valid)
        )
    scaled = 0.5 * trajectory.rewards

    def call(policy, trajectory, rewards):
        return advantages.estimate_advantages(
            policy, trajectory, rewards, gamma=0.9, lambda_=0.7
        )

    if jit is not None:
        call = tf.function(call, jit_compile=jit)
    rows = call(policy, trajectory, scaled)

    def network(observations):
        flat = tf.nest.map_structure(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), observations
        )
        return policy.state(policy.normalize(flat))

    logits, values = (x.numpy() for x in network(trajectory.observations))
    next_values = network(trajectory.next_observations)[1].numpy()
    next_values = next_values.reshape(9, 3)
    columns = [
        returns_slowly(
            scaled[:, n],
            trajectory.terminated[:, n],
            trajectory.truncated[:, n],
            next_values[:, n],
            0.9,
            0.7,
        )
        for n in range(3)
    ]
    returns = np.stack(columns, 1).ravel()
    chosen = logits[np.arange(27), trajectory.actions.ravel()]
    log_probs = chosen - np.log(np.exp(logits).sum(-1))
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(rows.values, values, **close)
    np.testing.assert_allclose(rows.returns, returns, **close)
    np.testing.assert_allclose(rows.advantages, returns - values, **close)
    np.testing.assert_allclose(rows.log_probs, log_probs, **close)
    np.testing.assert_array_equal(rows.weights, trajectory.valid.ravel())
    np.testing.assert_array_equal(rows.actions, trajectory.actions.ravel())
    np.testing.assert_array_equal(
        rows.observations["kind"], trajectory.observations["kind"].ravel()
    )


def test_reset_rows_leave_no_trace_in_the_rows_before():
    """A NEXT_STEP reset row follows an end; whatever it holds, it is cut off."""
    policy = new_policy(S.Box(-1.0, 1.0, (1,)), S.Discrete(2))
    shape = (4, 1)
    observations = np.linspace(-1, 1, 4, dtype=np.float32).reshape(4, 1, 1)
    terminated, truncated = np.zeros(shape, bool), np.zeros(shape, bool)
    truncated[1] = True
    valid = np.array([[True], [True], [False], [True]])
    found = []
    for rewards in (0.0, 1e3):
        rewards = np.array([[1.0], [2.0], [rewards], [3.0]], np.float32)
        rows = advantages.estimate_advantages(
            policy,
            records.Trajectory(
                observations,
                np.zeros(shape, np.int32),
                rewards,
                terminated,
                truncated,
                observations + 0.1,
                valid,
            ),
            rewards,
            gamma=0.9,
            lambda_=0.95,
        )
        found.append(rows.advantages.numpy()[[0, 1, 3]])
    np.testing.assert_array_equal(*found)
