"""Tests of `tfrl.agents.off_policy.tqc` against the algorithm written out."""

import gymnasium as gym
import numpy as np
import pytest
import soft_examples
import tensorflow as tf
from soft_examples import BOX, STEER

from tfrl.agents import _actor_critics
from tfrl.agents.off_policy import tqc

K, B, N, M, D = 2, 4, 3, 5, 2


def make_agent(seed=0, actions=STEER, **settings):
    rates = dict.fromkeys(("learning_rate", "critic_learning_rate"), 0.01)
    sizes = {"n_critics": N, "n_quantiles": M, "n_dropped": D, "hidden_units": (9,)}
    config = tqc.TQC(**{**rates, **sizes, **settings})
    agent = config.create(BOX, actions, seed=seed)
    other = config.create(BOX, actions, seed=seed + 50)
    return agent.replace(target_params=other.target_params)


def target_of(rewards, discounts, values, cost):
    """Samples `[B, (M - D) N]`, row by row."""
    rows = []
    for b in range(B):
        pooled = sorted(np.ravel(values[:, b]))[: (M - D) * N]
        soft = np.array(pooled) - cost[b].numpy()
        rows.append(rewards[b] + discounts[b] * soft)
    return np.stack(rows)


def losses_of(values, targets):
    """The mean over critics, quantiles and samples of the quantile Huber loss."""
    total = tf.zeros([B], tf.float64)
    for n in range(N):
        for m in range(M):
            gaps = targets - values[n, :, m, tf.newaxis]
            size = tf.abs(gaps)
            huber = tf.where(size > 1.0, size - 0.5, 0.5 * gaps**2)
            below = tf.cast(gaps < 0.0, tf.float64)
            pinball = tf.abs((m + 0.5) / M - below) * huber
            total += tf.reduce_mean(pinball, axis=-1)
    return total / (N * M)


@pytest.mark.slow
def test_an_update_equals_the_algorithm_written_out(monkeypatch):
    noise = np.random.default_rng(3).normal(size=(B, 2))
    drawn = [tf.constant(noise, tf.float32)]
    monkeypatch.setattr(_actor_critics, "noise_of", lambda *_: drawn)
    # No other test has these sizes, of which traces know the noise.
    agent = make_agent(temperature=0.3, tau=0.2)
    sample = soft_examples.sample_of(agent, BOX, K, B)
    rules = target_of, losses_of, lambda values: tf.reduce_mean(values, axis=[0, 2])
    close = {"rtol": 3e-4, "atol": 2e-5}
    _, info = soft_examples.assert_written_out(agent, sample, noise, close, *rules)
    assert info["priorities"].shape == (K, B) and np.all(info["priorities"] >= 0.0)


def test_errors_of_critics_do_not_cancel():
    values = np.stack([np.full((B, M), x, "f") for x in (-2.0, 0.0, 2.0)])
    _, info = make_agent()._losses(values, None, tf.zeros([B, (M - D) * N]))
    np.testing.assert_allclose(info["rows"], np.full(B, 4 / 3), rtol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match="`TQC`: `n_dropped` expected less .*25; got 25"
    ):
        tqc.TQC(n_dropped=25)
    with pytest.raises(
        TypeError, match="`TQC.create`: `action_space` expected a Box, a Mul.*QRDQN"
    ):
        tqc.TQC().create(BOX, gym.spaces.Discrete(3))


@pytest.mark.slow
def test_learns_parts_of_actions():
    agent = make_agent(actions=soft_examples.MIXED)
    learned, info = agent.update(soft_examples.sample_of(agent, BOX, K, B))
    assert all(np.isfinite(x).all() for x in tf.nest.flatten(info))
    for name, value in learned.policy.state.params.items():
        assert np.any(value != agent.policy.state.params[name]), name
