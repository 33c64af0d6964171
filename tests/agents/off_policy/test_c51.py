"""Tests of `tfrl.agents.off_policy.c51` against the algorithm written out in NumPy."""

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import q_learning_examples
import tensorflow as tf
from q_learning_examples import ATOMS, projected, softmax

from tfrl.agents.off_policy import c51, rainbow


@pytest.mark.parametrize(
    "settings",
    [{"double": True}, pytest.param({"dueling": True}, marks=pytest.mark.slow)],
)
def test_an_update_equals_the_algorithm_written_out(settings):
    config = c51.C51(
        hidden_units=(8,), n_atoms=5, v_min=-2.0, v_max=2.0, target_period=2, **settings
    )
    agent = q_learning_examples.agent_of(config)
    rows = q_learning_examples.rows_of()
    state, target = agent.policy.state, agent.target_params
    each = np.arange(len(rows.rewards))

    def told(params, observations):
        return np.asarray(state.distributions(observations, params=params), "d")

    later = told(target, rows.next_observations)
    chooser = told(state.params, rows.next_observations) if config.double else later
    best = (softmax(chooser) * ATOMS).sum(-1).argmax(-1)
    targets = projected(rows.rewards, rows.discounts, softmax(later[each, best]))

    def losses(params):
        probs = softmax(told(params, rows.observations)[each, rows.actions])
        return -(targets * np.log(probs)).sum(-1)

    entropies = -np.where(targets > 0, targets * np.log(targets + 1e-300), 0).sum(-1)
    expected = losses(state.params)
    q_learning_examples.check_update(
        agent, rows, expected, expected - entropies, losses, target
    )


def test_atoms_are_those_asked_for():
    agent = q_learning_examples.agent_of(
        c51.C51(hidden_units=(8,), n_atoms=3, v_min=0.0, v_max=4.0)
    )
    x = np.ones((2, 3), np.float32)
    probs = softmax(np.asarray(agent.policy.state.distributions(x)))
    values = probs @ np.array([0.0, 2.0, 4.0])
    np.testing.assert_allclose(agent.policy.parameters(x), values, rtol=1e-5)


def own_network(_, actions):
    hidden = keras.layers.Dense(8, "tanh", name="hidden")
    last = keras.layers.Dense(5 * int(actions.n), name="last")
    return keras.Sequential([hidden, last], name="own")


@pytest.mark.parametrize(
    ("kind", "network", "settings"),
    default_rows.params(
        {
            "C51": (c51.C51, None, {}),
            "C51, own network": (c51.C51, own_network, {"double": True}),
            "Rainbow": (rainbow.Rainbow, None, {}),
            "Rainbow, own network": (rainbow.Rainbow, own_network, {}),
        },
        ["C51"],
    ),
)
def test_the_next_action_is_one_that_the_mask_allows(kind, network, settings):
    config = kind(
        **{"hidden_units": (8,), "n_atoms": 5, "v_min": -2.0, "v_max": 2.0},
        **{"target_period": 2, "adam_epsilon": 1e-8, "epsilon": 0.1, **settings},
    )
    mask, box = gym.spaces.MultiBinary(4), q_learning_examples.BOX
    spaces = gym.spaces.Dict(action_mask=mask, observation=box), gym.spaces.Discrete(4)
    agent, other = (config.create(*spaces, network=network, seed=i) for i in (0, 50))
    still, target = (
        {k: tf.zeros_like(x) if "noise" in k else x for k, x in params.items()}
        for params in (agent.policy.state.params, other.target_params)
    )
    state = agent.policy.state.replace(params=still)
    policy = agent.policy.replace(state=state)
    agent = agent.replace(policy=policy, target_params=target)
    plain, each = q_learning_examples.rows_of(), np.arange(q_learning_examples.B)

    def told(params, observations):
        return np.asarray(state.distributions(observations, params=params), "d")

    def seen(observations, mask):
        return {"action_mask": mask.astype(np.int8), "observation": observations}

    free = np.ones((len(each), 4))
    later = told(target, seen(plain.next_observations, free))
    first = seen(plain.next_observations, free)
    values = (softmax(told(still, first) if config.double else later) * ATOMS).sum(-1)
    forbids = free.copy()
    forbids[each[::2], values.argmax(-1)[::2]] = 0
    for allowed in (free, forbids):
        rows = plain._replace(
            observations=seen(plain.observations, free),
            next_observations=seen(plain.next_observations, allowed),
        )
        best = np.where(allowed, values, -np.inf).argmax(-1)
        assert (best != values.argmax(-1)).any() == (allowed is forbids)
        told_later = softmax(later[each, best])
        targets = projected(rows.rewards, rows.discounts, told_later)

        def losses(params, rows=rows, targets=targets):
            probs = softmax(told(params, rows.observations)[each, rows.actions])
            return -(targets * np.log(probs)).sum(-1)

        entropies = -np.where(targets > 0, targets * np.log(targets + 1e-300), 0)
        expected = losses(still)
        errors = expected - entropies.sum(-1)
        q_learning_examples.check_update(agent, rows, expected, errors, losses, target)
