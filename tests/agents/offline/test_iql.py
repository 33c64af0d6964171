"""Tests of `tfrl.agents.offline.iql` against the algorithm written out."""

import continuous_examples as examples
import gymnasium as gym
import numpy as np
import pytest
import written_out
from agent_examples import BOX, batch_of

from tfrl.agents.offline import iql
from tfrl.core import records
from tfrl.replay.sampling import transitions

S = gym.spaces
K, B = 3, 6


def log_prob(params, x, actions):
    mean, log_std = written_out.mlp(params, "actor", x), params["log_std"]
    each = -0.5 * ((actions - mean) / np.exp(log_std)) ** 2 - log_std
    return (each - 0.5 * np.log(2 * np.pi)).sum(-1)


def value(params, x):
    return written_out.mlp(params, "critic", x)[:, 0]


def test_an_update_equals_the_algorithm_written_out():
    config = iql.IQL(
        hidden_units=(4,),
        activation="tanh",
        learning_rate=0.01,
        expectile=0.8,
        beta=2.0,
        max_weight=3.0,
        tau=0.3,
        log_std=-0.3,
    )
    agent = config.create(examples.BOX, examples.ACTIONS, seed=0)
    agent = agent.replace(target_critics=examples.shaken(agent.target_critics, 2))
    sample = examples.sample_of(K, B)
    actor = written_out.Adam(agent.policy.state.params, 0.01)
    critics = written_out.Adam(agent.critics.params, 0.01)
    target, n_cut, sizes = written_out.doubles(agent.target_critics), 0, []
    for k in range(K):
        data, weights = examples.row_of(sample, k)
        seen, taken = data.observations, examples.scaled(data.actions)
        q = written_out.q_values(target, seen, taken).min(0)
        advantages = q - value(actor.params, seen)
        cloned = np.minimum(np.exp(2.0 * advantages), 3.0)
        n_cut += (cloned == 3.0).sum()

        def loss(params, w=weights, q=q, cloned=cloned, data=data):
            apart = q - value(params, data.observations)
            expectile = np.abs(0.8 - (apart < 0)) * apart**2
            likely = log_prob(params, data.observations, data.actions)
            return (w * expectile).mean() - (w * cloned * likely).mean()

        actor.step(loss)
        y = data.rewards + data.discounts * value(actor.params, data.next_observations)

        def critic_loss(params, w=weights, y=y, seen=seen, taken=taken):
            found = written_out.q_values(params, seen, taken)
            return (w * (y - found) ** 2).mean(1).sum()

        found = written_out.q_values(critics.params, seen, taken)
        sizes.append(np.abs(y - found).mean(0))
        critics.step(critic_loss)
        target = written_out.moved(target, critics.params, 0.3)
    assert 0 < n_cut < K * B
    new, info = agent.update(sample)
    written_out.assert_params(new.policy.state.params, actor.params)
    written_out.assert_params(new.critics.params, critics.params)
    written_out.assert_params(new.target_critics, target)
    np.testing.assert_allclose(info["priorities"], sizes, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "space",
    [S.Discrete(3), S.Dict(a=S.Discrete(2), b=examples.ACTIONS)],
    ids=["choices", "nest"],
)
def test_other_actions_are_learned_from(space):
    agent = iql.IQL(hidden_units=(4,)).create(BOX, space)
    sample = examples.sample_of(2, 5, actions=batch_of(space, 2, 5))
    new, info = agent.update(sample)
    assert all(np.isfinite(x).all() for x in info.values())
    assert np.any(
        new.policy.parameters(np.ones((1, 3), "f"))
        != agent.policy.parameters(np.ones((1, 3), "f"))
    )


@pytest.mark.slow
def test_it_finds_the_better_half_of_what_was_done():
    """Actions were uniform; those near 1 in two dimensions paid most."""
    rng = np.random.default_rng(0)
    space = S.Box(-1.0, 1.0, (2,))
    agent = iql.IQL(hidden_units=(32,), learning_rate=3e-3, beta=10.0).create(
        BOX, space
    )
    for _ in range(20):
        x = rng.normal(size=(50, 64, 3)).astype(np.float32)
        actions = rng.uniform(-1.0, 1.0, (50, 64, 2)).astype(np.float32)
        rewards = -np.square(actions - 0.5).sum(-1)
        ones = np.ones((50, 64), np.float32)
        rows = records.Transition(x, actions, rewards, 0.0 * ones, x)
        agent, _ = agent.update(transitions.Sample(rows, None, ones, ones))
    acted = agent.policy.act(x[0], temperature=0.0).actions
    np.testing.assert_allclose(acted, 0.5, atol=0.2)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("expectile", 1.5, ValueError),
        ("beta", -1.0, ValueError),
        ("max_weight", 0.0, ValueError),
        ("n_critics", 0, ValueError),
        ("tau", 0.0, ValueError),
    ],
)
def test_bad_settings(name, value, error):
    with pytest.raises(error, match=f"`IQL`: `{name}` expected"):
        iql.IQL(**{name: value})
