import dataclasses
import functools

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import bc, dqn, policy_gradient, ppo
from tfrl.environments import vector
from tfrl.policies import actor_critic
from tfrl.training import _plan, cadence, experience, saved_run, trainer

SPACES = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
NUMBERS = {"n_envs": 2, "n_steps": 8, "seed": 0}


class OfValues:
    """Makes an agent whose policy the trainer cannot play."""

    def create(self, observation_space, action_space, **numbers):
        return dataclasses.make_dataclass("Values", ["policy"])(lambda x: x)


def test_agents_that_trajectories_teach():
    assert _plan.checked_agent(None) == ppo.PPO()
    for config in (ppo.PPO(minibatch_size=4), policy_gradient.PolicyGradient()):
        assert _plan.checked_agent(config) is config
        agent = _plan.made_agent(config, *SPACES, NUMBERS)
        assert isinstance(agent.policy, actor_critic.ActorCriticPolicy)


@pytest.mark.parametrize("config", [3, ppo.PPO, dqn.DQN, lambda: ppo.PPO()])
def test_what_makes_no_agent(config):
    with pytest.raises(TypeError, match="`Trainer`: `agent` expected hyper-param"):
        _plan.checked_agent(config)


def test_agents_of_batches_and_of_transitions():
    for config, kind in [
        (bc.BC(), experience.FromDataset),
        (dqn.DQN(), experience.Replayed),
        (ppo.PPO(), experience.Trajectories),
    ]:
        wanted = rf"expected {kind.__name__}, which {type(config).__name__} learns from"
        for other in (
            experience.Trajectories(),
            experience.Replayed(),
            experience.FromDataset({"actions": np.zeros(300)}),
        ):
            if isinstance(other, kind):
                assert _plan.checked_experience(config, other) is other
                continue
            with pytest.raises(TypeError, match=f"`Trainer`: `experience` {wanted}"):
                _plan.checked_experience(config, other)
        with pytest.raises(TypeError, match="expected Trajectories, Replayed or From"):
            _plan.checked_experience(config, 3)


def test_a_create_that_takes_something_else():
    class Other:
        def create(self, spaces):
            return spaces

    with pytest.raises(TypeError, match="takes two spaces and seed; got Other"):
        _plan.checked_agent(Other())


def test_a_network_for_an_agent_that_takes_none():
    class Alone(OfValues):
        def create(self, observation_space, action_space, *, seed=0):
            return None

    with pytest.raises(TypeError, match="`network` expected None, as `create` of Alo"):
        _plan.made_agent(Alone(), *SPACES, NUMBERS, network=print)


def test_a_policy_that_cannot_be_played():
    config = _plan.checked_agent(OfValues())
    with pytest.raises(
        TypeError, match=r"with `policy`, which has `act`.*; got OfValues, of which"
    ):
        _plan.made_agent(config, *SPACES, NUMBERS)


@pytest.mark.parametrize(
    "callbacks",
    [
        keras.callbacks.CSVLogger("x"),
        None,
        [keras.callbacks.ModelCheckpoint("x.keras")],
        [keras.callbacks.EarlyStopping(restore_best_weights=True)],
    ],
    ids=["one", "None", "ModelCheckpoint", "EarlyStopping"],
)
def test_callbacks_that_a_trainer_cannot_serve(tmp_path, callbacks):
    with pytest.raises(TypeError, match="`Trainer`: `callbacks` expected"):
        trainer.Trainer(tmp_path, callbacks=callbacks)
    assert not list(tmp_path.iterdir())


def test_schedules_of_keras_are_kept(tmp_path):
    def made(rate, **options):
        return trainer.Trainer(
            tmp_path,
            agent=dqn.DQN(
                learning_rate=keras.optimizers.schedules.ExponentialDecay(rate, 9, 0.5)
            ),
            make_envs=functools.partial(vector.make_vec, "CartPole-v1"),
            experience=experience.Replayed(
                capacity=100, batch_size=4, n_steps=4, learning_starts=4
            ),
            n_envs=2,
            total_env_steps=32,
            intervals=cadence.Intervals(eval_episodes=1),
            **options,
        )

    with made(1e-3) as running:
        running.run(quiet=True)
    opened = saved_run.SavedRun.reopen(tmp_path)
    with opened as run:
        one, two = (x.policy.state.params for x in (run.agent, running.agent))
        for left, right in zip(*map(tf.nest.flatten, (one, two)), strict=True):
            np.testing.assert_array_equal(left, right)
    with pytest.raises(ValueError, match="agent.learning_rate"), made(0.5, resume=True):
        pass
    with made(1e-3, resume=True):
        pass


def q_network(activation="tanh"):
    return keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(8, activation),
            keras.layers.Dense(2),
        ]
    )


def test_networks_are_kept(tmp_path):
    def made(network, **options):
        return trainer.Trainer(
            tmp_path,
            n_epochs=1,
            agent=dqn.DQN(),
            network=network,
            make_envs=functools.partial(vector.make_vec, "CartPole-v1"),
            experience=experience.Replayed(
                capacity=100, batch_size=4, n_steps=4, learning_starts=4
            ),
            n_envs=2,
            intervals=cadence.Intervals(eval_episodes=1),
            **options,
        )

    with made(q_network()) as running:
        running.run(quiet=True)
    with saved_run.SavedRun.reopen(tmp_path) as run:
        params = (x.policy.state.params for x in (run.agent, running.agent))
        for left, right in zip(*map(tf.nest.flatten, params), strict=True):
            np.testing.assert_array_equal(left, right)
    # Keras has counted on; it is the same network.
    with made(q_network(), resume=True):
        pass
    with (
        pytest.raises(ValueError, match=r"activation = 'relu' \(was 'tanh'\)"),
        made(q_network("relu"), resume=True),
    ):
        pass
