"""Tests of `tfrl.agents._hyper_parameters`, and of agents that have such."""

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _hyper_parameters, bc, dqn, policy_gradient, ppo
from tfrl.core import records
from tfrl.replay.sampling import transitions
from tfrl.schedules import progress, schedulers

BOX, ACTIONS = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2)
BY_STEPS = schedulers.LinearScheduler("env_steps", ((0, 0.1), (100, 0.2)))
BY_SHARE = schedulers.LinearScheduler("percent", ((0.0, 0.4), (1.0, 0.0)))
BY_UPDATES = keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.5, 0.25])
HALFWAY = progress.Progress(percent=0.5, iterations=4, env_steps=50)


def test_each_schedule_follows_its_own_progress():
    found = _hyper_parameters.at(
        HALFWAY,
        number=(0.3, "constant"),
        line=(0.3, "linear"),
        steps=(BY_STEPS, "constant"),
        share=(BY_SHARE, "constant"),
        updates=(BY_UPDATES, "constant"),
    )
    assert all(x.dtype == tf.float32 and x.shape == () for x in found.values())
    expected = {"number": 0.3, "line": 0.15, "steps": 0.15, "share": 0.2}
    for name, value in {**expected, "updates": 0.25}.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-6), name


def test_without_a_progress_that_in_context_counts():
    with progress.progress_context(HALFWAY):
        found = _hyper_parameters.at(None, steps=(BY_STEPS, "constant"))
    assert float(found["steps"]) == pytest.approx(0.15)
    assert float(_hyper_parameters.at(None, x=(0.3, "linear"))["x"]) == np.float32(0.3)


def test_what_is_before_the_first_update():
    values = [_hyper_parameters.first(x) for x in (0.3, BY_STEPS, BY_SHARE, BY_UPDATES)]
    np.testing.assert_allclose(values, [0.3, 0.1, 0.4, 0.5], rtol=1e-6)


def test_a_line_ends_at_zero():
    over = progress.Progress(percent=1.0)
    assert float(_hyper_parameters.at(over, x=(0.3, "linear"))["x"]) == 0.0


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"value": 0.0}, ValueError, "`f`: `rate` expected"),
        ({"value": -1.0}, ValueError, "`f`: `rate` expected"),
        ({"value": "linear"}, TypeError, "`f`: `rate` expected"),
        ({"value": BY_SHARE, "kind": "linear"}, ValueError, "`rate_schedule` expected"),
    ],
    ids=["zero", "negative", "text", "twice"],
)
def test_others_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        _hyper_parameters.check("f", "rate", **settings)


def experience_of(kind):
    """What an agent of a kind learns from, four rows of it."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(2, 2, 2, 2)).astype(np.float32)
    ones, flags = np.ones((2, 2), np.float32), np.zeros((2, 2), bool)
    actions = rng.integers(0, 2, (2, 2)).astype(np.int32)
    if kind == "DQN":
        data = records.Transition(seen[0], actions, ones, ones, seen[1])
        return transitions.Sample(data, None, ones, ones)
    if kind == "BC":
        return {"observations": seen[0], "actions": actions}
    return records.Trajectory(seen[0], actions, ones, flags, flags, seen[1], ~flags)


CONFIGS = {
    "PPO": lambda rate: ppo.PPO(learning_rate=rate, minibatch_size=4, n_epochs=1),
    "PolicyGradient": lambda rate: policy_gradient.PolicyGradient(learning_rate=rate),
    "DQN": lambda rate: dqn.DQN(learning_rate=rate),
    "BC": lambda rate: bc.BC(learning_rate=rate, hidden_units=(8,)),
}


def weights_of(agent):
    state = agent.model if hasattr(agent, "model") else agent.policy.state
    return [np.asarray(x) for x in tf.nest.flatten(state.params)]


# Policy gradients share the update of PPO.
@pytest.mark.parametrize(
    "kind",
    default_rows.params({kind: (kind,) for kind in CONFIGS}, ["BC", "DQN", "PPO"]),
)
def test_the_progress_alone_says_the_rate_of_an_update(kind):
    """So a resumed run, which knows its progress, goes on where it was."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([6], [1e-2, 1e-3])
    experience, later = experience_of(kind), progress.Progress(iterations=7)
    learned = []
    for rate in (schedule, 1e-3, 1e-2):
        agent = CONFIGS[kind](rate).create(BOX, ACTIONS, seed=1)
        agent, info = agent.update(experience, progress=later)
        if kind != "PolicyGradient" and "learning_rate" in info:
            wanted = 1e-3 if rate is schedule else rate
            assert float(info["learning_rate"]) == pytest.approx(wanted)
        learned.append(weights_of(agent))
    for found, same in zip(learned[0], learned[1], strict=True):
        np.testing.assert_allclose(found, same, rtol=1e-6, atol=1e-8)
    first, *_, last = (np.concatenate([x.ravel() for x in w]) for w in learned)
    assert np.abs(first - last).max() > 1e-4


def test_a_schedule_is_read_at_each_update_without_another_trace():
    config = dqn.DQN(
        learning_rate=BY_UPDATES, epsilon=BY_SHARE, hidden_units=(5,), target_period=2
    )
    agent, found = config.create(BOX, ACTIONS), []
    assert float(agent.policy.epsilon) == pytest.approx(0.4)
    for step in range(6):
        told = progress.Progress(iterations=step, percent=step / 10)
        agent, info = agent.update(experience_of("DQN"), progress=told)
        found.append([float(info["learning_rate"]), float(agent.policy.epsilon)])
        if step == 0:
            traces = dqn._compiled_update.trace_count()
    rates = [0.5 if step <= 3 else 0.25 for step in range(6)]
    shares = [0.4 * (1 - step / 10) for step in range(6)]
    np.testing.assert_allclose(found, np.stack([rates, shares], 1), rtol=1e-5)
    assert dqn._compiled_update.trace_count() == traces
