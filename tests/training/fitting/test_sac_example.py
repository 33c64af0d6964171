"""Soft actor-critic by `FitModel`: three losses, three optimizers, one `fit`."""

import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl import training

MAX_LINES = 70


def dense(n_inputs, n_outputs):
    hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
    last = keras.layers.Dense(n_outputs)
    return keras.Sequential([keras.Input([n_inputs]), *hidden, last])


def twin_critics():  # of observations beside actions
    inputs = keras.Input([4])
    both = [dense(4, 1)(inputs) for _ in range(2)]
    return keras.Model(inputs, keras.layers.Concatenate()(both))


def sac_losses(head):
    def drawn(model, observations):
        parameters = model.network["actor"](observations)
        raw = head.sample(parameters, tf.random.uniform([2], 0, 2**31 - 1, tf.int32))
        beside = tf.concat([observations, head.to_env(raw)], -1)
        return beside, head.log_prob(parameters, raw)

    def alpha(model):
        return tf.exp(model.network["log_alpha"](tf.ones([1, 1]))[0, 0])

    def actor_loss(model, sample):
        beside, log_probs = drawn(model, sample.data.observations)
        q_values = model.network["critic"](beside)
        loss = tfrl.losses.sac_actor_loss(log_probs, q_values, alpha(model)).loss
        return loss, {"entropy": -log_probs}

    def critic_loss(model, sample):
        batch = sample.data
        beside, log_probs = drawn(model, batch.next_observations)
        after = model.target_network["critic"](beside)
        targets = tfrl.losses.clipped_double_q_target(
            batch.rewards, batch.discounts, after, log_probs, alpha(model)
        )
        taken = tf.concat([batch.observations, head.to_env(batch.actions)], -1)
        errors = model.network["critic"](taken) - targets[:, None]
        return tf.reduce_sum(errors**2, -1)

    def alpha_loss(model, sample):
        _, log_probs = drawn(model, sample.data.observations)
        log_alpha = tf.math.log(alpha(model))
        return tfrl.losses.temperature_loss(log_alpha, log_probs, -1.0).loss

    return {"actor": actor_loss, "critic": critic_loss, "log_alpha": alpha_loss}


def train_sac(epochs, steps_per_epoch=1000, warm_up_steps=1000):
    make = tfrl.environments.make_vec
    envs, eval_envs = (make("Pendulum-v1", n, "sync") for n in (1, 10))
    space = envs.single_action_space
    head = tfrl.distributions.action_head(space, squash=True, init_scale=1.0)
    actor, critic = dense(3, 2), twin_critics()
    log_alpha = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    log_alpha.build([None, 1])
    networks = {"actor": actor, "critic": critic, "log_alpha": log_alpha}
    updater = tfrl.layers.TargetUpdater(
        {"critic": critic}, {"critic": twin_critics()}, tau=0.005
    )
    store = tfrl.replay.EpisodeStore(tf.TensorSpec([3]), tf.TensorSpec([1]), 50_000, 1)
    replay = tfrl.replay.UniformReplay(store, tfrl.replay.Transitions(1, 0.98), seed=0)
    acting = functools.partial(
        tfrl.policies.FunctionPolicy, to_env=head.host_to_env, network=actor
    )
    collect = training.Collect(
        envs, store, acting(head.host_sample), warm_up_steps=warm_up_steps
    )
    evaluate = training.Evaluate(eval_envs, acting(lambda x, rng: head.host_mode(x)))
    model = training.FitModel(networks, sac_losses(head), updater)
    model.compile({name: keras.optimizers.Adam(1e-3) for name in networks})
    options = {"batch_size": 128, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    return model.fit(replay, epochs=epochs, callbacks=[collect, evaluate], **options)


def test_it_is_short():
    parts = (dense, twin_critics, sac_losses, train_sac)
    lines = [x for part in parts for x in inspect.getsource(part).splitlines()]
    assert len([line for line in lines if line.strip()]) <= MAX_LINES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*run_functions_eagerly:UserWarning")
def test_a_little():
    keras.utils.set_random_seed(0)
    tf.config.run_functions_eagerly(True)
    try:
        history = train_sac(epochs=1, steps_per_epoch=3, warm_up_steps=200).history
    finally:
        tf.config.run_functions_eagerly(False)
    assert history["env_steps"] == [203.0]
    names = {"loss", "actor_loss", "actor_entropy", "critic_loss", "log_alpha_loss"}
    assert set(history) >= names
    assert all(np.isfinite(history[name]).all() for name in names)


@pytest.mark.slow
def test_pendulum_is_learned():
    keras.utils.set_random_seed(0)
    returns = train_sac(epochs=8).history["val_return_mean"]
    print(returns)
    assert returns[-1] > -300.0 > -900.0 > returns[0]
