"""Tests of `tfrl.agents.off_policy.crossq` and of how its critics are normalized."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import soft_examples
import tensorflow as tf
from soft_examples import BOX, STEER

from tfrl.agents import _actor_critics
from tfrl.agents.off_policy import crossq
from tfrl.policies import _ensembles

K, B = 2, 4


def make_agent(actions=STEER, **settings):
    rates = dict.fromkeys(("learning_rate", "critic_learning_rate"), 0.01)
    sizes = {"hidden_units": (6,), "critic_units": (11,), "policy_delay": 2}
    return crossq.CrossQ(**{**rates, **sizes, **settings}).create(BOX, actions)


def normalized(params, layer, x):
    """Of plain batch normalization, `[N, B, n]` or `[B, n]`."""
    mean, variance = x.mean(-2, keepdims=True), x.var(-2, keepdims=True)
    outputs = (x - mean) / np.sqrt(variance + 1e-3)
    return outputs * params[f"{layer}/scale"] + params[f"{layer}/bias"]


@pytest.mark.slow
def test_critics_see_both_states_in_one_batch(monkeypatch):
    noise = np.random.default_rng(3).normal(size=(B, 2))
    drawn = [tf.constant(noise, tf.float32)]
    monkeypatch.setattr(_actor_critics, "noise_of", lambda *_: drawn)
    agent = make_agent(temperature=0.3)
    sample = soft_examples.sample_of(agent, BOX, 1, B)
    learned, info = agent.update(sample)
    params = soft_examples.doubles(agent.critics.params)
    data = tf.nest.map_structure(lambda x: np.asarray(x[0], np.float64), sample.data)
    outputs = soft_examples.actor(
        soft_examples.doubles(agent.policy.state.params), data.next_observations
    )
    later, log_prob = soft_examples.squashed(outputs, noise)
    both = np.concatenate(
        [
            np.concatenate([data.observations, np.tanh(data.actions)], -1),
            np.concatenate([data.next_observations, later], -1),
        ]
    )
    x = normalized(params, "critics/batch_norm_0", both)
    kernel, bias = (params[f"critics/hidden_0/{x}"] for x in ("kernel", "bias"))
    x = np.maximum(x @ kernel + bias, 0.0)
    moments = x.mean(-2, keepdims=True)
    x = normalized(params, "critics/batch_norm_1", x)
    kernel, bias = (params[f"critics/output/{x}"] for x in ("kernel", "bias"))
    values = (x @ kernel + bias)[..., 0]
    targets = values[:, B:].min(0) - 0.3 * log_prob.numpy()
    targets = data.rewards + data.discounts * targets
    losses = 0.5 * ((values[:, :B] - targets) ** 2).sum(0)
    expected = (sample.weights[0] * losses).mean()
    assert float(info["critic_loss"]) == pytest.approx(expected, rel=1e-4)
    sizes = np.abs(values[:, :B] - targets).mean(0)
    np.testing.assert_allclose(info["priorities"][0], sizes, rtol=1e-4)
    kept = learned.critics.extra_variables
    np.testing.assert_allclose(
        kept["critics/batch_norm_1/mean"], 0.01 * moments, rtol=1e-4, atol=1e-7
    )
    assert learned.target_params == ()


def test_moments_stay_near_those_of_all_that_was_seen():
    layer = _ensembles.BatchRenorm(momentum=0.5, warmup_steps=1)
    x = np.array([[1.0], [3.0]], np.float32)
    np.testing.assert_allclose(layer(x, training=True), [[-1.0], [1.0]], atol=1e-3)
    mean, variance = 1.0, 1.0  # after a step from 0 and 1
    outputs = layer(4.0 * x, training=True)
    deviation = np.sqrt(variance + 1e-3)
    d = np.clip((8.0 - mean) / deviation, -5.0, 5.0)
    scaled = (4.0 * x - 8.0) / np.sqrt(16.0 + 1e-3) * 3.0
    np.testing.assert_allclose(outputs, scaled + d, rtol=1e-4)
    kept = np.ravel(layer.mean.value)[0], np.ravel(layer.variance.value)[0]
    np.testing.assert_allclose(kept, (4.5, 8.5), rtol=1e-5)
    expected = (x - 4.5) / np.sqrt(8.5 + 1e-3)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4)
    layer.scale.assign([[2.0]])
    layer.bias.assign([[0.5]])
    np.testing.assert_allclose(layer(x), 2.0 * expected + 0.5, rtol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        TypeError, match="`CrossQ.create`: `action_space` expected a Box.*SAC"
    ):
        make_agent(gym.spaces.Discrete(3))
    with pytest.raises(ValueError, match="`critic_units`"):
        crossq.CrossQ(critic_units=(0,))

    def pair(observation_space, action_space):
        del observation_space, action_space
        seen = keras.Input((3,)), keras.Input((2,))
        joined = keras.layers.Concatenate()(seen)
        actor = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
        return actor, keras.Model(seen, keras.layers.Dense(1)(joined))

    with pytest.raises(ValueError, match="`CrossQ`: `network` expected an actor alone"):
        crossq.CrossQ().create(BOX, STEER, network=pair)
