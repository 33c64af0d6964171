"""PPO and the policy gradient in Dict and Tuple spaces of actions."""

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import policy_gradient, ppo
from tfrl.core import records
from tfrl.policies import host_policy

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
STEER = S.Box(-2.0, 2.0, (2,))
SPACES = {
    "dict": S.Dict(steer=STEER, press=S.Discrete(3, start=1), bits=S.MultiBinary(2)),
    "tuple": S.Tuple((S.Discrete(2), S.Dict(deep=STEER, more=S.Discrete(4)))),
    "choices": S.Tuple((S.Discrete(2), S.MultiDiscrete([2, 3]))),
}
T, N = 6, 2
CONFIGS = {
    "ppo": ppo.PPO(minibatch_size=4, n_epochs=2, hidden_units=(8,), log_std=-0.3),
    "policy gradient": policy_gradient.PolicyGradient(hidden_units=(8,)),
}


def observations_of(*outer, seed=0):
    return np.random.default_rng(seed).normal(size=(*outer, 3)).astype(np.float32)


def rows_of(nest, index):
    return tf.nest.map_structure(lambda x: np.asarray(x)[index], nest)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_prob_of_dict(policy, observations, raw):
    """By hand, of parts in the order bits, press, steer; deviations at the end."""
    parameters = policy.parameters(observations).numpy().astype(np.float64)
    bits, press, loc, log_std = np.split(parameters, [4, 7, 9], -1)
    rows = np.arange(len(parameters))
    found = log_softmax(press)[rows, raw["press"]]
    for i in range(2):
        found += log_softmax(bits[:, 2 * i : 2 * i + 2])[rows, raw["bits"][:, i]]
    z = (raw["steer"] - loc) / np.exp(log_std)
    return found + (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)


@pytest.mark.parametrize("kind", SPACES)
def test_actions_are_of_the_space(kind):
    space = SPACES[kind]
    policy = CONFIGS["ppo"].create(BOX, space, seed=0).policy
    x = observations_of(20)
    for given in (x, tf.constant(x)):
        for temperature in (0.0, 0.5, 1.0):
            acted = policy.act(given, seed=1, temperature=temperature)
            actions = tf.nest.map_structure(np.asarray, acted.actions)
            for row in range(20):
                assert space.contains(rows_of(actions, row)), rows_of(actions, row)
            assert np.asarray(acted.log_probs).shape == (20,)
    greedy = [policy.act(g, temperature=0.0) for g in (x, tf.constant(x))]
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        *(found.actions for found in greedy),
    )
    assert host_policy.HostPolicy(policy).mirrored


@pytest.mark.parametrize("kind", ["numpy", "tensors"])
def test_log_probs_are_sums_over_the_parts(kind):
    policy = CONFIGS["ppo"].create(BOX, SPACES["dict"], seed=0).policy
    np.testing.assert_allclose(policy.log_std(), [-0.3, -0.3])
    x = observations_of(30)
    acted = policy.act(x if kind == "numpy" else tf.constant(x), seed=2)
    raw = tf.nest.map_structure(np.asarray, acted.raw_actions)
    expected = log_prob_of_dict(policy, x, raw)
    np.testing.assert_allclose(acted.log_probs, expected, rtol=1e-4, atol=1e-4)


def test_masks_are_of_all_choices():
    policy = CONFIGS["ppo"].create(BOX, SPACES["choices"], seed=0).policy
    x, mask = observations_of(40), np.ones((40, 7), bool)
    mask[:, [0, 3, 4]] = False  # leaves 1; 0; 1 or 2
    for given in (x, tf.constant(x)):
        first, others = policy.act(given, seed=0, mask=mask).actions
        assert (np.asarray(first) == 1).all() and (np.asarray(others)[:, 0] == 0).all()
        assert set(np.asarray(others)[:, 1]) == {1, 2}


def trajectory_of(agent, seed=0):
    acts, x = [], observations_of(T + 1, N, seed=seed)
    for t in range(T):
        acts.append(agent.policy.act(x[t], seed=seed * T + t).raw_actions)
    flags = np.zeros((T, N), bool)
    rewards = np.random.default_rng(seed).normal(size=(T, N)).astype(np.float32)
    actions = tf.nest.map_structure(lambda *leaves: np.stack(leaves), *acts)
    return records.Trajectory(x[:-1], actions, rewards, flags, flags, x[1:], ~flags)


@pytest.mark.parametrize(
    ("config", "kind"),
    default_rows.params(
        {f"{config}-{kind}": (config, kind) for config in CONFIGS for kind in SPACES},
        ["ppo-tuple", "policy gradient-choices"],
    ),
)
def test_updates_are_finite_and_move_all_weights(config, kind):
    agent = CONFIGS[config].create(BOX, SPACES[kind], seed=0)
    learned, info = agent.update(trajectory_of(agent))
    assert all(np.isfinite(x).all() for x in info.values())
    for name, value in learned.policy.state.params.items():
        assert np.isfinite(value).all(), name
        assert np.any(value != agent.policy.state.params[name]), name


def test_the_ratio_begins_at_one():
    """What is learned from are the log-probabilities of the actions taken."""
    config = ppo.PPO(minibatch_size=T * N, n_epochs=1, hidden_units=(8,))
    agent = config.create(BOX, SPACES["dict"], seed=0)
    _, info = agent.update(trajectory_of(agent))
    assert float(info["approx_kl"]) == pytest.approx(0.0, abs=1e-5)
    assert float(info["clip_fraction"]) == 0.0
    parameters = agent.policy.parameters(observations_of(T + 1, N)[:-1].reshape(-1, 3))
    bits, press, _, log_std = np.split(parameters.numpy(), [4, 7, 9], -1)
    entropy = (0.5 * np.log(2 * np.pi * np.e) + log_std).sum(-1)
    for logits in (bits[:, :2], bits[:, 2:], press):
        logs = log_softmax(logits)
        entropy -= (np.exp(logs) * logs).sum(-1)
    assert float(info["entropy"]) == pytest.approx(entropy.mean(), abs=1e-3)


@pytest.mark.slow
def test_learns_which_actions_pay():
    space = SPACES["tuple"]
    agent = ppo.PPO(
        minibatch_size=64, learning_rate=0.01, lambda_=0.0, hidden_units=(8,)
    ).create(BOX, space, seed=0)
    x, ended = np.ones((8, 16, 3), np.float32), np.ones((8, 16), bool)
    for step in range(40):
        acted = agent.policy.act(x.reshape(-1, 3), seed=step)
        first, second = acted.actions
        paid = (
            1.0 * (first == 1)
            + (second["more"] == 2)
            - np.abs(second["deep"] - 1).sum(-1)
        )
        raw = tf.nest.map_structure(
            lambda leaf: leaf.reshape(8, 16, *leaf.shape[1:]), acted.raw_actions
        )
        rewards = paid.reshape(8, 16).astype(np.float32)
        agent, _ = agent.update(
            records.Trajectory(x, raw, rewards, ended, ~ended, x, ended)
        )
    first, second = agent.policy.act(x[0], temperature=0.0).actions
    assert (first == 1).all() and (second["more"] == 2).all()
    np.testing.assert_allclose(second["deep"], 1.0, atol=0.4)
