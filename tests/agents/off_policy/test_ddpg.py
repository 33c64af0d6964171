"""Tests of `tfrl.agents.off_policy.ddpg` against the algorithm written out."""

import continuous_examples as examples
import pytest
import td3_written_out

from tfrl.agents.off_policy import ddpg


@pytest.mark.slow
def test_an_update_equals_the_algorithm_written_out():
    agent = td3_written_out.make_agent(ddpg.DDPG, tau=0.1)
    sample = examples.sample_of(td3_written_out.K, td3_written_out.B)
    td3_written_out.assert_learned(agent, sample, td3_written_out.uphill)


def test_its_name_stands_in_messages():
    with pytest.raises(ValueError, match="`DDPG`: `tau` expected"):
        ddpg.DDPG(tau=2.0)
