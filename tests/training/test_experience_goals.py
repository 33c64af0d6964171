"""Replays that put achieved goals in the place of desired ones."""

import dataclasses
import functools

import numpy as np
import plain_graphs
import pytest
import tiny_agents

from tfrl.agents.off_policy import dqn, rainbow
from tfrl.environments import vector
from tfrl.policies import host_policy
from tfrl.training import cadence, experience
from tfrl.training.collecting import _delivery, collection

BITS = functools.partial(
    vector.make_vec,
    "tfrl.environments.goals:BitFlipping-v0",
    vectorization="sync",
    env_kwargs={"n_bits": 6},
)
REPLAYED = experience.Replayed(
    200, 8, n_steps=8, learning_starts=24, relabel="future", relabel_ratio=0.5
)
AGENT = dqn.DQN(hidden_units=(8,), target_period=3)
INTERVALS = cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=4)


@pytest.fixture(autouse=True)
def _plain_graphs():
    with plain_graphs.plain_graphs():
        yield


def running(folder, **settings):
    given = {"agent": AGENT, "make_envs": BITS, "experience": REPLAYED}
    given |= {"n_epochs": 8, "intervals": INTERVALS}
    return tiny_agents.build(folder, **{**given, **settings})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "agent"),
    [
        ("uniform", AGENT),
        pytest.param(
            "prioritized",
            rainbow.Rainbow(hidden_units=(8,), n_atoms=5),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, sampler, agent):
    learned = dataclasses.replace(REPLAYED, sampler=sampler)
    given = {"experience": learned, "agent": agent}
    with running(tmp_path / "whole", **given) as whole:
        whole.run(quiet=True)
    with running(tmp_path / "cut", **given) as cut:
        tiny_agents.stop_in(cut, 5)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
    with running(tmp_path / "cut", resume=True, **given) as resumed:
        resumed.run(quiet=True)
    tiny_agents.assert_same(resumed.agent, whole.agent)
    tiny_agents.assert_same_rows(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("relabel", "ratio"), [("final", 1.0), (None, 1.0)])
def test_goals_are_rewarded_as_the_environment_does(relabel, ratio):
    envs = BITS(2)
    config = dataclasses.replace(REPLAYED, relabel=relabel, relabel_ratio=ratio)
    policy = AGENT.create(envs.single_observation_space, envs.single_action_space)
    host = host_policy.HostPolicy(policy.policy)
    collector = collection.Collector(envs, 12, seed=0)
    specs = experience.step_specs(host, collector)
    rng = np.random.default_rng(0)
    replay = experience.replay_of(config, specs, 2, rng, envs)
    played = collector.collect(host, rng)
    _delivery.add_trajectory(replay.store, played)
    data = replay.sample(200).data
    later = data.next_observations
    is_met = (later["achieved_goal"] == later["desired_goal"]).all(-1)
    np.testing.assert_array_equal(data.rewards, np.where(is_met, 0.0, -1.0))
    desired = data.observations["desired_goal"]
    np.testing.assert_array_equal(desired, later["desired_goal"])
    first = played.observations["desired_goal"].reshape(-1, 6)
    kept = (desired[:, None] == first).all(-1)
    assert kept.any(-1).all() == (relabel is None)
    envs.close()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"relabel": "past"}, "`Replayed`: `relabel` expected"),
        ({"relabel_ratio": 1.5}, "`Replayed`: `relabel_ratio` expected"),
    ],
)
def test_bad_settings_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        dataclasses.replace(REPLAYED, **settings)


def test_environments_without_goals_are_refused_before_anything(tmp_path):
    with pytest.raises(ValueError, match="expected a Dict observation with"):
        running(tmp_path / "run", make_envs=tiny_agents.MAKE)
    assert not (tmp_path / "run").exists()
