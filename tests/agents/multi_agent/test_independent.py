"""Tests of `tfrl.agents.multi_agent.independent`."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import refusals
import tensorflow as tf
from agent_examples import BOX
from parallel_games import Relay
from refusals import bad

from tfrl import rl_trainer, training
from tfrl.agents import A2C, DQN, IMPALA, PPO, Independent, SelfPlay
from tfrl.agents.multi_agent.independent import IndependentPolicy
from tfrl.environments import MatrixGame, ParallelEnvVector
from tfrl.exporting import export
from tfrl.policies import Acted, HostPolicy

S = gym.spaces
SMALL = {"hidden_units": (8,)}
UNEQUAL = functools.partial(ParallelEnvVector, Relay, own_spaces=True, spaces="unequal")
AGENTS = Independent(
    {
        "b": IMPALA(memory="gru", memory_units=3, **SMALL),
        "a": PPO(minibatch_size=8, n_epochs=2, **SMALL),
        "c": A2C(**SMALL),
    }
)


def spaces_of(envs):
    return envs.single_observation_space, envs.single_action_space


def collected(agent, envs, n_steps):
    host = HostPolicy(agent.policy, log_probs=agent.needs_log_probs)
    collector = training.Collector(envs, n_steps, seed=3)
    return collector.collect(host, np.random.default_rng(0))


def same(one, two):
    for x, y in zip(tf.nest.flatten(one), tf.nest.flatten(two), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_each_learns_what_it_would_alone():
    envs = UNEQUAL(6)
    agent = AGENTS.create(*spaces_of(envs), seed=5, n_envs=6, n_steps=8)
    assert agent.players == ("a", "b", "c")
    trajectory = collected(agent, envs, 8)
    learned, info = agent.update(trajectory)
    for k, name in enumerate("abc"):
        part = [k, k + 3]
        memory = trajectory.states[name]
        own = trajectory._replace(
            observations=trajectory.observations[name][:, part],
            next_observations=trajectory.next_observations[name][:, part],
            actions=trajectory.actions[name][:, part],
            states=memory[:, part] if name == "b" else (),
            **{
                x: getattr(trajectory, x)[:, part]
                for x in ("rewards", "terminated", "truncated", "valid", "log_probs")
            },
        )
        alone, told = agent.agents[name].update(own)
        same(alone, learned.agents[name])
        for key, value in told.items():
            assert float(info[f"{name}/{key}"]) == float(value)
    assert not np.array_equal(*(x.agents["a"].n_updates_done for x in (agent, learned)))


def test_rows_act_by_the_policy_of_their_player():
    envs = UNEQUAL(6)
    agent = AGENTS.create(*spaces_of(envs), seed=5)
    seen, _ = envs.reset(seed=1)
    state = agent.policy.initial_state(6)
    given = {"temperature": 0.0, "seed": 0}
    acted = agent.policy.act(seen, state, **given)
    same(acted.actions, HostPolicy(agent.policy).act(seen, state, **given).actions)
    assert envs.action_space.contains(acted.actions)
    for k, name in enumerate("abc"):
        part = np.array([k, k + 3])
        policy = agent.agents[name].policy
        alone = policy.act(seen[name][part], policy.initial_state(2), **given)
        same(alone.actions, acted.actions[name][part])
        np.testing.assert_allclose(alone.log_probs, acted.log_probs[part], rtol=1e-5)
        if name == "b":
            np.testing.assert_allclose(alone.state, acted.state[name][part], rtol=1e-5)


class Counting:
    """A policy that counts its steps, in a list within a dict."""

    def initial_state(self, batch_size):
        return {"counts": [np.zeros(batch_size, np.int64), np.arange(batch_size)]}

    def act(self, observations, state=(), **_):
        done, rows = state["counts"]
        return Acted(done, done, None, {"counts": [done + 1, rows]})


def test_any_nest_is_remembered():
    policy = IndependentPolicy({"a": Counting(), "b": Counting()}, ("a", "b"))
    seen = {"a": np.zeros((4, 2)), "b": np.zeros((4, 2))}
    state = policy.initial_state(4)
    for step in range(3):
        acted = policy.act(seen, state)
        state = acted.state
        assert acted.actions["b"][1::2].tolist() == [step, step]
    assert state["b"]["counts"][1][1::2].tolist() == [1, 3]


class OtherStarts(Relay):
    """Has choices that do not begin at 0."""

    def action_space(self, agent):
        return S.Discrete(3, start={"a": 1, "b": 5, "c": -9}[agent])


def test_rows_of_others_hold_actions_of_the_space():
    envs = ParallelEnvVector(OtherStarts, 6, own_spaces=True, joins=False)
    agent = Independent(dict.fromkeys("abc", A2C(**SMALL))).create(*spaces_of(envs))
    assert envs.action_space.contains(agent.policy.act(envs.reset(seed=1)[0]).actions)
    collected(agent, envs, 4)  # which checks every row, as evaluation does
    training.evaluate(agent.policy, envs, 6, seed=0)


@pytest.mark.slow
def test_players_of_a_matrix_game_find_what_dominates():
    """Of the prisoners' dilemma, where 1 is better whatever the other does."""
    make_envs = functools.partial(ParallelEnvVector, Dilemma, own_spaces=True)
    config = A2C(learning_rate=0.02, gamma=0.0, **SMALL)
    agent = Independent({"player_0": config, "player_1": PPO(minibatch_size=16)})
    agent = agent.create(*spaces_of(make_envs(2)), seed=0, n_envs=16, n_steps=4)
    host = HostPolicy(agent.policy)
    collector = training.Collector(make_envs(16), 4, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        agent, _ = agent.update(collector.collect(host, rng))
        host.push(agent.policy, probe=collector.observations)
    assert np.mean(collector.episode_returns) < 1.3  # both betray, most of the time
    actions = host.act(collector.observations, temperature=0.0).actions
    assert actions["player_0"][::2].all() and actions["player_1"][1::2].all()


class Dilemma(MatrixGame):
    """Each gets 3 if the other keeps silent (0), and 1 if itself betrays (1)."""

    def step(self, actions):
        seen, _, *rest = super().step(actions)
        first, second = (int(actions[x]) for x in self.possible_agents)
        rewards = [3.0 * (second == 0) + first, 3.0 * (first == 0) + second]
        return seen, dict(zip(self.possible_agents, rewards, strict=True)), *rest

    def __init__(self):
        super().__init__([[0.0, 0.0], [0.0, 0.0]])


def trainer_of(folder, n_epochs, **given):
    return training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=AGENTS,
        make_envs=UNEQUAL,
        n_envs=6,
        experience=training.Trajectories(n_steps=8),
        intervals=training.Intervals(eval_episodes=3, checkpoint_epochs=1),
        **given,
    )


@pytest.mark.slow
def test_a_resumed_run_is_the_same(tmp_path):
    with trainer_of(tmp_path / "whole", 4) as whole:
        played = whole.run(quiet=True)
    with trainer_of(tmp_path / "parts", 2) as first:
        first.run(quiet=True)
    with trainer_of(tmp_path / "parts", 4, resume=True) as second:
        again = second.run(quiet=True)
    same(whole.agent, second.agent)
    np.testing.assert_array_equal(played.returns, again.returns)
    with rl_trainer.open_run(tmp_path / "whole") as run:
        assert run.evaluate().lengths.max() <= 5
        with pytest.raises(TypeError, match=r"got IndependentAgent .*agents\['a'\]"):
            run.export(tmp_path / "served")
        space, actions = (each["b"] for each in run.spaces)
        export.export_policy(run.agent.agents["b"], tmp_path / "b", space, actions)
    assert (tmp_path / "b").is_dir()


BOTH = S.Dict(a=BOX, b=BOX)


class Whole(gym.Env):
    """Of one agent that observes, and acts by, Dicts."""

    observation_space = BOTH
    action_space = S.Dict(a=S.Discrete(2), b=S.Discrete(3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return BOTH.sample(), {}

    def step(self, action):
        return BOTH.sample(), 1.0, True, False, {}


def of_whole(folder, n_epochs=1, **given):
    return training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=Independent({"a": A2C(**SMALL), "b": A2C(**SMALL)}),
        make_envs=one_by_one,
        n_envs=4,
        experience=training.Trajectories(n_steps=3),
        intervals=training.Intervals(eval_episodes=2),
        **given,
    )


def one_by_one(n_envs):
    mode = gym.vector.AutoresetMode.DISABLED
    return gym.vector.SyncVectorEnv([Whole] * n_envs, autoreset_mode=mode)


def test_an_environment_of_one_agent_is_refused(tmp_path):
    told = "`n_agents` expected 2, .*; got an environment of 1; make a `ParallelEnvV"
    with pytest.raises(ValueError, match=told):
        of_whole(tmp_path / "alone")
    assert not (tmp_path / "alone").exists()


@pytest.mark.slow
def test_a_run_of_old_in_an_environment_of_one_agent_goes_on(tmp_path, monkeypatch):
    made = Independent.create

    @functools.wraps(made)
    def of_old(*args, n_agents=None, **given):
        return made(*args, **given)

    with monkeypatch.context() as patched:
        patched.setattr(Independent, "create", of_old)
        with of_whole(tmp_path) as trainer:
            trainer.run(quiet=True)
    with rl_trainer.open_run(tmp_path) as run:
        assert run.agent.players == ("a", "b")
    with of_whole(tmp_path, 2, resume=True) as again:
        again.run(quiet=True)
    assert again.epoch == 2


def create(agents, *spaces, **given):
    return Independent(agents).create(*spaces, **given)


def update(n_rows):
    agent = Independent({"a": A2C(), "b": A2C()}).create(BOTH, BOTH)
    trajectory = collected(
        Independent(dict.fromkeys("abc", A2C())).create(*spaces_of(UNEQUAL(3))),
        UNEQUAL(n_rows),
        2,
    )
    agent.update(trajectory)


@refusals.table(
    (
        Independent,
        bad(TypeError, "agents", [PPO()]),
        bad(TypeError, "agents[", {"a": PPO}),
        bad(TypeError, "agents[", {"a": DQN()}),
    ),
    (
        create,
        bad(ValueError, "action_space", {"a": PPO()}, BOX, BOX),
        bad(ValueError, "action_space", None, BOTH, BOX),
        bad(ValueError, "observation_space", {"a": PPO(), "b": PPO()}, BOX, BOTH),
        bad(ValueError, "action_space", {"a": PPO(), "b": PPO()}, BOTH, BOX),
        bad(ValueError, "n_agents", None, BOTH, BOTH, n_agents=1),
        bad(ValueError, "n_agents", {"a": A2C(), "b": A2C()}, BOTH, BOTH, n_agents=3),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize(
    ("agents", "told"),
    [
        ({"a": PPO()}, r"unknown are \[\], without an agent \['b'\]"),
        ({"a": PPO(), "d": PPO()}, r"unknown are \['d'\], without an agent \['b'\]"),
    ],
)
def test_players_that_are_missing_or_unknown_are_named(agents, told):
    with pytest.raises(ValueError, match=told):
        Independent(agents).create(BOTH, BOTH)


def test_minibatches_are_of_the_rows_of_one_agent():
    """And who chose them by all rows is told so."""
    told = "divide .* = 24; got 48; .*each of 2 agents learns from 4 of 8 rows"
    config = PPO(minibatch_size=48)
    with pytest.raises(ValueError, match=told):
        Independent({"a": A2C(), "b": config}).create(BOTH, BOTH, n_envs=8, n_steps=6)
    with pytest.raises(ValueError, match=told):
        SelfPlay(config).create(BOX, BOX, n_envs=8, n_steps=6)


def test_several_players_are_exported_one_by_one(tmp_path):
    agent = Independent({"a": A2C(), "b": A2C()}).create(BOTH, BOTH)
    told = r"IndependentAgent with IndependentPolicy; .*run.agent.agents\['a'\]"
    with pytest.raises(TypeError, match=told):
        export.export_policy(agent, tmp_path / "served", BOTH, BOTH)


def test_rows_of_half_a_game_are_refused():
    with pytest.raises(ValueError, match="`trajectory` expected a multiple of 2"):
        update(3)
    agent = Independent({"a": A2C(), "b": A2C()}).create(BOTH, BOTH)
    with pytest.raises(TypeError, match="`trajectory` expected a Trajectory"):
        agent.update({"a": 1})
