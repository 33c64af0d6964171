"""Tests of `tfrl.policies.recurrent`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import train_state
from tfrl.policies import host_policy, recurrent

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
NEST = S.Dict(x=BOX, k=S.Discrete(3))
UNITS = 5


def new_policy(space=BOX, action_space=None, seed=0, **settings):
    policy = recurrent.RecurrentPolicy.create(
        space,
        S.Discrete(4) if action_space is None else action_space,
        learner=train_state.TrainState.create,
        **{"units": UNITS, "hidden_units": (8,), "seed": seed, **settings},
    )
    # The last layer starts small: greedy choices would hang on rounding.
    params = tf.nest.map_structure(lambda x: 3.0 * x + 0.1, policy.state.params)
    return policy.replace(state=policy.state.replace(params=params))


def observations_of(space, *outer, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*outer, 3)).astype(np.float32)
    return x if space is BOX else {"x": x, "k": rng.integers(0, 3, outer)}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gru(policy, x, memory):
    """One step of the memory and the outputs, from the formula."""
    params = {
        name.removeprefix("recurrent/"): np.asarray(value, np.float64)
        for name, value in policy.state.params.items()
    }
    kernel, inner = (params[f"memory/{x}kernel"] for x in ("", "recurrent_"))
    given = x @ kernel + params["memory/bias"][0]
    kept = memory @ inner + params["memory/bias"][1]
    z, r = (
        sigmoid(given[:, i : i + UNITS] + kept[:, i : i + UNITS]) for i in (0, UNITS)
    )
    candidate = np.tanh(given[:, 2 * UNITS :] + r * kept[:, 2 * UNITS :])
    memory = z * memory + (1.0 - z) * candidate
    hidden = np.tanh(
        memory @ params["outputs/hidden_0/kernel"] + params["outputs/hidden_0/bias"]
    )
    outputs = hidden @ params["outputs/output/kernel"] + params["outputs/output/bias"]
    return outputs, memory


@pytest.mark.parametrize(("kind", "n_rows"), [("numpy", 6), ("tensors", 1)])
def test_memory_and_actions_follow_the_formula(n_rows, kind):
    policy = new_policy()
    steps = observations_of(BOX, 4, n_rows)
    memory, state = np.zeros((n_rows, UNITS)), policy.initial_state(n_rows)
    np.testing.assert_array_equal(state, memory)
    for x in steps:
        given = x if kind == "numpy" else tf.constant(x)
        acted = policy.act(given, state, temperature=0.0)
        outputs, memory = gru(policy, x, memory)
        state = acted.state
        np.testing.assert_allclose(state, memory, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(acted.actions, outputs.argmax(-1))
        logits = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        np.testing.assert_allclose(acted.log_probs, logits.max(-1), atol=1e-4)
        assert isinstance(acted.actions, np.ndarray) == (kind == "numpy")
    assert np.abs(memory).max() > 0.05


def test_host_policy_acts_alike():
    space = NEST
    policy = new_policy(space, S.Box(-1.0, 1.0, (2,)), normalize_observations=True)
    seen = observations_of(space, 30, seed=1)
    policy = policy.update_moments(seen, tf.ones([30]))
    host = host_policy.HostPolicy(policy)
    assert not host.mirrored
    state, expected = host.initial_state(4), policy.initial_state(4)
    for t in range(3):
        x = observations_of(space, 4, seed=t)
        acted = host.act(x, state, temperature=0.0)
        tensors = tf.nest.map_structure(tf.constant, x)
        wanted = policy.act(tensors, expected, temperature=0.0)
        state, expected = acted.state, wanted.state
        assert all(type(x) is np.ndarray for x in (acted.actions, state))
        np.testing.assert_allclose(acted.actions, wanted.actions, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state, expected, rtol=1e-4, atol=1e-5)


def test_other_states_are_refused():
    policy, x = new_policy(), observations_of(BOX, 2)
    none = policy.act(x[:0], policy.initial_state(0), seed=0)
    assert none.actions.shape == (0,) and none.state.shape == (0, UNITS)
    for shape in ((), (1, UNITS), (2, 4), (UNITS,)):
        for given in (x, tf.constant(x)):
            with pytest.raises(ValueError, match=r"`act`: `state` expected \[2, 5\]"):
                policy.act(given, np.zeros(shape, "f") if shape else (), seed=0)
    for rows, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="`initial_state`: `batch_size` expected"):
            policy.initial_state(rows)
    for units, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="`RecurrentPolicy`: `units` expected"):
            new_policy(units=units)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_to_keras_takes_and_gives_the_memory(tmp_path):
    policy = new_policy(NEST, normalize_observations=True)
    x = observations_of(NEST, 4)
    policy = policy.update_moments(observations_of(NEST, 30, seed=1), tf.ones([30]))
    memory = np.random.default_rng(2).normal(size=(4, UNITS)).astype(np.float32)
    parameters, later = policy.outputs(x, memory)
    model = policy.to_keras("player")
    assert model.name == "player"
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        found = each((x, memory))
        np.testing.assert_allclose(found[0], parameters, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], later, rtol=1e-4, atol=1e-5)


def test_values_of_choices_are_played_epsilon_greedily():
    policy = new_policy(epsilon=0.4, dueling=True, cell="lstm")
    assert isinstance(policy, recurrent.RecurrentValuePolicy) and policy.units == 10
    x, memory = observations_of(BOX, 300), policy.initial_state(300)
    values, later = policy.outputs(x, memory)
    for acting, given in (
        (policy, tf.constant(x)),
        (host_policy.HostPolicy(policy), x),
    ):
        greedy = acting.act(given, memory, temperature=0.0)
        np.testing.assert_array_equal(greedy.actions, np.argmax(values, -1))
        np.testing.assert_allclose(greedy.state, later, atol=1e-6)
        acted = acting.act(given, memory, seed=3)
        differ = np.mean(np.asarray(acted.actions) != np.asarray(greedy.actions))
        assert 0.2 < differ < 0.4  # 0.4 * 3 / 4
        np.testing.assert_array_equal(acted.state, greedy.state)
    # The mean of advantages is taken out: what is left of it is the state's value.
    params, network = policy.state.params, policy.state
    (name,) = [key for key in params if key.endswith("outputs/output/bias")]
    moved = network((x, memory), params={**params, name: params[name] + 5.0})[0]
    np.testing.assert_allclose(moved, values, rtol=1e-4, atol=1e-4)
    (name,) = [key for key in params if key.endswith("state/output/bias")]
    moved = network((x, memory), params={**params, name: params[name] + 5.0})[0]
    np.testing.assert_allclose(moved, values + 5.0, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_file_of_keras_has_both_streams(tmp_path):
    policy = new_policy(epsilon=0.1, dueling=True)
    policy.to_keras().save(tmp_path / "network.keras")
    again = keras.models.load_model(tmp_path / "network.keras")
    x, memory = observations_of(BOX, 4), np.ones((4, UNITS), np.float32)
    for one, other in zip(again((x, memory)), policy.outputs(x, memory), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_other_actions_and_shares_are_refused():
    match = "`RecurrentPolicy`: `action_space` expected a Discrete space"
    for space in (BOX, S.MultiDiscrete([2, 2])):
        with pytest.raises(TypeError, match=match):
            new_policy(action_space=space, epsilon=0.1)
    with pytest.raises(ValueError, match="`RecurrentPolicy`: `epsilon` expected"):
        new_policy(epsilon=1.5)


@pytest.mark.parametrize("settings", [{}, {"has_values": True}, {"epsilon": 0.5}])
@pytest.mark.parametrize("cell", recurrent.CELLS)
def test_nobody_may_act(cell, settings):
    policy = new_policy(cell=cell, **settings)
    seen = np.zeros((0, 3), np.float32)
    for acts in (policy, host_policy.HostPolicy(policy)):
        acted = acts.act(seen, acts.initial_state(0), seed=0)
        assert acted.actions.shape == (0,) and acted.state.shape == (0, policy.units)
