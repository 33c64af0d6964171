"""Advantages with a weight for each step, and arrays of another dtype."""

import numpy as np
import pytest

from tfrl import ops


def step_data(rng, steps, batch):
    rewards, values = rng.normal(size=[2, steps, batch]).astype(np.float32)
    step_types = np.where(rng.uniform(size=[steps, batch]) < 0.3, 2, 1)
    discounts = rng.uniform(size=[steps, batch]).astype(np.float32)
    return rewards, values, step_types, discounts


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2)], ids=str)
def test_advantages_take_a_weight_for_each_step(shape, time_major):
    rng = np.random.default_rng(11)
    rewards, values, step_types, discounts = step_data(rng, 6, 3)
    if len(shape) == 2:
        values = rng.normal(size=[6, *shape]).astype(np.float32)
    weights = rng.uniform(size=[6, 3][: 1 + len(shape[:1])]).astype(np.float32)
    wide = (lambda x: x[..., None]) if len(shape) == 2 else (lambda x: x)
    spread = np.broadcast_to(weights.reshape(6, -1), [6, 3])
    expected, later = [], 0.0
    for t in reversed(range(5)):
        factor = wide(discounts[t + 1])
        delta = wide(rewards[t + 1]) + factor * values[t + 1] - values[t]
        later = delta + factor * wide(spread[t + 1]) * later
        later = np.where(wide(step_types[t]) == 2, 0.0, later)
        expected.append(later)
    given = [rewards, values, step_types, discounts, weights]
    if not time_major:
        given = [np.swapaxes(x, 0, 1) if x.ndim > 1 else x for x in given]
    if not time_major and weights.ndim == 1:
        return  # one weight per step needs the axes [B, T]
    found = ops.generalized_advantage_estimation(*given, time_major=time_major).numpy()
    found = found if time_major else np.swapaxes(found, 0, 1)
    np.testing.assert_allclose(found, expected[::-1], rtol=1e-5, atol=1e-6)
    same = ops.generalized_advantage_estimation(
        *given[:4], np.full_like(given[4], 0.7), time_major=time_major
    )
    one = ops.generalized_advantage_estimation(*given[:4], 0.7, time_major=time_major)
    np.testing.assert_allclose(same, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rewards", "discounts", "td_lambda"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_arrays_of_another_dtype_are_refused(name, dtype):
    ones = np.ones([3, 2], np.float32)
    given = {
        "rewards": ones,
        "values": ones,
        "step_types": np.ones([3, 2], np.int32),
        "discounts": ones,
        "td_lambda": ones,
    }
    given[name] = ones.astype(dtype)
    with pytest.raises(TypeError, match=rf"`{name}` expected dtype float32"):
        ops.generalized_advantage_estimation(**given)
