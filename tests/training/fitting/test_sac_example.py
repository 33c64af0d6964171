"""Soft actor-critic by `FitModel`: three losses, three optimizers, one `fit`."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl

MAX_LINES = 70


def train_sac(epochs, steps_per_epoch=1000, warm_up_steps=1000):
    make = tfrl.environments.make_vec
    envs, eval_envs = (make("Pendulum-v1", n, "sync") for n in (1, 10))
    head = tfrl.distributions.action_head(
        envs.single_action_space, squash=True, init_scale=1.0
    )

    def dense(n_inputs, n_outputs):
        hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
        last = keras.layers.Dense(n_outputs)
        return keras.Sequential([keras.Input([n_inputs]), *hidden, last])

    def critic():  # two of them, of observations beside actions
        inputs = keras.Input([4])
        both = keras.layers.Concatenate()([dense(4, 1)(inputs) for _ in range(2)])
        return keras.Model(inputs, both)

    def drawn(model, observations):
        parameters = model.network["actor"](observations)
        seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
        raw = head.sample(parameters, seed)
        return head.to_env(raw), head.log_prob(parameters, raw)

    def alpha(model):
        return tf.exp(model.network["log_alpha"](tf.ones([1, 1]))[0, 0])

    def actor_loss(model, sample):
        observations = sample.data.observations
        actions, log_probs = drawn(model, observations)
        q_values = model.network["critic"](tf.concat([observations, actions], -1))
        loss = tfrl.losses.sac_actor_loss(log_probs, q_values, alpha(model)).loss
        return loss, {"entropy": -log_probs}

    def critic_loss(model, sample):
        batch = sample.data
        actions, log_probs = drawn(model, batch.next_observations)
        after = tf.concat([batch.next_observations, actions], -1)
        targets = tfrl.losses.clipped_double_q_target(
            batch.rewards,
            batch.discounts,
            model.target_network["critic"](after),
            log_probs,
            alpha(model),
        )
        before = tf.concat([batch.observations, head.to_env(batch.actions)], -1)
        errors = model.network["critic"](before) - targets[:, None]
        return tf.reduce_sum(errors**2, -1)

    def alpha_loss(model, sample):
        _, log_probs = drawn(model, sample.data.observations)
        log_alpha = tf.math.log(alpha(model))
        return tfrl.losses.temperature_loss(log_alpha, log_probs, -1.0).loss

    log_alpha = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    log_alpha.build([None, 1])
    networks = {"actor": dense(3, 2), "critic": critic(), "log_alpha": log_alpha}
    losses = {"actor": actor_loss, "critic": critic_loss, "log_alpha": alpha_loss}
    updater = tfrl.layers.TargetUpdater(
        {"critic": networks["critic"]}, {"critic": critic()}, tau=0.005
    )
    store = tfrl.replay.EpisodeStore(tf.TensorSpec([3]), tf.TensorSpec([1]), 50_000, 1)
    collect = tfrl.training.Collect(
        envs,
        store,
        head.host_sample,
        warm_up_steps=warm_up_steps,
        network=networks["actor"],
        to_env=head.host_to_env,
    )
    evaluate = tfrl.training.Evaluate(
        eval_envs,
        lambda parameters, rng: head.host_to_env(head.host_mode(parameters)),
        network=networks["actor"],
    )
    model = tfrl.training.FitModel(networks, losses, updater)
    model.compile({name: keras.optimizers.Adam(1e-3) for name in losses})
    replay = tfrl.replay.UniformReplay(store, tfrl.replay.Transitions(1, 0.98), seed=0)
    options = {"batch_size": 128, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    return model.fit(replay, epochs=epochs, callbacks=[collect, evaluate], **options)


def test_it_is_short():
    lines = inspect.getsource(train_sac).splitlines()
    # Of a call that has a line for each argument, these.
    assert len([x for x in lines if x.strip(" ()[]{},")]) <= MAX_LINES


def test_a_little():
    keras.utils.set_random_seed(0)
    history = train_sac(epochs=1, steps_per_epoch=30, warm_up_steps=200).history
    assert history["env_steps"] == [230.0]
    names = {"loss", "actor_loss", "actor_entropy", "critic_loss", "log_alpha_loss"}
    assert set(history) >= names
    assert all(np.isfinite(history[name]).all() for name in names)


@pytest.mark.slow
def test_pendulum_is_learned():
    keras.utils.set_random_seed(0)
    returns = train_sac(epochs=8).history["val_return_mean"]
    assert returns[-1] > -300.0 > -900.0 > returns[0]
