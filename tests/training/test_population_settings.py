"""Every setting in which members of a population may differ, of every agent."""

import ast
import dataclasses
import re

import agent_rows
import numpy as np
import pytest
import tensorflow as tf

from tfrl.environments.compiled import protocol, wrappers
from tfrl.training import experience, population
from tfrl.training.collecting import _compiled_program

# Those learn from data alone, and from sequences, which nobody collects in a graph.
KINDS = sorted({*agent_rows.CONFIGS} - {"bc", "r2d2"})
# Of settings that are None, or 0.
OTHERS = {"target_entropy": -1.0}


class Still(protocol.CompiledEnv):
    """Shows noise, pays 1 a step."""

    observation_space, n_noise = agent_rows.BOX, 3

    def __init__(self, action_space):
        self.action_space = action_space

    def initial(self, noise):
        return noise, noise

    def step(self, state, actions, noise):
        ones, never = tf.ones_like(noise[:, 0]), tf.zeros_like(noise[:, 0], tf.bool)
        return protocol.CompiledStep(noise, noise, ones, never, never, noise)


def grown(kind, hyperparameters):
    learned = experience.Replayed(64, 4, n_steps=4, learning_starts=8)
    if kind in agent_rows.ON_POLICY:
        learned = experience.Trajectories(agent_rows.T)
    still = Still(agent_rows.actions_of(kind))
    return population.train_population(
        agent_rows.CONFIGS[kind],
        wrappers.AutoReset(wrappers.TimeLimit(still, 3)),
        seeds=[0, 0],
        hyperparameters=hyperparameters,
        experience=learned,
        n_envs=2,
        total_env_steps=16,
        log_epochs=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_members_differ_in_whatever_an_update_reads(kind, monkeypatch):
    monkeypatch.setattr(_compiled_program.replicated, "_by_xla", lambda *_: False)
    monkeypatch.setattr(_compiled_program, "_kept", {})
    with pytest.raises(ValueError, match="floats that an update reads") as told:
        grown(kind, {"no such": [0.0, 1.0]})
    names = ast.literal_eval(re.search(r"more of (\[.*?\]);", str(told.value))[1])
    assert {"learning_rate", "scale"} & {*names}
    config = agent_rows.CONFIGS[kind]
    settings = {}
    for name in names:
        first = getattr(config, name) or OTHERS.get(name, 0.1)
        settings[name] = [first, 0.9 * first]
    found = grown(kind, settings)
    one, other = (tf.nest.flatten(agent.policy.state.params) for agent in found.agents)
    assert not all(
        map(np.array_equal, one, other)
    )  # of one seed, by the settings alone
    for i, agent in enumerate(found.agents):
        own = {name: values[i] for name, values in settings.items()}
        assert agent.config == dataclasses.replace(config, **own)
        assert all(np.isfinite(x).all() for x in tf.nest.flatten(agent.policy))
