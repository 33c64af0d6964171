"""Tests of `tfrl.agents.kinds`."""

import gymnasium as gym
import keras
import pytest
import tensorflow as tf
from agent_examples import new_policy

from tfrl.agents import kinds
from tfrl.agents.on_policy import ppo
from tfrl.layers import distribution
from tfrl.policies import networks

PREDICATES = {
    name.removeprefix("is_"): getattr(kinds, name)
    for name in dir(kinds)
    if name.startswith("is_")
}
BOX, DISCRETE = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)


def duck(name, parameters, value=None):
    """An object of one method with the given parameters."""
    scope = {"value": value}
    exec(f"def {name}({', '.join(['self', *parameters])}): return value", scope)
    return type("Duck", (), {name: scope[name]})()


def says(*words):
    def function(observations):
        return observations

    function.kinds = set(words)
    return function


def policy():
    return new_policy(BOX, DISCRETE)


def coax_like():
    both = {"dist_params": lambda self, s: None, "mode": lambda self, s: None}
    return type("Policy", (), both)()


SEEN, BOTH = ["observations"], ["observations", "actions"]
EXAMPLES = {
    "actor_critic_policy": (
        lambda: new_policy(BOX, DISCRETE),
        {"policy", "stochastic", "vfunction"},
    ),
    "acting": (lambda: duck("act", ["observations", "state"]), {"policy"}),
    "ppo_agent": (
        lambda: ppo.PPO().create(BOX, DISCRETE, n_envs=2, n_steps=32, seed=0),
        {"policy", "stochastic"},
    ),
    "actor_critic_network": (
        lambda: networks.ActorCritic(networks.SpaceEncoder.describe(BOX), 2),
        {"vfunction"},
    ),
    "encoder": (lambda: networks.SpaceEncoder(networks.SpaceEncoder.describe(BOX)), {}),
    "coax_like": (coax_like, {"policy", "stochastic"}),
    "all_q": (lambda: duck("q_values", SEEN), {"qfunction"}),
    "one_q": (lambda: duck("q_values", BOTH), {"qfunction"}),
    "q_critic": (lambda: duck("critic", BOTH), {"qfunction"}),
    "v_critic": (lambda: duck("critic", SEEN), {"vfunction"}),
    "values": (lambda: duck("values", [*SEEN, "training=False"]), {"vfunction"}),
    "keywords": (lambda: duck("values", [*SEEN, "*", "seed"]), {"vfunction"}),
    "rewards": (lambda: duck("rewards", BOTH), {"reward_function"}),
    "rewards_of_none": (lambda: duck("rewards", []), {}),
    "model": (lambda: duck("next_observations", BOTH), {"transition_model"}),
    "attribute": (lambda: type("Record", (), {"rewards": [1.0], "values": 2})(), {}),
    "mapping": (lambda: {"values": 1}, {}),
    "class": (lambda: networks.ActorCritic, {}),
    "head": (lambda: distribution.DistributionHead(DISCRETE), {"stochastic"}),
    "model_with_head": (
        lambda: keras.Sequential(
            [keras.layers.Dense(2), distribution.DistributionHead(DISCRETE)]
        ),
        {"stochastic"},
    ),
    "head_inside": (
        lambda: keras.Sequential(
            [distribution.DistributionHead(DISCRETE), keras.layers.Dense(2)]
        ),
        {},
    ),
    "dense": (lambda: keras.layers.Dense(2), {}),
    "tensor": (lambda: tf.zeros([2]), {}),
    "none": (lambda: None, {}),
    "function": (lambda: print, {}),
    "says_nothing_known": (lambda: says("wizard"), {}),
    "says_two": (lambda: says("qfunction", "stochastic"), {"qfunction", "stochastic"}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_kinds(name):
    make, expected = EXAMPLES[name]
    obj = make()
    found = {kind for kind, judge in PREDICATES.items() if judge(obj)}
    assert found == set(expected)


@pytest.mark.parametrize("kind", PREDICATES)
def test_an_object_may_say_it(kind):
    for words in ({kind}, [kind], (kind,), frozenset([kind])):
        obj = says()
        obj.kinds = words
        assert PREDICATES[kind](obj) is True
    assert PREDICATES[kind](object()) is False
    obj.kinds = kind  # a word is no collection of words
    assert PREDICATES[kind](obj) is False


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_one_stochastic_output_of_two_is_enough(first):
    inputs = keras.Input([3])
    outputs = [distribution.DistributionHead(gym.spaces.Discrete(2))(inputs)]
    outputs.insert(0 if not first else 1, keras.layers.Dense(1)(inputs))
    assert kinds.is_stochastic(keras.Model(inputs, outputs))
    assert not kinds.is_stochastic(keras.Model(inputs, outputs[first]))
