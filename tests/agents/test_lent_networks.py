"""Tests of networks that states lend to compiled functions, and take back."""

import gc
import weakref

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import bc, policy_gradient, ppo, train_state
from tfrl.core import records

BOX = gym.spaces.Box(-1.0, 1.0, (3,))


def make_state(seed=0, **settings):
    config = ppo.PPO(**{"hidden_units": (5,), "minibatch_size": 2, **settings})
    return config.create(
        BOX, gym.spaces.Discrete(2), n_envs=1, n_steps=2, seed=seed
    ).policy.state


def test_a_shared_network_has_nobodys_weights():
    first, second = make_state(0), make_state(1)
    shared = first.lent()
    assert shared.model_def is second.lent().model_def
    assert shared.model_def not in (first.model_def, second.model_def)
    assert shared.params is first.params and shared.apply_fn.names
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(shared(x)[0], first(x)[0], rtol=1e-6)
    back = shared.returned(first)
    assert back.model_def is first.model_def and back.apply_fn == first.apply_fn


def test_who_shares():
    shared = make_state().lent().model_def
    for other in ({"hidden_units": (6,)}, {"activation": "relu"}):
        assert make_state(**other).lent().model_def is not shared
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert make_state().lent().model_def is not shared
    state = make_state()

    @tf.function
    def inside():
        assert state.lent() is state
        return tf.constant(0)

    inside()
    function = train_state.TrainState.create(tf.multiply, tf.constant(1.0))
    assert function.lent() is function


@pytest.mark.parametrize("kind", ["ppo", "policy_gradient", "bc"])
def test_a_learned_agent_keeps_its_own_network(kind):
    flags = np.zeros((2, 1), bool)
    trajectory = records.Trajectory(
        np.ones((2, 1, 3), np.float32),
        np.zeros((2, 1), np.int32),
        np.ones((2, 1), np.float32),
        flags,
        flags,
        np.ones((2, 1, 3), np.float32),
        ~flags,
    )
    agents, networks = [], []
    for seed in range(2):
        space = gym.spaces.Discrete(2)
        if kind == "bc":
            agent = bc.BC(hidden_units=(5,)).create(BOX, space, seed=seed)
            batch = {"observations": trajectory.observations[:, 0]}
            batch["actions"] = trajectory.actions[:, 0]
        else:
            config = {
                "ppo": ppo.PPO(hidden_units=(5,), minibatch_size=2, n_epochs=1),
                "policy_gradient": policy_gradient.PolicyGradient(hidden_units=(5,)),
            }[kind]
            batch = trajectory
            agent = config.create(BOX, space, seed=seed)
        networks.append(agent.policy.state.model_def)
        agents.append(agent.update(batch)[0])
    assert [agent.policy.state.model_def for agent in agents] == networks
    for agent in agents:
        model = agent.policy.to_keras()
        x = np.full((2, 3), 0.3, np.float32)
        np.testing.assert_allclose(model(x)[0], agent.policy.parameters(x), rtol=1e-5)
    # An untrained network is its own agent's, not that of who came first.
    assert np.abs(networks[0](x)[0] - networks[1](x)[0]).max() > 1e-4


def test_networks_go_with_the_last_who_uses_them():
    state = make_state(hidden_units=(11,))
    shared = state.lent()
    network = weakref.ref(shared.model_def)
    assert network() is not None
    del state, shared
    gc.collect()
    assert network() is None
