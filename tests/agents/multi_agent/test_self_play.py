"""Tests of `tfrl.agents.multi_agent.self_play`."""

import collections
import functools

import gymnasium as gym
import numpy as np
import pytest
import refusals
import tensorflow as tf
from agent_examples import BOX, assert_close, two_replicas
from refusals import bad

from tfrl import rl_trainer, training
from tfrl.agents import A2C, DQN, IMPALA, PPO, SelfPlay
from tfrl.core import PyTreeNode, Trajectory
from tfrl.environments import KuhnPoker, MatrixGame, ParallelEnvVector, make_vec
from tfrl.policies import Acted, HostPolicy
from tfrl.saving import checkpoints

S = gym.spaces
SMALL = {"hidden_units": (8,)}


class Number(PyTreeNode):
    """A policy that is a number, which it does."""

    number: np.ndarray

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), **_):
        done = np.full(len(observations), int(self.number))
        return Acted(done, done, None, state)


class CountAgent(PyTreeNode):
    """Counts its updates; its policy is the count."""

    count: np.ndarray

    @property
    def policy(self):
        return Number(self.count)

    def update(self, trajectory):
        return self.replace(count=self.count + 1), {"rows": trajectory.rewards.size}


class Count:
    """Makes one."""

    def create(self, observation_space, action_space, *, seed=0):
        return CountAgent(np.int64(0))


def trajectory_of(n_steps, n_rows, played_by, seed=0):
    """Rewards of -1, 0 and 1, ends and waits as they come."""
    rng = np.random.default_rng(seed)
    shape = n_steps, n_rows
    ended = rng.random(shape) < 0.3
    cut = rng.random(shape) < 0.5
    zeros = np.zeros((*shape, 1), np.float32)
    return Trajectory(
        zeros,
        np.zeros(shape, int),
        rng.integers(-1, 2, shape).astype(np.float32),
        ended & cut,
        ended & ~cut,
        zeros,
        rng.random(shape) < 0.8,
        states={"memory": (), "played_by": np.broadcast_to(played_by, shape)},
    )


def with_waits(trajectory, n_agents):
    """Rows that have ended mostly wait for the others of their copy."""
    valid = trajectory.valid.reshape(len(trajectory.valid), -1, n_agents)
    ends = (trajectory.terminated | trajectory.truncated).reshape(valid.shape)
    rng, has_ended = np.random.default_rng(0), np.zeros(valid.shape[1:], bool)
    for t in range(len(valid)):
        valid[t] &= ~has_ended | (rng.random(has_ended.shape) < 0.05)
        has_ended |= ends[t] & valid[t]
        has_ended[has_ended.all(1)] = False
    return trajectory._replace(valid=valid.reshape(trajectory.valid.shape))


def results_by_hand(trajectories, n_agents):
    """(update, member, score) of each game that is over, one copy after the other."""
    whole = {
        name: np.concatenate([getattr(x, name) for x in trajectories])
        for name in ("rewards", "terminated", "truncated", "valid")
    }
    played_by = np.concatenate([x.states["played_by"] for x in trajectories])
    length, found = len(trajectories[0].rewards), []
    for copy in range(whole["rewards"].shape[1] // n_agents):
        mine, sums, ended_by = copy % n_agents, [0.0] * n_agents, {}
        for t, rewards in enumerate(whole["rewards"]):
            rows = [copy * n_agents + k for k in range(n_agents)]
            playing = [k for k, row in enumerate(rows) if whole["valid"][t, row]]
            if any(k in ended_by for k in playing):
                sums, ended_by = [0.0] * n_agents, {}  # the next game
            for k in playing:
                sums[k] += rewards[rows[k]]
                if whole["terminated"][t, rows[k]] or whole["truncated"][t, rows[k]]:
                    ended_by[k] = played_by[t, rows[k]]
            if len(ended_by) == n_agents:
                for k, player in ended_by.items():
                    score = 0.5 * (sums[mine] == sums[k]) + (sums[mine] > sums[k])
                    if k != mine and player:
                        found.append((t // length, player - 1, score))
                sums, ended_by = [0.0] * n_agents, {}
    return found


@pytest.mark.parametrize("n_agents", [2, 3])
def test_win_rates_are_those_of_the_games_that_ended(n_agents):
    n_rows = 6 * n_agents
    config = SelfPlay(Count(), n_agents, snapshot_updates=1, capacity=9)
    agent = config.create(BOX, BOX, n_envs=n_rows)
    rng = np.random.default_rng(5)
    whole = with_waits(trajectory_of(42, n_rows, 0), n_agents)
    trajectories = []
    for i in range(6):
        league = agent.n_members
        # Rows of a learner are played by it; the others by any member, or it too.
        played_by = rng.integers(0, league + 1, n_rows)
        copies = np.arange(6)
        played_by[copies * n_agents + copies % n_agents] = 0
        part = tf.nest.map_structure(lambda x, i=i: x[7 * i : 7 * i + 7], whole)
        states = trajectory_of(7, n_rows, played_by).states
        trajectories.append(part._replace(states=states))
        agent, info = agent.update(trajectories[-1])
        assert info["rows"] == 7 * 6
    games, points = np.zeros((2, 9))
    for update, member, score in results_by_hand(trajectories, n_agents):
        games[member] += 0.98 ** (5 - update)
        points[member] += score * 0.98 ** (5 - update)
    assert games.sum() > 20
    np.testing.assert_allclose(agent.games, games, rtol=1e-5)
    np.testing.assert_allclose(agent.points, points, rtol=1e-5)
    rates = (points + 0.5) / (games + 1.0)
    np.testing.assert_allclose(agent.win_rates(), rates[:7], rtol=1e-5)
    assert info["league_size"] == 7
    assert info["league_win_rate"] == pytest.approx(rates[:7].mean())
    assert info["league_win_rate_min"] == pytest.approx(rates[:7].min())


def judged(*games):
    """What the member wins of one game for each copy, of rewards by step and player.

    None where a player has ended already, or has not joined yet.
    """
    told = np.array(games, float).transpose(1, 0, 2).reshape(len(games[0]), -1)
    valid, n_rows = ~np.isnan(told), told.shape[1]
    last = len(told) - 1 - valid[::-1].argmax(0)
    ended = np.arange(len(told))[:, None] == last
    copies = np.arange(len(games))
    played_by = np.ones(n_rows, int)
    played_by[2 * copies + copies % 2] = 0
    given = trajectory_of(len(told), n_rows, played_by)._replace(
        rewards=np.nan_to_num(told).astype(np.float32),
        terminated=ended,
        truncated=np.zeros_like(valid),
        valid=valid,
    )
    agent = SelfPlay(Count()).create(BOX, BOX, n_envs=n_rows)
    cut = len(told) // 2  # games go on over updates
    for rows in (slice(cut), slice(cut, None)):
        agent, _ = agent.update(tf.nest.map_structure(lambda x, r=rows: x[r], given))
    return agent.games[0], agent.points[0]


@pytest.mark.parametrize(
    ("mine", "other", "score"),
    [
        ([0, None, None], [0, 0, 1], 0.0),  # eliminated, and the other wins later
        ([0, 1, None], [0, 0, 2], 0.0),  # ahead where it leaves, but not in the end
        ([0, 0, 1], [0, None, None], 1.0),
        ([None, 0, 2], [3, 0, None], 0.0),  # won before the learner joined
        ([2, None, None], [1, 0, 1], 0.5),
    ],
)
def test_a_game_is_judged_when_all_have_ended(mine, other, score):
    """The learner sits in the first seat, then in the second."""
    first, second = (
        [*zip(*pair, strict=True)] for pair in ((mine, other), (other, mine))
    )
    games, points = judged(first, second)
    assert games == 2.0 and points == 2 * score


@pytest.mark.parametrize("priority", [0.0, 1.0, 3.0])
def test_opponents_are_drawn_by_how_often_they_are_beaten(priority):
    config = SelfPlay(Count(), capacity=4, current_share=0.3, priority=priority)
    agent = config.create(BOX, BOX, n_envs=4)
    agent = agent.replace(
        games=np.array([9.0, 9.0, 0.0, 0.0], np.float32),
        points=np.array([0.5, 8.5, 0.0, 0.0], np.float32),
        counts=np.array([0, 3]),
    )
    np.testing.assert_allclose(agent.win_rates(), [0.1, 0.9, 0.5])
    weights = np.array([0.9, 0.1, 0.5]) ** priority
    expected = [0.3, *(0.7 * weights / weights.sum()), 0.0]
    np.testing.assert_allclose(agent.policy.chances, expected, rtol=1e-5)
    average = agent.average_policy
    np.testing.assert_allclose(average.chances, [0.0, 1 / 3, 1 / 3, 1 / 3])
    assert average.n_agents is None and len(average.members) == 3


@pytest.mark.parametrize(
    ("priority", "games", "points", "expected"),
    [
        # Powers of 1 - w of such rates are 0 in float32, the last two in float64 too.
        (12.0, [5000.0, 5000.0], [5000.0, 5000.0], [0.5, 0.5]),
        (100.0, [5.0, 5.0, 5.0], [5.0, 5.0, 4.5], [0.0, 0.0, 1.0]),
        (100.0, [5000.0, 5000.0], [5000.0, 4999.9], [0.0, 1.0]),
        (100.0, [5000.0, 5000.0], [5000.0, 5000.0], [0.5, 0.5]),
        # Rates that are 1 to the last digit.
        (0.0, [1e18, 0.0], [1e18, 0.0], [0.5, 0.5]),
        (2.0, [1e18, 0.0], [1e18, 0.0], [0.0, 1.0]),
        (100.0, [1e18, 1e18], [1e18, 1e18], [0.5, 0.5]),
    ],
)
def test_members_that_are_nearly_always_beaten_are_drawn(
    priority, games, points, expected
):
    count = len(games)
    config = SelfPlay(Count(), capacity=count, current_share=0.0, priority=priority)
    agent = config.create(BOX, BOX, n_envs=4).replace(
        games=np.float32(games),
        points=np.float32(points),
        counts=np.array([0, count]),
    )
    chances = agent.policy.chances
    assert chances.dtype == np.float64 and chances[0] == 0.0
    np.testing.assert_allclose(chances[1:], expected, atol=1e-7)
    policy = agent.policy
    drawn = np.delete(policy.initial_state(8)["played_by"], policy.rows_of_current(8))
    assert (chances[drawn] > 1e-7).all()


@pytest.mark.slow
def test_every_snapshot_is_in_a_full_league_with_the_same_probability():
    trajectory = trajectory_of(1, 2, 0)
    config = SelfPlay(Count(), snapshot_updates=2, capacity=4)
    found = collections.Counter()
    for seed in range(400):
        agent = config.create(BOX, BOX, n_envs=2, seed=seed)
        for _ in range(18):
            agent, _ = agent.update(trajectory)
        members = [int(x.number) for x in agent.members]
        assert len({*members}) == agent.n_members == 4
        found.update(members)
    # Of the untrained one and nine snapshots, after 2, 4, ... updates.
    assert sorted(found) == [*range(0, 20, 2)]
    for count in found.values():
        assert count == pytest.approx(160, abs=4 * np.sqrt(400 * 0.4 * 0.6))


class Long(MatrixGame):
    """A game of seven steps, in which the row player wins."""

    def reset(self, seed=None, options=None):
        self.n_steps = 0
        return super().reset(seed, options)

    def step(self, actions):
        self.n_steps += 1
        seen, *_, infos = super().step(actions)
        self.agents = [] if self.n_steps == 7 else self.possible_agents
        ends = dict.fromkeys(infos, not self.agents), dict.fromkeys(infos, False)
        return seen, {"player_0": 1.0, "player_1": 0.0}, *ends, infos


def test_a_policy_that_leaves_the_league_ends_its_episodes_uncounted():
    envs = ParallelEnvVector(Long, 4, payoffs=np.eye(9).tolist())
    config = SelfPlay(Count(), snapshot_updates=2, capacity=1, current_share=0.0)
    for seed in range(9):  # until one is drawn in the middle of the first game
        agent = config.create(BOX, S.Discrete(9), n_envs=4, seed=seed)
        agent, _ = agent.update(trajectory_of(1, 4, 0))
        if agent.update(trajectory_of(1, 4, 0))[0].numbers[0] == 2:
            break
    agent = config.create(BOX, S.Discrete(9), n_envs=4, seed=seed)
    collector, host = training.Collector(envs, 2, seed=0), HostPolicy(agent.policy)
    played = []
    for _ in range(4):
        played.append(collector.collect(host))
        agent, _ = agent.update(played[-1])
        host.push(agent.policy)
    done = np.concatenate([x.actions for x in played])
    np.testing.assert_array_equal(done[:7, 1:3], 0)
    assert done[7, 1] == 2 and agent.numbers[0] >= 2
    # The first game was played by number 1, and the second goes on.
    assert agent.games.tolist() == [0.0]


@pytest.mark.parametrize("member", [False, True])
def test_games_against_those_that_remember(member):
    """As its own average policy does, and another's policy."""
    spaces = BOX, S.Discrete(2)
    inner = A2C(**SMALL, memory="gru", memory_units=3)
    other = SelfPlay(inner).create(*spaces, n_envs=4, seed=1)
    agent = SelfPlay(A2C(**SMALL)).create(*spaces, n_envs=4)
    policy = agent.against(other.average_policy if member else other.learner.policy)
    state = policy.initial_state(4)
    for _ in range(2):
        state = policy.act(np.ones((4, 3), np.float32), state, seed=0).state
    own = agent.against(agent.average_policy)
    assert own.act(np.ones((4, 3), np.float32), own.initial_state(4)).actions.shape


@pytest.mark.slow
def test_only_rows_of_the_learner_are_learned_from():
    envs = ParallelEnvVector(KuhnPoker, 8)
    config = SelfPlay(
        PPO(minibatch_size=8, n_epochs=2, memory="gru", **SMALL), snapshot_updates=1
    )
    spaces = envs.single_observation_space, envs.single_action_space
    agent = config.create(*spaces, n_envs=8, n_steps=8)
    collector = training.Collector(envs, 8, seed=3)
    trajectory = collector.collect(HostPolicy(agent.policy), np.random.default_rng(0))
    rows = [0, 3, 4, 7]
    own = tf.nest.map_structure(
        lambda x: x[:, rows], trajectory._replace(states=trajectory.states["memory"])
    )
    alone, told = agent.learner.update(own)
    learned, info = agent.update(trajectory)
    for x, y in zip(*map(tf.nest.flatten, (alone, learned.learner)), strict=True):
        np.testing.assert_array_equal(x, y)
    assert {x: float(info[x]) for x in told} == {x: float(y) for x, y in told.items()}
    newest = learned.members[1]
    for x, y in zip(
        tf.nest.flatten(newest),
        tf.nest.flatten(alone.policy.without_optimizer()),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    assert learned.n_members == 2 and agent.n_members == 1


@pytest.mark.slow
def test_two_replicas_learn_what_one_learns(tmp_path):
    alone = trainer_of(tmp_path / "alone", 1)
    shared = trainer_of(tmp_path / "shared", 1, strategy=two_replicas())
    for trainer in (alone, shared):
        with trainer:
            trainer.run(quiet=True)
    assert_close(shared.agent, alone.agent, rtol=1e-4, atol=2e-6)


def trainer_of(folder, n_epochs, **given):
    return training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=SelfPlay(IMPALA(**SMALL), snapshot_updates=2, capacity=3, priority=1.0),
        make_envs=functools.partial(ParallelEnvVector, KuhnPoker),
        n_envs=8,
        experience=training.Trajectories(n_steps=5),
        intervals=training.Intervals(eval_episodes=4, checkpoint_epochs=1),
        **given,
    )


@pytest.mark.slow
def test_a_resumed_run_is_the_same_with_its_league(tmp_path):
    with trainer_of(tmp_path / "whole", 12) as whole:
        played = whole.run(quiet=True)
    with trainer_of(tmp_path / "parts", 7) as first:
        first.run(quiet=True)
    with trainer_of(tmp_path / "parts", 12, resume=True) as second:
        again = second.run(quiet=True)
    assert whole.agent.counts.tolist() == [12, 7] and whole.agent.games.sum() > 0
    for x, y in zip(*map(tf.nest.flatten, (whole.agent, second.agent)), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(played.returns, again.returns)
    with rl_trainer.open_run(tmp_path / "whole") as run:
        one, two = run.policy, whole.agent.policy
        for x, y in zip(*map(tf.nest.flatten, (one, two)), strict=True):
            np.testing.assert_array_equal(x, y)


def of_counts(folder, n_epochs, **given):
    return training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=SelfPlay(Count(), snapshot_updates=1, capacity=2),
        make_envs=functools.partial(
            ParallelEnvVector, MatrixGame, payoffs=np.eye(9).tolist()
        ),
        n_envs=8,
        experience=training.Trajectories(n_steps=3),
        intervals=training.Intervals(eval_episodes=2, checkpoint_epochs=1),
        **given,
    )


def test_a_run_of_old_whose_league_kept_less_goes_on(tmp_path, monkeypatch):
    with of_counts(tmp_path / "whole", 6) as whole:
        whole.run(quiet=True)
    less = {"former": (), "numbers": (), "ended_by": ()}
    with monkeypatch.context() as patched:
        for name in ("save_run", "save_best"):
            save = getattr(checkpoints, name)
            patched.setattr(
                *(checkpoints, name),
                lambda folder, steps, agent, *rest, save=save, **more: save(
                    folder, steps, agent.replace(**less), *rest, **more
                ),
            )
        with of_counts(tmp_path / "old", 3) as first:
            first.run(quiet=True)
    for step in (None, "best"):
        with training.SavedRun(of_counts(tmp_path / "old", 6), step) as run:
            assert run.policy.initial_state(4)["played_by"].max() <= 2
    with of_counts(tmp_path / "old", 6, resume=True) as again:
        again.run(quiet=True)
    for name in ("members", "games", "points", "counts"):
        found, expected = (getattr(x.agent, name) for x in (again, whole))
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_an_environment_of_other_players_is_refused(tmp_path):
    for name, folder in ((MatrixGame, "matrix"), (KuhnPoker, "kuhn")):
        with pytest.raises(ValueError, match="expected 4, .* an environment of 2"):
            training.Trainer(
                tmp_path / folder,
                agent=SelfPlay(IMPALA(**SMALL), n_agents=4),
                make_envs=functools.partial(ParallelEnvVector, name),
                n_envs=8,
            )
        assert not (tmp_path / folder).exists()


def test_an_environment_of_one_agent_is_refused(tmp_path):
    with pytest.raises(ValueError, match="environment of 1; make a `ParallelEnvV"):
        of_cartpole(tmp_path / "alone", SelfPlay(IMPALA(**SMALL)))
    assert not (tmp_path / "alone").exists()


@pytest.mark.slow
def test_a_run_of_old_in_an_environment_of_one_agent_goes_on(tmp_path, monkeypatch):
    create = SelfPlay.create

    @functools.wraps(create)
    def of_old(*args, n_agents=None, **given):
        return create(*args, **given)

    with monkeypatch.context() as patched:
        patched.setattr(SelfPlay, "create", of_old)
        with of_cartpole(tmp_path, SelfPlay(IMPALA(**SMALL))) as trainer:
            trainer.run(quiet=True)
    with rl_trainer.open_run(tmp_path) as run:
        assert run.policy.n_agents == 2
    again = of_cartpole(tmp_path, SelfPlay(IMPALA(**SMALL)), 2, resume=True)
    with again as trainer:
        trainer.run(quiet=True)
    assert trainer.agent.counts.tolist() == [2, 1]


def of_cartpole(folder, agent, n_epochs=1, **given):
    return training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=agent,
        make_envs=functools.partial(make_vec, "CartPole-v1"),
        n_envs=8,
        experience=training.Trajectories(n_steps=5),
        intervals=training.Intervals(eval_episodes=2),
        **given,
    )


def test_a_strong_member_is_not_beaten_because_a_third_player_is_weak():
    agent = SelfPlay(Count(), n_agents=3).create(BOX, BOX, n_envs=3)
    agent = agent.replace(counts=np.array([0, 2]))
    given = trajectory_of(1, 3, [0, 1, 2])
    ones = np.ones((1, 3), bool)
    agent, _ = agent.update(
        given._replace(
            rewards=np.array([[1.0, 2.0, -9.0]], np.float32),
            terminated=ones,
            truncated=~ones,
            valid=ones,
        )
    )
    assert agent.points[:2].tolist() == [0.0, 1.0]
    assert agent.games[:2].tolist() == [1.0, 1.0]


def test_games_against_an_opponent_of_ones_own():
    """A learner that does always 1 beats 0 and loses against 2, as each player."""
    agent = SelfPlay(Count()).create(BOX, BOX, n_envs=4)
    agent = agent.replace(learner=CountAgent(np.int64(1)))
    envs = ParallelEnvVector(MatrixGame, 8)
    for choice, won in enumerate((1.0, 0.0, -1.0)):
        policy = agent.against(lambda seen, x=choice: np.full(len(seen), x))
        played = training.evaluate(policy, envs, 24, seed=0)
        mine = policy.rows_of_current(8)
        assert mine.tolist() == [0, 3, 4, 7]
        assert (played.returns.reshape(8, 3)[mine] == won).all()
    with pytest.raises(TypeError, match="`opponent` expected"):
        agent.against(3)
    policy = agent.against(lambda seen: [1] * len(seen))  # a list, as elsewhere
    played = training.evaluate(policy, envs, 8, seed=0)
    assert not played.returns.any()


@pytest.mark.parametrize("shape", [(3,), (1,), (4, 1), ()])
def test_an_opponent_that_returns_no_action_for_each_row_is_told(shape):
    agent = SelfPlay(Count()).create(BOX, BOX, n_envs=4)
    policy = agent.against(lambda _: np.zeros(shape, int))
    told = (
        rf"`act`: .* shape \[4\] for the 4 rows .*got \[{', '.join(map(str, shape))}\]"
    )
    with pytest.raises(ValueError, match=told):
        policy.act(np.zeros((8, 3), np.float32))


def create(config=None, **given):
    config = SelfPlay(A2C()) if config is None else config
    return config.create(BOX, S.Discrete(2), **given)


@refusals.table(
    (
        SelfPlay,
        bad(TypeError, "agent", PPO),
        bad(TypeError, "agent", DQN()),
        bad(ValueError, "n_agents", A2C(), 1),
        bad(TypeError, "n_agents", A2C(), 2.5),
        bad(ValueError, "snapshot_updates", A2C(), snapshot_updates=0),
        bad(ValueError, "capacity", A2C(), capacity=0),
        bad(ValueError, "current_share", A2C(), current_share=1.5),
        bad(ValueError, "priority", A2C(), priority=-1.0),
        bad(ValueError, "priority", A2C(), priority=np.nan),
        bad(TypeError, "priority", A2C(), priority=np.array([1.0, 2.0])),
        bad(TypeError, "current_share", A2C(), current_share=True),
    ),
    (
        create,
        bad(ValueError, "n_envs"),
        bad(ValueError, "n_envs", n_envs=3),
        bad(TypeError, "n_envs", n_envs="4"),
        bad(ValueError, "n_agents", n_envs=6, n_agents=3),
    ),
)
def test_refusals(row):
    row()


def test_trajectories_of_others_are_refused():
    agent = SelfPlay(Count()).create(BOX, BOX, n_envs=4)
    given = trajectory_of(2, 4, 0)
    with pytest.raises(ValueError, match="`trajectory` expected a multiple of 2"):
        agent.update(trajectory_of(2, 3, 0))
    with pytest.raises(ValueError, match="`trajectory` expected 4 rows"):
        agent.update(trajectory_of(2, 6, 0))
    with pytest.raises(ValueError, match="`trajectory` expected 4 rows, with the"):
        agent.update(given._replace(states=()))
    with pytest.raises(TypeError, match="`trajectory` expected a Trajectory"):
        agent.update([given])


@pytest.mark.slow
def test_matrix_games_are_played_from_a_configuration(tmp_path):
    """As gin or the command would make it."""
    make_envs = functools.partial(ParallelEnvVector, MatrixGame)
    with training.Trainer(
        tmp_path,
        n_epochs=1,
        agent=SelfPlay(A2C(**SMALL)),
        make_envs=make_envs,
        n_envs=4,
        experience=training.Trajectories(n_steps=2),
    ) as trainer:
        played = trainer.run(quiet=True)
    assert played.lengths.max() == 1
    assert not trainer.record.lost
    with rl_trainer.open_run(tmp_path) as run:
        run.export(tmp_path / "served")
    seen = np.eye(2, dtype=np.float32)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    np.testing.assert_array_equal(
        served(observations=tf.constant(seen))["actions"],
        trainer.agent.learner.policy.act(seen, temperature=0.0).actions,
    )
