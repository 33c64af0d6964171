"""Policies to be exported, and observations for them."""

import types

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.agents import gradient_transforms, train_state
from tfrl.exporting import export
from tfrl.policies import actor_critic

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
NAMED = S.Dict(
    x=S.Box(-np.inf, np.inf, (2,)), kind=S.Discrete(3), bits=S.MultiBinary(2)
)


def batch_of(space, n_rows, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(space, S.Dict):
        return {name: batch_of(space[name], n_rows, seed) for name in space}
    if isinstance(space, S.Box):
        return rng.normal(3.0, 2.0, (n_rows, *space.shape)).astype(space.dtype)
    if isinstance(space, S.Tuple):
        return tuple(batch_of(part, n_rows, seed) for part in space)
    high = space.n if isinstance(space, S.Discrete) else 2
    return rng.integers(0, high, (n_rows, *space.shape)).astype(space.dtype)


def trained(observation_space, action_space, **kwargs):
    """An agent whose weights and moments are no longer the initial ones."""
    policy = actor_critic.ActorCriticPolicy.create(
        observation_space,
        action_space,
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(1.0)
        ),
        hidden_units=(8,),
        normalize_observations=True,
        **kwargs,
    )
    policy = policy.update_moments(batch_of(observation_space, 20), tf.ones([20]))
    rng = np.random.default_rng(0)
    grads = tf.nest.map_structure(
        lambda x: tf.constant(0.3 * rng.standard_normal(x.shape), x.dtype),
        policy.state.params,
    )
    policy = policy.replace(state=policy.state.apply_gradients(grads=grads))

    def sample_actions(observations, **options):
        return policy.act(observations, **options).actions

    return types.SimpleNamespace(policy=policy, sample_actions=sample_actions)


def named(observations):
    nested = isinstance(observations, dict)
    given = observations if nested else {"observations": observations}
    return {name: tf.constant(value) for name, value in given.items()}


def steered():
    """A policy of named observations and squashed actions, its agent's spaces first."""
    actions = S.Box(-2.0, 1.0, (2,))
    return NAMED, actions, trained(NAMED, actions, squash=True)


def export_steered(path):
    space, actions, agent = steered()
    export.export_policy(agent, path, space, actions)
