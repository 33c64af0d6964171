"""Tests of `tfrl.agents.off_policy.rainbow` against the algorithm written out."""

import dataclasses

import keras
import numpy as np
import pytest
import q_learning_examples
import tensorflow as tf
from q_learning_examples import ATOMS, projected, softmax

from tfrl._internal import draws
from tfrl.agents import _minibatches
from tfrl.agents.off_policy import rainbow
from tfrl.policies import host_policy

CONFIG = rainbow.Rainbow(
    hidden_units=(8,),
    n_atoms=5,
    v_min=-2.0,
    v_max=2.0,
    target_period=2,
    adam_epsilon=1e-8,
)


def logits(params, x, noise):
    """Logits `[B, n_actions, n_atoms]` of noisy layers, weights written out."""
    value = {name.split("/", 1)[1]: np.asarray(v, "d") for name, v in params.items()}
    noise = np.sign(noise) * np.sqrt(np.abs(np.asarray(noise, "d")))

    def dense(name, x):
        nonlocal noise
        kernel, bias = value[f"{name}/kernel"], value[f"{name}/bias"]
        n, m = kernel.shape
        before, after, noise = noise[:n], noise[n : n + m], noise[n + m :]
        kernel = kernel + value[f"{name}/kernel_noise"] * np.outer(before, after)
        return x @ kernel + bias + value[f"{name}/bias_noise"] * after

    x = np.asarray(x, "d")
    atoms = dense("values/output", np.maximum(dense("values/hidden_0", x), 0.0))
    atoms = atoms.reshape(len(x), -1, 5)
    common = dense("state/output", np.maximum(dense("state/hidden_0", x), 0.0))
    assert not noise.size
    return common[:, None] + atoms - atoms.mean(1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_algorithm_written_out(double):
    agent = q_learning_examples.agent_of(dataclasses.replace(CONFIG, double=double))
    rows = q_learning_examples.rows_of()
    state, target = agent.policy.state, agent.target_params
    each, seed = np.arange(6), _minibatches.step_seed(agent.rng, state.step)
    n_noise = agent.policy.n_noise
    assert n_noise == (3 + 8 + 8 + 20) + (3 + 8 + 8 + 5)
    now, choosing, then = draws.normal([3, n_noise], seed, tf.float32).numpy()
    later = rows.next_observations
    choosing_params = state.params if double else target
    chooser = softmax(logits(choosing_params, later, choosing))
    best = (chooser * ATOMS).sum(-1).argmax(-1)
    following = softmax(logits(target, later, then))[each, best]
    targets = projected(rows.rewards, rows.discounts, following)

    def losses(params):
        found = logits(params, rows.observations, now)[each, rows.actions]
        return -(targets * np.log(softmax(found))).sum(-1)

    entropies = -np.where(targets > 0, targets * np.log(targets + 1e-300), 0).sum(-1)
    expected = losses(state.params)
    q_learning_examples.check_update(
        agent, rows, expected, expected - entropies, losses, target
    )


@pytest.mark.parametrize("kind", [np.asarray, tf.constant], ids=["NumPy", "tensors"])
def test_it_explores_by_noise_alone(kind):
    policy = q_learning_examples.agent_of(CONFIG).policy
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    given, acted = kind(x), []
    for seed in (1, 1, 2, 3):
        found = policy.act(given, seed=seed)
        assert found.log_probs is None
        acted.append(np.asarray(found.actions).tobytes())
    assert acted[0] == acted[1] and len(set(acted)) == 3
    quiet = softmax(logits(policy.state.params, x, np.zeros(policy.n_noise))) @ ATOMS
    for _ in range(2):
        found = policy.act(given, temperature=0.0).actions
        np.testing.assert_array_equal(found, quiet.argmax(-1))


@pytest.mark.slow
def test_the_twin_and_the_policy_have_the_same_noise():
    policy = q_learning_examples.agent_of(CONFIG).policy
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    noise = policy.drawn_noise(tf.constant([3, 4]))
    expected = softmax(logits(policy.state.params, x, noise)) @ ATOMS
    found, _ = policy.outputs(x, (), noise)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    host = host_policy.HostPolicy(policy)
    chance = np.random.default_rng(5)
    drawn = np.random.default_rng(5).standard_normal(policy.n_noise, np.float32)
    expected = softmax(logits(policy.state.params, x, drawn)) @ ATOMS
    found = host.act(x, seed=chance).actions
    np.testing.assert_array_equal(found, expected.argmax(-1))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_file_of_keras_says_what_the_policy_says(tmp_path):
    policy = q_learning_examples.agent_of(CONFIG).policy
    policy.to_keras().save(tmp_path / "network.keras")
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    again = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_allclose(again(x), policy.parameters(x), rtol=1e-5, atol=1e-6)
    kept = {w.path: w for w in again.weights}
    for name, value in policy.state.params.items():
        np.testing.assert_array_equal(kept[name], value)
