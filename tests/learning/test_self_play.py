"""Leagues near the known equilibria of two small games, by oracles of their own.

And a game by turns, learned well enough to beat who plays at random.
"""

import functools

import kuhn_oracle
import numpy as np
import pytest

from tfrl import training
from tfrl.agents import DQN, PPO, LeaguePolicy, SelfPlay
from tfrl.environments import KuhnPoker, MatrixGame, ParallelEnvVector
from tfrl.policies import FunctionPolicy

pytestmark = pytest.mark.slow


def trained(folder, make_envs, *, current_share, n_epochs, n_steps, learning_rate):
    trainer = training.Trainer(
        folder,
        n_epochs=n_epochs,
        agent=SelfPlay(
            PPO(
                gamma=1.0,
                minibatch_size=128,
                n_epochs=4,
                learning_rate=learning_rate,
                entropy_coefficient=0.2,
                hidden_units=(32,),
            ),
            snapshot_updates=5,
            capacity=100,
            current_share=current_share,
        ),
        make_envs=make_envs,
        n_envs=64,
        experience=training.Trajectories(n_steps=n_steps),
        intervals=training.Intervals(eval_episodes=2, log_epochs=50),
    )
    with trainer:
        trainer.run(quiet=True)
    return trainer.agent


def odds_of(policy, observations):
    """Probabilities of the options, by the logits."""
    powers = np.exp(np.asarray(policy.parameters(observations)))
    return powers / powers.sum(-1, keepdims=True)


def test_uneven_rock_paper_scissors(tmp_path):
    """Its equilibrium is paper in half of the games, and the others in a quarter."""
    payoffs = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    make_envs = functools.partial(
        ParallelEnvVector, MatrixGame, payoffs=payoffs.tolist()
    )
    agent = trained(
        *(tmp_path, make_envs),
        current_share=0.0,
        n_epochs=400,
        n_steps=8,
        learning_rate=0.01,
    )
    players = np.eye(2, dtype=np.float32)
    league = agent.average_policy.members
    assert len(league) == agent.n_members == 81
    mixes = np.mean([odds_of(member, players) for member in league], axis=0)
    np.testing.assert_allclose(mixes, [[0.25, 0.5, 0.25]] * 2, atol=0.12)
    gains = (payoffs @ mixes[1]).max(), -(mixes[0] @ payoffs).min()
    assert sum(gains) / 2 < 0.15  # 0.33 where all are alike
    # What the average policy does is what its members do on average.
    seen = np.tile(players, (5_000, 1))
    done = np.asarray(agent.average_policy.act(seen, seed=0).actions).reshape(-1, 2)
    for player in range(2):
        found = np.bincount(done[:, player], minlength=3) / len(done)
        np.testing.assert_allclose(found, mixes[player], atol=0.04)


def strategy(policy, player):
    """Probabilities of betting, by card and moves."""
    known = [
        (card, moves) for card in range(3) for moves in kuhn_oracle.SITUATIONS[player]
    ]
    seen = np.zeros((len(known), 9), np.float32)
    for row, (card, moves) in enumerate(known):
        seen[row, [player, 2 + card]] = 1.0
        for i, move in enumerate(moves):
            seen[row, 5 + 2 * i + "pb".index(move)] = 1.0
    mask = np.ones((len(known), 2), np.int8)
    odds = odds_of(policy, {"action_mask": mask, "observation": seen})[:, 1]
    table = dict(zip(known, odds.tolist(), strict=True))
    return lambda card, moves: table[card, moves]


def test_kuhn_poker(tmp_path):
    """The first player gets -1/18; even odds can be exploited by 0.46."""
    make_envs = functools.partial(ParallelEnvVector, KuhnPoker)
    agent = trained(
        *(tmp_path, make_envs),
        current_share=0.5,
        n_epochs=300,
        n_steps=16,
        learning_rate=0.005,
    )
    league = agent.average_policy.members
    mix = [(1 / len(league), strategy(x, 0), strategy(x, 1)) for x in league]
    assert kuhn_oracle.exploitability(mix) < 0.15
    value = sum(w * kuhn_oracle.value(*pair) for w, *pair in mix)
    assert value == pytest.approx(-1 / 18, abs=0.05)
    last = strategy(agent.learner.policy, 0)
    assert last(1, "") < last(2, "")  # the middle card is not bet as the highest is


TICTACTOE = functools.partial(ParallelEnvVector, "classic/tictactoe-v3")
INNER = PPO(
    gamma=1.0,
    minibatch_size=128,
    n_epochs=4,
    learning_rate=2e-3,
    entropy_coefficient=0.02,
    hidden_units=(64, 64),
)
LEARNERS = {
    "ppo": (INNER, training.Trajectories(n_steps=16), 150),
    "self_play": (
        SelfPlay(INNER, snapshot_updates=5, current_share=0.5),
        training.Trajectories(n_steps=16),
        150,
    ),
    "dqn": (
        DQN(hidden_units=(64, 64), learning_rate=1e-3),
        training.Replayed(
            capacity=20_000, batch_size=64, learning_starts=1_000, gamma=1.0
        ),
        300,
    ),
}


@pytest.mark.parametrize("kind", LEARNERS)
def test_tictactoe(kind, tmp_path):
    """Who plays at random wins as much as it loses, taking both sides in turn."""
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    agent, experience, n_epochs = LEARNERS[kind]
    trainer = training.Trainer(
        tmp_path,
        n_epochs=n_epochs,
        agent=agent,
        make_envs=TICTACTOE,
        n_envs=32,
        experience=experience,
        intervals=training.Intervals(eval_episodes=2, log_epochs=50),
    )
    with trainer:
        trainer.run(quiet=True)
    learner = getattr(trainer.agent, "learner", trainer.agent)
    rng = np.random.default_rng(0)

    def at_random(seen):
        masks = seen["action_mask"]
        return (rng.random(masks.shape) * masks).argmax(-1)

    policy = LeaguePolicy(
        learner.policy,
        (FunctionPolicy(at_random),),
        np.array([0.0, 1.0]),
        np.zeros(1, np.uint32),
        n_agents=2,
    )
    played = training.evaluate(policy, TICTACTOE(20), 1_000, seed=1, temperature=0.0)
    returns = played.returns.reshape(20, 50)
    np.testing.assert_array_equal(returns[::2], -returns[1::2])
    mine = returns[policy.rows_of_current(20)]
    assert mine.mean() > 0.4
    assert (mine == 1).mean() > 0.65 and (mine == -1).mean() < 0.25
