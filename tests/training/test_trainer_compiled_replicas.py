"""Collection in one graph on several replicas: each plays its part, as one would."""

import functools
import os
import pathlib
import subprocess
import sys

import compiled_learners
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from compiled_learners import training

from tfrl import agents
from tfrl._internal import draws
from tfrl.agents import replicated
from tfrl.core import pytree
from tfrl.environments.compiled import protocol, vector_env, wrappers
from tfrl.policies import policy
from tfrl.training import _processes, experience
from tfrl.training.collecting import _compiled_collection, _rollouts


@functools.cache
def two_replicas():
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


@pytest.fixture(autouse=True)
def _without_xla():
    with compiled_learners.plain_programs():
        yield


class Walk(protocol.CompiledEnv):
    """Goes up and down by chance and by actions, and ends above 1."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Discrete(2)
    n_noise = 1

    def initial(self, noise):
        return noise, noise

    def step(self, state, actions, noise):
        state += tf.cast(actions, tf.float32)[:, None] - noise
        paid, ended = state[:, 0], state[:, 0] > 1.0
        return protocol.CompiledStep(
            state, state, paid, ended, tf.zeros_like(ended), state
        )


class Guesser(pytree.PyTreeNode):
    """Guesses rewards, and learns to."""

    policy: object

    def update(self, trajectory):
        def loss_fn(state, params, part):
            guesses = state(part["observations"], params=params)[1]
            loss = tf.reduce_mean(tf.square(guesses - part["rewards"]))
            return loss, {"loss": loss}

        rows = {"observations": trajectory.observations, "rewards": trajectory.rewards}
        rows = {k: tf.reshape(x, [1, 36, *x.shape[2:]]) for k, x in rows.items()}
        state, info = replicated.take_steps(self.policy.state, loss_fn, rows)
        return self.replace(policy=self.policy.replace(state=state)), info


@pytest.mark.slow
def test_two_replicas_play_and_learn_what_one_does():
    envs = vector_env.as_vector_env(wrappers.AutoReset(Walk()), 4)
    made = agents.PolicyGradient(hidden_units=(4,)).create(
        envs.single_observation_space, envs.single_action_space
    )
    agent = Guesser(made.policy)
    given = envs, experience.Trajectories(9), agent, 3
    alone = _compiled_collection.CompiledCollector(*given)
    tf.config.run_functions_eagerly(True)
    try:
        expected = alone.learn(agent, 0, 1, 2)
    finally:
        tf.config.run_functions_eagerly(False)
    with two_replicas().scope():
        shared = _compiled_collection.CompiledCollector(*given)
        found = shared.learn(agent, 0, 1, 2)
    pairs = zip((expected, alone._episodes), (found, shared._episodes), strict=True)
    for pair in pairs:
        compiled_learners.assert_close(*map(tf.nest.flatten, pair))
    assert [*alone.episode_lengths] == [*shared.episode_lengths] != []


class Chancy(pytree.PyTreeNode):
    """Acts by draws of TensorFlow, not of tfrl."""

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        chance = tf.random.stateless_uniform([observations.shape[0]], seed)
        actions = tf.cast(chance > 0.5, tf.int32)
        return policy.Acted(actions, actions, chance, state)


def test_other_policies_draw_apart():
    begun = _rollouts.Episodes(tf.zeros([2, 1]), tf.zeros([2, 1]), ())

    def chances(index):
        given = Chancy(), Walk(), begun, tf.constant([1, 2]), 3, index, 2
        return _rollouts.rollout(*given)[1].log_probs

    both = tf.function(lambda: [chances(0), chances(1)], autograph=False)()
    assert len(np.unique(both)) == np.size(both) == 12


@pytest.mark.parametrize(
    "draw",
    [
        lambda rates: draws.normal([*rates.shape, 5], 3, tf.float32),
        pytest.param(
            lambda rates: draws.log_gamma(rates, rates.shape, 3),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_parts_of_a_draw_are_its_rows(draw):
    rates = tf.range(1.0, 7.0)

    def drawn():
        parts = []
        for i in range(3):
            with draws.part(i, 3):
                parts.append(draw(rates[2 * i : 2 * i + 2]))
        return tf.concat(parts, 0), draw(rates)

    found, expected = tf.function(drawn, autograph=False)()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Counted(wrappers.Wrapper):
    """Keeps one count for all copies."""

    def initial(self, noise):
        state, seen = self.env.initial(noise)
        return wrappers.WrappedState(state, tf.zeros([], tf.int32)), seen

    def step(self, state, actions, noise):
        found = self.env.step(state.env, actions, noise)
        return found._replace(state=wrappers.WrappedState(found.state, state.own + 1))


def test_replicas_and_environments_that_do_not_fit(tmp_path, monkeypatch):
    def refused(match, **options):
        with pytest.raises(ValueError, match=match):
            training(tmp_path / "run", strategy=two_replicas(), **options)

    refused(
        "`n_envs` expected .* 2 replicas, .* got 5; take one of \\[4, 6\\]", n_envs=5
    )

    def shared(n_envs):
        env = Counted(wrappers.AutoReset(Walk()))
        return vector_env.as_vector_env(env, n_envs)

    refused("a state `\\[N, ...\\]` .* let the agent", make_envs=shared)
    monkeypatch.setattr(_processes, "_place", lambda _: (2, 0))
    refused("`strategy` expected one worker .* got 2; take the collector 'host'")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "rnd", "rainbow", "goals"])
def test_two_replicas_train_what_one_does(kind, tmp_path):
    found = []
    for count, strategy in enumerate([None, two_replicas()], 1):
        with training(tmp_path / str(count), kind, strategy=strategy) as running:
            running.run(quiet=True)
            found.append(compiled_learners.ends(running))
    compiled_learners.assert_close(*found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_a_run_on_replicas_is_resumed_to_the_bit(kind, tmp_path):
    strategy = two_replicas()
    with training(tmp_path / "whole", kind, strategy=strategy) as whole:
        whole.run(quiet=True)
        assert whole._collector.program.play.experimental_get_tracing_count() == 1
    with training(tmp_path / "cut", kind, epochs=4, strategy=strategy) as first:
        first.run(quiet=True)
    with training(tmp_path / "cut", kind, resume=True, strategy=strategy) as second:
        assert second.notice is None
        second.run(quiet=True)
    pairs = zip(*map(compiled_learners.ends, (whole, second)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)
    # One device goes on with what several have saved.
    with training(tmp_path / "cut", kind, resume=True) as alone:
        assert alone.epoch == 6
        for one, other in zip(
            *map(compiled_learners.ends, (alone, second)), strict=True
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["rehearsal:8", "collective:2"])
def test_replicas_train_what_one_does(strategy):
    tests, kinds = pathlib.Path(__file__).parents[1], ["ppo", "dqn", "sac"]
    path = os.pathsep.join([str(tests), str(tests.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "compiled_learners", strategy, *kinds],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == kinds
