"""Tests of `tfrl.agents.offline.awac` against the algorithm written out."""

import continuous_examples as examples
import numpy as np
import pytest
import tensorflow as tf
import written_out

from tfrl.agents import _actor_critics, _minibatches
from tfrl.agents.offline import awac
from tfrl.core import random

K, B = 3, 6


def log_prob(params, x, actions):
    mean, log_std = written_out.mlp(params, "actor", x), params["log_std"]
    each = -0.5 * ((actions - mean) / np.exp(log_std)) ** 2 - log_std
    return (each - 0.5 * np.log(2 * np.pi)).sum(-1)


def drawn(params, x, noise):
    """Features of actions of the policy."""
    mean, log_std = written_out.mlp(params, "actor", x), params["log_std"]
    return examples.scaled(mean + np.exp(log_std) * noise)


def noise_of(agent, k):
    """For the target and for the advantage, as the agent draws them."""
    seed = _minibatches.step_seed(agent.rng, tf.constant(k + 1))
    return [
        _actor_critics.noise_of(agent.policy.head, B, each)[0].numpy().astype(float)
        for each in random.split_seed(seed, 2)
    ]


@pytest.mark.slow
def test_an_update_equals_the_algorithm_written_out():
    config = awac.AWAC(
        hidden_units=(4,),
        activation="tanh",
        learning_rate=0.01,
        temperature=0.5,
        max_weight=2.0,
        tau=0.3,
    )
    agent = config.create(examples.BOX, examples.ACTIONS, seed=0)
    agent = agent.replace(target_critics=examples.shaken(agent.target_critics, 2))
    sample = examples.sample_of(K, B)
    actor = written_out.Adam(agent.policy.state.params, 0.01)
    critics = written_out.Adam(agent.critics.params, 0.01)
    target, n_cut = written_out.doubles(agent.target_critics), 0
    for k in range(K):
        data, weights = examples.row_of(sample, k)
        seen, taken = data.observations, examples.scaled(data.actions)
        first, second = noise_of(agent, k)
        later = drawn(actor.params, data.next_observations, first)
        later = written_out.q_values(target, data.next_observations, later).min(0)
        y = data.rewards + data.discounts * later

        def critic_loss(params, w=weights, y=y, seen=seen, taken=taken):
            found = written_out.q_values(params, seen, taken)
            return (w * (y - found) ** 2).mean(1).sum()

        critics.step(critic_loss)
        other = drawn(actor.params, seen, second)
        advantages = written_out.q_values(critics.params, seen, taken).min(
            0
        ) - written_out.q_values(critics.params, seen, other).min(0)
        cloned = weights * np.minimum(np.exp(advantages / 0.5), 2.0)
        n_cut += (np.exp(advantages / 0.5) > 2.0).sum()

        def loss(params, cloned=cloned, data=data):
            likely = log_prob(params, data.observations, data.actions)
            return -(cloned * likely).mean()

        actor.step(loss)
        target = written_out.moved(target, critics.params, 0.3)
    assert 0 < n_cut < K * B
    new, _ = agent.update(sample)
    written_out.assert_params(new.policy.state.params, actor.params)
    written_out.assert_params(new.critics.params, critics.params)
    written_out.assert_params(new.target_critics, target)


@pytest.mark.parametrize("name", ["temperature", "max_weight", "tau", "n_critics"])
def test_bad_settings(name):
    with pytest.raises(TypeError, match="`AWAC`: `log_std` expected"):
        awac.AWAC(log_std="a")
    with pytest.raises(ValueError, match=f"`AWAC`: `{name}` expected"):
        awac.AWAC(**{name: 0})
