"""Tests of `tfrl.environments.parallel_vector`."""

import functools

import gymnasium as gym
import numpy as np
import parallel_games
import pytest
import refusals
import tensorflow as tf
from gymnasium.vector import AutoresetMode
from parallel_games import Relay
from refusals import bad

from tfrl import agents, environments, host, rl_trainer, training
from tfrl.environments import ParallelEnvVector, make_vec

S = gym.spaces


def by_sight(seen):
    """A choice that depends on what is seen alone."""
    return int(1e4 * seen[0] + seen[1]) % 3


def collected(envs, n_steps, seed):
    collector = training.Collector(envs, n_steps, seed)
    trajectory = collector.collect(
        lambda seen: np.array([by_sight(row) for row in seen])
    )
    return collector, trajectory


def episodes_of(trajectory, row):
    """Whole episodes of a row, of valid steps alone."""
    found, running = [], []
    for t in np.flatnonzero(trajectory.valid[:, row]):
        step = tuple(
            getattr(trajectory, name)[t, row]
            for name in ("observations", "actions", "rewards", "terminated")
        )
        step += trajectory.truncated[t, row], trajectory.next_observations[t, row]
        running.append(step)
        if trajectory.terminated[t, row] or trajectory.truncated[t, row]:
            found.append(running)
            running = []
    return found


@pytest.mark.parametrize("joins", [False, True])
def test_each_agent_goes_through_what_it_would_alone(joins):
    envs = ParallelEnvVector(Relay, 6, joins=joins)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    collector, trajectory = collected(envs, 80, seed=7)
    n_episodes = 0
    for copy in range(2):
        games = parallel_games.episodes_by_hand(7 + copy, by_sight, 30, joins=joins)
        for k, name in enumerate("abc"):
            expected = [game[name] for game in games if name in game]
            found = episodes_of(trajectory, 3 * copy + k)
            assert len(found) > 10
            for mine, theirs in zip(found, expected, strict=False):
                for step, other in zip(mine, theirs, strict=True):
                    for x, y in zip(step, other, strict=True):
                        np.testing.assert_array_equal(x, y)
            n_episodes += len(found)
    assert not trajectory.valid.all()
    assert collector.env_steps == trajectory.valid.sum()
    returns, lengths = collector.episodes()
    assert len(returns) == min(100, n_episodes) and max(lengths) <= 5


@pytest.mark.slow
def test_rows_without_agent_change_no_gradient_and_no_advantage():
    """What is shown and rewarded where nobody plays may be anything."""
    envs = ParallelEnvVector(Relay, 6)
    agent = agents.PPO(minibatch_size=32, n_epochs=2, hidden_units=(8,)).create(
        envs.single_observation_space, envs.single_action_space, seed=0
    )
    _, trajectory = collected(envs, 32, seed=1)
    valid = trajectory.valid
    noise = np.random.default_rng(0)
    garbage = trajectory._replace(
        observations=np.where(
            valid[..., None], trajectory.observations, noise.normal(size=(32, 6, 3))
        ).astype(np.float32),
        rewards=np.where(valid, trajectory.rewards, 1e3).astype(np.float32),
        actions=np.where(valid, trajectory.actions, 2),
        terminated=np.where(valid, trajectory.terminated, True),
    )
    one, first = agent.update(trajectory)
    two, second = agent.update(garbage)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=2e-4, atol=1e-6)
    flat = (tf.nest.flatten(x.policy.without_optimizer()) for x in (one, two))
    for mine, yours in zip(*flat, strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-4, atol=1e-5)


def test_waiting_rows_show_zeros_and_their_actions_are_not_looked_at():
    envs = ParallelEnvVector(Relay, 3, joins=False)
    envs.reset(seed=3)
    waiting = np.zeros(3, bool)
    for _ in range(5):
        seen, rewards, terminated, truncated, info = envs.step(np.array([0, 1, 2]))
        assert not seen[waiting].any() and not rewards[waiting].any()
        assert not (terminated | truncated)[waiting].any()
        np.testing.assert_array_equal(info["_mark"], ~waiting)
        waiting |= terminated | truncated
        np.testing.assert_array_equal(envs.waiting, waiting)
        if waiting.all():
            break
    assert waiting.all()
    with pytest.raises(ValueError, match="`actions` expected copies"):
        envs.step(np.zeros(3, int))


class Shy(Relay):
    """Two agents end at once; the third is there from the start, seen from step 3."""

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        self.lengths, self.begin = {"a": 1, "b": 1, "c": 2}, 3
        self.agents = ["a", "b", "c"]
        return {x: seen[x] for x in "ab"}, infos

    def step(self, actions):
        self.agents = [x for x in self.agents if x in actions]
        *outcome, infos = super().step(actions)
        if self.steps < 3:
            self.agents = ["c"]
        return *outcome, infos


def test_a_copy_waits_for_an_agent_that_is_not_shown_yet():
    trajectory = collected(ParallelEnvVector(Shy, 3), 10, seed=0)[1]
    ended = trajectory.terminated | trajectory.truncated
    played = np.array([[1, 1, 0], [0] * 3, [0] * 3, [0, 0, 1], [0, 0, 1]], bool)
    np.testing.assert_array_equal(trajectory.valid, np.tile(played, (2, 1)))
    np.testing.assert_array_equal(ended.sum(0), [2, 2, 2])


def test_a_copy_begins_anew_when_all_of_its_agents_are_chosen():
    envs = ParallelEnvVector(Relay, 6, joins=False)
    first, _ = envs.reset(seed=0)
    chosen = np.array([True, True, False, True, True, True])
    seen, _ = envs.reset(options={"reset_mask": chosen})
    np.testing.assert_array_equal(seen[:3], first[:3])
    assert (seen[3:, 0] != first[3:, 0]).all()


def test_a_seed_tells_everything_and_each_copy_has_its_own():
    one, two = (ParallelEnvVector(Relay, 6).reset(seed=5)[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert one[0, 0] != one[3, 0]
    np.testing.assert_array_equal(one[3:], ParallelEnvVector(Relay, 3).reset(seed=6)[0])


def test_parts_of_observations():
    envs = ParallelEnvVector(Relay, 3, spaces="dict")
    stepper = host.Stepper(envs, seed=0)
    for _ in range(20):
        outcome = stepper.step(np.array([0, 1, 2]))
        assert outcome.next_observations["number"].min() >= 3
    assert envs.observation_space.contains(stepper.observations)


def test_agents_of_unequal_spaces_have_parts_of_their_own():
    envs = ParallelEnvVector(Relay, 6, own_spaces=True, joins=False, spaces="unequal")
    assert [*envs.single_observation_space.spaces] == ["a", "b", "c"]
    seen, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(seen)
    assert seen["b"].tolist() == [0, 5, 0, 0, 5, 0]
    assert seen["c"].sum(-1).tolist() == [0, 0, 3, 0, 0, 3]
    actions = {x: np.array([1, 3, 2, 0, 0, 0]) for x in "abc"}
    actions["a"][1] = actions["c"][1] = 0
    assert envs.step(actions)[1].tolist() == [11.0, 31.0, 21.0, 1.0, 1.0, 1.0]


def test_a_snapshot_goes_on_in_the_middle_of_games():
    envs, other = (ParallelEnvVector(Relay, 6) for _ in range(2))
    envs.reset(seed=0)
    other.reset(seed=9)
    actions = np.array([0, 1, 2, 2, 1, 0])
    envs.step(actions)
    environments.restore(other, environments.capture(envs))
    for _ in range(4):
        one, two = envs.step(actions), other.step(actions)
        for x, y in zip(one[:4], two[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        ended = one[2] | one[3]
        if ended.any():
            one, two = (
                x.reset(options={"reset_mask": ended})[0] for x in (envs, other)
            )
            np.testing.assert_array_equal(one, two)


class Masked(Relay):
    """Tells what it allows in infos."""

    def step(self, actions):
        *rest, infos = super().step(actions)
        return *rest, {x: {"action_mask": np.array([1, 0, 1])} for x in infos}

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        return seen, {x: {"action_mask": np.array([0, 1, 1])} for x in infos}


def test_masks_in_infos():
    envs = environments.VectorActionMasks(ParallelEnvVector(Masked, 3, joins=False))
    stepper = host.Stepper(envs, seed=0)
    assert stepper.observations["action_mask"].tolist() == [[0, 1, 1]] * 3
    for _ in range(9):
        stepper.step(np.array([2, 2, 2]))
        for row, waits in enumerate(stepper.resetting):
            mask = stepper.observations["action_mask"][row].tolist()
            assert mask in ([[1, 1, 1]] if waits else [[0, 1, 1], [1, 0, 1]])


@pytest.mark.slow
def test_trainer_needs_no_more_than_the_vector(tmp_path):
    make_envs = functools.partial(
        make_vec, "parallel_games:Relay", vectorization="pettingzoo"
    )
    with training.Trainer(
        tmp_path,
        n_epochs=2,
        agent=agents.DQN(hidden_units=(8,)),
        make_envs=make_envs,
        n_envs=6,
        experience=training.Replayed(capacity=100, batch_size=8, learning_starts=8),
        intervals=training.Intervals(eval_episodes=3),
    ) as trainer:
        played = trainer.run(quiet=True)
    assert played.lengths.max() <= 5
    with rl_trainer.open_run(tmp_path) as run:
        assert run.evaluate().lengths.max() <= 5


def pettingzoo():
    return pytest.importorskip("pettingzoo")


class TestPettingZoo:
    """Environments of PettingZoo itself, and ours by its own check."""

    @pytest.fixture(autouse=True)
    def _there(self):
        pettingzoo()

    def test_an_unknown_id_is_told_with_those_like_it(self):
        with pytest.raises(ValueError, match="`env` .*did you mean classic/rps-v2"):
            ParallelEnvVector("classic/rps", 2)

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("game", ["MatrixGame", "KuhnPoker"])
    def test_ours_pass_its_check(self, game):
        test = pytest.importorskip("pettingzoo.test")
        make = getattr(environments, game)
        test.parallel_api_test(make(), num_cycles=50)
        test.parallel_seed_test(make)

    def test_its_own(self):
        envs = make_vec(
            "classic/rps-v2",
            4,
            "pettingzoo",
            env_kwargs={"max_cycles": 2, "num_actions": 5},
        )
        assert envs.single_action_space == S.Discrete(5)
        envs.reset(seed=0)
        _, rewards, *_ = envs.step(np.array([0, 1, 2, 1]))
        assert rewards.tolist() == [-1.0, 1.0, 1.0, -1.0]
        ended = envs.step(np.zeros(4, int))[3]
        assert ended.all() and envs.waiting.all()
        assert envs.remake(n_envs=2).single_action_space == S.Discrete(5)

    def test_turns_of_who_could_act_at_once_are_refused(self):
        make = functools.partial(pettingzoo().make, "aec", "classic/rps-v2")
        with pytest.raises(TypeError, match="`env` expected a parallel environment"):
            ParallelEnvVector(make, 2)


def of_tictactoe():
    game = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    utils = pytest.importorskip("pettingzoo.utils")
    return {
        "id": "classic/tictactoe-v3",
        "module": "pettingzoo.classic.tictactoe_v3:env",
        "function": game.env,
        "made parallel": lambda: utils.turn_based_aec_to_parallel(game.env()),
    }


def at_random(rng):
    def act(seen):
        masks = seen["action_mask"]
        return (rng.random(masks.shape) * masks).argmax(-1)

    return act


class TestTurns:
    """Tic-tac-toe, of which a step is a turn."""

    @pytest.fixture(autouse=True)
    def _there(self):
        of_tictactoe()

    @pytest.mark.parametrize("kind", ["id", "module", "function", "made parallel"])
    def test_a_game_by_hand(self, kind):
        """The first takes the column of 0, 1 and 2 while the second has 3 and 4."""
        envs = ParallelEnvVector(of_tictactoe()[kind], 2)
        stepper = host.Stepper(envs, seed=0)
        free = np.ones(9, int)
        for t, move in enumerate([0, 3, 1, 4, 2]):
            mover, other = t % 2, 1 - t % 2
            masks = stepper.observations["action_mask"]
            np.testing.assert_array_equal(masks[mover], free)
            np.testing.assert_array_equal(masks[other], np.arange(9) == 0)
            free[move] = 0
            actions = np.array([8, 8])  # of who waits it is not looked at
            actions[mover] = move
            outcome = stepper.step(actions)
            assert outcome.valid.all()
            ends = [t == 4, t == 4]
            assert outcome.rewards.tolist() == [1.0 * (t == 4), -1.0 * (t == 4)]
            assert outcome.terminated.tolist() == ends and not outcome.truncated.any()
        board = outcome.next_observations["observation"].reshape(2, 9, 2)
        assert board[0, :, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]
        assert board[1, :, 0].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]
        assert not stepper.observations["observation"].any()

    def test_what_is_known_of_random_games(self):
        envs = ParallelEnvVector("classic/tictactoe-v3", 20)
        policy = at_random(np.random.default_rng(0))
        played = training.evaluate(policy, envs, 1_000, seed=0)
        one, two = played.returns.reshape(-1, 2, 50).swapaxes(0, 1)
        np.testing.assert_array_equal(one, -two)
        shares = [(one == won).mean() for won in (1, -1, 0)]
        np.testing.assert_allclose(shares, [0.585, 0.288, 0.127], atol=0.09)
        assert played.lengths.min() >= 5 and played.lengths.max() == 9

    def test_a_snapshot_goes_on_in_the_middle_of_a_game(self):
        envs, other = (ParallelEnvVector("classic/tictactoe-v3", 4) for _ in "ab")
        for each in (envs, other):
            each.reset(seed=0)
        envs.step(np.array([4, 0, 2, 0]))
        environments.restore(other, environments.capture(envs))
        both = (each.step(np.array([0, 5, 0, 6]))[:4] for each in (envs, other))
        for x, y in zip(*both, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, x, y)

    def test_each_agent_has_its_own_mask(self):
        envs = ParallelEnvVector("classic/tictactoe-v3", 2, own_spaces=True)
        seen, _ = envs.reset(seed=0)
        masks = [seen[x]["action_mask"].sum(-1).tolist() for x in envs.agents]
        assert masks == [[9, 9], [9, 1]]  # nothing is asked of a row of the other


class Turns(Relay):
    """Tells masks of two choices in infos; whose step it is may do anything."""

    choices = S.MultiDiscrete([2, 3])

    def action_space(self, agent):
        return self.choices

    def told(self, infos):
        turn = "abc"[self.steps % 3]
        return {x: {"action_mask": np.full(5, x == turn)} for x in infos}

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        self.lengths = dict.fromkeys("abc", 9)
        return seen, self.told(infos)

    def step(self, actions):
        *rest, infos = super().step({x: int(y[1]) for x, y in actions.items()})
        return *rest, self.told(infos)


class Stuck(Turns):
    def told(self, infos):
        return {x: {"action_mask": np.zeros(5)} for x in infos}


def test_who_is_not_on_turn_passes_in_infos_too():
    envs = environments.VectorActionMasks(ParallelEnvVector(Turns, 3, joins=False))
    stepper = host.Stepper(envs, seed=0)
    for t in range(8):
        masks = np.tile([1, 0, 1, 0, 0], (3, 1))
        masks[t % 3] = 1
        np.testing.assert_array_equal(stepper.observations["action_mask"], masks)
        assert stepper.step(np.zeros((3, 2), int)).valid.all()


def broken(method, told):
    """A game of which a method returns something else."""

    class Broken(Relay):
        pass

    setattr(Broken, method, lambda *_, **__: told)
    return Broken


class Deserter(Relay):
    """Agents leave without an end."""

    def step(self, actions):
        seen, rewards, *_, infos = super().step(actions)
        never = dict.fromkeys(seen, False)
        self.agents = []
        return seen, rewards, never, never, infos


class Ghost(Relay):
    """An agent that nobody knows plays too, from the start or later."""

    since = 0

    def reset(self, seed=None, options=None):
        outcome = super().reset(seed, options)
        self.agents = [*self.agents, *"z"[self.since :]]
        return outcome

    def step(self, actions):
        self.agents = [x for x in self.agents if x != "z"]
        outcome = super().step(actions)
        self.agents.append("z")
        return outcome


class LateGhost(Ghost):
    since = 1


class Risen(Relay):
    """Agents are there again after their end."""

    def step(self, actions):
        self.agents = [*actions]
        outcome = super().step(actions)
        if self.steps > 1:
            self.agents = [*"abc"]
        return outcome

    def reset(self, seed=None, options=None):
        outcome = super().reset(seed, options)
        self.lengths = {"a": 1, "b": 9, "c": 9}
        return outcome


def told_by(place, value):
    """A game of which a part of what `step` returns is another, of all agents."""

    class Odd(Relay):
        def step(self, actions):
            outcome = [*super().step(actions)]
            outcome[place] = dict.fromkeys(outcome[place], value)
            return tuple(outcome)

    return Odd


def reset_of(game):
    return ParallelEnvVector(game, 3).reset()


def step_of(game, actions=(0, 0, 0)):
    envs = ParallelEnvVector(game, 3, joins=False)
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.array(actions))


def reset_again(**kwargs):
    envs = ParallelEnvVector(Relay, 6)
    envs.reset()
    envs.reset(**kwargs)


@refusals.table(
    (
        ParallelEnvVector,
        bad(TypeError, "env", 3, 2),
        bad(TypeError, "env", lambda: 3, 2),
        bad(TypeError, "n_envs", Relay, "3"),
        bad(TypeError, "own_spaces", Relay, 3, own_spaces=1),
        bad(ValueError, "n_envs", Relay, 4),
        bad(ValueError, "env", "no_such_game", 3),
        bad(ValueError, "env", "parallel_games", 3),
        bad(ValueError, "env", Relay, 3, speed=1),
        bad(ValueError, "env", Relay, 3, spaces="unequal"),
    ),
    (
        make_vec,
        bad(
            ValueError,
            "max_episode_steps",
            *("parallel_games:Relay", 3, "pettingzoo"),
            max_episode_steps=3,
        ),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reset_of(broken("reset", 3)), "`env` expected `reset` to return"),
        (lambda: step_of(broken("step", ({},) * 5)), "`env` expected `step` to"),
        (lambda: step_of(Deserter), "`env` expected agents to be terminated"),
        (lambda: reset_of(Ghost), r"`env` expected agents of .*got \['z'\] in copy 0"),
        (lambda: step_of(LateGhost), r"`env` expected agents of .*got \['z'\]"),
        (lambda: step_of(Risen), r"do not come back .*got \['a'\] in copy 0"),
        (lambda: reset_of(Stuck), "nobody of .* is on turn"),
        (
            lambda: step_of(told_by(0, np.zeros(5, np.float32))),
            r"`env` expected observations to .*\(3,\).*got .*\(5,\).* of copy 0",
        ),
        (
            lambda: step_of(told_by(1, np.array([1.0, 2.0]))),
            r"expected a reward that is a number.*got \(array.* of 'a' of copy 0",
        ),
        (
            lambda: step_of(told_by(2, np.array([True, False]))),
            "two ends that are bools; got .* of 'a' of copy 0",
        ),
        (
            lambda: step_of(Relay, [[0], [1], [2]]),
            r"step`: `actions` expected .*\(3,\).*got .*\(3, 1\)",
        ),
        (lambda: step_of(Relay, [0] * 4), r"`actions` expected .*got .*\(4,\)"),
        (lambda: reset_again(seed=-1), "`seed` expected"),
        (lambda: reset_again(options={"reset_mask": [True] * 3}), "`options` expected"),
        (lambda: reset_again(options={"reset_mask": np.ones(6)}), "`options` expected"),
        (
            lambda: reset_again(seed=0, options={"reset_mask": np.ones(6, bool)}),
            "`options` expected",
        ),
        (
            lambda: ParallelEnvVector(Relay, 3).step(np.zeros(3, int)),
            "`actions` expected",
        ),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_environment_without_close_has_nothing_to_close(monkeypatch):
    closed = []
    monkeypatch.setattr(Relay, "close", lambda self: closed.append(self))
    ParallelEnvVector(Relay, 6).close()
    assert len(closed) == 2
    monkeypatch.delattr(Relay, "close")
    envs = ParallelEnvVector(Relay, 3)
    envs.reset(seed=0)
    envs.close()
    assert envs.closed
