"""Tests of `tfrl.agents.off_policy.iqn` against the algorithm written out in NumPy."""

import numpy as np
import pytest
import q_learning_examples

from tfrl.agents import _minibatches
from tfrl.agents.off_policy import iqn

CONFIG = iqn.IQN(
    hidden_units=(8,),
    n_fractions=3,
    n_target_fractions=5,
    n_acting_fractions=4,
    n_cosines=6,
    target_period=2,
    double=True,
    huber_delta=0.7,
)


def quantiles(params, x, fractions):
    """Quantiles `[B, n_actions, n]`, by equation 4 of the paper."""
    value = {name.split("/", 1)[1]: np.asarray(v, "d") for name, v in params.items()}

    def dense(name, x, rectified=True):
        x = x @ value[f"{name}/kernel"] + value[f"{name}/bias"]
        return np.maximum(x, 0.0) if rectified else x

    cosines = np.cos(np.pi * np.arange(6) * fractions[..., None])
    features = dense("values/output", np.asarray(x, "d"))[:, None]
    hidden = dense("hidden", features * dense("fractions", cosines))
    return np.swapaxes(dense("output", hidden, rectified=False), 1, 2)


@pytest.mark.slow
def test_an_update_equals_the_algorithm_written_out():
    agent = q_learning_examples.agent_of(CONFIG)
    rows = q_learning_examples.rows_of()
    state, target = agent.policy.state, agent.target_params
    n, delta = len(rows.rewards), CONFIG.huber_delta
    seed = _minibatches.step_seed(agent.rng, state.step)
    draws = np.asarray(CONFIG._drawn(seed, n), "d")
    assert draws.shape == (n, 8) and draws.min() > 0 and draws.max() < 1
    now, then, each = draws[:, :3], draws[:, 3:], np.arange(n)
    midpoints = np.tile((np.arange(4) + 0.5) / 4, (n, 1))
    later = rows.next_observations
    best = quantiles(state.params, later, midpoints).mean(-1).argmax(-1)
    following = quantiles(target, later, then)[each, best]
    targets = rows.rewards[:, None] + rows.discounts[:, None] * following

    def losses(params):
        found = quantiles(params, rows.observations, now)[each, rows.actions]
        errors = targets[:, None, :] - found[:, :, None]
        size = np.abs(errors)
        huber = np.where(size < delta, errors**2 / (2 * delta), size - delta / 2)
        tilt = np.abs(now[:, :, None] - (errors < 0))
        return (tilt * huber).mean(-1).sum(-1)

    expected = losses(state.params)
    q_learning_examples.check_update(agent, rows, expected, expected, losses, target)
    found = agent.policy.parameters(rows.observations)
    expected = quantiles(state.params, rows.observations, midpoints).mean(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_other_agents_and_steps_draw_other_fractions():
    agents = [q_learning_examples.agent_of(CONFIG, seed=seed) for seed in (0, 1)]
    seeds = [_minibatches.step_seed(a.rng, k) for a in agents for k in (1, 2)]
    draws = [CONFIG._drawn(seed, 2).numpy().tobytes() for seed in seeds]
    assert len(set(draws)) == 4
