"""Signals while the agent of a trainer learns."""

import functools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import _pieces, ppo, replicated
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.training import cadence, experience, trainer

AGENT = ppo.PPO(
    n_epochs=4,
    minibatch_size=16,
    normalize_observations=True,
    normalize_rewards=True,
    learning_rate_schedule="linear",
)


def make_trainer(folder, **settings):
    settings = {
        "n_epochs": 3,
        "agent": AGENT,
        "make_envs": functools.partial(
            vector.make_vec, "CartPole-v1", vectorization="sync"
        ),
        "n_envs": 2,
        "experience": experience.Trajectories(16),
        "intervals": cadence.Intervals(
            log_epochs=1, eval_episodes=1, checkpoint_epochs=100
        ),
        **settings,
    }
    return trainer.Trainer(folder, **settings)


def signal_in_piece(monkeypatch, number):
    """Sends SIGINT before that gradient step of all."""
    run, count = replicated.run_update, [0]

    def counted(update, *args):
        count[0] += 1
        if count[0] == number:
            signal.raise_signal(signal.SIGINT)
        return run(update, *args)

    monkeypatch.setattr(replicated, "run_update", counted)


def assert_same(first, second):
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


# Of the first epoch nobody knows how long it takes; all have 8 steps, one a piece.
@pytest.mark.parametrize("piece", [3, 2 * 8 + 5], ids=["first epoch", "third epoch"])
def test_a_long_epoch_is_broken_off_and_repeated_to_the_bit(
    tmp_path, monkeypatch, piece
):
    monkeypatch.setattr(_pieces, "_BRIEF_WORK", 1)
    monkeypatch.setattr(_pieces, "_PIECE_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "_LONG_SECONDS", 0.0)
    with make_trainer(tmp_path / "whole") as whole:
        whole.run(quiet=True)
    with monkeypatch.context() as patched, make_trainer(tmp_path / "cut") as first:
        signal_in_piece(patched, piece)
        before = first.agent
        assert first.run(quiet=True) is None
        assert first.epoch == piece // 8 and first.env_steps == 32 * first.epoch
        assert (first.agent is before) == (first.epoch == 0)
    assert checkpoints.list_steps(tmp_path / "cut") == [first.env_steps]
    with make_trainer(tmp_path / "cut", resume=True) as second:
        assert second.run(quiet=True) is not None
    assert second.env_steps == whole.env_steps == 96
    assert_same(second.agent, whole.agent)


def test_a_short_epoch_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "_LONG_SECONDS", np.inf)
    with make_trainer(tmp_path) as running:
        signal_in_piece(monkeypatch, 2)
        assert running.run(quiet=True) is None
    assert running.epoch == 2 and checkpoints.list_steps(tmp_path) == [64]


SLOW = """
import functools, sys
import gymnasium as gym
import numpy as np
import tfrl


class Images(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


gym.register("Images-v0", Images, max_episode_steps=5)
PPOAgent = type(tfrl.agents.PPO().create(
    Images.observation_space, Images.action_space, n_envs=1, n_steps=64,
    seed=0))
learn = PPOAgent.update


def update(agent, trajectory):
    print("learns", flush=True)
    return learn(agent, trajectory)


PPOAgent.update = update
with tfrl.training.Trainer(
    sys.argv[1],
    n_epochs=2,
    # Minutes of gradient steps.
    agent=tfrl.agents.PPO(n_epochs=20_000, minibatch_size=32),
    make_envs=functools.partial(
        tfrl.environments.make_vec, "Images-v0", vectorization="sync"),
    n_envs=2,
    experience=tfrl.training.Trajectories(16),
    intervals=tfrl.training.Intervals(eval_episodes=1),
) as running:
    played = running.run(quiet=True)
    print("ended", played, running.epoch, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_process_that_learns_from_images_ends_in_seconds(tmp_path, number):
    (tmp_path / "slow.py").write_text(SLOW)
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert child.stdout.readline() == "learns\n"
    time.sleep(8)  # in the midst of gradient steps
    start = time.monotonic()
    child.send_signal(number)
    assert child.stdout.readline() == "ended None 0\n"
    seconds = time.monotonic() - start
    child.communicate(timeout=60)
    assert child.returncode == 0 and seconds < 5
    assert checkpoints.list_steps(tmp_path / "run") == [0]
