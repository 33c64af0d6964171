"""Tests of `tfrl.agents.off_policy.dqn` against the algorithm written out in NumPy."""

import agent_examples
import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close

from tfrl.agents import replicated
from tfrl.agents.off_policy import dqn
from tfrl.core import records
from tfrl.replay.sampling import transitions

S = gym.spaces
BOX, N_ACTIONS = S.Box(-np.inf, np.inf, (3,)), 4
K, B = 5, 6
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def make_agent(space=BOX, seed=0, **settings):
    config = dqn.DQN(
        **{"hidden_units": (8,), "learning_rate": 0.01, "epsilon": 0.1, **settings}
    )
    agent = config.create(space, S.Discrete(N_ACTIONS), seed=seed)
    # A copy that is another network: what it says tells the targets apart.
    other = config.create(space, S.Discrete(N_ACTIONS), seed=seed + 50)
    return agent.replace(target_params=other.target_params)


def make_sample(*outer, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    ended = rng.random(outer) < 0.3
    weights = rng.uniform(0.2, 1.0, outer) if weighted else np.ones(outer)
    data = records.Transition(
        observations=rng.normal(size=(*outer, 3)).astype(np.float32),
        actions=rng.integers(0, N_ACTIONS, outer),
        rewards=rng.normal(0.0, 2.0, outer).astype(np.float32),
        discounts=np.where(ended, 0.0, 0.97).astype(np.float32),
        next_observations=rng.normal(size=(*outer, 3)).astype(np.float32),
    )
    weights = weights.astype(np.float32)
    return transitions.Sample(data, np.zeros(outer, np.int64), weights, weights)


def doubles(params):
    return {
        name.removeprefix("action_values/"): np.asarray(value, np.float64)
        for name, value in params.items()
    }


def forward(params, part, x):
    hidden = x @ params[f"{part}/hidden_0/kernel"] + params[f"{part}/hidden_0/bias"]
    hidden = np.maximum(hidden, 0.0)
    outputs = hidden @ params[f"{part}/output/kernel"] + params[f"{part}/output/bias"]
    return outputs, hidden


def values_of(params, x):
    values, _ = forward(params, "values", x)
    if "state/output/bias" not in params:
        return values
    return forward(params, "state", x)[0] + values - values.mean(-1, keepdims=True)


def backward(params, part, x, upstream):
    _, hidden = forward(params, part, x)
    inner = (upstream @ params[f"{part}/output/kernel"].T) * (hidden > 0)
    return {
        f"{part}/hidden_0/kernel": x.T @ inner,
        f"{part}/hidden_0/bias": inner.sum(0),
        f"{part}/output/kernel": hidden.T @ upstream,
        f"{part}/output/bias": upstream.sum(0),
    }


def written_out(agent, sample):
    """All steps of an update: parameters, those of the copy, info and errors."""
    config, data = agent.config, sample.data
    params, target = doubles(agent.policy.state.params), doubles(agent.target_params)
    moments = {name: [0.0, 0.0] for name in params}
    infos, priorities = [], []
    for k in range(len(sample.weights)):
        x, later = (
            leaf[k].astype(np.float64)
            for leaf in (data.observations, data.next_observations)
        )
        rows = np.arange(len(x))
        following = values_of(target, later)
        chooser = values_of(params, later) if config.double else following
        following = following[rows, chooser.argmax(-1)]
        targets = data.rewards[k] + data.discounts[k] * following
        values = values_of(params, x)[rows, data.actions[k]]
        errors, delta = targets - values, config.huber_delta
        size, bound = np.abs(errors), np.inf if delta is None else delta
        losses = 0.5 * errors**2
        if delta is not None:
            losses = np.where(size <= delta, losses, delta * (size - delta / 2))
        infos.append(
            {
                "loss": (sample.weights[k] * losses).mean(),
                "q_value": values.mean(),
                "td_error": size.mean(),
            }
        )
        priorities.append(size)
        slopes = np.zeros((len(x), N_ACTIONS))
        slopes[rows, data.actions[k]] = (
            -sample.weights[k] * np.clip(errors, -bound, bound) / len(x)
        )
        if config.dueling:
            grads = backward(params, "state", x, slopes.sum(-1, keepdims=True))
            slopes = slopes - slopes.mean(-1, keepdims=True)
            grads |= backward(params, "values", x, slopes)
        else:
            grads = backward(params, "values", x, slopes)
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        shrunk = min(1.0, config.max_gradient_norm / norm)
        for name, grad in grads.items():
            first, second = moments[name]
            first = 0.9 * first + 0.1 * shrunk * grad
            second = 0.999 * second + 0.001 * (shrunk * grad) ** 2
            moments[name] = [first, second]
            step = first / (1 - 0.9 ** (k + 1))
            step /= np.sqrt(second / (1 - 0.999 ** (k + 1))) + 1e-8
            params[name] = params[name] - config.learning_rate * step
        if (k + 1) % config.target_period == 0:
            target = {
                name: config.tau * params[name] + (1 - config.tau) * old
                for name, old in target.items()
            }
    info = {name: np.mean([x[name] for x in infos]) for name in infos[0]}
    return params, target, info, np.stack(priorities)


def assert_params(found, expected, **close):
    found = doubles(found)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **close)


SETTINGS = {
    "double": {"target_period": 2},
    "single": {"double": False, "target_period": 3},
    "duelling": {"dueling": True, "target_period": 2},
    "polyak": {"tau": 0.3, "target_period": 1},
    "polyak by period": {"tau": 0.3, "target_period": 2},
    "squared": {"huber_delta": None, "target_period": 100},
    "small huber": {"huber_delta": 0.2, "double": False, "dueling": True},
    "clipped": {"max_gradient_norm": 0.01, "target_period": 5},
}


# Each of the others is part of one of these.
@pytest.mark.parametrize(
    "name",
    default_rows.params(
        {name: (name,) for name in SETTINGS},
        ["double", "clipped"],
    ),
)
def test_an_update_equals_the_algorithm_written_out(name):
    agent, sample = make_agent(**SETTINGS[name]), make_sample(K, B)
    params, target, info, priorities = written_out(agent, sample)
    learned, found = agent.update(sample)
    close = {"rtol": 1e-3, "atol": 2e-5}
    assert_params(learned.policy.state.params, params, **close)
    assert_params(learned.target_params, target, **close)
    np.testing.assert_allclose(found["priorities"], priorities, rtol=1e-3, atol=1e-4)
    for key, value in info.items():
        assert float(found[key]) == pytest.approx(value, rel=1e-3, abs=1e-4), key
    assert int(learned.policy.state.step) == K + 1
    assert float(found["learning_rate"]) == pytest.approx(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_k_minibatches_are_k_updates_of_one(tau):
    at_once = one_by_one = make_agent(dueling=True, target_period=3, tau=tau)
    for seed in range(2):  # so that the count of steps goes on over updates
        sample = make_sample(K, B, seed=seed)
        at_once, info = at_once.update(sample)
        priorities = []
        for k in range(K):
            part = tf.nest.map_structure(lambda x: x[k], sample)  # noqa: B023
            one_by_one, found = one_by_one.update(part)
            assert found["priorities"].shape == (B,)
            priorities.append(found["priorities"])
        np.testing.assert_allclose(info["priorities"], priorities, rtol=1e-4, atol=1e-5)
    assert_close(
        (at_once.policy, at_once.target_params),
        (one_by_one.policy, one_by_one.target_params),
        **CLOSE,
    )


def test_weights_scale_losses_and_no_weight_has_no_influence():
    agent, sample = make_agent(), make_sample(2, B, weighted=False)
    weights = np.array(sample.weights)
    weights[:, 0] = 0.0
    learned, full = agent.update(sample._replace(weights=weights))
    first = agent.update(sample._replace(weights=0.5 * weights))[1]["priorities"][0]
    np.testing.assert_allclose(first, full["priorities"][0], rtol=1e-5)
    one, half = (
        agent.update(tf.nest.map_structure(lambda x: x[:1], sample)._replace(weights=w))
        for w in (weights[:1], 0.5 * weights[:1])
    )
    assert float(half[1]["loss"]) == pytest.approx(
        0.5 * float(one[1]["loss"]), rel=1e-5
    )
    rewards = np.array(sample.data.rewards)
    rewards[:, 0] = 1e3
    data = sample.data._replace(rewards=rewards)
    spoiled, _ = agent.update(sample._replace(data=data, weights=weights))
    assert_close(learned.policy, spoiled.policy, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, True])
def test_updates_in_pieces_are_those_of_one_call(normalized, monkeypatch):
    agent = make_agent(target_period=2, normalize_observations=normalized)
    sample = make_sample(K, B)
    whole = agent.update(sample)
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    assert_close(agent.update(sample), whole, **CLOSE)


@pytest.mark.slow
def test_nests_with_images_are_learned_from():
    space = S.Dict(x=BOX, k=S.Discrete(3), i=S.Box(0, 255, (36, 36, 1), np.uint8))
    agent, sample = make_agent(space, dueling=True), make_sample(2, 3)
    shown = [agent_examples.batch_of(space, 2, 3, seed=seed) for seed in range(2)]
    data = sample.data._replace(observations=shown[0], next_observations=shown[1])
    learned, info = agent.update(sample._replace(data=data))
    assert all(np.isfinite(x).all() for x in info.values())
    for name, value in learned.policy.state.params.items():
        assert np.any(value != agent.policy.state.params[name]), name


def test_other_experience_is_refused():
    flags, sample = np.zeros((2, 3), bool), make_sample(K, B)
    trajectory = records.Trajectory(*[np.zeros((2, 3), "f")] * 3, *[flags] * 4)
    column = sample.data._replace(rewards=np.ones((K, 1), "f"))
    for experience, error, message in (
        (trajectory, TypeError, "got Trajectory"),
        (sample._replace(data=trajectory), TypeError, "of Trajectory"),
        (sample.data, TypeError, "got Transition"),
        (None, TypeError, "got NoneType"),
        ({"observations": flags}, TypeError, "got dict"),
        (sample._replace(weights=np.ones(B)), ValueError, "one shape"),
        (make_sample(1, K, B), ValueError, "one shape"),
        (sample._replace(data=column), ValueError, "one shape"),
    ):
        with pytest.raises(error, match=f"`DQN.update`: `sample` expected .*{message}"):
            make_agent().update(experience)
    for space in (BOX, S.MultiDiscrete([2, 2])):
        with pytest.raises(
            TypeError, match="`DQN.create`: `action_space` expected a D"
        ):
            dqn.DQN().create(BOX, space)


@pytest.mark.slow
def test_learns_which_arm_pays():
    agent = make_agent(learning_rate=0.02, target_period=10)
    rng = np.random.default_rng(0)
    for step in range(30):
        sample = make_sample(10, 32, seed=step)
        actions = rng.integers(0, N_ACTIONS, (10, 32))
        rewards = (actions == 2).astype(np.float32)
        data = sample.data._replace(actions=actions, rewards=rewards)
        data = data._replace(discounts=np.zeros((10, 32), np.float32))
        agent, _ = agent.update(sample._replace(data=data))
    x = rng.normal(size=(50, 3)).astype(np.float32)
    assert (agent.policy.act(x, temperature=0.0).actions == 2).all()
    target = np.tile([0.0, 0.0, 1.0, 0.0], (50, 1))
    np.testing.assert_allclose(agent.policy.parameters(x), target, atol=0.2)
