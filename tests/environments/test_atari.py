"""Tests of `tfrl.environments.atari`."""

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import refusals
from refusals import bad

from tfrl.environments import EndOnLifeLoss, make_atari

gym.register_envs(ale_py)
SMALL = {"frame_skip": 2, "stack": 2, "size": 42}


@pytest.mark.parametrize(
    ("game", "options"),
    [
        pytest.param("Breakout", {}, marks=pytest.mark.slow),
        pytest.param("Pong", {"max_episode_steps": 100}, marks=pytest.mark.slow),
        ("SpaceInvaders", {**SMALL, "clip_rewards": True, "max_episode_steps": 400}),
    ],
)
def test_both_engines_play_the_same_game(game, options):
    # Of one step of nothing there is no doubt.
    pool, own = (
        make_atari(game, 1, engine, noop_max=1, **options)
        for engine in ("envpool", "sync")
    )
    assert pool.single_observation_space == own.single_observation_space
    assert pool.single_action_space == own.single_action_space
    np.testing.assert_array_equal(pool.reset(seed=0)[0], own.reset(seed=0)[0])
    rng, n_ends, total = np.random.default_rng(0), 0, 0.0
    for _ in range(600):
        actions = rng.integers(own.single_action_space.n, size=1)
        one, two = pool.step(actions), own.step(actions)
        for a, b in zip(one[1:4], two[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        total += abs(two[1][0])
        # Where a game is over within a step, the last picture is of other frames.
        if not two[2][0]:
            np.testing.assert_array_equal(one[0], two[0])
        if two[2][0] or two[3][0]:
            n_ends += 1
            mask = {"reset_mask": np.array([True])}
            one, two = pool.reset(options=mask), own.reset(options=mask)
            np.testing.assert_array_equal(one[0], two[0])
    assert n_ends >= 1 and total >= 1


def test_the_preset():
    envs = make_atari("Breakout", 2)
    assert envs.single_observation_space.shape == (4, 84, 84)
    assert envs.single_observation_space.dtype == np.uint8
    seen, _ = envs.reset(seed=0)
    # An episode begins with one picture four times.
    assert (seen == seen[:, :1]).all()
    game = envs.envs[0].unwrapped.ale
    before = game.getFrameNumber()
    envs.step(np.array([0, 0]))
    assert game.getFrameNumber() - before == 4
    assert envs.remake(n_envs=3).num_envs == 3


def test_an_episode_is_a_life():
    envs = make_atari("Breakout", 1, end_on_life_loss=True)
    rng, game, n_lives = np.random.default_rng(0), envs.envs[0].unwrapped.ale, 0
    envs.reset(seed=1)
    while True:
        before = game.lives()
        *_, terminated, truncated, _ = envs.step(rng.integers(4, size=1))
        assert not truncated[0] and terminated[0] == (game.lives() < before)
        if terminated[0]:
            n_lives += 1
            if game.lives() == 0:
                break
            frames = game.getEpisodeFrameNumber()
            seen, _ = envs.reset(options={"reset_mask": np.array([True])})
            assert game.lives() == before - 1
            # A step of nothing in the same game, whose picture fills the stack.
            assert game.getEpisodeFrameNumber() == frames + 4
            assert (seen == seen[:, :1]).all()
    assert n_lives == 5
    envs.reset(options={"reset_mask": np.array([True])})
    assert game.lives() == 5


def test_a_truncated_game_begins_anew():
    env = gym.make("ALE/Breakout-v5", frameskip=4, max_episode_steps=20)
    env = EndOnLifeLoss(env)
    env.reset(seed=0)
    truncated = False
    while not truncated:
        *_, truncated, _ = env.step(0)
    frames = env.unwrapped.ale.getEpisodeFrameNumber()
    env.reset()
    assert env.unwrapped.ale.getEpisodeFrameNumber() < frames


@pytest.mark.slow
def test_rewards_are_signs():
    envs = make_atari("SpaceInvaders", 2, clip_rewards=True)
    plain = make_atari("SpaceInvaders", 2)
    rng = np.random.default_rng(1)
    envs.reset(seed=0), plain.reset(seed=0)
    pairs = []
    for _ in range(150):
        actions = rng.integers(6, size=2)
        pairs += zip(envs.step(actions)[1], plain.step(actions)[1], strict=True)
    clipped, paid = np.transpose(pairs)
    np.testing.assert_array_equal(clipped, np.sign(paid))
    assert paid.max() > 1


@refusals.table(
    (
        make_atari,
        bad(TypeError, "game", 3),
        bad(ValueError, "n_envs", "Pong", 0),
        bad(ValueError, "vectorization", "Pong", vectorization="auto"),
        bad(TypeError, "frame_skip", "Pong", frame_skip=2.5),
        bad(ValueError, "stack", "Pong", stack=0),
        bad(ValueError, "size", "Pong", size=0),
        bad(ValueError, "noop_max", "Pong", noop_max=-1),
        bad(TypeError, "clip_rewards", "Pong", clip_rewards=1),
        bad(
            ValueError,
            "end_on_life_loss",
            "Pong",
            vectorization="envpool",
            end_on_life_loss=True,
        ),
        bad(
            ValueError,
            "repeat_action_probability",
            "Pong",
            repeat_action_probability=2.0,
        ),
        bad(ValueError, "max_episode_steps", "Pong", max_episode_steps=0),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize("vectorization", ["sync", "envpool"])
def test_an_unknown_game(vectorization):
    with pytest.raises(ValueError, match="NoSuchGame"):
        make_atari("NoSuchGame", 1, vectorization)
