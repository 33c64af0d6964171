"""Tests of `tfrl.agents._outputs`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _outputs, gradient_transforms, train_state
from tfrl.core import records
from tfrl.policies import actor_critic

S = gym.spaces
T, N = 5, 3


def make_policy(space):
    return actor_critic.ActorCriticPolicy.create(
        space,
        S.Discrete(2),
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        normalize_observations=True,
    )


def make_trajectory(ends):
    rng = np.random.default_rng(0)
    shown = {
        "x": rng.normal(size=(T + 1, N, 2)).astype(np.float32),
        "k": rng.integers(0, 3, (T + 1, N)),
    }
    following = {key: leaf[1:].copy() for key, leaf in shown.items()}
    for t, n in ends:
        following["x"][t, n] += 1.0
    flags = np.zeros((T, N), bool)
    return records.Trajectory(
        {key: leaf[:-1] for key, leaf in shown.items()},
        np.zeros((T, N), np.int32),
        np.zeros((T, N), np.float32),
        flags,
        flags,
        following,
        ~flags,
    )


@pytest.mark.parametrize("n_rows", [1, 4, 15, 100])
@pytest.mark.parametrize("ends", [[], [(0, 1), (3, 2), (4, 0)]], ids=["none", "some"])
def test_pieces_equal_the_whole(monkeypatch, n_rows, ends):
    policy = make_policy(S.Dict(x=S.Box(-9.0, 9.0, (2,)), k=S.Discrete(3)))
    trajectory = make_trajectory(ends)
    policy = policy.update_moments(trajectory.observations, tf.ones([T, N]))
    sizes, compiled = [], _outputs._compiled_outputs

    def counted(policy, observations):
        sizes.append(len(observations["k"]))
        return compiled(policy, observations)

    monkeypatch.setattr(_outputs, "_compiled_outputs", counted)
    found = _outputs.in_pieces(policy, trajectory, n_rows)

    def whole(observations):
        flat = {k: x.reshape(-1, *x.shape[2:]) for k, x in observations.items()}
        return policy.state(policy.normalize(flat))

    parameters, values = whole(trajectory.observations)
    _, next_values = whole(trajectory.next_observations)
    for got, expected in zip(found, (parameters, values, next_values), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    # Each observation once, and what no other row shows.
    n_needed = T * N + N + len({end for end in ends if end[0] < T - 1})
    assert len(set(sizes)) == 1 and n_needed <= sum(sizes) < n_needed + sizes[0]


def test_what_is_not_a_number_is_no_row_of_the_next_step():
    policy = make_policy(S.Dict(x=S.Box(-9.0, 9.0, (2,)), k=S.Discrete(3)))
    trajectory = make_trajectory([])
    trajectory.next_observations["x"][1, 1] = np.nan
    found = _outputs.in_pieces(policy, trajectory, 4)
    assert np.flatnonzero(np.isnan(found.next_values)).tolist() == [N + 1]


def test_pieces_share_a_trace_between_agents():
    policies = [make_policy(S.Dict(x=S.Box(-9.0, 9.0, (2,)), k=S.Discrete(3)))] * 2
    trace_count = _outputs._compiled_outputs.trace_count
    _outputs.in_pieces(policies[0].lent(), make_trajectory([]), 6)
    before = trace_count()
    _outputs.in_pieces(policies[1].lent(), make_trajectory([(2, 1)]), 6)
    assert trace_count() == before
