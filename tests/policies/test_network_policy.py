"""Tests of `tfrl.policies.network_policy`; more are in those of its subclasses."""

import copy
import pickle

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import NEST, batch_of, new_policy

from tfrl import policies
from tfrl.agents.off_policy import dqn
from tfrl.agents.on_policy import ppo
from tfrl.exporting import export
from tfrl.policies import host_policy

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (4,))


def make_policy(kind="choice", **settings):
    if kind == "values":
        return dqn.DQN(hidden_units=(8,), **settings).create(BOX, S.Discrete(3)).policy
    space = {"choice": S.Discrete(3), "box": S.Box(-1.0, 1.0, (2,))}[kind]
    return ppo.PPO(hidden_units=(8,), **settings).create(BOX, space).policy


def observations_of(n_rows, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", ["choice", "box", "values"])
def test_numpy_draws_repeat_by_their_seed(kind):
    policy, x = make_policy(kind), observations_of(200)

    def drawn(seed):
        return policy.act(x, seed=seed).actions

    for seed in (3, -3, 2**40, np.int64(5), np.array([1, -2], np.int32)):
        np.testing.assert_array_equal(drawn(seed), drawn(seed))
    np.testing.assert_array_equal(drawn(7), drawn(tf.constant([7, 0])))
    assert np.any(drawn(3) != drawn(-3)) and np.any(drawn(3) != drawn(3 + 2**40))
    one, other = (drawn(np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert np.any(drawn(None) != drawn(None))
    rng = np.random.default_rng(9)
    assert np.any(drawn(rng) != drawn(rng))
    keras.utils.set_random_seed(4)
    found = [drawn(None) for _ in range(2)]
    keras.utils.set_random_seed(4)
    np.testing.assert_array_equal(found, [drawn(None) for _ in range(2)])


@pytest.mark.parametrize("make", [np.zeros, tf.zeros], ids=["numpy", "tensors"])
def test_seeds_are_whole_numbers(make):
    for seed in (1.5, "a", True):
        with pytest.raises(TypeError, match="`seed` expected"):
            make_policy().act(make((1, 4), "float32"), seed=seed)


def test_a_temperature_is_one_number():
    for temperature in (np.ones(2), "hot", -1.0):
        with pytest.raises((TypeError, ValueError), match="`temperature` expected"):
            make_policy().act(np.zeros((1, 4), "f"), temperature=temperature)
    host = host_policy.HostPolicy(make_policy())
    for temperature in (np.ones(2), "hot", None):
        with pytest.raises(TypeError, match="`temperature` expected"):
            host.act(np.zeros((1, 4), "f"), temperature=temperature)


def test_log_probs_are_those_of_the_distribution():
    policy, x = make_policy("box", log_std=-0.3), observations_of(6)
    for temperature in (1.0, 0.5):
        acted = policy.act(x, seed=1, temperature=temperature)
        loc, _ = np.split(policy.parameters(x).numpy(), 2, -1)
        deviation = np.exp(-0.3) * temperature
        z = (acted.raw_actions - loc) / deviation
        wanted = (-0.5 * z**2 - np.log(deviation * np.sqrt(2 * np.pi))).sum(-1)
        np.testing.assert_allclose(acted.log_probs, wanted, rtol=1e-4, atol=1e-4)
        shaped = policy.distributed(policy.parameters(x), temperature, None)
        tensors = policy.head.log_prob(shaped, acted.raw_actions)
        np.testing.assert_allclose(acted.log_probs, tensors, rtol=1e-4, atol=1e-4)


def test_a_newer_policy_acts_by_its_own_weights_without_another_trace(monkeypatch):
    agent = dqn.DQN(dueling=True, hidden_units=(8,)).create(BOX, S.Discrete(3))
    policy, x = agent.policy, observations_of(50)
    first = policy.act(x, temperature=0.0).actions
    traced = []
    original = host_policy.HostPolicy._concrete
    monkeypatch.setattr(
        host_policy.HostPolicy,
        "_concrete",
        lambda *args: traced.append(1) or original(*args),
    )
    params = tf.nest.map_structure(lambda value: -value, policy.state.params)
    lent = policy.lent()
    newer = lent.replace(state=lent.state.replace(params=params)).returned(policy)
    found = newer.act(x, temperature=0.0).actions
    np.testing.assert_array_equal(found, np.argmax(newer.parameters(x), -1))
    assert not traced and np.any(found != first)
    np.testing.assert_array_equal(policy.act(x, temperature=0.0).actions, first)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_policy_that_acted_is_copied_and_pickled():
    policy, x = make_policy("values"), observations_of(5)
    expected = policy.act(x, temperature=0.0).actions
    pickled = pickle.loads(pickle.dumps(policy))
    for other in (copy.copy(policy), copy.deepcopy(policy), pickled):
        np.testing.assert_array_equal(other.act(x, temperature=0.0).actions, expected)


@pytest.mark.parametrize("kind", ["choice", "box", "values"])
def test_acting_on_numpy_asks_nothing_of_tensorflow(kind, monkeypatch):
    policy, x = make_policy(kind), observations_of(1)
    policy.act(x)
    for name in ("constant", "convert_to_tensor", "function"):
        monkeypatch.setattr(tf, name, None)
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature, "seed": np.random.default_rng(0)}
        assert isinstance(policy.act(x, **options).actions, np.ndarray)


@pytest.mark.parametrize("kind", ["ActorCriticPolicy", "ActionValuePolicy"])
def test_a_learner_is_a_function(kind):
    for learner in (None, 3, "TrainState"):
        with pytest.raises(TypeError, match=f"`{kind}.create`: `learner` expected a"):
            getattr(policies, kind).create(BOX, S.Discrete(3), learner=learner)


SPACES = {
    "box": BOX,
    "multi discrete": S.MultiDiscrete([3, 2]),
    "image": S.Box(0, 255, (36, 36, 1), np.uint8),
    "nest": NEST,
}


def trained_policy(space, normalize=True):
    """A policy of weights and moments that are not the initial ones."""
    actions = S.Box(-1.0, 1.0, (2,))
    policy = new_policy(space, actions, normalize_observations=normalize)
    grads = tf.nest.map_structure(tf.ones_like, policy.state.params)
    policy = policy.replace(state=policy.state.apply_gradients(grads=grads))
    if not normalize:
        return policy
    return policy.update_moments(batch_of(space, 20), tf.ones([20]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("box", marks=pytest.mark.slow),
        pytest.param("multi discrete", marks=pytest.mark.slow),
        pytest.param("image", marks=pytest.mark.slow),
        "nest",
    ],
)
def test_a_model_is_its_policy_saved_and_exported(tmp_path, kind):
    policy, observations = trained_policy(SPACES[kind]), batch_of(SPACES[kind], 5)
    model = policy.to_keras()
    parameters, values = policy.parameters(observations), policy.values(observations)
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        found = each(observations)
        np.testing.assert_allclose(found[0], parameters, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], values, rtol=1e-4, atol=1e-5)
    export.export_model(model, tmp_path / "served")
    assert export.verify(tmp_path / "served") == {"serving_default": 0.0}
    np.testing.assert_allclose(
        model.predict(observations, verbose=0)[0], parameters, rtol=1e-4, atol=1e-5
    )


def test_a_model_is_apart_from_its_policy():
    policy, x = trained_policy(BOX), batch_of(BOX, 5)
    before = policy.parameters(x)
    model, other = policy.to_keras(), policy.to_keras("other")
    model.compile(keras.optimizers.SGD(0.1), loss=["mse", "mse"])
    model.train_on_batch(x, [np.zeros((5, 4)), np.zeros(5)])
    assert np.abs(model(x)[0] - before).max() > 1e-4 and other.name == "other"
    np.testing.assert_array_equal(policy.parameters(x), before)
    np.testing.assert_allclose(other(x)[0], before, rtol=1e-5, atol=1e-6)
    moments = policy.observation_moments[0]
    weights = {weight.name: weight for weight in model.non_trainable_weights}
    np.testing.assert_array_equal(weights["mean"], moments.mean)
    np.testing.assert_array_equal(weights["count"], moments.count)
    plain = trained_policy(BOX, normalize=False)
    model = plain.to_keras()
    assert not model.non_trainable_weights
    np.testing.assert_allclose(model(x)[0], plain.parameters(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="`to_keras`: `name` expected a str or None"):
        policy.to_keras(3)
