"""Small runs whose trainers collect in the graph, alone and on replicas.

`python -m compiled_learners STRATEGY KIND...` prints the kinds of which virtual
replicas train what one does. They are those of "rehearsal:N", or of "collective:N",
which reduces and gathers as TensorFlow does by default on GPUs.
"""

import contextlib
import sys
import tempfile

import numpy as np
import plain_graphs
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl.agents import replicated
from tfrl.distribute import strategies
from tfrl.environments.compiled import cartpole, pendulum, vector_env, wrappers
from tfrl.training import cadence, experience, trainer

UNITS = (8,)


def carts(n_envs, limit=7):
    env = wrappers.AutoReset(wrappers.TimeLimit(cartpole.CartPole(), limit))
    return vector_env.as_vector_env(env, n_envs)


def pendulums(n_envs):
    env = wrappers.AutoReset(wrappers.TimeLimit(pendulum.Pendulum(), 9))
    return vector_env.as_vector_env(env, n_envs)


def bits(n_envs):
    return vector_env.make_compiled("BitFlipping-v0", n_envs, env_kwargs={"n_bits": 3})


def replayed(**options):
    given = {"capacity": 400, "batch_size": 16, "n_steps": 4, "learning_starts": 64}
    return experience.Replayed(**{**given, **options})


LEARNERS = {
    "ppo": (
        agents.PPO(hidden_units=UNITS, minibatch_size=40, n_epochs=2),
        experience.Trajectories(10),
        carts,
    ),
    "memory": (
        agents.PPO(hidden_units=UNITS, memory="gru", memory_units=4, minibatch_size=80),
        experience.Trajectories(10),
        carts,
    ),
    "rnd": (
        agents.RND(agents.A2C(hidden_units=UNITS), hidden_units=UNITS),
        experience.Trajectories(10),
        carts,
    ),
    "dqn": (agents.DQN(hidden_units=UNITS), replayed(n_step_returns=2), carts),
    "rainbow": (agents.Rainbow(hidden_units=UNITS), replayed(), carts),
    "goals": (
        agents.DQN(hidden_units=UNITS),
        replayed(sampler="prioritized", relabel="future"),
        bits,
    ),
    "sac": (agents.SAC(hidden_units=UNITS), replayed(), pendulums),
}


def training(folder, kind="ppo", epochs=6, **options):
    agent, learned, make_envs = LEARNERS[kind]
    intervals = cadence.Intervals(log_epochs=2, eval_episodes=1, checkpoint_epochs=2)
    given = {"agent": agent, "experience": learned, "intervals": intervals}
    given |= {"make_envs": make_envs, "n_envs": 16, "collector": "compiled"}
    return trainer.Trainer(folder, epochs, **{**given, **options})


def ends(running):
    """The agent and the episodes that a run ends with, as arrays."""
    leaves = tf.nest.flatten((running.agent, running._collector._episodes))
    return [np.asarray(x) for x in leaves]


@contextlib.contextmanager
def plain_programs():
    """A context in which neither collecting nor learning is compiled by XLA."""
    with plain_graphs.plain_graphs(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicated, "_by_xla", lambda *_: False)
        yield


def assert_close(one, other):
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


def replicas_of(name):
    kind, count = name.split(":")
    rehearsal = strategies.strategy(f"rehearsal:{count}")
    if kind == "rehearsal":
        return rehearsal
    return tf.distribute.MirroredStrategy(rehearsal.extended.worker_devices)


def main(name, *kinds):
    strategy = replicas_of(name)
    for kind in kinds:
        found = []
        for chosen in (None, strategy):
            with (
                tempfile.TemporaryDirectory() as folder,
                training(f"{folder}/run", kind, strategy=chosen) as running,
            ):
                running.run(quiet=True)
                found.append(ends(running))
        assert_close(*found)
        print(kind, flush=True)


if __name__ == "__main__":
    with plain_programs():
        main(*sys.argv[1:])
