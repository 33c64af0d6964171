"""Tests of `tfrl.policies.network_policy`; more are in those of its subclasses."""

import copy
import pickle

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, policies
from tfrl.agents import dqn, ppo
from tfrl.core import records
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


def test_draws_without_a_seed_follow_the_global_one():
    policy, x = make_policy("box"), observations_of(5)
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(4)
        found.append([policy.act(x).actions for _ in range(2)])
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0][0] != found[0][1])


@pytest.mark.parametrize("seed", [1.5, "a", True], ids=repr)
@pytest.mark.parametrize("make", [np.zeros, tf.zeros], ids=["numpy", "tensors"])
def test_seeds_are_whole_numbers(seed, make):
    with pytest.raises(TypeError, match="`seed` expected"):
        make_policy().act(make((1, 4), "float32"), seed=seed)


def test_log_probs_are_those_of_the_distribution():
    policy, x = make_policy("box", log_std=-0.3), observations_of(6)
    for temperature in (1.0, 0.5):
        acted = policy.act(x, seed=1, temperature=temperature)
        loc, _ = np.split(policy.parameters(x).numpy(), 2, -1)
        deviation = np.exp(-0.3) * temperature
        z = (acted.raw_actions - loc) / deviation
        wanted = (-0.5 * z**2 - np.log(deviation * np.sqrt(2 * np.pi))).sum(-1)
        np.testing.assert_allclose(acted.log_probs, wanted, rtol=1e-4, atol=1e-4)
        tensors = policy.head.log_prob(
            policy.distributed(policy.parameters(x), temperature, None),
            acted.raw_actions,
        )
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
    best = np.argmax(newer.parameters(x), -1)
    np.testing.assert_array_equal(found, best)
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
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_acting_on_numpy_asks_nothing_of_tensorflow(kind, temperature, monkeypatch):
    policy, x = make_policy(kind), observations_of(1)
    options = {"temperature": temperature, "seed": np.random.default_rng(0)}
    policy.act(x, **options)
    for name in ("constant", "convert_to_tensor", "function"):
        monkeypatch.setattr(tf, name, None)
    assert isinstance(policy.act(x, **options).actions, np.ndarray)


@pytest.mark.parametrize("learner", [None, 3, "TrainState"])
@pytest.mark.parametrize("kind", ["ActorCriticPolicy", "ActionValuePolicy"])
def test_a_learner_is_a_function(kind, learner):
    with pytest.raises(TypeError, match=f"`{kind}.create`: `learner` expected a func"):
        getattr(policies, kind).create(BOX, S.Discrete(3), learner=learner)


def test_an_agent_without_an_optimizer_says_so():
    agent = ppo.PPO(hidden_units=(8,), minibatch_size=2).create(BOX, S.Discrete(3))
    state = agents.TrainState.create(agent.policy.state.model_def)
    agent = agent.replace(policy=agent.policy.replace(state=state))
    flags = np.zeros((2, 1), bool)
    x, rewards = observations_of(2)[:, None], np.ones((2, 1), np.float32)
    actions = np.zeros((2, 1), np.int32)
    trajectory = records.Trajectory(x, actions, rewards, flags, flags, x, ~flags)
    with pytest.raises(ValueError, match="`tx` expected an optimizer"):
        agent.update(trajectory)
