"""Tests of `tfrl.agents.off_policy.qr_dqn` against the algorithm written out."""

import numpy as np
import pytest
import q_learning_examples

from tfrl.agents.off_policy import qr_dqn
from tfrl.policies import host_policy


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"double": True}, {"huber_delta": 0.5}])
def test_an_update_equals_the_algorithm_written_out(settings):
    config = qr_dqn.QRDQN(hidden_units=(8,), n_quantiles=4, target_period=2, **settings)
    agent = q_learning_examples.agent_of(config)
    rows = q_learning_examples.rows_of()
    state, target = agent.policy.state, agent.target_params
    each, delta = np.arange(len(rows.rewards)), config.huber_delta
    fractions = (np.arange(4) + 0.5) / 4

    def told(params, observations):
        return np.asarray(state.distributions(observations, params=params), "d")

    later = told(target, rows.next_observations)
    chooser = told(state.params, rows.next_observations) if config.double else later
    following = later[each, chooser.mean(-1).argmax(-1)]
    targets = rows.rewards[:, None] + rows.discounts[:, None] * following

    def losses(params):
        found = told(params, rows.observations)[each, rows.actions]
        errors = targets[:, None, :] - found[:, :, None]
        size = np.abs(errors)
        huber = np.where(size < delta, errors**2 / (2 * delta), size - delta / 2)
        tilt = np.abs(fractions[:, None] - (errors < 0))
        return (tilt * huber).mean(-1).sum(-1)

    expected = losses(state.params)
    q_learning_examples.check_update(agent, rows, expected, expected, losses, target)


def test_the_twin_in_numpy_has_the_mean_quantile_for_its_value():
    agent = q_learning_examples.agent_of(qr_dqn.QRDQN(hidden_units=(8,), n_quantiles=5))
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    host = host_policy.HostPolicy(agent.policy)
    assert host.mirrored
    quantiles = np.asarray(agent.policy.state.distributions(x))
    np.testing.assert_allclose(host(x), quantiles.mean(-1), rtol=1e-4, atol=1e-6)
