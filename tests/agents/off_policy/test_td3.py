"""Tests of `tfrl.agents.off_policy.td3` against the algorithm written out."""

import continuous_examples as examples
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close
from td3_written_out import B, K, assert_learned, make_agent, uphill

from tfrl.agents.off_policy import td3

S = gym.spaces


def test_an_update_equals_the_algorithm_written_out():
    agent = make_agent(tau=0.3, target_noise=0.6, exploration_noise=0.25)
    new, info = assert_learned(agent, examples.sample_of(K, B), uphill)
    np.testing.assert_allclose(new.policy.noise, [0.5, 0.75], rtol=1e-6)
    assert float(info["exploration_noise"]) == pytest.approx(0.25)


@pytest.mark.slow
def test_k_minibatches_are_k_updates_of_one():
    at_once = one_by_one = make_agent(tau=0.2)
    sample = examples.sample_of(3, B)
    at_once, _ = at_once.update(sample)
    for k in range(3):
        part = tf.nest.map_structure(lambda x: x[k], sample)  # noqa: B023
        one_by_one, _ = one_by_one.update(part)
    assert_close(at_once, one_by_one, rtol=1e-4, atol=1e-5)


def test_it_begins_all_over_the_box():
    x = np.zeros((4000, 3), np.float32)
    policy = make_agent(exploration_noise=0.1).policy
    shares = policy.act(x, seed=0).actions / ((examples.HIGH - examples.LOW) / 2)
    # A uniform draw has 1 / sqrt(3), and as many beyond half of the range as within.
    assert np.all(np.std(shares, axis=0) > 0.55)
    assert np.all(np.mean(np.abs(shares - shares.mean(0)) > 0.5, axis=0) > 0.5)
    np.testing.assert_allclose(policy.noise, [2.0, 3.0])
    louder = make_agent(exploration_noise=1.5).policy.noise
    np.testing.assert_allclose(louder, [3.0, 4.5])


def test_it_explores_in_half_ranges_within_the_bounds():
    agent = make_agent(exploration_noise=0.1, initial_noise=0.0)
    x = np.zeros((4000, 3), np.float32)
    noise = agent.policy.act(x, seed=0).raw_actions - agent.policy.parameters(x)
    np.testing.assert_allclose(np.std(noise, axis=0), [0.2, 0.3], rtol=0.1)
    wild = make_agent(exploration_noise=9.0).policy.act(x, seed=0).actions
    assert np.all(wild >= examples.LOW) and np.all(wild <= examples.HIGH)
    assert np.ptp(wild, axis=0).tolist() == [4.0, 6.0]


def test_a_bounded_number_beside_unbounded_ones_learns_wherever_it_is():
    low, high = np.array([-2, -np.inf], "f"), np.array([4, np.inf], "f")
    config = td3.TD3(hidden_units=(4,), policy_delay=1)
    agent = config.create(examples.BOX, S.Box(low, high))
    state = agent.policy.state
    (bias,) = (name for name in state.params if name.endswith("actions/bias"))
    state = state.replace(params={**state.params, bias: tf.constant([4.5, 4.5])})
    agent = agent.replace(policy=agent.policy.replace(state=state))
    sample = examples.sample_of(1, B, actions=np.zeros((1, B, 2), "f"))
    moved = agent.update(sample)[0].policy.state.params[bias]
    assert np.all(np.abs(moved - 4.5) > 1e-5)


@pytest.mark.slow
def test_observations_are_normalized_by_what_was_learned_from():
    agent = make_agent(normalize_observations=True)
    sample = examples.sample_of(K, B)
    new, _ = agent.update(sample)
    (kept,) = new.policy.observation_moments
    seen = sample.data.observations.reshape(-1, 3)
    np.testing.assert_allclose(kept.mean, seen.mean(0), rtol=1e-4, atol=1e-5)


def test_spaces_and_settings_that_do_not_fit():
    for space in (S.Discrete(2), S.Dict(a=examples.ACTIONS), S.Box(0, 1, (2,), int)):
        with pytest.raises(TypeError, match="`TD3.create`: `action_space` expected a "):
            td3.TD3().create(examples.BOX, space)
    for name, value, error in (
        ("target_noise", -1.0, ValueError),
        ("exploration_noise", np.nan, ValueError),
        ("policy_delay", 0, ValueError),
        ("n_critics", 1.5, TypeError),
        ("tau", 2.0, ValueError),
        ("normalize_observations", 1, TypeError),
    ):
        with pytest.raises(error, match=f"`TD3`: `{name}` expected"):
            td3.TD3(**{name: value})
