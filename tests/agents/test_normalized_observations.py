"""Agents that normalize observations learn what one given normalized ones would."""

import agent_rows
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, assert_close

KINDS = (
    *agent_rows.Q_LEARNING,
    *("td3", "sac", "sac_choices", "tqc", "crossq", "cql", "discrete_cql"),
)


@pytest.mark.parametrize(
    "kind",
    [x if x == "dqn" else pytest.param(x, marks=pytest.mark.slow) for x in KINDS],
)
def test_they_learn_from_what_the_moments_make_of_them(kind):
    agent = agent_rows.made(kind, normalize_observations=True)
    plain = agent_rows.made(kind)
    sample = agent_rows.experience_of(kind)
    data = sample.data
    shifted = data._replace(
        observations=7 * data.observations + 30,
        next_observations=7 * data.next_observations + 30,
    )
    learned, info = agent.update(sample._replace(data=shifted))
    (moments,) = learned.policy.observation_moments
    rows = shifted.observations.reshape(-1, *BOX.shape)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-4)
    given = [
        ((x - rows.mean(0)) / rows.std(0)).astype(np.float32)
        for x in (shifted.observations, shifted.next_observations)
    ]
    normal = data._replace(observations=given[0], next_observations=given[1])
    expected, expected_info = plain.update(sample._replace(data=normal))
    for name in info:
        assert_close(info[name], expected_info[name], rtol=5e-3, atol=1e-4)
    acted = learned.policy.act(rows, temperature=0.0).actions
    like = expected.policy.act(given[0].reshape(rows.shape), temperature=0.0).actions
    assert_close(acted, like, rtol=1e-2, atol=1e-3)
    leaves = tf.nest.flatten(learned.policy.state.params)
    others = tf.nest.flatten(plain.policy.state.params)
    assert any(np.ptp(x - y) > 0 for x, y in zip(leaves, others, strict=True))


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_the_setting_is_a_bool(kind):
    with pytest.raises(TypeError, match="`normalize_observations` expected a bool"):
        agent_rows.made(kind, normalize_observations=1)
