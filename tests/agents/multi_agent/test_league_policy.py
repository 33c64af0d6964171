"""Tests of `tfrl.agents.multi_agent.league_policy`."""

import functools
import types

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX
from parallel_games import Relay

from tfrl import training
from tfrl.agents import IMPALA, PPO, LeaguePolicy, SelfPlay
from tfrl.environments import KuhnPoker, ParallelEnvVector
from tfrl.policies import Acted, HostPolicy
from tfrl.training.collecting import collection

S = gym.spaces


def policy_of(seed, observation_space=BOX, **settings):
    config = PPO(hidden_units=(8,), **settings)
    return config.create(observation_space, S.Discrete(3), seed=seed).policy


def league_of(n_members, chances, n_agents=None, seed=0, **settings):
    current, *members = (policy_of(i, **settings) for i in range(1 + n_members))
    chances, seed = np.array(chances, float), np.array([seed], np.uint32)
    return LeaguePolicy(current, tuple(members), chances, seed, n_agents)


def test_who_plays_follows_the_chances_and_the_seed():
    league = league_of(3, [0.1, 0.2, 0.7, 0.0])
    drawn = league.initial_state(20_000)["played_by"]
    found = np.bincount(drawn, minlength=4) / 20_000
    np.testing.assert_allclose(found, [0.1, 0.2, 0.7, 0.0], atol=0.01)
    np.testing.assert_array_equal(drawn, league.initial_state(20_000)["played_by"])
    other = league.replace(seed=np.array([1], np.uint32)).initial_state(20_000)
    assert (other["played_by"] != drawn).any()


@pytest.mark.parametrize("n_agents", [2, 3])
def test_the_current_one_plays_each_player_in_turn(n_agents):
    league = league_of(2, [0.0, 0.5, 0.5], n_agents)
    drawn = league.initial_state(n_agents * 6)["played_by"].reshape(6, n_agents)
    np.testing.assert_array_equal(
        drawn == 0, np.arange(n_agents) == np.arange(6)[:, None] % n_agents
    )
    assert league.initial_state(1)["played_by"].tolist() == [0]


@pytest.mark.parametrize("memory", [*default_rows.slow(None), "gru"])
@pytest.mark.parametrize("on_host", [False, True])
def test_each_row_acts_as_who_plays_it_would_alone(memory, on_host):
    league = league_of(3, [0.25] * 4, memory=memory, memory_units=3)
    seen = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    state = league.initial_state(12)
    acting = HostPolicy(league, log_probs=True) if on_host else league
    given = {"temperature": 0.0, "seed": 0}
    acted = acting.act(seen, state, **given)
    np.testing.assert_array_equal(acted.state["played_by"], state["played_by"])
    acted = acting.act(seen[::-1], acted.state, **given)
    assert len({*state["played_by"].tolist()}) == 4
    for row, player in enumerate(state["played_by"]):
        alone = league.parts[player]
        first = alone.act(seen[row : row + 1], alone.initial_state(1), **given)
        then = alone.act(seen[11 - row : 12 - row], first.state, **given)
        assert then.actions[0] == acted.actions[row]
        np.testing.assert_allclose(then.log_probs[0], acted.log_probs[row], rtol=1e-4)
        if memory:
            kept = acted.state["memory"][row]
            np.testing.assert_allclose(then.state[0], kept, atol=1e-5)


class Counter:
    """Does, and remembers in two parts, how many steps it has played."""

    def initial_state(self, batch_size):
        return {"steps": np.zeros(batch_size, int), "more": [np.ones((batch_size, 2))]}

    def act(self, observations, state=(), **_):
        steps, (more,) = state["steps"] + 1, state["more"]
        return Acted(steps, steps, None, {"steps": steps, "more": [more + 1]})


def a_league_of_others(seed):
    return league_of(2, [0.0, 0.5, 0.5], memory="gru", memory_units=5, seed=seed)


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("alone", "gru"),
        ("alone", "lstm"),
        ("alone", "league"),
        ("alone", "counter"),
        ("gru", "alone"),
        ("gru", "counter"),
    ],
)
def test_who_remembers_plays_who_does_not(mine, other, on_host):
    made = {"alone": lambda: policy_of(1), "counter": Counter}
    made["league"] = lambda: a_league_of_others(3)
    for kind in ("gru", "lstm"):
        made[kind] = lambda x=kind: policy_of(2, memory=x, memory_units=3)
    learner, opponent = made[mine](), made[other]()
    league = LeaguePolicy(
        *(learner, (opponent,), np.array([0.0, 1.0]), np.zeros(1, np.uint32), 2),
        parts_are_alike=False,
    )
    acting = HostPolicy(league) if on_host else league
    rng = np.random.default_rng(0)
    state, alone = acting.initial_state(6), opponent.initial_state(6)
    rows = np.array([1, 2, 5])
    np.testing.assert_array_equal(league.rows_of_current(6), [0, 3, 4])
    for _ in range(3):
        seen = rng.normal(size=(6, 3)).astype(np.float32)
        acted = acting.act(seen, state, temperature=0.0, seed=0)
        expected = opponent.act(seen, alone, temperature=0.0, seed=0)
        np.testing.assert_array_equal(
            acted.actions[rows], np.asarray(expected.actions)[rows]
        )
        first = {"terminated": np.arange(6) == 1, "truncated": np.zeros(6, bool)}
        outcome = types.SimpleNamespace(**first, valid=np.ones(6, bool))
        state = collection.remembered(acted.state, league.initial_state(6), outcome)
        alone = collection.remembered(
            expected.state, opponent.initial_state(6), outcome
        )


def numbered(numbers, policies):
    current, *members = policies
    chances = np.array([0.0, *[1.0] * (len(members) - 1)])
    seed = np.zeros(1, np.uint32)
    return LeaguePolicy(*(current, tuple(members), chances, seed, 2), np.array(numbers))


@pytest.mark.parametrize("on_host", [False, True])
def test_an_episode_goes_on_with_the_policy_that_began_it(on_host):
    """Though others come to the place that it had."""
    old, new, newer, current = (
        policy_of(i, memory="gru", memory_units=3) for i in range(4)
    )
    league = numbered([1, -1], [current, old, old])
    acting = HostPolicy(league) if on_host else league
    seen = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
    given = {"temperature": 0.0, "seed": 0}
    state = acting.initial_state(4)
    assert state["played_by"].tolist() == [0, 1, 1, 0]
    state = acting.act(seen[0], state, **given).state
    alone = old.act(seen[0], old.initial_state(4), **given)

    def pushed(league):
        if not on_host:
            return league
        acting.push(league)
        return acting

    acting = pushed(numbered([2, 1], [current, new, old]))
    assert acting.initial_state(4)["played_by"].tolist() == [0, 2, 2, 0]
    acted = acting.act(seen[1], state, **given)
    alone = old.act(seen[1], alone.state, **given)
    np.testing.assert_allclose(acted.state["memory"][1:3], alone.state[1:3], atol=1e-5)
    # Gone altogether: the current one goes on, which remembers nothing of it.
    acting = pushed(numbered([3, 2], [current, newer, new]))
    acted = acting.act(seen[2], acted.state, **given)
    assert acted.state["played_by"].tolist() == [0] * 4
    fresh = current.act(seen[2], current.initial_state(4), **given)
    np.testing.assert_allclose(acted.state["memory"][1:3], fresh.state[1:3], atol=1e-5)


def test_draws_are_of_who_plays():
    """Each row's actions have the frequencies of its policy."""
    league = league_of(1, [0.5, 0.5])
    seen = np.ones((2, 3), np.float32)
    state = {"memory": (), "played_by": np.array([0, 1], np.int32)}
    host, rng = HostPolicy(league), np.random.default_rng(0)
    drawn = [host.act(seen, state, seed=rng).actions for _ in range(4_000)]
    for row in range(2):
        parameters = np.asarray(league.parts[row].parameters(seen[:1]))[0]
        expected = np.exp(parameters) / np.exp(parameters).sum()
        found = np.bincount(np.array(drawn)[:, row], minlength=3) / 4_000
        np.testing.assert_allclose(found, expected, atol=0.03)
    one, two = (league.act(seen, state, seed=5).actions for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert league.act(seen).actions.shape == (2,)


def test_a_host_takes_over_what_is_new_and_looks_at_it():
    league = league_of(2, [0.0, 0.0, 1.0])
    host, seen = HostPolicy(league), np.ones((4, 3), np.float32)
    newer = league.replace(members=(league.members[0], policy_of(9)))
    host.push(newer, probe=seen)
    given = {"temperature": 0.0, "state": league.initial_state(4)}
    expected = newer.members[1].act(seen, temperature=0.0).actions
    np.testing.assert_array_equal(host.act(seen, **given).actions, expected)
    broken = tf.nest.map_structure(lambda x: x * np.nan, policy_of(9).state.params)
    state = policy_of(9).state.replace(params=broken)
    worse = newer.replace(current=newer.current.replace(state=state))
    with pytest.raises(ValueError, match="lower the learning rate"):
        host.push(worse, probe=seen)


def test_masks_forbid_what_they_forbid():
    envs = ParallelEnvVector(KuhnPoker, 8)
    current, member = (
        PPO().create(envs.single_observation_space, S.Discrete(2), seed=i).policy
        for i in range(2)
    )
    chances, seed = np.array([0.0, 1.0]), np.array([0], np.uint32)
    league = LeaguePolicy(current, (member,), chances, seed, 2)
    seen, _ = envs.reset(seed=0)
    for _ in range(10):
        actions = league.act(seen, league.initial_state(8)).actions
        assert not actions[1::2].any()
    seen = np.ones((4, 3), np.float32)
    mask = np.array([[0, 0, 1]] * 4, bool)
    assert (league_of(1, [0.5, 0.5]).act(seen, mask=mask).actions == 2).all()


class Begun(Relay):
    """All begin and end with the game, of 1 to 5 steps."""

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        self.lengths = dict.fromkeys("abc", self.lengths["a"])
        return seen, infos


def test_an_episode_is_played_to_its_end_by_who_began_it():
    envs = ParallelEnvVector(Begun, 12, joins=False)
    league = league_of(3, [0.25] * 4, n_agents=3)
    host, rng = HostPolicy(league), np.random.default_rng(0)
    collector = training.Collector(envs, 3, seed=0)
    columns = []
    for epoch in range(30):
        columns.append(collector.collect(host, rng))
        league = league.replace(seed=np.array([epoch + 1], np.uint32))
        host.push(league)
    played_by = np.concatenate([x.states["played_by"] for x in columns])
    ended = np.concatenate([x.terminated | x.truncated for x in columns])
    changes = played_by[1:] != played_by[:-1]
    assert changes.any() and not (changes & ~ended[:-1]).any()


def league_of_actors(tmp_path, n_envs, **options):
    learner = IMPALA(hidden_units=(8,))
    league = {"snapshot_updates": 2, "capacity": 4, "current_share": 0.0}
    return training.Trainer(
        tmp_path / "run",
        agent=SelfPlay(learner, **league),
        make_envs=functools.partial(ParallelEnvVector, KuhnPoker),
        n_envs=n_envs,
        experience=training.Trajectories(n_steps=8),
        collector=training.ActorPool(2),
        **options,
    )


@pytest.mark.slow
def test_actors_play_whoever_is_in_the_league(tmp_path):
    with league_of_actors(tmp_path, 16, n_epochs=60) as trainer:
        trainer.run(quiet=True)
    # As the league has changed often, nobody of the first ones is left.
    assert min(trainer.agent.numbers[:4]) > 1
    assert (trainer.agent.games > 30).all()


@pytest.mark.parametrize("n_envs", [4, 12])
def test_each_actor_has_as_many_rows_of_each_learner(tmp_path, n_envs):
    told = "a multiple of n_actors \\* n_agents \\* n_agents = 8, as each actor plays"
    with pytest.raises(ValueError, match=f"{told}.*; got {n_envs}; take"):
        league_of_actors(tmp_path, n_envs, n_epochs=1)
    assert not (tmp_path / "run").exists()
