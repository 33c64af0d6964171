"""Runs of agents that are killed anywhere go on to the bit, and memory stays flat."""

import dataclasses
import functools
import os
import shutil
import threading
from typing import Any

import numpy as np
import plain_graphs
import psutil
import pytest
import tiny_agents
from power_loss import CALLS

from tfrl.agents.off_policy import dqn, sac, td3
from tfrl.agents.offline import iql
from tfrl.agents.on_policy import ppo
from tfrl.environments import vector, wrappers
from tfrl.saving import checkpoints
from tfrl.training import cadence, experience

pytestmark = pytest.mark.slow

N_EPOCHS = 18
# Reports, evaluations and checkpoints fall together only now and then.
INTERVALS = cadence.Intervals(
    log_epochs=2,
    eval_epochs=5,
    eval_episodes=2,
    checkpoint_epochs=3,
    checkpoints_kept=2,
)
REPLAYED = experience.Replayed(150, 8, n_steps=8, learning_starts=24, n_step_returns=2)
SWING = functools.partial(vector.make_vec, "Pendulum-v1", max_episode_steps=10)
POLE = functools.partial(
    vector.make_vec,
    "CartPole-v1",
    wrappers=[functools.partial(wrappers.PartialObservation, indices=[0, 2])],
)


def recorded():
    """60 steps of a pendulum that was pushed at random."""
    rng, count = np.random.default_rng(1), np.arange(60)
    return {
        "observations": rng.normal(size=[60, 3]),
        "actions": rng.uniform(-2.0, 2.0, [60, 1]),
        "rewards": rng.normal(size=60),
        "next_observations": rng.normal(size=[60, 3]),
        "terminated": count % 20 == 9,
        "truncated": count % 20 == 19,
    }


RUNS: dict[str, dict[str, Any]] = {
    "dqn": {
        "agent": dqn.DQN(hidden_units=(8,), target_period=3),
        "experience": dataclasses.replace(REPLAYED, sampler="prioritized"),
    },
    "sac": {
        "agent": sac.SAC(hidden_units=(8,)),
        "experience": REPLAYED,
        "make_envs": SWING,
    },
    "ppo_memory": {
        "agent": ppo.PPO(
            **{"memory": "lstm", "memory_units": 3, "hidden_units": (4,)},
            **{"minibatch_size": 8, "n_epochs": 2, "normalize_rewards": True},
            learning_rate_schedule="linear",
        ),
        "experience": experience.Trajectories(8),
        "make_envs": POLE,
    },
    "iql": {
        "agent": iql.IQL(hidden_units=(8,), normalize_observations=True),
        "experience": experience.FromDataset(recorded, batch_size=8, n_batches=5),
        "make_envs": SWING,
    },
}


class Watched:
    """What a process that is killed at some moments of a run would leave.

    Moments are the begins of epochs and the calls that change files or wait for the
    disk. A kill leaves what the folder is then: a copy of it.
    """

    def __init__(self, folder, kills):
        self.folder, self.kills = folder, set(kills)
        self.moments, self.left = [], []

    def run(self, running, monkeypatch):
        def noting(kind, call):
            def noted(*args, **kwargs):
                self.note(kind)
                return call(*args, **kwargs)

            return noted

        monkeypatch.setattr(running, "gather", noting("epoch", running.gather))
        for name in CALLS:
            monkeypatch.setattr(os, name, noting("call", getattr(os, name)))
        running.run(quiet=True)

    def note(self, kind):
        if threading.current_thread() is not threading.main_thread():
            return
        if len(self.moments) in self.kills:
            self.kills.discard(len(self.moments))  # copying calls some of them too
            copy = self.folder.with_name(f"killed-{len(self.moments)}")
            self.left.append(copy)
            moments, self.moments = self.moments, []
            shutil.copytree(self.folder, copy)
            self.moments = moments
        self.moments.append(kind)


def ended(running):
    """A run at its end, and what it would learn from in the epochs that follow."""
    # Of a replay, more rows than it holds: contents, priorities and draws.
    return running.agent, running.env_steps, [running.gather() for _ in range(3)]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_at_25_moments(tmp_path, monkeypatch, name):
    start = functools.partial(
        tiny_agents.build, n_epochs=N_EPOCHS, intervals=INTERVALS, **RUNS[name]
    )

    def watched(folder, kills=()):
        seen = Watched(folder, kills)
        with start(folder) as running:
            with monkeypatch.context() as patch:
                seen.run(running, patch)
            return seen, ended(running)

    whole = tmp_path / "whole"
    uncut, expected = watched(whole)
    kinds = {
        kind: [i for i, x in enumerate(uncut.moments) if x == kind]
        for kind in ("epoch", "call")
    }
    assert len(kinds["epoch"]) == N_EPOCHS
    calls = np.linspace(0, len(kinds["call"]) - 1, 16).astype(int)
    # Checkpoints are of every third epoch.
    kills = [*kinds["epoch"][1::2], *np.array(kinds["call"])[calls]]
    seen, found = watched(tmp_path / "again", kills)
    tiny_agents.assert_same(found, expected)
    assert len(seen.left) == 25
    for folder in seen.left:
        resume = checkpoints.latest_step(folder) is not None
        with start(folder, resume=resume) as resumed:
            assert resumed.notice is None
            resumed.run(quiet=True)
            tiny_agents.assert_same(ended(resumed), expected)
        tiny_agents.assert_same_rows(whole, folder)


# Epochs of 256 rows of experience; replays are full long before the half.
LONG = experience.Replayed(
    10_000, 8, n_steps=32, learning_starts=1000, updates_per_step=1 / 16
)
LONG_RUNS = {
    "dqn": {
        **RUNS["dqn"],
        "experience": dataclasses.replace(LONG, sampler="prioritized"),
    },
    "sac": {**RUNS["sac"], "experience": LONG},
    "td3": {**RUNS["sac"], "experience": LONG, "agent": td3.TD3(hidden_units=(8,))},
    "ppo": {
        "agent": ppo.PPO(n_epochs=2, minibatch_size=256, hidden_units=(8,)),
        "experience": experience.Trajectories(32),
    },
    "ppo_memory": {
        **RUNS["ppo_memory"],
        "agent": dataclasses.replace(RUNS["ppo_memory"]["agent"], minibatch_size=128),
        "experience": experience.Trajectories(32),
    },
    "iql": {
        **RUNS["iql"],
        "experience": experience.FromDataset(recorded, batch_size=32, n_batches=8),
    },
}


@pytest.mark.parametrize("name", LONG_RUNS)
def test_memory_stays_flat_over_200_000_steps(tmp_path, name):
    sizes, process = [], psutil.Process()
    intervals = cadence.Intervals(10, 200, 2, 50)
    with tiny_agents.build(
        tmp_path, n_epochs=800, n_envs=8, intervals=intervals, **LONG_RUNS[name]
    ) as running:
        save = running._save

        def measured(report):
            save(report)
            sizes.append((running.env_steps, process.memory_info().rss / 2**20))

        running._save = measured
        with plain_graphs.own_traces():
            running.run(quiet=True)
            counts = [update.trace_count() for update in plain_graphs.UPDATES]
    assert max(counts) == 1
    steps, megabytes = np.transpose([x for x in sizes if x[0] > 50_000])
    assert steps[-1] >= 200_000
    slope, _ = np.polyfit(steps, megabytes, 1)
    assert slope * 100_000 < 2.0, "more than 2 MiB per 100,000 steps"
