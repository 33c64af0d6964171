"""What agents of continuous control and of data sets promise, as all others do."""

import continuous_examples as examples
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close, two_replicas

from tfrl.agents import _minibatches
from tfrl.agents.off_policy import ddpg, td3
from tfrl.agents.offline import awac, cql, iql, td3_bc
from tfrl.exporting import export
from tfrl.policies import host_policy
from tfrl.saving import checkpoints

S = gym.spaces
SMALL = {"hidden_units": (4,), "learning_rate": 0.01}
CONFIGS = {
    "td3": td3.TD3(**SMALL, tau=0.2, exploration_noise=0.3),
    "ddpg": ddpg.DDPG(**SMALL, tau=0.2),
    "td3_bc": td3_bc.TD3BC(**SMALL, tau=0.2),
    "iql": iql.IQL(**SMALL, tau=0.2, normalize_observations=True),
    "awac": awac.AWAC(**SMALL, tau=0.2),
    "cql": cql.CQL(**SMALL, tau=0.2, n_samples=2),
    "discrete_cql": cql.DiscreteCQL(**SMALL, target_period=2),
}
DEFAULT = ("td3", "iql")
kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=[pytest.mark.slow] * (x not in DEFAULT)) for x in CONFIGS],
)


def actions_of(kind):
    return S.Discrete(3) if kind == "discrete_cql" else examples.ACTIONS


def made(kind, seed=0):
    return CONFIGS[kind].create(examples.BOX, actions_of(kind), seed=seed)


def sample_of(kind, seed=0):
    choices = np.random.default_rng(seed).integers(0, 3, (3, 4))
    actions = choices if kind == "discrete_cql" else None
    return examples.sample_of(3, 4, seed=seed, actions=actions)


def critics_of(agent):
    return getattr(agent, "critics", agent.policy.state).params


@kinds
def test_an_update_repeats_leaves_the_old_agent_and_needs_one_trace(kind):
    agent, other = made(kind), made(kind, seed=1)
    assert_close(agent, made(kind))
    before = [np.array(x) for x in tf.nest.flatten(agent)]
    learned, info = agent.update(sample_of(kind))
    n_traces = _minibatches._compiled_update.trace_count()
    again, _ = agent.update(sample_of(kind))
    assert_close(again, learned)
    assert_close(agent, before)
    again.update(sample_of(kind, seed=1))
    other.update(sample_of(kind))
    assert _minibatches._compiled_update.trace_count() == n_traces
    assert all(np.isfinite(x).all() for x in info.values())
    assert info["priorities"].shape == (3, 4)
    for name, value in critics_of(learned).items():
        assert np.any(value != critics_of(agent)[name]), name


@kinds
def test_the_host_twin_acts_as_the_policy(kind):
    agent, _ = made(kind).update(sample_of(kind))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert host_policy.HostPolicy(agent.policy).mirrored
    found = agent.policy.act(x, temperature=0.0).actions
    expected = agent.policy.act(tf.constant(x), temperature=0.0).actions
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    model = agent.policy.to_keras()
    outputs = tf.nest.flatten(model(x))[0]
    np.testing.assert_allclose(
        outputs, agent.policy.parameters(x), rtol=1e-4, atol=1e-6
    )


@kinds
def test_two_replicas_learn_what_one_learns(kind):
    alone = shared = made(kind)
    for seed in range(2):
        alone, expected = alone.update(sample_of(kind, seed))
        with two_replicas().scope():
            shared, info = shared.update(sample_of(kind, seed))
    assert_close((shared, info), (alone, expected), rtol=1e-3, atol=1e-5)


@kinds
def test_what_is_saved_goes_on(kind, tmp_path):
    agent, _ = made(kind).update(sample_of(kind))
    checkpoints.save_run(tmp_path, 7, agent, {})
    loaded, _, step = checkpoints.load_run(tmp_path, made(kind, seed=5))
    assert step == 7
    assert_close(loaded, agent)
    both = [x.update(sample_of(kind, 1))[0] for x in (loaded, agent)]
    assert_close(*both)


@kinds
def test_what_is_exported_is_the_policy(kind, tmp_path):
    agent = made(kind)
    spaces = examples.BOX, actions_of(kind)
    export.export_policy(agent, tmp_path / "policy", *spaces)
    assert export.verify(tmp_path / "policy")
