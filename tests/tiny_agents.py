"""An agent of a few numbers and its trainers, for tests of what runs agents.

It acts and learns by one product of arrays: nobody waits for traces or compilers.
"""

import dataclasses
import functools
import signal
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tfrl.core import pytree
from tfrl.environments import vector
from tfrl.policies import policy
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, trainer

MAKE = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
EVERY = cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=2)


@dataclasses.dataclass(frozen=True)
class Tiny:
    """Hyper-parameters of an agent that takes vectors, and learns from whatever comes.

    Attributes:
        rate: how fast it learns.
        n_weights: numbers that nobody uses, so that agents differ in shape.
    """

    learns_from: ClassVar = ("trajectories", "transitions", "batches")
    rate: float = 0.1
    n_weights: int = 2

    def create(self, observation_space, action_space, *, seed=0):
        shape = [*observation_space.shape, int(action_space.n)]
        weights = np.random.default_rng(seed).normal(size=shape)
        others = tf.zeros([self.n_weights])
        return TinyAgent(TinyPolicy(tf.constant(weights, tf.float32), others), self)


class TinyPolicy(pytree.PyTreeNode):
    """Takes the action of the greatest value, after noise unless it is greedy."""

    weights: tf.Tensor
    others: tf.Tensor

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        values = np.asarray(observations) @ self.weights.numpy()
        if temperature:
            values += np.random.default_rng(seed).gumbel(size=values.shape)
        actions = values.argmax(-1)
        return policy.Acted(actions, actions, None, state)


class TinyAgent(pytree.PyTreeNode):
    policy: Any
    config: Tiny = pytree.nonpytree_field()

    def update(self, given):
        """Makes the actions that were rewarded likelier where they were taken."""
        sample = hasattr(given, "indices")
        rows = given.data if sample else given
        rows = rows if isinstance(rows, dict) else rows._asdict()
        seen, actions = rows["observations"], np.asarray(rows["actions"], int)
        paid = np.asarray(rows.get("rewards", np.ones(actions.shape)))
        taken = np.eye(self.policy.weights.shape[1])[actions] * paid[..., np.newaxis]
        seen = np.reshape(seen, [-1, np.shape(seen)[-1]])
        step = seen.T @ np.reshape(taken, [len(seen), -1]) / len(seen)
        weights = self.policy.weights + tf.constant(self.config.rate * step, tf.float32)
        info = {"loss": float(np.abs(step).mean())}
        if sample:
            info["priorities"] = 0.5 + np.abs(actions - 0.5 * paid)
        return self.replace(policy=self.policy.replace(weights=weights)), info


def build(folder, n_epochs=6, **settings):
    """Returns a trainer of two environments, of 16 steps an epoch each."""
    given = {
        "agent": Tiny(),
        "make_envs": MAKE,
        "n_envs": 2,
        "experience": experience.Trajectories(16),
        "intervals": EVERY,
    }
    return trainer.Trainer(folder, n_epochs, **{**given, **settings})


def train(folder, **settings):
    """Runs one; returns it and the final evaluation."""
    with build(folder, **settings) as running:
        return running, running.run(quiet=True)


def at_epoch(running, epoch, action):
    """Has something done in an epoch, before it is played or read."""
    gather = running.gather

    def disturbed():
        if running.epoch == epoch:
            action()
        return gather()

    running.gather = disturbed


def stop_in(running, epoch, number=signal.SIGINT):
    """Asks a trainer to end in an epoch, as Ctrl-C would."""
    at_epoch(running, epoch, functools.partial(signal.raise_signal, number))


def assert_same(first, second):
    """All leaves of two nests are alike to the bit."""
    for one, other in zip(*map(tf.nest.flatten, (first, second)), strict=True):
        np.testing.assert_array_equal(one, other)


def assert_same_rows(one, other):
    """The metrics of two runs are alike, but for the time they took."""
    one, other = (run_log.read_metrics(x / "metrics.csv") for x in (one, other))
    assert list(one) == list(other)
    for name in (name for name in one if "second" not in name):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
