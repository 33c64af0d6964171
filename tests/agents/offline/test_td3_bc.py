"""Tests of `tfrl.agents.offline.td3_bc` against the algorithm written out."""

import continuous_examples as examples
import numpy as np
import pytest
import td3_written_out
import written_out

from tfrl.agents.offline import td3_bc


def cloning(critics, actor, data, taken):
    def valued(params):
        chosen = td3_written_out.action(params, data.observations)
        return chosen, written_out.q_values(critics, data.observations, chosen)[0]

    weight = 2.5 / np.abs(valued(actor)[1]).mean()

    def loss(params):
        chosen, values = valued(params)
        return ((chosen - taken) ** 2).mean() - weight * values.mean()

    return loss


def test_an_update_equals_the_algorithm_written_out():
    agent = td3_written_out.make_agent(
        td3_bc.TD3BC, tau=0.2, normalize_observations=False
    )
    sample = examples.sample_of(td3_written_out.K, td3_written_out.B)
    td3_written_out.assert_learned(agent, sample, cloning)


def test_settings():
    agent = td3_bc.TD3BC(hidden_units=(2,)).create(examples.BOX, examples.ACTIONS)
    assert agent.policy.observation_moments
    with pytest.raises(ValueError, match="`TD3BC`: `alpha` expected"):
        td3_bc.TD3BC(alpha=-1.0)
