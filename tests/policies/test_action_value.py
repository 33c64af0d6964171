"""Tests of `tfrl.policies.action_value`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import train_state
from tfrl.policies import action_value, host_policy

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))


def new_policy(space=BOX, actions=None, start=0, **settings):
    return action_value.ActionValuePolicy.create(
        space,
        S.Discrete(4, start=start) if actions is None else actions,
        learner=train_state.TrainState.create,
        **{"hidden_units": (8,), **settings},
    )


def observations_of(n_rows, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, 3)).astype(np.float32)


def expected_shares(values, epsilon, allowed):
    """Probability of each choice, by the definition."""
    shares = epsilon * allowed / allowed.sum(-1, keepdims=True)
    best = np.where(allowed, values, -np.inf).argmax(-1)
    shares[np.arange(len(values)), best] += 1.0 - epsilon
    return shares


@pytest.mark.parametrize(("n_rows", "dueling"), [(0, False), (1, True), (6, False)])
def test_greedy_numpy_in_is_tensors_in(n_rows, dueling):
    policy, x = new_policy(dueling=dueling, start=3), observations_of(n_rows)
    assert host_policy.HostPolicy(policy).mirrored != dueling
    best = policy.parameters(x).numpy().argmax(-1)
    for given, kind in ((x, np.ndarray), (tf.constant(x), tf.Tensor)):
        acted = policy.act(given, temperature=0.0)
        assert isinstance(acted.actions, kind) and acted.actions.dtype == np.int64
        np.testing.assert_array_equal(acted.raw_actions, best)
        np.testing.assert_array_equal(acted.actions, best + 3)
        np.testing.assert_allclose(acted.log_probs, np.zeros(n_rows), atol=1e-6)
        assert acted.state == ()


@pytest.mark.parametrize(
    ("temperature", "masked"), [(1.0, False), (0.5, True), (9.0, 0)]
)
@pytest.mark.parametrize("kind", ["numpy", "tensors"])
def test_frequencies_are_those_of_the_definition(kind, temperature, masked):
    n = 20_000
    policy = new_policy(epsilon=0.4)
    x = np.repeat(observations_of(1), n, axis=0)
    allowed = np.tile([True, False, True, True] if masked else [True] * 4, (n, 1))
    given = x if kind == "numpy" else tf.constant(x)
    acted = policy.act(
        given, seed=5, temperature=temperature, mask=allowed if masked else None
    )
    wanted = expected_shares(
        policy.parameters(x[:1]).numpy(), min(1.0, 0.4 * temperature), allowed[:1]
    )[0]
    found = np.bincount(np.asarray(acted.actions), minlength=4) / n
    # Five standard deviations of a share of n draws, at most.
    np.testing.assert_allclose(found, wanted, atol=5 * 0.5 / np.sqrt(n))
    assert not masked or found[1] == 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(wanted)[np.asarray(acted.raw_actions)]
    np.testing.assert_allclose(acted.log_probs, logs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["numpy", "tensors"])
def test_the_best_that_is_allowed_is_taken(kind):
    policy, x = new_policy(), observations_of(5)
    values = policy.parameters(x).numpy()
    allowed = np.ones((5, 4), bool)
    allowed[np.arange(5), values.argmax(-1)] = False
    given = x if kind == "numpy" else tf.constant(x)
    found = policy.act(given, temperature=0.0, mask=allowed).actions
    np.testing.assert_array_equal(found, np.where(allowed, values, -9.0).argmax(-1))
    for bad in (allowed[:, :3], np.zeros((5, 4), bool)):
        with pytest.raises(ValueError, match="`mask`"):
            policy.act(given, mask=bad, seed=0)
    with pytest.raises(TypeError, match="`mask` expected bool"):
        policy.act(given, mask=allowed * 1.0, seed=0)


def test_a_normalizer_is_used():
    policy = new_policy(normalize_observations=True)
    x = 50.0 + 7.0 * observations_of(30)
    newer = policy.update_moments(x, tf.ones([30]))
    assert np.abs(newer.parameters(x) - policy.parameters(x)).max() > 0.1
    normalized = (x - x.mean(0)) / x.std(0)
    expected = policy.parameters(normalized.astype(np.float32))
    np.testing.assert_allclose(newer.parameters(x), expected, rtol=1e-3, atol=1e-3)
    for given in (x, tf.constant(x)):
        found = newer.act(given, temperature=0.0).actions
        np.testing.assert_array_equal(found, np.argmax(expected, -1))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"epsilon": 1.5}, ValueError, "`ActionValuePolicy`: `epsilon` expected"),
        ({"hidden_units": (0,)}, ValueError, "`hidden_units` expected"),
        ({"space": S.Text(3)}, TypeError, "`observation_space` expected"),
        ({"actions": BOX}, TypeError, "`action_space` expected a Discrete space"),
        ({"actions": S.MultiBinary(2)}, TypeError, "`action_space` expected a Disc"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        new_policy(**settings)
