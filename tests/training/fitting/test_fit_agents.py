"""Whole agents through `fit`, in few lines each."""

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
    collect = tfrl.training.Collect(envs, store, explore, warm_up_steps=1000)
    evaluate = tfrl.training.Evaluate(
        eval_envs, lambda q, rng: q.argmax(-1), n_episodes=20, stop_at=stop_at
    )
    network = q_network()
    updater = tfrl.layers.TargetUpdater(network, q_network(), tau=0.02)
    model = tfrl.training.FitModel(network, loss_fn, updater)
    model.compile(keras.optimizers.Adam(1e-3))
    options = {"batch_size": 128, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    return model.fit(replay, epochs=epochs, callbacks=[collect, evaluate], **options)


def train_ppo(epochs, n_steps=128, passes=10, stop_at=475.0):
    hidden = [keras.layers.Dense(64, "tanh") for _ in range(2)]
    network = keras.Sequential([keras.Input([4]), *hidden, keras.layers.Dense(3)])

    def read(outputs, actions):  # two logits and a value
        log_probs = tf.nn.log_softmax(outputs[:, :2])
        return tf.gather(log_probs, actions, batch_dims=1), outputs[:, 2]

    def prepare(model, played):
        shape, rows = played.rewards.shape, lambda x: x.reshape(-1, 4)
        outputs = model.predict_on_batch(rows(played.observations))
        log_probs, values = read(outputs, played.actions.ravel())
        log_probs, values = (np.reshape(x, shape) for x in (log_probs, values))
        after = model.predict_on_batch(rows(played.next_observations))[:, 2]
        after = np.where(played.terminated, 0.0, after.reshape(shape))
        errors = played.rewards + 0.99 * after - values
        carry = 0.99 * 0.95 * ~(played.terminated | played.truncated)
        advantages = np.zeros([shape[0] + 1, shape[1]], np.float32)
        for t in reversed(range(shape[0])):
            advantages[t] = errors[t] + carry[t] * advantages[t + 1]
        returns, scale = values + advantages[:-1], advantages[:-1].std()
        scaled = (advantages[:-1] - advantages[:-1].mean()) / scale
        return played.observations, played.actions, log_probs, scaled, returns

    def loss_fn(model, sample):
        observations, actions, old_log_probs, advantages, returns = sample.data
        log_probs, values = read(model(observations), actions)
        policy = tfrl.losses.ppo_clip_loss(log_probs, old_log_probs, advantages, 0.2)
        value = tfrl.losses.value_loss(values, returns)
        return policy.loss + 0.5 * value.loss, policy.extra

    def draw(outputs, rng):
        return (outputs[:, :2] + rng.gumbel(size=[len(outputs), 2])).argmax(-1)

    make = tfrl.environments.make_vec
    envs, eval_envs = (make("CartPole-v1", n, "sync") for n in (8, 20))
    rollouts = tfrl.training.Rollouts(envs, draw, prepare, n_steps, n_steps)
    evaluate = tfrl.training.Evaluate(
        eval_envs, lambda x, rng: x[:, :2].argmax(-1), every_epochs=5, stop_at=stop_at
    )
    model = tfrl.training.FitModel(network, loss_fn)
    model.compile(keras.optimizers.Adam(1e-3, global_clipnorm=0.5))
    options = {"steps_per_epoch": 8 * passes, "callbacks": [evaluate], "verbose": 0}
    return model.fit(rollouts, epochs=epochs, **options)


@pytest.mark.parametrize("train", [train_dqn, train_ppo])
def test_agents_are_short(train):
    lines = inspect.getsource(train).splitlines()
    assert len([line for line in lines if line.strip()]) <= MAX_LINES


def test_a_little_of_ppo():
    keras.utils.set_random_seed(0)
    history = train_ppo(epochs=3, n_steps=32, passes=4).history
    assert history["env_steps"] == [256.0, 512.0, 768.0]
    assert set(history) >= {"loss", "approx_kl", "clipped", "ratios", "return_mean"}
    assert all(np.isfinite(values).all() for values in history.values())
    assert 0.0 < history["approx_kl"][-1] < 0.1


def test_a_little_of_dqn():
    keras.utils.set_random_seed(0)
    history = train_dqn(epochs=1, steps_per_epoch=20).history
    assert history["env_steps"] == [1000.0 + 20 * 8]
    assert np.isfinite(history["loss"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("train", [train_dqn, train_ppo])
def test_cart_pole_is_solved(train, seed):
    keras.utils.set_random_seed(seed)
    assert train(epochs=60).history["val_return_mean"][-1] >= 475.0
