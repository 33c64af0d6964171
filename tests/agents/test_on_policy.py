"""Tests of `tfrl.agents._on_policy`; updates as a whole are in `test_ppo`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _on_policy, ppo
from tfrl.core import records

T, N = 4, 2


def prepared(**settings):
    config = ppo.PPO(**{"minibatch_size": 4, "n_epochs": 2, **settings})
    agent = config.create(
        gym.spaces.Box(-1.0, 1.0, (3,)),
        gym.spaces.Discrete(2),
        n_envs=N,
        n_steps=T,
        seed=0,
    )
    rng, flags = np.random.default_rng(0), np.zeros((T, N), bool)
    shown = rng.normal(size=(T, N, 3)).astype(np.float32)
    trajectory = records.Trajectory(
        shown,
        rng.integers(0, 2, (T, N)).astype(np.int32),
        rng.normal(size=(T, N)).astype(np.float32),
        flags,
        flags,
        shown,
        ~flags,
    )
    trajectory = tf.nest.map_structure(tf.constant, trajectory)
    hyper = {"learning_rate": tf.constant(3e-4), "clip": tf.constant(0.2)}
    return agent, trajectory, *_on_policy.prepare(agent, trajectory, hyper)


def test_every_epoch_shows_every_row_once():
    agent, _, plan, progress = prepared()
    assert _on_policy.n_gradient_steps(agent.config, T * N) == 4
    order = plan.order.numpy()
    assert order.shape == (4, 4)
    for epoch in order.reshape(2, 8):
        assert sorted(epoch) == list(range(8))
    assert not np.array_equal(*order.reshape(2, 8))
    assert int(progress.step) == 0 and not bool(progress.stop)
    assert prepared(minibatch_size=8)[2].order == ()


def test_advance_goes_on_where_it_was():
    agent, _, plan, start = prepared()
    halfway = _on_policy.advance(agent, plan, start, 1)
    assert int(halfway.step) == 1 and int(halfway.state.step) == 2
    end = _on_policy.advance(agent, plan, halfway, 4)
    whole = _on_policy.advance(agent, plan, start, 4)
    assert int(end.step) == int(whole.step) == 4
    for one, other in zip(tf.nest.flatten(end), tf.nest.flatten(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(_on_policy.advance(agent, plan, end, 4).state.step) == 5


def test_who_moved_too_far_stops():
    agent, _, plan, start = prepared(target_kl=1e-9, learning_rate=0.1)
    end = _on_policy.advance(agent, plan, start, 4)
    assert bool(end.stop) and int(end.step) < 4
    assert int(_on_policy.advance(agent, plan, end, 4).step) == int(end.step)


def test_finish_reports_means():
    agent, trajectory, plan, start = prepared()
    end = _on_policy.advance(agent, plan, start, 3)
    learned, info = _on_policy.finish(agent, trajectory, plan, end)
    assert float(info["gradient_steps"]) == 3
    assert float(info["loss"]) == pytest.approx(float(end.sums["loss"]) / 3)
    assert float(info["learning_rate"]) == pytest.approx(3e-4)
    assert int(learned.n_updates_done) == 1
