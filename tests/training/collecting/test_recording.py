"""Tests of `tfrl.training.collecting.recording`."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tiny_agents
from toy_envs import Strict

from tfrl.agents import train_state
from tfrl.environments import vector
from tfrl.policies import deterministic, policy
from tfrl.training.collecting import recording

LEFT = policy.FunctionPolicy(lambda x: np.zeros(len(x), np.int64))
MAKE = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")


def recorded(acting, n_steps=60, n_envs=2, **options):
    envs = MAKE(n_envs=n_envs)
    rows = recording.record_transitions(acting, envs, n_steps, **options)
    envs.close()
    return rows


def test_rows_follow_each_other_in_episodes():
    rows = recorded(LEFT, 61, n_envs=3)
    assert {len(x) for x in rows.values()} == {61}
    assert not rows["actions"].any() and np.all(rows["rewards"] == 1.0)
    ended = rows["terminated"] | rows["truncated"]
    goes_on = ~ended[:-1]
    follows = rows["observations"][1:] == rows["next_observations"][:-1]
    assert np.all(follows.all(-1) == goes_on)
    # Left alone it falls soon; what was cut off at the end is told.
    assert rows["terminated"].sum() >= 3
    assert ended[20] and ended[40] and ended[60]
    assert not (rows["terminated"] & rows["truncated"]).any()


def test_who_vectors_reset_by_themselves_lose_no_row():
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    rows = recording.record_transitions(LEFT, envs, 60)
    envs.close()
    ended = rows["terminated"] | rows["truncated"]
    follows = (rows["observations"][1:] == rows["next_observations"][:-1]).all(-1)
    assert np.all(follows == ~ended[:-1])


@pytest.mark.parametrize("mode", ["sync", "next_step"])
@pytest.mark.parametrize("n_steps", [1, 3, 5, 500])
def test_there_are_as_many_rows_as_were_asked_for(mode, n_steps):
    envs = MAKE(n_envs=4)
    if mode == "next_step":
        envs = gym.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    rows = recording.record_transitions(LEFT, envs, n_steps)
    envs.close()
    assert {len(x) for x in rows.values()} == {n_steps}
    ended = rows["terminated"] | rows["truncated"]
    follows = rows["observations"][1:] == rows["next_observations"][:-1]
    assert np.all(follows.all(-1) == ~ended[:-1]) and ended[-1]
    # Cut off are at most the last episodes of the environments.
    assert rows["truncated"].sum() <= 4 and (n_steps < 500 or rows["terminated"].any())


def test_more_steps_begin_as_fewer():
    few, many = (recorded(None, n, n_envs=1) for n in (30, 50))
    assert np.array_equal(few["actions"], many["actions"][:30])
    assert np.array_equal(few["observations"], many["observations"][:30])


def test_draws_repeat_by_the_seed():
    one, same, other = (recorded(None, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one["observations"], same["observations"])
    assert np.array_equal(one["actions"], same["actions"])
    assert not np.array_equal(one["actions"], other["actions"])
    assert 0.2 < one["actions"].mean() < 0.8


def test_the_share_of_random_actions():
    rows = recorded(LEFT, 2000, n_envs=4, epsilon=0.4)
    assert rows["actions"].mean() == pytest.approx(0.2, abs=0.05)


def test_temperature_and_the_actions_of_environments(tmp_path):
    running = tiny_agents.build(tmp_path)
    acting = running.agent.policy
    greedy = recorded(acting, 100, temperature=0.0)
    expected = acting.act(greedy["observations"], temperature=0.0).actions
    np.testing.assert_array_equal(greedy["actions"], expected)
    drawn = recorded(acting, 100)
    expected = acting.act(drawn["observations"], temperature=0.0).actions
    assert np.any(drawn["actions"] != expected)
    running.close()
    envs = vector.make_vec("Pendulum-v1", 2)
    wild = deterministic.DeterministicPolicy.create(
        envs.single_observation_space,
        envs.single_action_space,
        learner=train_state.TrainState.create,
        hidden_units=(2,),
        noise=50.0,
    )
    rows = recording.record_transitions(wild, envs, 20)
    envs.close()
    assert np.all(np.abs(rows["actions"]) <= 2.0)
    assert rows["actions"].dtype == np.float32


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"epsilon": 1.5}, ValueError, "epsilon"),
        ({"n_steps": 0}, ValueError, "n_steps"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_settings(options, error, name):
    with pytest.raises(error, match=f"`record_transitions`: `{name}` expected"):
        recorded(LEFT, **options)
    with pytest.raises(TypeError, match="`record_transitions`: `policy` expected"):
        recorded(3)


def test_seeds_may_be_those_of_numpy():
    one, other = (recorded(None, 8, seed=seed) for seed in (3, np.int64(3)))
    for name, rows in one.items():
        np.testing.assert_array_equal(other[name], rows)


class FirstOfAll(policy.Policy):
    """Does the first thing that is allowed."""

    def act(self, observations, state=(), **options):
        actions = observations["action_mask"].argmax(-1)
        return policy.Acted(actions, actions, None, state)


@pytest.mark.parametrize("acting", [None, FirstOfAll()], ids=["random", "epsilon"])
def test_random_actions_are_among_the_allowed(acting):
    make = functools.partial(Strict, tell="observation")
    rows = recording.record_transitions(
        acting, gym.vector.SyncVectorEnv([make] * 4), 2000, epsilon=0.5
    )
    masks, actions = rows["observations"]["action_mask"], rows["actions"]
    assert masks[np.arange(2000), actions].all()
    is_first = actions == masks.argmax(-1)
    assert abs(is_first.mean() - (0.5 if acting is None else 0.75)) < 0.05
