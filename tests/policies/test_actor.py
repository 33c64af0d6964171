"""Tests of `tfrl.policies.actor`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import train_state
from tfrl.policies import actor, host_policy

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))
STEER = S.Box(np.array([-2.0, 0.0], "f"), np.array([2.0, 1.0], "f"))
MIXED = S.Dict(press=S.Discrete(2), steer=STEER)
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def make_policy(actions=STEER, **settings):
    given = {"learner": train_state.TrainState.create, "hidden_units": (8,)}
    return actor.ActorPolicy.create(BOX, actions, **{**given, **settings})


@pytest.mark.parametrize("actions", [STEER, MIXED, S.Discrete(3)], ids=str)
def test_its_numpy_twin_plays_what_it_plays(actions):
    policy = make_policy(actions)
    host = host_policy.HostPolicy(policy)
    assert host.mirrored
    host.push(policy, probe=X)
    acted = policy.act(tf.constant(X), temperature=0.0).actions
    found = host.act(X, temperature=0.0).actions
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), acted, found
    )
    played = tf.nest.map_structure(np.asarray, policy.act(X, seed=1).actions)
    rows = range(len(X))
    for i in rows:
        one = tf.nest.map_structure(lambda x: x[i], played)  # noqa: B023
        assert actions.contains(one)


@pytest.mark.parametrize("actions", [STEER, MIXED], ids=["box", "mixed"])
def test_deviations_depend_on_observations_within_bounds(actions):
    policy = make_policy(actions)
    head, parameters = policy.head, np.full((1, policy.head.n_outputs), 50.0, "f")
    n = head.n_outputs - head.n_log_stds
    for sign, bound in ((1.0, 2.0), (-1.0, -20.0)):
        found = policy.distributed(tf.constant(sign * parameters))
        host = policy.host_distributed(sign * parameters, 1.0, None)
        np.testing.assert_array_equal(found, host)
        np.testing.assert_array_equal(host[:, n:], np.full((1, 2), bound))
        np.testing.assert_array_equal(host[:, :n], sign * parameters[:, :n])
    assert np.ptp(policy.parameters(X)[:, n:], axis=0).min() > 0.0


def test_a_network_of_ones_own_may_leave_deviations_out():
    inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    policy = make_policy(network=inner)
    np.testing.assert_array_equal(policy.parameters(X)[:, 2:], np.zeros((4, 2)))
    with pytest.raises(ValueError, match="`network` expected to map observations"):
        make_policy(
            network=keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
        )


def test_boxes_without_bounds_are_not_squashed():
    free = S.Box(-np.inf, np.inf, (2,))
    assert not make_policy(free).head.squash and make_policy().head.squash
    with pytest.raises(ValueError, match="`squash` expected a Box with finite bounds"):
        make_policy(free, squash=True)
