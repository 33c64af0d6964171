"""Value ops on every pattern of episode boundaries up to five steps.

`oracles` walks each column with a plain loop in double precision.
"""

import itertools

import numpy as np
import oracles
import pytest

from tfrl import ops

GAMMA = 0.9
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def patterns(steps, *flags):
    """Every sequence of combinations of flags, `[T, patterns]` for each flag."""
    kinds = list(itertools.product(*flags))
    columns = np.array(list(itertools.product(kinds, repeat=steps)), np.float64)
    return columns.transpose(2, 1, 0)


@pytest.mark.parametrize("steps", [2, 3, 4, 5])
def test_step_form_on_every_pattern(steps):
    step_types, alive = patterns(steps, (0, 1, 2), (0, 1))
    rng = np.random.default_rng(steps)
    rewards, values = rng.normal(size=(2, *alive.shape))
    tensors = (rewards, values, step_types.astype(np.int32), GAMMA * alive)
    assert alive.shape == (steps, 6**steps)
    np.testing.assert_allclose(
        ops.discounted_return(*tensors), oracles.discounted_return(*tensors), **CLOSE
    )
    np.testing.assert_allclose(
        ops.one_step_discounted_return(*tensors),
        oracles.one_step_discounted_return(*tensors),
        **CLOSE,
    )
    np.testing.assert_allclose(
        ops.generalized_advantage_estimation(*tensors, 0.7),
        oracles.advantages(*tensors, 0.7),
        **CLOSE,
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_transition_form_on_every_pattern(steps):
    # Discounts tell ends, lambdas cut traces; ratios lie on both sides of the clips.
    alive, joined = patterns(steps, (0, 1), (0, 1))
    rng = np.random.default_rng(steps)
    rewards, values, next_values = rng.normal(size=(3, *alive.shape))
    discounts, lambdas = GAMMA * alive, 0.8 * joined
    rhos = rng.uniform(0.5, 1.6, size=alive.shape)
    named = (rewards, discounts, next_values, lambdas)
    got, expected = ops.td_lambda_return(*named), oracles.td_lambda_return(*named)
    np.testing.assert_allclose(got, expected, **CLOSE)
    named = (values, next_values, rewards, discounts, rhos, lambdas)
    got = ops.vtrace(*named, clip_rho=1.2, clip_pg_rho=0.7)
    targets = oracles.vtrace_targets(*named, 1.2)
    np.testing.assert_allclose(got.targets, targets, **CLOSE)
    later = np.concatenate([(targets - values)[1:], np.zeros_like(values[:1])])
    q_estimates = rewards + discounts * (next_values + lambdas * later)
    np.testing.assert_allclose(got.q_estimates, q_estimates, **CLOSE)
    advantages = np.minimum(rhos, 0.7) * (q_estimates - values)
    np.testing.assert_allclose(got.advantages, advantages, **CLOSE)
