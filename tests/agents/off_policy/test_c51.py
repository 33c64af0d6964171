"""Tests of `tfrl.agents.off_policy.c51` against the algorithm written out in NumPy."""

import numpy as np
import pytest
import q_learning_examples
from q_learning_examples import ATOMS, projected, softmax

from tfrl.agents.off_policy import c51


@pytest.mark.parametrize(
    "settings",
    [{"double": True}, pytest.param({"dueling": True}, marks=pytest.mark.slow)],
)
def test_an_update_equals_the_algorithm_written_out(settings):
    config = c51.C51(
        hidden_units=(8,), n_atoms=5, v_min=-2.0, v_max=2.0, target_period=2, **settings
    )
    agent = q_learning_examples.agent_of(config)
    rows = q_learning_examples.rows_of()
    state, target = agent.policy.state, agent.target_params
    each = np.arange(len(rows.rewards))

    def told(params, observations):
        return np.asarray(state.distributions(observations, params=params), "d")

    later = told(target, rows.next_observations)
    chooser = told(state.params, rows.next_observations) if config.double else later
    best = (softmax(chooser) * ATOMS).sum(-1).argmax(-1)
    targets = projected(rows.rewards, rows.discounts, softmax(later[each, best]))

    def losses(params):
        probs = softmax(told(params, rows.observations)[each, rows.actions])
        return -(targets * np.log(probs)).sum(-1)

    entropies = -np.where(targets > 0, targets * np.log(targets + 1e-300), 0).sum(-1)
    expected = losses(state.params)
    q_learning_examples.check_update(
        agent, rows, expected, expected - entropies, losses, target
    )


def test_atoms_are_those_asked_for():
    agent = q_learning_examples.agent_of(
        c51.C51(hidden_units=(8,), n_atoms=3, v_min=0.0, v_max=4.0)
    )
    x = np.ones((2, 3), np.float32)
    probs = softmax(np.asarray(agent.policy.state.distributions(x)))
    values = probs @ np.array([0.0, 2.0, 4.0])
    np.testing.assert_allclose(agent.policy.parameters(x), values, rtol=1e-5)
