"""Tests of `tfrl.policies.deterministic`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import train_state
from tfrl.policies import deterministic, host_policy

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))
ACTIONS = S.Box(-2.0, 3.0, (2,))


def new_policy(action_space=ACTIONS, **settings):
    network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    return deterministic.DeterministicPolicy.create(
        BOX,
        action_space,
        **{
            "network": network,
            "learner": train_state.TrainState.create,
            **settings,
        },
    )


def observations_of(n_rows):
    return np.random.default_rng(0).normal(size=(n_rows, 3)).astype(np.float32)


def to_env(raw, squash):
    raw = np.asarray(raw, np.float64)
    return 0.5 + 2.5 * np.tanh(raw) if squash else np.clip(raw, -2.0, 3.0)


def test_it_may_be_linear_in_the_observations():
    policy = new_policy(network=None, hidden_units=())
    assert policy.act(observations_of(3), temperature=0.0).actions.shape == (3, 2)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_numbers_with_both_bounds_are_squashed_whatever_the_others_have(tmp_path):
    low, high = (
        np.array([-2, -np.inf, 0, 1], "f"),
        np.array([4, np.inf, np.inf, 1], "f"),
    )
    space = S.Box(low, high)
    policy = new_policy(space, network=None, hidden_units=(4,), seed=3)
    rng = np.random.default_rng(1)
    params = {
        name: tf.constant(rng.normal(0.0, 3.0, x.shape), tf.float32)
        for name, x in policy.state.params.items()
    }
    policy = policy.replace(state=policy.state.replace(params=params))
    x = observations_of(50)
    known = {name.partition("/")[2]: np.asarray(x, "d") for name, x in params.items()}
    hidden = x @ known["hidden/hidden_0/kernel"] + known["hidden/hidden_0/bias"]
    raw = np.maximum(hidden, 0) @ known["actions/kernel"] + known["actions/bias"]
    wanted = raw.copy()
    wanted[:, 0] = 1.0 + 3.0 * np.tanh(raw[:, 0])
    wanted[:, 3] = 1.0
    np.testing.assert_allclose(policy.parameters(x), wanted, rtol=1e-4, atol=1e-4)
    for given in (x, tf.constant(x)):
        acted = policy.act(given, temperature=0.0)
        np.testing.assert_allclose(acted.raw_actions, wanted, rtol=1e-4, atol=1e-4)
        played = np.clip(wanted, low, high)
        np.testing.assert_allclose(acted.actions, played, rtol=1e-4, atol=1e-4)
    policy.to_keras().save(tmp_path / "policy.keras")
    kept = keras.models.load_model(tmp_path / "policy.keras")
    np.testing.assert_allclose(kept(x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("squash", [False, True], ids=["clipped", "squashed"])
@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_without_noise_it_is_the_network(n_rows, squash):
    policy, x = new_policy(squash=squash), observations_of(n_rows)
    raw = policy.parameters(x)
    still = policy.replace(noise=tf.constant(0.0))
    for given in (x, tf.constant(x)):
        for acted in (policy.act(given, temperature=0.0), still.act(given, seed=0)):
            np.testing.assert_allclose(acted.raw_actions, raw, rtol=1e-5, atol=1e-6)
            wanted = to_env(raw, squash)
            np.testing.assert_allclose(acted.actions, wanted, rtol=1e-4, atol=1e-5)
            assert acted.log_probs is None and acted.state == ()
    assert host_policy.HostPolicy(policy).mirrored
    assert isinstance(policy.act(x).actions, np.ndarray)
    assert policy.act(x).actions.dtype == np.float32


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("kind", ["numpy", "tensors"])
def test_noise_is_normal(kind, temperature):
    n = 20_000
    policy = new_policy(noise=0.3)
    x = np.repeat(observations_of(1), n, axis=0)
    given = x if kind == "numpy" else tf.constant(x)
    raw = np.asarray(policy.act(given, seed=1, temperature=temperature).raw_actions)
    noise = (raw - policy.parameters(x[:1]).numpy()) / (0.3 * temperature)
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=5 / np.sqrt(n))
    np.testing.assert_allclose(noise.std(0), 1.0, atol=5 / np.sqrt(n))
    assert np.all(np.abs(np.corrcoef(noise.T)[0, 1]) < 5 / np.sqrt(n))


@pytest.mark.parametrize("given", [np.zeros((1, 3), "f"), tf.zeros([1, 3])])
def test_there_is_nothing_to_mask(given):
    with pytest.raises(ValueError, match="`act`: `mask` expected None"):
        new_policy().act(given, mask=np.ones((1, 2), bool))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"noise": -1.0}, ValueError, "`DeterministicPolicy`: `noise` expected"),
        ({"noise": np.nan}, ValueError, "`DeterministicPolicy`: `noise` expected"),
        ({"noise": np.inf}, ValueError, "`DeterministicPolicy`: `noise` expected"),
        ({"action_space": S.Discrete(2)}, TypeError, "expected a Box of floats"),
        ({"action_space": S.Dict(a=ACTIONS)}, TypeError, "expected a Box of floats"),
        (
            {"network": keras.Sequential([keras.layers.Dense(4)])},
            ValueError,
            r"`network` expected .* \[B, 2\]; got .*4",
        ),
    ],
    ids=["negative", "nan", "inf", "choices", "nest", "network"],
)
def test_bad_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        new_policy(**settings)
