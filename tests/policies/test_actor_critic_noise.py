"""Exploration of actors by noise that is a function of the state."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, new_policy, trajectory_of
from plain_graphs import plain_graphs

from tfrl.agents.off_policy import sac
from tfrl.agents.on_policy import ppo
from tfrl.exporting import export
from tfrl.policies import host_policy

S = gym.spaces
STEER = S.Box(-2.0, 2.0, (2,))
ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
KINDS = {"host": lambda x: x, "tensors": tf.constant}
kinds = pytest.mark.parametrize("kind", KINDS)


def policy_of(noise_steps=4, **settings):
    """A policy whose deviations differ."""
    policy = new_policy(BOX, STEER, noise_steps=noise_steps, **settings)
    rng, state = np.random.default_rng(1), policy.state
    params = {
        name: x + tf.constant(rng.normal(0.0, 0.7, x.shape), x.dtype)
        for name, x in state.params.items()
    }
    return policy.replace(state=state.replace(params=params))


def initial(policy, kind, n_rows=5):
    state = policy.initial_state(n_rows)
    return tf.nest.map_structure(np.asarray, state) if kind == "host" else state


def features_of(policy, rows):
    """Last hidden features of the actor, of one layer here, and its means."""
    found = {
        name.split("actor_critic/")[-1]: x for name, x in policy.state.params.items()
    }
    hidden = np.tanh(
        rows @ found["actor/hidden_0/kernel"] + found["actor/hidden_0/bias"]
    )
    return hidden, hidden @ found["actor/output/kernel"] + found["actor/output/bias"]


def sigma_of(policy):
    (sigma,) = [x for name, x in policy.state.params.items() if "log_sigma" in name]
    return np.exp(sigma)


def test_deviations_follow_from_features():
    policy = policy_of()
    hidden, means = features_of(policy, ROWS)
    variances = np.square(hidden) @ np.square(sigma_of(policy))
    found = np.asarray(policy.parameters(ROWS))
    np.testing.assert_allclose(found[:, :2], means, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(2.0 * found[:, 2:]), variances, rtol=1e-3)
    first = sigma_of(new_policy(BOX, STEER, noise_steps=1, log_std=0.5))
    np.testing.assert_allclose(first, np.exp(0.5) / np.sqrt(8.0), rtol=1e-6)


@kinds
def test_noise_is_one_function_of_the_state_for_some_steps(kind):
    policy, as_kind = policy_of(noise_steps=3), KINDS[kind]
    state, found = initial(policy, kind), []
    matrices = []
    for step in range(7):
        rows = ROWS + np.float32(step)
        acted = policy.act(as_kind(rows), state, seed=step)
        state = acted.state
        hidden, means = features_of(policy, rows)
        noise = np.einsum("bf,fd,bfd->bd", hidden, sigma_of(policy), state["matrix"])
        np.testing.assert_allclose(
            acted.raw_actions, means + noise, rtol=1e-3, atol=1e-3
        )
        parameters = policy.parameters(rows)
        known = policy.head.log_prob(parameters, np.asarray(acted.raw_actions))
        np.testing.assert_allclose(acted.log_probs, known, rtol=1e-3, atol=1e-3)
        matrices.append(np.asarray(state["matrix"]))
        found.append(np.asarray(state["steps"]).tolist())
    assert found == [[n] * 5 for n in (1, 2, 0, 1, 2, 0, 1)]
    same = [np.array_equal(a, b) for a, b in zip(matrices, matrices[1:], strict=False)]
    assert same == [True, True, False, True, True, False]
    # An episode that begins draws its own; the others keep theirs.
    begun = {name: np.array(x) for name, x in state.items()}
    for leaf in begun.values():
        leaf[2] = 0
    after = policy.act(
        as_kind(ROWS), tf.nest.map_structure(as_kind, begun), seed=9
    ).state
    changed = (np.asarray(after["matrix"]) != begun["matrix"]).any(axis=(1, 2))
    assert changed.tolist() == [False, False, True, False, False]


@kinds
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_of_one_step_are_normal(kind, temperature):
    policy, n = policy_of(), 20_000
    rows = np.repeat(ROWS[:1], n, axis=0)
    acted = policy.act(KINDS[kind](rows), seed=0, temperature=temperature)
    raw = np.asarray(acted.raw_actions)
    means, log_std = np.split(np.asarray(policy.parameters(ROWS[:1]))[0], 2)
    deviations = temperature * np.exp(log_std)
    assert np.all(np.abs(raw.mean(0) - means) < 5.0 * deviations / np.sqrt(n))
    np.testing.assert_allclose(raw.std(0), deviations, rtol=0.03)
    greedy = policy.act(KINDS[kind](ROWS[:1]), temperature=0.0).raw_actions
    np.testing.assert_allclose(greedy[0], means, rtol=1e-5)


@kinds
def test_actors_whose_critics_are_elsewhere_explore_so_too(kind):
    agent = sac.SAC(hidden_units=(8,), noise_steps=2).create(BOX, STEER, seed=0)
    policy, as_kind = agent.policy, KINDS[kind]
    state, found = initial(policy, kind), []
    for step in range(4):
        acted = policy.act(as_kind(ROWS), state, seed=step)
        state = acted.state
        found.append(np.asarray(acted.actions))
    np.testing.assert_array_equal(found[::2], found[1::2])
    assert not np.array_equal(found[1], found[2]) and np.all(np.abs(found) < 2.0)
    rows = np.repeat(ROWS[:1], 20_000, axis=0)
    raw = np.asarray(policy.act(as_kind(rows), seed=0).raw_actions)
    _, log_std = np.split(np.asarray(policy.parameters(ROWS[:1]))[0], 2)
    np.testing.assert_allclose(raw.std(0), np.exp(log_std), rtol=0.03)
    assert type(policy.independent()).__name__ == "ActorPolicy"


@pytest.mark.slow
def test_what_is_learned_leaves_the_features_to_the_means():
    """Deviations get a gradient by sigma alone; PPO learns by the usual log-probs."""
    config = ppo.PPO(
        hidden_units=(8,), minibatch_size=12, n_epochs=1, noise_steps=2, squash=True
    )
    agent = config.create(BOX, STEER, seed=0)
    trajectory = trajectory_of(BOX, STEER, 6, 2)
    with plain_graphs():
        learned, info = agent.update(trajectory)
    assert abs(float(info["approx_kl"])) < 1e-5 and np.isfinite(float(info["loss"]))
    before, after = agent.policy.state.params, learned.policy.state.params
    assert all(np.any(before[name] != after[name]) for name in before)
    state = agent.policy.state
    with tf.GradientTape() as tape:
        tape.watch(state.params)
        log_std = state(ROWS, method="actor")[:, 2:]
        total = tf.reduce_sum(log_std)
    grads = tape.gradient(total, state.params)
    reached = {name for name, x in grads.items() if x is not None and np.any(x)}
    assert [name.split("/")[-1] for name in reached] == ["log_sigma"]


def test_the_copy_that_acts_is_the_network():
    policy = policy_of(normalize_observations=True)
    policy = policy.update_moments(ROWS, tf.ones([5]))
    host = host_policy.HostPolicy(policy)
    assert not host.mirrored
    host.push(policy, probe=ROWS)
    np.testing.assert_allclose(host(ROWS), policy.parameters(ROWS), rtol=1e-5)


@pytest.mark.slow
def test_exports_need_no_noise(tmp_path):
    policy = policy_of()
    export.export_policy(policy, tmp_path / "policy", BOX, STEER)
    assert max(export.verify(tmp_path / "policy").values()) <= 1e-5
    served = tf.saved_model.load(tmp_path / "policy").signatures["serving_default"]
    found = served(observations=tf.constant(ROWS))["actions"]
    expected = policy.act(ROWS, temperature=0.0).actions
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_bad_input_is_refused():
    for actions, network, noise_steps, match in (
        (S.Discrete(2), None, 4, "`noise_steps` expected None without a Box of floats"),
        (STEER, object(), 4, "own network"),
        (STEER, None, 0, "`noise_steps`"),
    ):
        with pytest.raises(ValueError, match=match):
            new_policy(BOX, actions, noise_steps=noise_steps, network=network)
    with pytest.raises(ValueError, match="`PPO`: `noise_steps`"):
        ppo.PPO(noise_steps=0)
    with pytest.raises(ValueError, match="`noise_steps` expected None where"):
        ppo.PPO(noise_steps=2, memory="gru").create(BOX, STEER)
    policy = policy_of()
    with pytest.raises(ValueError, match="`act`: `state` expected what"):
        policy.act(ROWS, policy.initial_state(4), seed=0)
