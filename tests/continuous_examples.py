"""Transitions of continuous control, and agents whose copies are other networks."""

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import transitions

S = gym.spaces
BOX, ACTIONS = S.Box(-np.inf, np.inf, (3,)), S.Box(-2.0, np.float32([2.0, 4.0]), (2,))
LOW, HIGH = np.array([-2.0, -2.0]), np.array([2.0, 4.0])


def sample_of(*outer, seed=0, actions=None):
    rng = np.random.default_rng(seed)
    ended = rng.random(outer) < 0.3
    if actions is None:
        actions = rng.uniform(LOW, HIGH, (*outer, 2)).astype(np.float32)
    data = records.Transition(
        observations=rng.normal(size=(*outer, 3)).astype(np.float32),
        actions=actions,
        rewards=rng.normal(0.0, 2.0, outer).astype(np.float32),
        discounts=np.where(ended, 0.0, 0.97).astype(np.float32),
        next_observations=rng.normal(size=(*outer, 3)).astype(np.float32),
    )
    weights = rng.uniform(0.2, 1.0, outer).astype(np.float32)
    return transitions.Sample(data, np.zeros(outer, np.int64), weights, weights)


def row_of(sample, k):
    """Transitions and weights of one minibatch, in float64."""
    data, weights = tf.nest.map_structure(
        lambda x: np.asarray(x[k], np.float64), (sample.data, sample.weights)
    )
    return data, weights


def scaled(actions):
    """Actions in half ranges of their bounds."""
    return np.clip((actions - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2), -1.0, 1.0)


def shaken(params, seed=9):
    """Other parameters: fresh ones of last layers hardly differ from 0."""
    rng = np.random.default_rng(seed)
    return {
        name: tf.constant(rng.normal(0.0, 0.4, value.shape), value.dtype)
        for name, value in params.items()
    }
