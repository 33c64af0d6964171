"""Two processes on one machine that train together, for tests.

Each is `python -m tests.training_workers` with its settings as JSON.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import tensorflow as tf

from tfrl import schedules
from tfrl.agents.off_policy import dqn
from tfrl.agents.offline import bc
from tfrl.agents.on_policy import ppo
from tfrl.distribute import ports, strategies
from tfrl.environments import vector
from tfrl.training import cadence, experience, trainer
from tfrl.training.collecting import actor_collection

PPO = ppo.PPO(
    n_epochs=2,
    minibatch_size=16,
    normalize_observations=True,
    normalize_rewards=True,
    learning_rate_schedule="linear",
)
make_envs = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")


def start(told):
    """Starts one process that does what `main` is told."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training_workers", json.dumps(told)],
        cwd=pathlib.Path(__file__).parents[1],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def together(folder, **settings):
    """Runs two workers; returns their exit codes and what they wrote to stderr."""
    with ports.get_unused_port(20_000, n=2) as both, contextlib.ExitStack() as running:
        processes = []
        for rank in range(2):
            told = {"folder": str(folder), "ports": both, "rank": rank, **settings}
            processes.append(running.enter_context(start(told)))
            running.callback(processes[-1].kill)
        texts = [process.communicate(timeout=500)[1] for process in processes]
        return [process.returncode for process in processes], texts


def weights(folder, rank):
    """Returns what a worker ended with, as a list of arrays."""
    with np.load(f"{folder}.{rank}.npz") as saved:
        return [saved[name] for name in saved.files]


def make_trainer(folder, n_epochs, **settings):
    intervals = cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=2)
    given = {"agent": PPO, "make_envs": make_envs, "n_envs": 2}
    given["experience"] = experience.Trajectories(16)
    return trainer.Trainer(
        folder, n_epochs=n_epochs, intervals=intervals, **{**given, **settings}
    )


def learned(algorithm, n_updates, strategy=None):
    """An agent after updates from what a new one met: the same in every process."""
    player = make_trainer("not-written", n_updates)
    trajectories = [player.gather() for _ in range(n_updates)]
    player.close()
    spaces = player.observation_space, player.action_space
    with (
        contextlib.nullcontext() if strategy is None else strategy.scope(),
        schedules.progress_context(schedules.Progress(percent=0.0)),
    ):
        if algorithm == "ppo":
            agent = PPO.create(*spaces, n_envs=2, n_steps=16, seed=3)
            for trajectory in trajectories:
                agent, _ = agent.update(trajectory)
        else:
            agent = bc.BC().create(*spaces)
            for trajectory in trajectories:
                batch = {
                    "observations": trajectory.observations.reshape(-1, 4),
                    "actions": trajectory.actions.reshape(-1),
                }
                agent, _ = agent.update(batch)
    return agent


def _train(strategy, told):
    """Runs a `Trainer`; one worker may interrupt or kill itself in some epoch."""
    settings = {"strategy": strategy}
    if told.get("replayed"):
        settings["agent"] = dqn.DQN(hidden_units=(8,), target_period=3)
        settings["experience"] = experience.Replayed(
            *(200, 8), n_steps=8, learning_starts=40, sampler="prioritized"
        )
    if told.get("actors"):
        settings["collector"] = actor_collection.ActorPool(**told["actors"])
        if not told.get("replayed"):
            settings["agent"] = dataclasses.replace(PPO, vtrace=True)
    with make_trainer(
        told["folder"], told["n_epochs"], resume=told["resume"], **settings
    ) as running:
        gather = running.gather

        def disturbed():
            mine = told.get("victim") == told["rank"]
            if mine and running.epoch == told["at_epoch"]:
                signal.raise_signal(getattr(signal, told["signal"]))
            return gather()

        running.gather = disturbed
        try:
            running.run(quiet=True)
        except KeyboardInterrupt:  # all end where one is asked to
            if told.get("signal") != "SIGINT":
                raise
        return running.agent


def _rehearse(told):
    """Saves what one and what several replicas make of the same trajectories."""
    strategy = strategies.strategy(f"rehearsal:{told['n_replicas']}")
    for rank, chosen in enumerate([None, strategy]):
        _save(
            told["folder"], rank, learned(told["algorithm"], told["n_updates"], chosen)
        )


def _save(folder, rank, agent):
    np.savez(f"{folder}.{rank}.npz", *map(np.asarray, tf.nest.flatten(agent)))


def main(told):
    if "n_replicas" in told:
        _rehearse(told)
        return
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": [f"127.0.0.1:{port}" for port in told["ports"]]},
            "task": {"type": "worker", "index": told["rank"]},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if "n_updates" in told:
        agent = learned(told["algorithm"], told["n_updates"], strategy)
    else:
        agent = _train(strategy, told)
    _save(told["folder"], told["rank"], agent)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
