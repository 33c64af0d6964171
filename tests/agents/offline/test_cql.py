"""Tests of `tfrl.agents.offline.cql` against SAC and DQN with the penalty."""

import dataclasses

import continuous_examples as examples
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import written_out

from tfrl.agents import _minibatches
from tfrl.agents.off_policy import dqn, sac
from tfrl.agents.offline import cql
from tfrl.core import random

S = gym.spaces
B, N = 5, 3
GIVEN = {"hidden_units": (4,), "activation": "tanh"}


def pair(**settings):
    """CQL and SAC with the same networks, of which only critics learn."""
    rates = {"learning_rate": 1e-9, "temperature_learning_rate": 1e-9}
    given = {**GIVEN, **rates, "critic_learning_rate": 0.01, **settings}
    config = cql.CQL(**given, conservative_weight=0.7, n_samples=N)
    names = [field.name for field in dataclasses.fields(sac.SAC)]
    plain = sac.SAC(**{name: getattr(config, name) for name in names})
    made = [x.create(examples.BOX, examples.ACTIONS, seed=0) for x in (config, plain)]
    target = examples.shaken(made[0].target_params, 2)
    return [agent.replace(target_params=target) for agent in made]


def penalty_of(agent, data, draws):
    """The penalty of critics' parameters, over actions that the agent drew."""
    policy = agent.policy
    uniform, *noise = (x.numpy().astype(float) for x in draws)
    features, log_probs = [uniform], [np.full([B, N], -2 * np.log(2.0))]
    for x, each in zip((data.observations, data.next_observations), noise, strict=True):
        parameters = policy.parameters(x.astype(np.float32)).numpy().astype(float)
        mean, log_std = np.split(parameters[:, None], 2, axis=-1)
        features.append(np.tanh(mean + np.exp(log_std) * each))
        density = -0.5 * each**2 - log_std - 0.5 * np.log(2 * np.pi)
        log_probs.append((density - np.log(1 - features[-1] ** 2)).sum(-1))
    features = np.concatenate(features, axis=1)
    log_probs = np.concatenate(log_probs, axis=1)
    taken = np.tanh(data.actions)

    def penalty(params):
        found = np.stack(
            [
                written_out.q_values(params, data.observations, features[:, i])
                for i in range(3 * N)
            ],
            axis=-1,
        )
        soft = np.log(np.exp(found - log_probs).mean(-1))
        own = written_out.q_values(params, data.observations, taken)
        return 0.7 * (soft - own).mean(1).sum()

    return penalty


@pytest.mark.slow
def test_the_critics_loss_is_that_of_sac_and_the_penalty():
    agent, plain = pair()
    sample = examples.sample_of(1, B)
    data, _ = examples.row_of(sample, 0)
    seed = _minibatches.step_seed(agent.rng, tf.constant(1))
    draws = agent._penalty_draws(B, random.split_seed(seed, 2)[0])
    penalty = penalty_of(agent, data, draws)
    new, info = agent.update(sample)
    other, expected = plain.update(sample)
    params = written_out.doubles(agent.critics.params)
    more = float(info["critic_loss"]) - float(expected["critic_loss"])
    assert more == pytest.approx(penalty(params), rel=1e-3)
    # The first moments of Adam are a tenth of the slopes.
    kept, without = (
        written_out.doubles(x.critics.opt_state[0]["mu"]) for x in (new, other)
    )
    for name, grad in written_out.slope(penalty, params).items():
        np.testing.assert_allclose(
            10.0 * (kept[name] - without[name]), grad, rtol=2e-2, atol=1e-4
        )


@pytest.mark.slow
def test_dropout_leaves_the_same_of_a_critic_for_all_actions_of_a_row():
    """Of critics that do not see actions the penalty is that of the densities alone."""
    found, sample = [], examples.sample_of(1, B)
    for agent in pair(dropout_rate=0.5):
        state, params = agent.critics, examples.shaken(agent.critics.params, 4)
        (name,) = (x for x in params if x.endswith("hidden_0/kernel"))
        params[name] *= np.array([1, 1, 1, 0, 0], "f")[:, None]  # of observations alone
        agent = agent.replace(critics=state.replace(params=params))
        found.append(float(agent.update(sample)[1]["critic_loss"]))
    data, _ = examples.row_of(sample, 0)
    agent = pair()[0]
    seed = _minibatches.step_seed(agent.rng, tf.constant(1))
    draws = agent._penalty_draws(B, random.split_seed(seed, 2)[0])
    penalty = penalty_of(agent, data, draws)(written_out.doubles(params))
    assert found[0] - found[1] == pytest.approx(penalty, rel=1e-3)


def test_a_choice_is_penalized_as_written_out():
    given = {**GIVEN, "double": False, "huber_delta": None, "max_gradient_norm": None}
    config = cql.DiscreteCQL(**given, conservative_weight=0.3)
    agent = config.create(examples.BOX, S.Discrete(4), seed=0)
    plain = dqn.DQN(**given).create(examples.BOX, S.Discrete(4), seed=0)
    sample = examples.sample_of(1, B, actions=np.arange(B)[None] % 4)
    data, weights = examples.row_of(sample, 0)
    q = agent.policy.parameters(data.observations.astype("f")).numpy().astype(float)
    taken = q[np.arange(B), data.actions.astype(int)]
    penalty = 0.3 * (np.log(np.exp(q).sum(-1)) - taken)
    _, info = agent.update(sample)
    _, expected = plain.update(sample)
    more = float(info["loss"]) - float(expected["loss"])
    assert more == pytest.approx((weights * penalty).mean(), rel=1e-4)


def test_spaces_and_settings_that_do_not_fit():
    for space in (S.Discrete(3), S.Box(-np.inf, np.inf, (2,)), S.Dict(a=S.Discrete(2))):
        with pytest.raises(
            TypeError, match="`CQL.create`: `action_space` expected a B.*DiscreteCQL"
        ):
            cql.CQL(hidden_units=(2,)).create(examples.BOX, space)
    with pytest.raises(TypeError, match="`DiscreteCQL.create`: `action_space` exp"):
        cql.DiscreteCQL().create(examples.BOX, examples.ACTIONS)
    for kind in (cql.CQL, cql.DiscreteCQL):
        name = kind.__name__
        with pytest.raises(ValueError, match=f"`{name}`: `conservative_weight` exp"):
            kind(conservative_weight=-1.0)
    with pytest.raises(ValueError, match="`CQL`: `n_samples` expected"):
        cql.CQL(n_samples=0)
