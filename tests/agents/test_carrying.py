"""What loops carry of agents is less, and nothing is lost."""

from typing import Any, NamedTuple

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import two_replicas

from tfrl.agents import carrying, gradient_transforms, train_state
from tfrl.agents.off_policy import dqn, sac
from tfrl.agents.on_policy import ppo


class Counts(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("config", [ppo.PPO(minibatch_size=4), sac.SAC(), dqn.DQN()])
def test_loops_carry_small_networks_in_vectors_and_give_them_back(config):
    space = gym.spaces.Box(-1.0, 1.0, (2,))
    discrete = gym.spaces.Discrete(3)
    actions = space if isinstance(config, sac.SAC) else discrete
    agent = config.create(gym.spaces.Box(-1.0, 1.0, (3,)), actions, seed=1)
    packed = carrying.packed(agent)
    assert len(tf.nest.flatten(packed)) < len(tf.nest.flatten(agent)) / 2
    again = carrying.packed(packed)  # nothing is left to be packed
    tf.nest.assert_same_structure(packed, again)
    unpacked = carrying.unpacked(packed)
    tf.nest.assert_same_structure(agent, unpacked)
    for mine, back in zip(*map(tf.nest.flatten, (agent, unpacked)), strict=True):
        np.testing.assert_array_equal(mine, back)


def test_agents_are_lent_networks_by_their_kind_and_take_their_own_again():
    space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(3)
    agents = [dqn.DQN().create(space, actions, seed=seed) for seed in (1, 2)]
    lent = [carrying.lent(agent) for agent in agents]
    assert lent[0].policy.state.model_def is lent[1].policy.state.model_def
    tf.nest.assert_same_structure(*lent)
    assert agents[0].policy.state.model_def is not agents[1].policy.state.model_def
    for agent, its in zip(agents, lent, strict=True):
        again = carrying.returned(its, agent)
        assert again.policy.state.model_def is agent.policy.state.model_def
        for mine, back in zip(*map(tf.nest.flatten, (agent, again)), strict=True):
            assert mine is back


def test_what_is_large_or_on_replicas_is_carried_as_it_is():
    large = train_state.TrainState.create(
        lambda params: params[0],
        [tf.zeros([600, 600]), tf.zeros([2])],
        gradient_transforms.adam(0.1),
    )
    nest = {"a": [large], "b": (Counts(tf.constant(1), None),)}
    small = large.replace(params=[tf.zeros([2]), tf.zeros([3])])
    small = small.replace(opt_state=small.tx.init(small.params))
    with two_replicas().scope():
        carried = carrying.packed({"a": small})
    for before, after in [(nest, carrying.packed(nest)), ({"a": small}, carried)]:
        tf.nest.assert_same_structure(before, after)
        for mine, same in zip(*map(tf.nest.flatten, (before, after)), strict=True):
            assert mine is same


def test_optimizers_go_along_to_the_other_networks_names():
    space, actions = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(3)

    def network(*_):
        return keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])

    one, other = (dqn.DQN().create(space, actions, network=network) for _ in range(2))
    moved = carrying.named_like(other, one)
    tf.nest.assert_same_structure(moved, one)
    assert moved.policy.state.model_def is one.policy.state.model_def
    rows = np.ones([2, 3], np.float32)
    np.testing.assert_array_equal(moved.policy.state(rows), other.policy.state(rows))
    targets = [[*x.target_params.values()] for x in (moved, other)]
    np.testing.assert_array_equal(targets[0][0], targets[1][0])
    shapes = [
        [x.shape for x in tf.nest.flatten(y.opt_state)]
        for y in (moved.policy.state, other.policy.state)
    ]
    assert shapes[0] == shapes[1]
