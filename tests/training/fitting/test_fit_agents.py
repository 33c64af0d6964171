"""A whole agent through `fit`, in few lines."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl

MAX_LINES = 40


def train_dqn(epochs, steps_per_epoch=500, stop_at=475.0):
    def q_network():
        hidden = [keras.layers.Dense(128, "relu") for _ in range(2)]
        return keras.Sequential([keras.Input([4]), *hidden, keras.layers.Dense(2)])

    def loss_fn(model, sample):
        batch = sample.data
        q_values = tfrl.losses.q_taken(model(batch.observations), batch.actions)
        targets = tfrl.losses.double_q_target(
            batch.rewards,
            batch.discounts,
            model.target_network(batch.next_observations),
            model(batch.next_observations),
        )
        return tfrl.losses.td_loss(q_values, targets)

    def explore(q_values, rng):
        random = rng.random(len(q_values)) < epsilon()
        return np.where(
            random, rng.integers(2, size=len(q_values)), q_values.argmax(-1)
        )

    epsilon = tfrl.schedules.LinearScheduler("env_steps", [(0, 1.0), (10_000, 0.05)])
    make = tfrl.environments.make_vec
    envs, eval_envs = (make("CartPole-v1", n, "sync") for n in (8, 20))
    store = tfrl.replay.EpisodeStore(
        tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 50_000, num_environments=8
    )
    replay = tfrl.replay.UniformReplay(
        store, tfrl.replay.Transitions(n_step=10, discount=0.995), seed=0
    )
    network, act = q_network(), tfrl.policies.FunctionPolicy
    collect = tfrl.training.Collect(
        envs, store, act(explore, network=network), warm_up_steps=1000
    )
    best = act(lambda q, rng: q.argmax(-1), network=network)
    evaluate = tfrl.training.Evaluate(eval_envs, best, n_episodes=20, stop_at=stop_at)
    updater = tfrl.layers.TargetUpdater(network, q_network(), tau=0.02)
    model = tfrl.training.FitModel(network, loss_fn, updater)
    model.compile(keras.optimizers.Adam(1e-3))
    options = {"batch_size": 128, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    return model.fit(replay, epochs=epochs, callbacks=[collect, evaluate], **options)


def test_an_agent_is_short():
    lines = inspect.getsource(train_dqn).splitlines()
    assert len([line for line in lines if line.strip()]) <= MAX_LINES


@pytest.mark.slow
def test_a_little_of_dqn():
    keras.utils.set_random_seed(0)
    history = train_dqn(epochs=1, steps_per_epoch=20).history
    assert history["env_steps"] == [1000.0 + 20 * 8]
    assert np.isfinite(history["loss"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_cart_pole_is_solved(seed):
    keras.utils.set_random_seed(seed)
    assert train_dqn(epochs=60).history["val_return_mean"][-1] >= 475.0
