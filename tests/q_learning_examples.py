"""Small agents of action values, what they learn from, and a check of one update."""

import dataclasses

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import transitions

BOX, N_ACTIONS, B = gym.spaces.Box(-np.inf, np.inf, (3,)), 4, 6
ATOMS = np.linspace(-2.0, 2.0, 5)


def agent_of(config, space=BOX, seed=0):
    """An agent whose copy is another network, so that targets tell them apart."""
    actions = gym.spaces.Discrete(N_ACTIONS)
    if callable(config.epsilon):  # a schedule, and nobody tells how far it is
        config = dataclasses.replace(config, epsilon=0.1)
    other = config.create(space, actions, seed=seed + 50)
    agent = config.create(space, actions, seed=seed)
    return agent.replace(target_params=other.target_params)


def rows_of(seed=0):
    rng = np.random.default_rng(seed)
    return records.Transition(
        observations=rng.normal(size=(B, 3)).astype(np.float32),
        actions=rng.integers(0, N_ACTIONS, B),
        rewards=rng.normal(0.0, 1.0, B).astype(np.float32),
        discounts=np.where(rng.random(B) < 0.3, 0.0, 0.97).astype(np.float32),
        next_observations=rng.normal(size=(B, 3)).astype(np.float32),
    )


def check_update(agent, rows, losses, errors, loss_of, target):
    """Checks one update against losses, errors and slopes written out in NumPy.

    Args:
        agent: with another copy than its network.
        rows: transitions.
        losses: `[B]`.
        errors: `[B]`.
        loss_of: from parameters to losses.
        target: the copy's parameters, due only every second step.
    """
    config, state = agent.config, agent.policy.state
    weights = np.linspace(0.2, 1.0, B, dtype=np.float32)
    sample = transitions.Sample(rows, np.zeros(B, np.int64), weights, weights)
    learned, info = agent.update(sample)
    np.testing.assert_allclose(float(info["loss"]), (weights * losses).mean(), 1e-4)
    np.testing.assert_allclose(info["priorities"], np.abs(errors), rtol=2e-3, atol=1e-5)
    # The first step of Adam is the sign of the gradient: compare with differences.
    moved, n_compared = learned.policy.state.params, 0
    rng = np.random.default_rng(0)
    for name, value in state.params.items():
        value = np.asarray(value, np.float64)
        place = tuple(rng.integers(0, n) for n in value.shape)
        slopes = []
        for step in (1e-2, -1e-2):
            other = value.copy()
            other[place] += step
            changed = {**state.params, name: tf.constant(other, tf.float32)}
            slopes.append((weights * loss_of(changed)).mean() / step)
        slope = sum(slopes) / 2
        if abs(slope) > 1e-3:
            n_compared += 1
            step = np.asarray(moved[name])[place] - value[place]
            assert abs(step + config.learning_rate * np.sign(slope)) < 1e-5, name
    assert n_compared >= 2
    assert int(learned.policy.state.step) == 2
    once = learned.target_params
    again, _ = learned.update(sample)
    for name, value in target.items():
        np.testing.assert_array_equal(once[name], value)
        copied = again.policy.state.params[name]
        np.testing.assert_allclose(again.target_params[name], copied, atol=1e-6)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def projected(rewards, discounts, probs):
    """Algorithm 1 of the paper, atom by atom."""
    gap, found = ATOMS[1] - ATOMS[0], np.zeros_like(probs)
    for row in range(len(rewards)):
        for j, atom in enumerate(ATOMS):
            moved = np.clip(rewards[row] + discounts[row] * atom, ATOMS[0], ATOMS[-1])
            place = (moved - ATOMS[0]) / gap
            low = min(int(place), len(ATOMS) - 2)
            found[row, low] += probs[row, j] * (low + 1 - place)
            found[row, low + 1] += probs[row, j] * (place - low)
    return found
