"""Autograph calls functions of tfrl as they are, and translates those of a caller."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

import tfrl


def rewritten():
    """Names of the functions that run in autograph's translation right now."""
    return [
        frame.function
        for frame in inspect.stack()
        if "__autograph_generated_file" in frame.filename
    ]


def test_autograph_translates_the_callers_function_and_none_of_tfrl():
    seen = []

    @tf.function
    def step(x):
        def double(x):
            seen.extend(rewritten())
            return 2.0 * x

        return tfrl.ops.conditional_update(x, x > 0.0, double, x)

    step(tf.constant([1.0, -1.0]))
    broken = "tfrl is no longer among the packages that autograph leaves alone"
    assert {"tf__step", "double"}.issubset(seen), seen
    assert not {"tf__conditional_update", "conditional_update"}.intersection(seen), (
        f"{broken}: {seen}; look at tensorflow.python.autograph.core.config"
    )


def test_a_policy_in_a_function_of_ones_own_leaves_no_warning(caplog):
    space = gym.spaces.Box(-1.0, 1.0, [3])
    policy = tfrl.agents.PPO().create(space, space, seed=0).policy
    observations = np.zeros([2, 3], np.float32)

    @tf.function
    def play(observations):
        return policy.act(observations, temperature=0.0).actions

    logger, before = tf.get_logger(), tf.get_logger().propagate
    logger.propagate = True
    try:
        actions = play(observations)
    finally:
        logger.propagate = before
    assert not caplog.records
    expected = policy.act(observations, temperature=0.0).actions
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)


def conditional_update(choose):
    return tfrl.ops.conditional_update(tf.zeros([2]), [True, True], choose, tf.ones(2))


def conditional_update_of_a_part(choose):
    mask = tf.constant([1.0, -1.0]) > tf.random.stateless_uniform([2], [1, 1])
    return tfrl.ops.conditional_update(tf.zeros([2]), mask, choose, tf.ones([2]))


def loss_fn(choose):
    params = {"w": tf.constant([1.0, 1.0])}
    state = tfrl.agents.TrainState.create(
        lambda params: params, params, tx=tfrl.agents.gradient_transforms.sgd(1.0)
    )
    new = state.apply_loss_fn(
        loss_fn=lambda params: tf.reduce_sum(choose(params["w"])), has_aux=False
    )
    return state.params["w"] - new.params["w"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (conditional_update, [3.0, 3.0]),
        (conditional_update_of_a_part, [3.0, 0.0]),
        (loss_fn, [3.0, 3.0]),
    ],
)
def test_functions_handed_in_may_look_at_tensors(call, expected):
    def choose(x):
        if tf.reduce_sum(x) > 0.0:  # of a tensor that has no value yet
            return 3.0 * x
        return 0.0 * x

    got = tf.function(lambda: call(choose))()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_what_is_called_now_and_then_may_look_at_tensors():
    total = tf.Variable(0)

    def body():
        if total < 2:
            total.assign_add(1)

    clock = tfrl.layers.Periodically(body, period=1)
    tick = tf.function(lambda: clock())
    for _ in range(3):
        tick()
    assert int(total) == 2
