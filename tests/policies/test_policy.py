"""Tests of `tfrl.policies.policy`."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.policies import host_policy, policy


class Counting:
    """A policy with a memory: it acts by how often it was asked."""

    def initial_state(self, batch_size):
        return tf.zeros([batch_size], tf.int64)

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        self.seen = seed, temperature, mask
        return policy.Acted(state, state, None, state + 1)


def test_a_function_is_a_policy():
    made = policy.as_policy("f", "policy", lambda x: x.sum(-1))
    acted = made.act(np.ones((2, 3)), "kept", seed=3, temperature=0.0, mask=None)
    np.testing.assert_array_equal(acted.actions, [3.0, 3.0])
    assert acted.state == "kept" and acted.log_probs is None
    assert made.initial_state(7) == ()
    pair = policy.FunctionPolicy(lambda x: x, to_env=lambda raw: raw + 1)
    assert pair.act(np.zeros(1)).raw_actions == 0 and pair.act(np.zeros(1)).actions == 1


def outputs_of(network, observations):
    """What a function is given of a network."""
    found = []

    def keep(outputs, rng):
        found.append(outputs)
        return np.zeros(len(tf.nest.flatten(outputs)[0]), int)

    policy.FunctionPolicy(keep, network=network).act(observations)
    return found[0]


def test_a_function_of_a_network_follows_its_weights():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    found = []
    played = policy.FunctionPolicy(
        lambda outputs, rng: found.append(outputs) or outputs.argmax(-1),
        lambda raw: raw + 1,
        network,
    )
    for batch in (2, 5):
        x = np.ones([batch, 3], np.float32) * batch
        acted = played.act(x)
        np.testing.assert_allclose(found[-1], network(x), rtol=1e-5)
        np.testing.assert_array_equal(acted.actions, acted.raw_actions + 1)
        network.weights[0].assign(network.weights[0] * -2.0)


def test_a_function_of_a_network_draws_by_the_seed():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    played = policy.FunctionPolicy(lambda _, rng: rng.random(4), network=network)
    x, rng = np.ones([4, 3], np.float32), np.random.default_rng(3)
    first, second = (played.act(x, seed=rng).actions for _ in range(2))
    assert (first != second).all()
    np.testing.assert_array_equal(played.act(x, seed=3).actions, first)
    drawn = {tuple(first)}
    for seed in (-3, np.array([-1, 2], np.int32), tf.constant([1, 2])):
        actions = played.act(x, seed=seed).actions
        np.testing.assert_array_equal(played.act(x, seed=seed).actions, actions)
        drawn.add(tuple(actions))
    assert len(drawn) == 4


def test_networks_of_nests_and_with_dropout():
    inputs = {"a": keras.Input([2], name="a"), "b": keras.Input([1], name="b")}
    both = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
    network = keras.Model(inputs, {"sum": both, "last": [both]})
    given = {"a": np.ones([4, 2], np.float32), "b": np.zeros([4, 1], np.float32)}
    got = outputs_of(network, given)
    assert sorted(got) == ["last", "sum"]
    assert isinstance(got["last"][0], np.ndarray)
    np.testing.assert_array_equal(got["sum"], [[1.0, 1.0, 0.0]] * 4)
    dropout = keras.Sequential([keras.Input([3]), keras.layers.Dropout(0.9)])
    x = np.ones([4, 3], np.float32)
    np.testing.assert_array_equal(outputs_of(dropout, x), x)
    with pytest.raises(TypeError, match="`network` expected a Keras layer or model"):
        policy.FunctionPolicy(print, network=3)


def test_policies_stay_what_they_are_and_others_are_refused():
    own = Counting()
    assert policy.as_policy("f", "policy", own) is own
    with pytest.raises(TypeError, match="pass its `policy`"):
        policy.as_policy("f", "policy", types.SimpleNamespace(policy=own))
    with pytest.raises(TypeError, match="`f`: `policy` expected a policy"):
        policy.as_policy("f", "policy", Counting)
    for given in (3, None, "act", object()):
        with pytest.raises(TypeError, match="`f`: `acting` expected a policy, or a"):
            policy.as_policy("f", "acting", given)
        with pytest.raises(TypeError, match="`FunctionPolicy`: `function` expected"):
            policy.FunctionPolicy(given)
    acted = policy.FunctionPolicy(lambda x: tf.argmax(x, -1)).act(np.eye(2))
    assert isinstance(acted.actions, np.ndarray) and acted.actions.tolist() == [0, 1]


def test_any_policy_acts_on_the_host():
    own = Counting()
    host = host_policy.HostPolicy(own)
    assert not host.mirrored
    state = host.initial_state(3)
    assert type(state) is np.ndarray and state.shape == (3,)
    rng, mask = np.random.default_rng(0), np.ones((3, 2), bool)
    for step in range(3):
        acted = host.act(np.zeros((3, 1)), state, seed=rng, temperature=0.5, mask=mask)
        state = acted.state
        assert type(acted.actions) is type(state) is np.ndarray
        np.testing.assert_array_equal(acted.actions, [step] * 3)
    seed, temperature, seen = own.seen
    assert seed.shape == (2,) and seed.dtype == np.int32
    assert temperature == 0.5 and seen is mask
    newer = Counting()
    host.push(newer)
    assert host.policy is newer
